//! The discovery log page: one entry for each way to a subsystem.
//!
//! What must stay true: the page of a discovery controller lists itself only to hosts that read
//! behind the first entries: it comes last; an address is text without port. Base 2.0, 5.16.1.23;
//! TCP Transport, "Transport Specific Address Subtype".

use crate::command::DYNAMIC_CONTROLLER;
use crate::nqn::{NQN_FIELD_BYTES, Nqn};
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// SECTYPE of NVMe/TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Security {
    /// Clear text.
    None,
    /// TLS 1.3 with keys shared in advance.
    Tls13,
}

/// One address at which subsystems can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portal {
    /// PORTID: the same for entries of one address.
    pub id: u16,
    /// IP address and TCP port.
    pub address: SocketAddr,
    /// What connections must use.
    pub security: Security,
}

/// One entry of the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveryEntry {
    /// Where.
    pub portal: Portal,
    /// SUBNQN: what.
    pub subsystem: Nqn,
    /// Whether it is this discovery subsystem itself (SUBTYPE 3) and not an NVM subsystem (SUBTYPE
    /// 2).
    pub is_discovery: bool,
    /// ASQSZ: most entries of the admin queue.
    pub admin_entries: u16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    generation: U64,
    records: U64,
    format: U16,
    reserved: [u8; 1006],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Entry {
    transport: u8,
    family: u8,
    subtype: u8,
    requirements: u8,
    port: U16,
    controller: U16,
    admin_entries: U16,
    flags: U16,
    reserved: [u8; 20],
    service: [u8; 32],
    reserved_64: [u8; 192],
    subsystem: [u8; NQN_FIELD_BYTES],
    address: [u8; 256],
    security: u8,
    reserved_769: [u8; 255],
}

const ENTRY_BYTES: usize = size_of::<Entry>();
const _: () = {
    assert!(size_of::<Header>() == 1024 && ENTRY_BYTES == 1024);
    assert!(offset_of!(Entry, service) == 32 && offset_of!(Entry, subsystem) == 256);
    assert!(offset_of!(Entry, address) == 512 && offset_of!(Entry, security) == 768);
};

const TRTYPE_TCP: u8 = 3;
/// SUBTYPE.
const NVM_SUBSYSTEM: u8 = 2;
const THIS_DISCOVERY: u8 = 3;
/// TREQ: a secure channel is required, or nothing is said of it (there is none); SQ flow control
/// can be disabled.
const SECURE: u8 = 1;
const NOT_SPECIFIED: u8 = 0;
const WITHOUT_FLOW_CONTROL: u8 = 1 << 2;

/// The page of these entries.
pub fn discovery_page(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let header = Header {
        generation: U64::new(generation),
        records: U64::new(u64::try_from(entries.len()).unwrap_or(0)),
        format: U16::new(0),
        reserved: [0; 1006],
    };
    let mut page = header.as_bytes().to_vec();
    for entry in entries {
        page.extend(encode(entry).as_bytes());
    }
    page
}

fn encode(entry: &DiscoveryEntry) -> Entry {
    let address = entry.portal.address;
    let security = match entry.portal.security {
        Security::None => 0,
        Security::Tls13 => 2,
    };
    let need = if security == 0 { NOT_SPECIFIED } else { SECURE };
    Entry {
        transport: TRTYPE_TCP,
        family: if address.is_ipv4() { 1 } else { 2 },
        subtype: if entry.is_discovery { THIS_DISCOVERY } else { NVM_SUBSYSTEM },
        requirements: need | WITHOUT_FLOW_CONTROL,
        port: U16::new(entry.portal.id),
        controller: U16::new(DYNAMIC_CONTROLLER),
        admin_entries: U16::new(entry.admin_entries),
        flags: U16::new(0),
        reserved: [0; 20],
        service: text(&address.port().to_string()),
        reserved_64: [0; 192],
        subsystem: entry.subsystem.field(),
        address: text(&address.ip().to_string()),
        security,
        reserved_769: [0; 255],
    }
}

fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

/// The entries of a page that a controller sent; those that are not of NVMe/TCP or not well formed
/// are left out.
pub fn parse_discovery_page(page: &[u8]) -> Vec<DiscoveryEntry> {
    let Ok((header, rest)) = Header::ref_from_prefix(page) else { return Vec::new() };
    let records = usize::try_from(header.records.get()).unwrap_or(usize::MAX);
    let entries = rest.chunks_exact(ENTRY_BYTES).take(records);
    entries.filter_map(|entry| decode(Entry::ref_from_bytes(entry).ok()?)).collect()
}

fn decode(entry: &Entry) -> Option<DiscoveryEntry> {
    let port = untext(&entry.service)?.trim().parse().ok()?;
    let address: IpAddr = untext(&entry.address)?.trim().parse().ok()?;
    let security = if entry.security == 2 { Security::Tls13 } else { Security::None };
    let is_ours =
        entry.transport == TRTYPE_TCP && matches!(entry.subtype, NVM_SUBSYSTEM | THIS_DISCOVERY);
    is_ours.then_some(())?;
    Some(DiscoveryEntry {
        portal: Portal { id: entry.port.get(), address: SocketAddr::new(address, port), security },
        subsystem: Nqn::from_field(&entry.subsystem).ok()?,
        is_discovery: entry.subtype == THIS_DISCOVERY,
        admin_entries: entry.admin_entries.get(),
    })
}

fn untext(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok()
}
