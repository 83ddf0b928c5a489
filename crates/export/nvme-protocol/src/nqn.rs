//! NVMe qualified names, and which hosts may connect.
//!
//! What must stay true: a [`Nqn`] is 1 to 223 bytes of UTF-8 that begin with `nqn.` and hold no
//! control character; a name compares as bytes, as the specification wants it. Base 2.0, 4.5 "NVMe
//! Qualified Names".

use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes.
pub const NQN_BYTES_MAX: usize = 223;

/// Length of the field that holds a name, in bytes; unused ones are zero.
pub const NQN_FIELD_BYTES: usize = 256;

/// The well-known name of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The name of a host or subsystem.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(String);

/// Why text is not a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not an NVMe qualified name: it begins with nqn. and has at most 223 bytes")]
pub struct NotAnNqn(String);

impl Nqn {
    /// The name in a 256-byte field.
    ///
    /// # Errors
    /// [`NotAnNqn`].
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Nqn, NotAnNqn> {
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(NQN_FIELD_BYTES);
        let text = String::from_utf8_lossy(&field[..end]);
        if std::str::from_utf8(&field[..end]).is_err() {
            return Err(NotAnNqn(text.escape_default().to_string()));
        }
        text.parse()
    }

    /// The 256-byte field of this name.
    pub fn field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of discovery subsystems.
    ///
    /// # Panics
    /// Never: the text is a constant.
    pub fn discovery() -> Nqn {
        DISCOVERY_NQN.parse().expect("well formed")
    }
}

impl FromStr for Nqn {
    type Err = NotAnNqn;

    fn from_str(text: &str) -> Result<Nqn, NotAnNqn> {
        let is_good = text.starts_with("nqn.")
            && text.len() <= NQN_BYTES_MAX
            && !text.chars().any(|c| c.is_control() || c.is_whitespace());
        if is_good {
            Ok(Nqn(text.to_owned()))
        } else {
            Err(NotAnNqn(text.escape_default().to_string()))
        }
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A host, as Connect names it: the 16-byte identifier by which reservations know it, and its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// HOSTID.
    pub id: HostId,
    /// HOSTNQN.
    pub nqn: Nqn,
}

/// A 128-bit host identifier. Zero is no host: such a one may connect, and may not take part in
/// reservations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostId(pub [u8; 16]);

impl HostId {
    /// Whether a host can be told by this.
    pub fn is_set(self) -> bool {
        self != HostId::default()
    }
}

/// Which hosts may connect.
#[derive(Clone, Debug)]
pub enum Admitted<T> {
    /// Every host, on the same terms.
    Anybody(T),
    /// These hosts, each on its own terms.
    Only(Vec<(Nqn, T)>),
}

impl<T> Admitted<T> {
    /// The terms of `host`, if it may connect.
    pub fn terms(&self, host: &Nqn) -> Option<&T> {
        match self {
            Admitted::Anybody(terms) => Some(terms),
            Admitted::Only(list) => {
                list.iter().find(|(nqn, _)| nqn == host).map(|(_, terms)| terms)
            }
        }
    }
}
