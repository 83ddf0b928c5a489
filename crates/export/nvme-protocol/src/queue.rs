//! One queue: which commands are under way, and where its head is.
//!
//! What must stay true: a command identifier is under way at most once; never more commands than
//! the queue has room for; the head moves on by one for each completion, so that a host with flow
//! control sends no more than was answered. Base 2.0, 3.3.2 "Memory-Based and Message-Based
//! Controllers' queues" and 3.3.3.1 "Command Identifier".

use crate::Status;

/// SQHD of a queue without flow control.
const NO_FLOW_CONTROL: u16 = 0xffff;

/// The state of a queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// QID.
    id: u16,
    /// Entries of the ring; one of them is always free.
    entries: u32,
    head: u32,
    has_flow_control: bool,
    under_way: Vec<u16>,
}

/// Why a command is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// Its identifier is in use: answer with this.
    InUse(Status),
    /// More than the queue has room for: end the connection.
    QueueFull,
}

impl Queue {
    /// A queue as Connect asks for it: `entries_less_one` is SQSIZE.
    pub fn new(id: u16, entries_less_one: u16, has_flow_control: bool) -> Queue {
        let entries = u32::from(entries_less_one) + 1;
        Queue { id, entries, head: 0, has_flow_control, under_way: Vec::new() }
    }

    /// QID.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether this command is under way.
    pub fn has(&self, command: u16) -> bool {
        self.under_way.contains(&command)
    }

    /// A command came.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn take(&mut self, command: u16) -> Result<(), NotTaken> {
        if self.has(command) {
            return Err(NotTaken::InUse(Status::COMMAND_ID_CONFLICT));
        }
        let room = usize::try_from(self.entries - 1).unwrap_or(usize::MAX);
        if self.under_way.len() >= room {
            return Err(NotTaken::QueueFull);
        }
        self.under_way.push(command);
        Ok(())
    }

    /// A command is done: what its completion carries as SQHD.
    pub fn complete(&mut self, command: u16) -> u16 {
        if let Some(at) = self.under_way.iter().position(|id| *id == command) {
            self.under_way.swap_remove(at);
        }
        self.advance()
    }

    /// SQHD of a completion for a command that was not taken.
    pub fn advance(&mut self) -> u16 {
        self.head = (self.head + 1) % self.entries;
        if self.has_flow_control { u16::try_from(self.head).unwrap_or(0) } else { NO_FLOW_CONTROL }
    }
}
