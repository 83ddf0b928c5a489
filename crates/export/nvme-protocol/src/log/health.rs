//! Errors, SMART and firmware. A volume has no temperature, does not wear, and keeps its errors in
//! the daemon's events.
//!
//! Base 2.0, 5.16.1.2 to 5.16.1.4.

use crate::identify::blank_padded;
use zerocopy::byteorder::little_endian::{U16, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What is known of a controller's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Media has been placed in read-only mode: bit 3 of the critical warning.
    pub is_read_only: bool,
    /// Redundancy is lost: bit 2 of the critical warning, reliability degraded.
    pub is_degraded: bool,
    /// Bytes that hosts read.
    pub read_bytes: u128,
    /// Bytes that hosts wrote.
    pub written_bytes: u128,
    /// Read and Compare commands.
    pub reads: u128,
    /// Write commands.
    pub writes: u128,
    /// Commands that ended with a media error.
    pub media_errors: u128,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct HealthFields {
    warning: u8,
    kelvin: U16,
    spare_percent: u8,
    spare_threshold: u8,
    used_percent: u8,
    reserved: [u8; 26],
    read_units: U128,
    written_units: U128,
    reads: U128,
    writes: U128,
    busy_minutes: U128,
    power_cycles: U128,
    power_hours: U128,
    unsafe_shutdowns: U128,
    media_errors: U128,
    error_entries: U128,
    reserved_192: [u8; 320],
}

const _: () = assert!(size_of::<HealthFields>() == 512);

/// Room temperature: 0 K worries monitors.
const KELVIN: u16 = 293;

/// A data unit is a thousand blocks of 512 bytes, rounded up.
fn units(bytes: u128) -> U128 {
    U128::new(bytes.div_ceil(512_000))
}

/// SMART / Health Information.
pub fn health_page(health: &Health) -> Vec<u8> {
    let warning = u8::from(health.is_degraded) << 2 | u8::from(health.is_read_only) << 3;
    let zeros = HealthFields::read_from_bytes(&[0; 512]).expect("as long as the page");
    let fields = HealthFields {
        warning,
        kelvin: U16::new(KELVIN),
        spare_percent: 100,
        read_units: units(health.read_bytes),
        written_units: units(health.written_bytes),
        reads: U128::new(health.reads),
        writes: U128::new(health.writes),
        media_errors: U128::new(health.media_errors),
        ..zeros
    };
    fields.as_bytes().to_vec()
}

/// Error Information: one entry, unused.
pub fn error_page() -> Vec<u8> {
    vec![0; 64]
}

/// Firmware Slot Information: slot 1 is active and holds `firmware`.
pub fn firmware_page(firmware: &str) -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;
    page[8..16].copy_from_slice(&blank_padded::<8>(firmware));
    page
}
