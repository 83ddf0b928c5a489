//! Data that the controller asked for: which R2Ts are open, and which piece of which command's data
//! a PDU brings.
//!
//! What must stay true: an accepted piece lies within what was asked for, begins where the last one
//! of its R2T ended, and belongs to the command that its header names; so pieces never overlap, and
//! a transfer is complete exactly when its last byte was accepted. TCP Transport,
//! "Host-to-Controller Data Transfers" (R2T and H2CData).

use crate::pdu::{Fatal, FatalStatus, H2cData, R2t};

/// Transfers that are open on one connection.
#[derive(Clone, Debug)]
pub struct Transfers {
    open: Vec<Option<Open>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Open {
    command: u16,
    next: u32,
    end: u32,
}

/// A piece of a command's data that may be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The transfer: the number that [`Transfers::open`] gave.
    pub transfer: u16,
    /// Where it belongs in the command's data, in bytes.
    pub offset: u32,
    /// Length in bytes; never 0.
    pub bytes: u32,
    /// With this piece the transfer is complete, and closed.
    pub is_complete: bool,
}

impl Transfers {
    /// Room for `most` transfers at the same time.
    pub fn new(most: u16) -> Transfers {
        Transfers { open: vec![None; usize::from(most)] }
    }

    /// Ask for all `bytes` of a command's data. `None` if there is no room, or nothing to ask for.
    pub fn open(&mut self, command: u16, bytes: u32) -> Option<R2t> {
        let at = self.open.iter().position(Option::is_none)?;
        if bytes == 0 {
            return None;
        }
        self.open[at] = Some(Open { command, next: 0, end: bytes });
        let transfer = u16::try_from(at).ok()?;
        Some(R2t { command, transfer, offset: 0, bytes })
    }

    /// Judge a data PDU.
    ///
    /// # Errors
    /// A [`Fatal`]: the connection must end.
    pub fn accept(&mut self, data: &H2cData) -> Result<Piece, Fatal> {
        let slot = self.open.get_mut(usize::from(data.transfer)).ok_or(Fatal::field(10))?;
        let open = slot.as_mut().ok_or(Fatal::field(10))?;
        if open.command != data.command {
            return Err(Fatal::field(8));
        }
        if data.offset != open.next {
            return Err(Fatal::of(FatalStatus::DataOutOfRange));
        }
        let end = data.offset.checked_add(data.bytes).filter(|end| *end <= open.end);
        let end = end.ok_or(Fatal::of(FatalStatus::DataOutOfRange))?;
        let is_complete = end == open.end;
        if data.bytes == 0 {
            return Err(Fatal::field(16));
        }
        if data.is_last != is_complete {
            return Err(Fatal::field(1));
        }
        open.next = end;
        if is_complete {
            *slot = None;
        }
        Ok(Piece { transfer: data.transfer, offset: data.offset, bytes: data.bytes, is_complete })
    }

    /// Transfers that are open.
    pub fn count(&self) -> usize {
        self.open.iter().flatten().count()
    }
}
