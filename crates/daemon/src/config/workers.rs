//! `workers`: how many there are, or the cores that they are bound to.
//!
//! What must stay true: a number alone is a count. Cores are said as Linux says them: ranges and
//! numbers with commas. Each core is named once. Not here: whether so many make sense (`sizes`),
//! whether this process may use them (`serve.rs`).

use std::str::FromStr;

/// The workers of a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Workers {
    /// So many, bound to all cores in turn unless told otherwise.
    Count(u16),
    /// One on each of these cores, rising.
    Cores(Vec<usize>),
}

impl Workers {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Workers::Count(count) => usize::from(*count),
            Workers::Cores(cores) => cores.len(),
        }
    }
}

/// Cores that a list may name: more than Linux can have.
const CORES_MAX: usize = 8192;

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        match text.parse() {
            Ok(0) => return Err("0 workers are not possible: take 1 or more".to_owned()),
            Ok(count) => return Ok(Workers::Count(count)),
            Err(_) => {}
        }
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().ok();
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last && last < CORES_MAX => {
                    cores.extend(first..=last);
                }
                _ => return Err(format!("'{text}' is neither a number nor a list like 0-3,8-11")),
            }
        }
        cores.sort_unstable();
        match cores.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(format!("'{text}' names core {} twice", twice[0])),
            None => Ok(Workers::Cores(cores)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Workers;

    #[test]
    fn a_number_is_a_count_and_ranges_are_cores() {
        let said = |text: &str| text.parse::<Workers>();
        assert_eq!(said("4"), Ok(Workers::Count(4)));
        assert_eq!(said("4-4"), Ok(Workers::Cores(vec![4])));
        assert_eq!(said("8-10,0-1,5"), Ok(Workers::Cores(vec![0, 1, 5, 8, 9, 10])));
        for wrong in ["", "0", "-1", "3-1", "1,", "a-b", "0-9999999", "1,0-2", "65536"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }
}
