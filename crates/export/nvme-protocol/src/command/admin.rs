//! Commands of the admin queue.
//!
//! What must stay true: decoding checks what a command says by itself: reserved values, and lengths
//! that follow from its dwords. Whether a namespace or a log page exists, the controller decides.
//! Base 2.0, 5 "Admin Command Set".

use super::feature::Feature;
use crate::{Status, Submission, Transfer};

/// Opcodes of the admin queue that are known here.
pub mod opcode {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// All of them.
    pub const ALL: [u8; 7] = [
        GET_LOG_PAGE,
        IDENTIFY,
        ABORT,
        SET_FEATURES,
        GET_FEATURES,
        ASYNC_EVENT_REQUEST,
        KEEP_ALIVE,
    ];
}

/// Identify answers with this many bytes, always.
pub const IDENTIFY_BYTES: u64 = 4096;

/// Identify.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identify {
    /// CNS: which structure.
    pub structure: u8,
    /// CNTID.
    pub controller: u16,
    /// NSID.
    pub namespace: u32,
    /// CSI: the command set.
    pub command_set: u8,
}

/// Get Log Page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetLogPage {
    /// LID.
    pub page: u8,
    /// LSP: depends on the page.
    pub specific: u8,
    /// RAE: events of this page stay pending.
    pub keeps_events: bool,
    /// NSID.
    pub namespace: u32,
    /// From which byte of the page on.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Get Features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetFeature {
    /// FID.
    pub feature: Feature,
    /// SEL: 0 current, 1 default, 2 saved, 3 capabilities.
    pub select: u8,
    /// NSID.
    pub namespace: u32,
    /// Dword 11.
    pub dword_11: u32,
}

/// Set Features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetFeature {
    /// FID.
    pub feature: Feature,
    /// NSID.
    pub namespace: u32,
    /// Dword 11.
    pub value: u32,
}

/// A command of the admin queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminCommand {
    /// Describe controller or namespace.
    Identify(Identify),
    /// A log page.
    GetLogPage(GetLogPage),
    /// Read a feature.
    GetFeature(GetFeature),
    /// Change a feature.
    SetFeature(SetFeature),
    /// To be answered when something happens.
    AsyncEventRequest,
    /// Give a command up.
    Abort {
        /// SQID.
        queue: u16,
        /// CID.
        command: u16,
    },
    /// The host lives.
    KeepAlive,
}

impl AdminCommand {
    /// Decode a command of the admin queue that is no fabrics command.
    ///
    /// # Errors
    /// The [`Status`] to answer with.
    pub fn decode(entry: &Submission) -> Result<AdminCommand, Status> {
        let command = match entry.opcode {
            opcode::IDENTIFY => AdminCommand::Identify(identify(entry)),
            opcode::GET_LOG_PAGE => AdminCommand::GetLogPage(get_log_page(entry)?),
            opcode::GET_FEATURES => AdminCommand::GetFeature(get_feature(entry)?),
            opcode::SET_FEATURES => AdminCommand::SetFeature(set_feature(entry)?),
            opcode::ASYNC_EVENT_REQUEST => AdminCommand::AsyncEventRequest,
            opcode::ABORT => {
                let [q0, q1, c0, c1] = entry.dword(10).to_le_bytes();
                let (queue, command) = (u16::from_le_bytes([q0, q1]), u16::from_le_bytes([c0, c1]));
                AdminCommand::Abort { queue, command }
            }
            opcode::KEEP_ALIVE => AdminCommand::KeepAlive,
            _ => return Err(Status::INVALID_OPCODE),
        };
        if entry.is_fused() { Err(Status::INVALID_FIELD) } else { Ok(command) }
    }

    /// Which data moves.
    pub fn transfer(&self) -> Transfer {
        match self {
            AdminCommand::Identify(_) => Transfer::ToHost(IDENTIFY_BYTES),
            AdminCommand::GetLogPage(page) => Transfer::ToHost(page.bytes),
            AdminCommand::GetFeature(get) => get.transfer(),
            AdminCommand::SetFeature(_)
            | AdminCommand::AsyncEventRequest
            | AdminCommand::Abort { .. }
            | AdminCommand::KeepAlive => Transfer::None,
        }
    }
}

impl GetFeature {
    /// SEL: what the feature can do, instead of a value.
    pub const CAPABILITIES: u8 = 3;

    /// Length of the host identifier asked for, in bytes: EXHID is bit 0.
    pub fn host_id_bytes(&self) -> u64 {
        if self.dword_11 & 1 == 1 { 16 } else { 8 }
    }

    fn transfer(&self) -> Transfer {
        match self.feature {
            _ if self.select == GetFeature::CAPABILITIES => Transfer::None,
            Feature::HostIdentifier => Transfer::ToHost(self.host_id_bytes()),
            Feature::HostBehaviorSupport => Transfer::ToHost(512),
            _ => Transfer::None,
        }
    }
}

fn identify(entry: &Submission) -> Identify {
    let [structure, _, c0, c1] = entry.dword(10).to_le_bytes();
    let [_, _, _, command_set] = entry.dword(11).to_le_bytes();
    Identify {
        structure,
        controller: u16::from_le_bytes([c0, c1]),
        namespace: entry.namespace.get(),
        command_set,
    }
}

fn get_log_page(entry: &Submission) -> Result<GetLogPage, Status> {
    let [page, specific, l0, l1] = entry.dword(10).to_le_bytes();
    let [u0, u1, _, _] = entry.dword(11).to_le_bytes();
    let dwords = u64::from(u32::from_le_bytes([l0, l1, u0, u1])) + 1;
    let offset = entry.quad(12);
    // OT, offsets as indices, is for pages of lists that are not known here.
    let is_index = entry.dword(14) & 1 << 23 != 0;
    if is_index || !offset.is_multiple_of(4) {
        return Err(Status::INVALID_FIELD);
    }
    Ok(GetLogPage {
        page,
        specific: specific & 0x7f,
        keeps_events: specific & 0x80 != 0,
        namespace: entry.namespace.get(),
        offset,
        bytes: dwords * 4,
    })
}

fn get_feature(entry: &Submission) -> Result<GetFeature, Status> {
    let [feature, select, _, _] = entry.dword(10).to_le_bytes();
    let feature = Feature::from_code(feature).ok_or(Status::INVALID_FIELD)?;
    let select = select & 7;
    if select > GetFeature::CAPABILITIES {
        return Err(Status::INVALID_FIELD);
    }
    let (namespace, dword_11) = (entry.namespace.get(), entry.dword(11));
    Ok(GetFeature { feature, select, namespace, dword_11 })
}

fn set_feature(entry: &Submission) -> Result<SetFeature, Status> {
    let dword = entry.dword(10);
    let [feature, ..] = dword.to_le_bytes();
    let feature = Feature::from_code(feature).ok_or(Status::INVALID_FIELD)?;
    match feature {
        _ if dword & 1 << 31 != 0 => Err(Status::FEATURE_NOT_SAVEABLE),
        // Connect told it, and so it stays.
        Feature::HostIdentifier => Err(Status::SEQUENCE_ERROR),
        Feature::HostBehaviorSupport => Err(Status::FEATURE_NOT_CHANGEABLE),
        _ => Ok(SetFeature { feature, namespace: entry.namespace.get(), value: entry.dword(11) }),
    }
}
