//! The runner of an array, as its heartbeats name it in `host_id`: the host's name and, for starts
//! on the same host, the process and the file by which it has the member open.
//!
//! What must stay true: a text of another shape is a host without a process (an older program wrote
//! the host and its machine id). Such programs see another host in every process, and watch. Not
//! here: whether a process is gone, which only its own host can tell.

use std::fmt;

use crate::format::HOST_BYTES;
use crate::text::Text;

/// A process, named so that no other one of the same boot has that name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcessName {
    /// Its number in its PID namespace.
    pub id: u32,
    /// When it started, in the kernel's ticks since boot: numbers are used again.
    pub started: u64,
    /// Of the inode numbers of its PID and time namespaces: outside of these its number and start
    /// mean nothing.
    pub namespaces: u32,
}

/// Who runs an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerName {
    /// The host, as it calls itself; what does not fit is cut.
    pub host: String,
    /// The process, if it says so.
    pub process: Option<ProcessName>,
    /// [`tag_of`] of what it has the member open by; 0: it does not say.
    pub opened: u32,
}

impl RunnerName {
    /// The text for a heartbeat: `HOST/ID.STARTED.NAMESPACES.OPENED`, all but the host in
    /// hexadecimal digits but for the ID, which is decimal as people know it.
    pub fn to_text(&self) -> Text<HOST_BYTES> {
        let Some(process) = self.process else { return Text::cut(&self.host) };
        let ProcessName { id, started, namespaces } = process;
        let rest = format!("/{id}.{started:x}.{namespaces:x}.{:x}", self.opened);
        let mut host: String = self.host.trim().chars().filter(|c| !c.is_control()).collect();
        while host.len() + rest.len() > HOST_BYTES {
            host.pop();
        }
        Text::cut(&(host + &rest))
    }

    /// What the text of a heartbeat says.
    pub fn of(text: &Text<HOST_BYTES>) -> RunnerName {
        let text = text.as_str();
        let (host, rest) = text.rsplit_once('/').unwrap_or((text, ""));
        match process_in(rest) {
            Some((process, opened)) => {
                RunnerName { host: host.to_owned(), process: Some(process), opened }
            }
            None => RunnerName { host: text.to_owned(), process: None, opened: 0 },
        }
    }
}

fn process_in(text: &str) -> Option<(ProcessName, u32)> {
    let mut parts = text.split('.');
    let id = parts.next()?.parse().ok()?;
    let started = u64::from_str_radix(parts.next()?, 16).ok()?;
    let namespaces = u32::from_str_radix(parts.next()?, 16).ok()?;
    let opened = u32::from_str_radix(parts.next()?, 16).ok()?;
    parts.next().is_none().then_some((ProcessName { id, started, namespaces }, opened))
}

/// Where: `in process 7 on host 'a'`, or `on host 'a'`.
impl fmt::Display for RunnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "in process {} on host '{}'", process.id, self.host),
            None => write!(f, "on host '{}'", self.host),
        }
    }
}

/// A tag of two numbers that together name what was opened, or a pair of namespaces; never 0.
pub fn tag_of(numbers: [u64; 2]) -> u32 {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    u32::try_from(sum).expect("a CRC-32 has 32 bits").max(1)
}
