//! Log pages: what Get Log Page returns.
//!
//! - `health`: errors, SMART and firmware: there is little to tell of a volume
//! - `effects`: which commands are known, and what they do
//! - `ana`: access through this path
//! - `discovery`: where subsystems are
//! - `notice`: which namespaces changed, and what happened to reservations

mod ana;
mod discovery;
mod effects;
mod health;
mod notice;

pub use ana::{AnaState, ana_page};
pub use discovery::{DiscoveryEntry, Portal, Security, discovery_page, parse_discovery_page};
pub use effects::{effects_page, supported_pages};
pub use health::{Health, error_page, firmware_page, health_page};
pub use notice::{ChangedNamespaces, ReservationNotice, ReservationNoticeKind, ReservationNotices};

/// LID (Base 2.0, 5.16.1).
pub mod page {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification.
    pub const RESERVATION: u8 = 0x80;
    /// Those of I/O controllers.
    pub const OF_IO: [u8; 8] =
        [SUPPORTED, ERROR, HEALTH, FIRMWARE, CHANGED_NAMESPACES, EFFECTS, ANA, RESERVATION];
    /// Those of discovery controllers.
    pub const OF_DISCOVERY: [u8; 5] = [SUPPORTED, ERROR, FIRMWARE, EFFECTS, DISCOVERY];
}

/// `bytes` bytes of `page` from `offset` on; zeros behind its end. `None` if `offset` is beyond its
/// end.
pub fn cut(page: &[u8], offset: u64, bytes: usize) -> Option<Vec<u8>> {
    let offset = usize::try_from(offset).ok()?;
    let rest = page.get(offset..)?;
    let mut cut = rest[..rest.len().min(bytes)].to_vec();
    cut.resize(bytes, 0);
    Some(cut)
}
