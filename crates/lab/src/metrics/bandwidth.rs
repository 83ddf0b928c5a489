//! What a link can carry, from what it says about itself: rate x width x coding.
//!
//! What must stay true: a figure is what the standard gives, never a measured or a hoped-for one;
//! an unknown rate is None, never zero.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

/// Bytes a second as people say them.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            1..1_000_000_000 => write!(f, "{} MB/s", (self.0 + 500_000) / 1_000_000),
            _ if self.giga() < 9.995 => write!(f, "{:.2} GB/s", self.giga()),
            _ => write!(f, "{:.1} GB/s", self.giga()),
        }
    }
}

impl Rate {
    /// So many MB/s; 1 MB is 10^6 bytes.
    pub const fn mega(mega: u64) -> Rate {
        Rate(mega.saturating_mul(1_000_000))
    }

    pub fn nearest(bytes_per_s: f64) -> Rate {
        Rate(format!("{:.0}", bytes_per_s.max(0.0)).parse().unwrap_or(0))
    }

    /// In GB/s; 1 GB is 10^9 bytes.
    pub fn giga(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn times(self, count: u64) -> Rate {
        Rate(self.0.saturating_mul(count))
    }

    /// What share of `whole` this is; 0 if there is no whole.
    pub fn share_of(self, whole: Rate) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.0 as f64 / whole.0 as f64 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PcieLink {
    /// Mega-transfers a second of one lane: 8000 for generation 3.
    pub mega_transfers: u64,
    pub lanes: u64,
}

impl PcieLink {
    /// Out of what sysfs says: `8.0 GT/s PCIe` and `8`. None for `Unknown` and for a width of 0.
    pub fn parse(speed: &str, width: &str) -> Option<PcieLink> {
        let mega_transfers =
            thousandths(speed.split_whitespace().next()?.trim_end_matches("GT/s"))?;
        let lanes: u64 = width.trim().trim_start_matches('x').parse().ok()?;
        let is_real = (1..=32).contains(&lanes) && (2_500..=256_000).contains(&mega_transfers);
        is_real.then_some(PcieLink { mega_transfers, lanes })
    }

    /// The generation of the standard that has this speed.
    pub fn generation(self) -> u64 {
        match self.mega_transfers {
            0..=2_500 => 1,
            2_501..=5_000 => 2,
            5_001..=8_000 => 3,
            8_001..=16_000 => 4,
            16_001..=32_000 => 5,
            _ => 6,
        }
    }

    /// What the lanes carry after line coding: 8b/10b up to generation 2, 128b/130b up to 5.
    /// Generation 6 counts its 242 of 256 bytes a flit.
    pub fn raw(self) -> Rate {
        let (useful, coded) = match self.generation() {
            1 | 2 => (8, 10),
            3..=5 => (128, 130),
            _ => (242, 256),
        };
        Rate(self.mega_transfers * 1_000_000 * self.lanes / 8 * useful / coded)
    }

    /// What is left for data when packets carry `payload_bytes` each: 26 bytes of every packet are
    /// header (4 words), sequence number, CRC and framing.
    pub fn payload(self, payload_bytes: u64) -> Rate {
        let whole = payload_bytes.saturating_add(PACKET_OVERHEAD_BYTES);
        let rate = u128::from(self.raw().0) * u128::from(payload_bytes) / u128::from(whole);
        Rate(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

const PACKET_OVERHEAD_BYTES: u64 = 26;

/// As `lspci` and people write it: `PCIe 3.0 x8`.
impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PCIe {}.0 x{}", self.generation(), self.lanes)
    }
}

/// A SAS or SATA link of so many lanes at `mega_bits` each: 0.15, 0.3, 0.6, 1.2 GB/s a lane with
/// 8b/10b up to SAS-3; SAS-4 (22.5 Gbit/s) codes 128 of 150 bits and carries 2.4.
pub fn sas(mega_bits: u64, lanes: u64) -> Rate {
    let (useful, coded) = if mega_bits > 12_000 { (128, 150) } else { (8, 10) };
    Rate(mega_bits.saturating_mul(1_000_000).saturating_mul(lanes) / 8 / coded * useful)
}

/// Out of `12.0 Gbit` and `12 Gbps`, in Mbit/s.
pub fn sas_mega_bits(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    if !unit.starts_with("Gb") {
        return None;
    }
    thousandths(number).filter(|rate| (1_000..=50_000).contains(rate))
}

/// Memory channels of 8 bytes at `mega_transfers` each.
pub fn ddr(mega_transfers: u64, channels: u64) -> Rate {
    Rate::mega(mega_transfers.saturating_mul(8)).times(channels)
}

/// A decimal number in thousandths: `2.5` is 2500.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 3 || !part.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok().filter(|whole| *whole < 1_000_000)?;
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    Some(whole * 1_000 + part)
}

#[cfg(test)]
mod tests {
    use super::{PcieLink, Rate, sas, sas_mega_bits};

    fn link(mega_transfers: u64, lanes: u64) -> PcieLink {
        PcieLink { mega_transfers, lanes }
    }

    #[test]
    fn links_carry_what_their_generation_codes() {
        for (mega_transfers, lanes, told) in [
            (2_500, 1, "250 MB/s"),
            (5_000, 8, "4.00 GB/s"),
            (8_000, 4, "3.94 GB/s"),
            (16_000, 4, "7.88 GB/s"),
            (32_000, 4, "15.8 GB/s"),
        ] {
            assert_eq!(link(mega_transfers, lanes).raw().to_string(), told);
        }
        assert_eq!(link(8_000, 8).payload(256).to_string(), "7.15 GB/s");
        for (mega_bits, lanes, mega) in
            [(12_000, 1, 1_200), (12_000, 4, 4_800), (6_000, 1, 600), (22_500, 1, 2_400)]
        {
            assert_eq!(sas(mega_bits, lanes), Rate::mega(mega));
        }
    }

    #[test]
    fn links_are_read_as_the_kernel_prints_them() {
        assert_eq!(PcieLink::parse("8.0 GT/s PCIe", "8"), Some(link(8_000, 8)));
        assert_eq!(PcieLink::parse("8GT/s", "x8"), Some(link(8_000, 8)));
        for (speed, width) in [("Unknown", "8"), ("8.0 GT/s", "0"), ("8.0 GT/s", "255"), ("", "")] {
            assert_eq!(PcieLink::parse(speed, width), None, "{speed} {width}");
        }
        assert_eq!(link(16_000, 4).to_string(), "PCIe 4.0 x4");
        let read = ["12.0 Gbit", "22.5 Gbps", "Phy disabled"].map(sas_mega_bits);
        assert_eq!(read, [Some(12_000), Some(22_500), None]);
    }
}
