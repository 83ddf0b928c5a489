//! Division by a number that is known in advance: one multiplication instead of a division, which
//! costs four times as much. Several are on the way of every request.
//!
//! Source: Granlund and Montgomery, *Division by Invariant Integers using Multiplication* (1994).

/// A number to divide by: not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    value: u64,
    /// 2^64 - 1 over it, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    /// If it is 0.
    pub(crate) fn new(value: u64) -> Divisor {
        Divisor { value, reciprocal: u64::MAX / value }
    }

    /// Quotient and remainder of a number below 2^63.
    #[inline]
    pub(crate) fn divide(self, number: u64) -> (u64, u64) {
        debug_assert!(number >> 63 == 0);
        // The reciprocal is too small by less than 2, so the quotient is too small by 1 at most.
        let quotient = high(number, self.reciprocal);
        let rest = number - quotient * self.value;
        match rest.checked_sub(self.value) {
            Some(rest) => (quotient + 1, rest),
            None => (quotient, rest),
        }
    }

    /// The same of small numbers.
    #[inline]
    pub(crate) fn divide_small(self, number: u32) -> (u32, u32) {
        let (quotient, rest) = self.divide(number.into());
        let fits = |value: u64| u32::try_from(value).expect("not above the number");
        (fits(quotient), fits(rest))
    }
}

/// The upper half of a product.
#[inline]
fn high(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    u64::try_from(product >> 64).expect("64 bits are left")
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    const LARGEST: u64 = (1 << 63) - 1;

    #[test]
    fn small_divisors_and_the_numbers_around_their_multiples_divide_as_they_should() {
        for value in (1..300).chain([1 << 32, LARGEST]) {
            let divisor = Divisor::new(value);
            let last = LARGEST / value * value;
            let near = |at: u64| at.saturating_sub(2)..=at.saturating_add(2).min(LARGEST);
            let numbers = [0, value, last].into_iter().flat_map(near).chain([LARGEST]);
            for number in numbers {
                assert_eq!(divisor.divide(number), (number / value, number % value), "{number}");
            }
        }
    }

    #[test]
    fn any_number_divides_as_it_should() {
        let spread = |nth: u64| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for nth in 1..20_000 {
            let (number, value) = (spread(nth) >> 1, spread(spread(nth)) >> (nth % 63));
            let (number, value) = (number >> (nth % 7), value.max(1));
            let wanted = (number / value, number % value);
            assert_eq!(Divisor::new(value).divide(number), wanted, "{number} by {value}");
        }
    }
}
