//! The field against its definition: polynomials over GF(2), multiplied bit by bit.
//!
//! Every pair of elements is tried. Nothing here uses the tables it tests.

use ashlar_gf::field::{GENERATOR, ORDER, POLYNOMIAL, div, double, inv, mul, pow};

/// Schoolbook multiplication and reduction.
fn multiply_bit_by_bit(a: u8, b: u8) -> u8 {
    let mut product =
        (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit));
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= POLYNOMIAL << (bit - 8);
        }
    }
    u8::try_from(product).unwrap()
}

fn elements() -> impl Iterator<Item = u8> {
    0..=255
}

#[test]
fn mul_is_polynomial_multiplication_for_every_pair() {
    for a in elements() {
        for b in elements() {
            assert_eq!(mul(a, b), multiply_bit_by_bit(a, b), "{a:#04x} * {b:#04x}");
        }
        assert_eq!(double(a), multiply_bit_by_bit(a, 2));
    }
}

#[test]
fn div_undoes_mul_for_every_pair() {
    for a in elements() {
        for b in 1..=255 {
            assert_eq!(div(multiply_bit_by_bit(a, b), b), a);
        }
    }
}

#[test]
fn inv_gives_the_one_element_whose_product_is_one() {
    for a in 1..=255u8 {
        let inverses: Vec<u8> = elements().filter(|&b| multiply_bit_by_bit(a, b) == 1).collect();
        assert_eq!(inverses, [inv(a)]);
    }
}

#[test]
fn mul_distributes_over_xor_and_associates() {
    for a in elements() {
        for b in elements() {
            for c in [1, 2, 0x1d, 0x80, 0xff] {
                assert_eq!(mul(a ^ b, c), mul(a, c) ^ mul(b, c));
                assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)));
            }
        }
    }
}

#[test]
fn pow_is_repeated_mul() {
    for base in elements() {
        let mut expected = 1;
        for exponent in 0..600 {
            assert_eq!(pow(base, exponent), expected, "{base:#04x}^{exponent}");
            expected = multiply_bit_by_bit(expected, base);
        }
    }
}

#[test]
fn powers_of_the_generator_reach_every_non_zero_element_once() {
    let mut seen = [false; 256];
    for n in 0..ORDER {
        let power = usize::from(pow(GENERATOR, n));
        assert!(!seen[power]);
        seen[power] = true;
    }
    assert!(!seen[0]);
}

#[test]
#[should_panic(expected = "division by zero")]
fn div_by_zero_panics() {
    assert_eq!(div(std::hint::black_box(1), std::hint::black_box(0)), 0);
}
