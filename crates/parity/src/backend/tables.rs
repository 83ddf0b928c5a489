//! Every coefficient in the forms that multiplying instructions want, built by the compiler.
//!
//! What must stay true: each table is derived from `ashlar_gf::mul` and nothing else.

#[cfg(target_arch = "x86_64")]
use ashlar_gf::div;
use ashlar_gf::mul;

/// Products of a coefficient with every low nibble, and with every high nibble.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

/// `NIBBLES[c]` multiplies by c: c * x = low\[x & 15\] ^ high\[x >> 4\].
pub(crate) static NIBBLES: [Nibbles; 256] = nibbles();

/// `AFFINE[c]` multiplies by c: the 8 x 8 bit matrix for GF2P8AFFINEQB.
#[cfg(target_arch = "x86_64")]
pub(crate) static AFFINE: [u64; 256] = affine();

/// The k with k = 2 k + 0x1D: added to a sum that is doubled by the byte shuffle, see
/// `horner_step`.
#[cfg(target_arch = "x86_64")]
pub(crate) const FIXED_POINT: u8 = div(0x1D, 3);

const fn nibbles() -> [Nibbles; 256] {
    let mut table = [Nibbles { low: [0; 16], high: [0; 16] }; 256];
    let mut coefficient: u8 = 0;
    loop {
        let mut nibble: u8 = 0;
        while nibble < 16 {
            table[coefficient as usize].low[nibble as usize] = mul(coefficient, nibble);
            table[coefficient as usize].high[nibble as usize] = mul(coefficient, nibble << 4);
            nibble += 1;
        }
        if coefficient == u8::MAX {
            return table;
        }
        coefficient += 1;
    }
}

#[cfg(target_arch = "x86_64")]
const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut coefficient: u8 = 0;
    loop {
        table[coefficient as usize] = matrix(coefficient);
        if coefficient == u8::MAX {
            return table;
        }
        coefficient += 1;
    }
}

/// Bit b of the product is the parity of (x AND byte 7 - b of the matrix). So bit i of that byte
/// says whether bit i of x contributes to bit b: whether bit b of coefficient * 2^i is set.
#[cfg(target_arch = "x86_64")]
const fn matrix(coefficient: u8) -> u64 {
    let mut bytes = [0u8; 8];
    let mut bit = 0;
    while bit < 8 {
        let mut input = 0;
        while input < 8 {
            let product = mul(coefficient, 1 << input);
            bytes[7 - bit] |= (product >> bit & 1) << input;
            input += 1;
        }
        bit += 1;
    }
    u64::from_le_bytes(bytes)
}
