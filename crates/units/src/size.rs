//! Sizes in bytes: the block, text with units in and out, and the one place where sizes change
//! width.

use std::fmt;
use std::str::FromStr;

/// The engine's block: unit of locking, checksums and parity rows, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// [`BLOCK_BYTES`] as an in-memory size.
pub const BLOCK_BYTES_USIZE: usize = 4096;
/// A sector, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// An in-memory size as a 64-bit number.
#[inline]
pub fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("usize is at most 64 bits")
}

/// A 64-bit size as an in-memory size.
///
/// # Panics
/// On a 32-bit machine with a size above 4 GiB, which no in-memory buffer of ours has.
#[inline]
pub fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("in-memory sizes fit the address space")
}

/// A size in bytes that reads and prints with units: `64K`, `64KiB`, `1.5TiB`, `500GB`.
///
/// Bare `K`, `M`, `G`, `T`, `P` and the `iB` forms are powers of 1024; the `B` forms are powers of
/// 1000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteSize(pub u64);

/// A size that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a size; write for example 64K, 1.5TiB or 500GB")]
pub struct ParseSizeError(String);

const BINARY: [(&str, u64); 5] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, unit) in BINARY {
            if self.0 >= unit {
                if self.0.is_multiple_of(unit) {
                    return f.pad(&format!("{} {name}", self.0 / unit));
                }
                // Two decimals, cut and not rounded: a printed size never exceeds the real one.
                let hundredths = u128::from(self.0) * 100 / u128::from(unit);
                return f.pad(&format!("{}.{:02} {name}", hundredths / 100, hundredths % 100));
            }
        }
        f.pad(&format!("{} B", self.0))
    }
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        parse(text.trim()).map(ByteSize).ok_or_else(|| ParseSizeError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit_bytes(unit.trim())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    let mut bytes = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        if fraction.len() > 9 {
            return None;
        }
        let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let part: u64 = fraction.parse().ok()?;
        bytes =
            bytes.checked_add(u64::try_from(u128::from(part) * u128::from(unit) / scale).ok()?)?;
    }
    Some(bytes)
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let power = match unit.chars().next() {
        None | Some('b') => 0,
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        Some(_) => return None,
    };
    match unit.get(1..).unwrap_or("") {
        "" | "ib" => Some(1024u64.pow(power)),
        "b" if power > 0 => Some(1000u64.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_read_what_storage_people_type() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("64 KiB", 65_536),
            ("64kB", 64_000),
            ("1.5T", 1_649_267_441_664),
            ("500GB", 500_000_000_000),
            ("7B", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "K", "12Q", "1.2.3K", "-5", "99999999999T", "1Kx"] {
            let refused = text.parse::<ByteSize>().expect_err(text);
            assert!(refused.to_string().contains("64K"), "{text}");
        }
    }

    #[test]
    fn printed_sizes_read_back_never_larger() {
        for bytes in [0, 1, 1023, 1024, 1536, 65_536, 1 << 40, (1 << 40) + 12_345, u64::MAX] {
            let back: ByteSize = ByteSize(bytes).to_string().parse().expect("own output");
            assert!(back.0 <= bytes, "{bytes} came back as {}", back.0);
        }
    }
}
