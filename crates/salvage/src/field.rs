//! GF(2^8) with polynomial 0x11D, the parity matrix, and elimination: one byte at a time, no tables
//! that anybody else made.
//!
//! What must stay true: only shifts and XOR are taken for granted; everything else is built from
//! [`times`].

/// The product of two bytes: shift and add, reduced by x^8 + x^4 + x^3 + x^2 + 1.
pub fn times(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1D;
        }
        b >>= 1;
    }
    product
}

/// `base` to the power of `exponent`.
pub fn power(base: u8, exponent: u32) -> u8 {
    (0..exponent).fold(1, |product, _| times(product, base))
}

/// 1 / `a`: the group of the 255 others has order 255, so that is `a` to the power of 254.
///
/// # Panics
/// If `a` is zero.
pub fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    power(a, 254)
}

/// c(j, i): what data strip `i` is multiplied with in parity strip `j`.
///
/// # Panics
/// If one of them is 64 or more; a stripe has at most 64 strips.
pub fn coefficient(j: usize, i: usize) -> u8 {
    assert!(i < 64 && j < 64, "a stripe has at most 64 strips");
    let exponent = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    match j {
        0 => 1,
        1 => power(2, exponent(i)),
        _ => {
            // 1 / (2^-i + 2^(j-1)), divided by its value at i = 0, which is 1 / (1 + 2^(j-1)).
            let shift = power(2, exponent(j - 1));
            times(inverse(inverse(power(2, exponent(i))) ^ shift), 1 ^ shift)
        }
    }
}

/// Add `factor` times `source` to `target`, byte by byte.
pub fn add_scaled(target: &mut [u8], factor: u8, source: &[u8]) {
    if factor == 0 {
        return;
    }
    let mut products = [0; 256];
    for (product, byte) in products.iter_mut().zip(0_u8..=255) {
        *product = times(factor, byte);
    }
    for (into, from) in target.iter_mut().zip(source) {
        *into ^= products[usize::from(*from)];
    }
}

/// One equation over unknown blocks: the sum of `factors[u]` times unknown `u` is `sum`.
#[derive(Clone, Debug)]
pub struct Equation {
    /// One factor for each unknown.
    pub factors: Vec<u8>,
    /// What they add up to; as long as a block.
    pub sum: Vec<u8>,
}

/// The unknown blocks, by Gauss and Jordan; `None` if the equations do not determine all of them.
pub fn solve(mut equations: Vec<Equation>, unknowns: usize) -> Option<Vec<Vec<u8>>> {
    for column in 0..unknowns {
        let pivot = (column..equations.len()).find(|row| equations[*row].factors[column] != 0)?;
        equations.swap(column, pivot);
        let scale = inverse(equations[column].factors[column]);
        let equation = &mut equations[column];
        equation.factors.iter_mut().for_each(|factor| *factor = times(*factor, scale));
        let mut scaled = vec![0; equation.sum.len()];
        add_scaled(&mut scaled, scale, &equation.sum);
        equation.sum = scaled;
        let solved = equation.clone();
        for (row, other) in equations.iter_mut().enumerate() {
            let factor = other.factors[column];
            if row != column && factor != 0 {
                add_scaled(&mut other.factors, factor, &solved.factors);
                add_scaled(&mut other.sum, factor, &solved.sum);
            }
        }
    }
    equations.truncate(unknowns);
    Some(equations.into_iter().map(|equation| equation.sum).collect())
}

#[cfg(test)]
mod tests {
    use super::{Equation, add_scaled, coefficient, inverse, power, solve, times};

    #[test]
    fn products_are_those_of_a_hand_calculation() {
        // x^7 times x is x^8, which is x^4 + x^3 + x^2 + 1.
        assert_eq!(times(0x80, 2), 0x1D);
        // (x + 1)(x + 1) is x^2 + 1: the middle terms cancel.
        assert_eq!(times(3, 3), 5);
        // (x^7 + 1) times (x + 1): x^8 + x^7 + x + 1, with x^8 reduced: 1D ^ 80 ^ 03.
        assert_eq!(times(0x81, 3), 0x9E);
        assert_eq!(times(0, 0xFF), 0);
    }

    #[test]
    fn every_byte_but_zero_has_an_inverse_and_2_generates_them_all() {
        for a in 1..=255 {
            assert_eq!(times(a, inverse(a)), 1, "{a}");
        }
        assert!((1..255).all(|exponent| power(2, exponent) != 1));
        assert_eq!(power(2, 255), 1);
    }

    #[test]
    fn the_matrix_is_the_one_that_the_format_prints() {
        let page = include_str!("../../../docs/on-disk-format.md");
        let (_, from_heading) = page.split_once("### Parity matrix").expect("the heading");
        let halves: Vec<&str> = from_heading
            .lines()
            .filter(|line| line.len() == 64 && line.bytes().all(|b| b.is_ascii_hexdigit()))
            .collect();
        assert_eq!(halves.len(), 2 * 32, "halves of rows in docs/on-disk-format.md");
        for (j, row) in halves.chunks(2).enumerate() {
            let ours: String = (0..64).map(|i| format!("{:02x}", coefficient(j, i))).collect();
            assert_eq!(ours, row.concat(), "row {j}");
        }
    }

    #[test]
    fn two_lost_strips_come_back_from_p_and_q_worked_out_by_hand() {
        // D0 = 01, D1 = 02, D2 = 04: P = 07; Q = 01 + 2*02 + 4*04 = 01 ^ 04 ^ 10 = 15.
        let equations = vec![
            Equation { factors: vec![1, 1], sum: vec![0x07 ^ 0x04] },
            Equation { factors: vec![1, 2], sum: vec![0x15 ^ 0x10] },
        ];
        assert_eq!(solve(equations, 2), Some(vec![vec![1], vec![2]]));
    }

    #[test]
    fn equations_that_say_the_same_twice_are_not_enough() {
        let one = Equation { factors: vec![1, 2], sum: vec![5] };
        let double = Equation { factors: vec![2, 4], sum: vec![10] };
        assert_eq!(solve(vec![one, double], 2), None);
    }

    #[test]
    fn scaling_adds_to_what_is_there() {
        let mut target = [0xFF, 0x00];
        add_scaled(&mut target, 2, &[0x80, 0x01]);
        assert_eq!(target, [0xFF ^ 0x1D, 0x02]);
    }
}
