//! Lists in the order in which things first came.

pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// The one of `list` that `is_it`; made, as the last one, if there is none.
pub fn one_of<T>(
    list: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> &mut T {
    let at = list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::{distinct, one_of};

    #[test]
    fn what_came_first_stands_first() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        let mut sums = vec![("a", 1)];
        for name in ["b", "a", "b"] {
            one_of(&mut sums, |it| it.0 == name, || (name, 0)).1 += 1;
        }
        assert_eq!(sums, [("a", 2), ("b", 2)]);
    }
}
