//! Enclosures of a declustered array: which slots fail together.
//!
//! What must stay true: slots of an enclosure follow each other. An enclosure is one failure domain
//! of the layout or several, at most as many as a stripe has parity strips; so an array survives
//! the loss of an enclosure. Names of enclosures are not recorded: the drives in the slots tell
//! them.
//!
//! Not here: where stripes lie (the layout crate), and what the kernel calls an enclosure.

use crate::format::RawHeader;
use crate::geometry::GeometryRecord;

/// What the drives of an enclosure have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EnclosureKind {
    /// The enclosure that the kernel's enclosure driver names.
    Enclosure,
    /// The port that leads to them, by `/dev/disk/by-path`.
    Path,
    /// The host bus adapter.
    Adapter,
    /// The operator said which they are.
    Listed,
}

impl EnclosureKind {
    /// Every kind, in the order of the codes.
    pub const ALL: [EnclosureKind; 4] = [
        EnclosureKind::Enclosure,
        EnclosureKind::Path,
        EnclosureKind::Adapter,
        EnclosureKind::Listed,
    ];

    /// The code on disk.
    pub fn code(self) -> u8 {
        match self {
            EnclosureKind::Enclosure => 1,
            EnclosureKind::Path => 2,
            EnclosureKind::Adapter => 3,
            EnclosureKind::Listed => 4,
        }
    }

    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            EnclosureKind::Enclosure => "enclosure",
            EnclosureKind::Path => "path",
            EnclosureKind::Adapter => "hba",
            EnclosureKind::Listed => "list",
        }
    }
}

/// The enclosures of an array, as the superblock records them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EnclosureRecord {
    /// What they are.
    pub kind: EnclosureKind,
    /// Failure domains of each: the most strips that a stripe has in one.
    pub domains: u8,
}

impl EnclosureRecord {
    /// Slots of each enclosure.
    pub fn slots(&self, geometry: &GeometryRecord) -> usize {
        let domain = geometry.spread.map_or(1, |spread| spread.domain_members);
        usize::from(domain) * usize::from(self.domains)
    }

    /// Whether an array of this geometry can have such enclosures.
    ///
    /// # Errors
    /// The name of the field that is impossible.
    pub fn check(&self, geometry: &GeometryRecord) -> Result<(), &'static str> {
        let spread = geometry.spread.ok_or("enclosure_domains")?;
        let columns = spread.members / spread.domain_members.max(1);
        let is_possible = self.domains > 0
            && u16::from(self.domains) <= geometry.parity_strips
            && columns.is_multiple_of(self.domains.into());
        if is_possible { Ok(()) } else { Err("enclosure_domains") }
    }

    /// Those of a header; both fields are zero in an array without.
    pub(crate) fn from_raw(raw: &RawHeader) -> Result<Option<Self>, &'static str> {
        match (raw.enclosure_kind, raw.enclosure_domains) {
            (0, 0) => Ok(None),
            (0, _) => Err("enclosure_domains"),
            (kind, domains) => {
                let kind = EnclosureKind::from_code(kind).ok_or("enclosure_kind")?;
                Ok(Some(EnclosureRecord { kind, domains }))
            }
        }
    }
}
