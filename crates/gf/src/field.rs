//! Arithmetic in GF(2^8) modulo 0x11D, through tables of powers and logarithms.
//!
//! What must stay true: every function agrees with bit-by-bit polynomial multiplication for all
//! 65,536 pairs (tested). Addition and subtraction are both XOR and have no function here.
//! Everything is `const` and constant tables are built by the compiler from [`double`] alone.

/// The field's polynomial, x^8 + x^4 + x^3 + x^2 + 1, the one Linux and SnapRAID use.
pub const POLYNOMIAL: u16 = 0x11D;

/// The element whose powers are all non-zero elements.
pub const GENERATOR: u8 = 2;

/// Number of non-zero elements; powers of the generator repeat after this many.
pub const ORDER: usize = 255;

/// The polynomial without its x^8 term: what is added back when doubling overflows a byte.
const REDUCTION: u8 = 0x1D;

/// `EXP[n]` is 2^n. Twice as long as one period, so that a sum of two logarithms needs no modulo.
const EXP: [u8; 2 * ORDER] = powers_of_two();

/// `LOG[x]` is the n with 2^n = x; `LOG[0]` is meaningless and never read.
const LOG: [u8; 256] = logarithms();

/// Twice `x`: shift left, and add the polynomial when the top bit falls out.
#[must_use]
pub const fn double(x: u8) -> u8 {
    (x << 1) ^ (if x & 0x80 == 0 { 0 } else { REDUCTION })
}

/// The product `a * b`.
#[must_use]
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// The quotient `a / b`.
///
/// # Panics
/// When `b` is zero.
#[must_use]
pub const fn div(a: u8, b: u8) -> u8 {
    assert!(b != 0, "division by zero in GF(2^8)");
    if a == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + ORDER - LOG[b as usize] as usize]
}

/// The element whose product with `a` is 1.
///
/// # Panics
/// When `a` is zero.
#[must_use]
pub const fn inv(a: u8) -> u8 {
    div(1, a)
}

/// `base` to the power of `exponent`; anything to the power of 0 is 1.
#[must_use]
pub const fn pow(base: u8, exponent: usize) -> u8 {
    if exponent == 0 {
        return 1;
    }
    if base == 0 {
        return 0;
    }
    EXP[(LOG[base as usize] as usize * (exponent % ORDER)) % ORDER]
}

const fn powers_of_two() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let mut value = 1;
    let mut n = 0;
    while n < table.len() {
        table[n] = value;
        value = double(value);
        n += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut n: u8 = 0;
    while (n as usize) < ORDER {
        table[EXP[n as usize] as usize] = n;
        n += 1;
    }
    table
}
