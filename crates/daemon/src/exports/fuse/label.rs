//! What a successor must know of an attachment, as the name of its descriptors.
//!
//! What must stay true: a name that was not made here, or by a version that is not understood, is
//! none. The names fit a descriptor store: printable, without a colon, 255 bytes at most.

use std::fmt;
use std::str::FromStr;

/// What a name says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachmentLabel {
    /// Of the volume.
    pub uuid: [u8; 16],
    /// The minor number of the mount's device: by it the mount is found in the table of mounts.
    pub device: u32,
    /// The volume was attached for reading only.
    pub read_only: bool,
    /// Of the volume, when it was attached.
    pub size_bytes: u64,
    /// The longest request that the kernel was told to make.
    pub payload_bytes: u32,
}

/// What every name of this version begins with.
const VERSION: &str = "ashlar-fuse-1";

impl fmt::Display for AttachmentLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttachmentLabel { uuid, device, read_only, size_bytes, payload_bytes } = self;
        let uuid = u128::from_be_bytes(*uuid);
        let mode = if *read_only { "ro" } else { "rw" };
        write!(f, "{VERSION}_{uuid:032x}_{device}_{mode}_{size_bytes}_{payload_bytes}")
    }
}

impl FromStr for AttachmentLabel {
    type Err = ();

    fn from_str(name: &str) -> Result<AttachmentLabel, ()> {
        let parts: Vec<&str> = name.split('_').collect();
        let [VERSION, uuid, device, mode, size, payload] = parts[..] else { return Err(()) };
        let label = AttachmentLabel {
            uuid: u128::from_str_radix(uuid, 16).map_err(drop)?.to_be_bytes(),
            device: device.parse().map_err(drop)?,
            read_only: mode == "ro",
            size_bytes: size.parse().map_err(drop)?,
            payload_bytes: payload.parse().map_err(drop)?,
        };
        if label.to_string() == name { Ok(label) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::AttachmentLabel;

    #[test]
    fn a_label_is_read_as_it_was_written_and_nothing_else_is_one() {
        let label = AttachmentLabel {
            uuid: [0xab; 16],
            device: 57,
            read_only: true,
            size_bytes: u64::MAX,
            payload_bytes: u32::MAX,
        };
        let name = label.to_string();
        assert!(name.len() < 255 && name.is_ascii() && !name.contains(':'), "{name}");
        assert_eq!(name.parse(), Ok(label));
        for wrong in ["", "stored", "ashlar-fuse-1", &name[1..], &format!("{name}_0")] {
            assert_eq!(wrong.parse::<AttachmentLabel>(), Err(()), "{wrong}");
        }
        for (from, to) in [("_57_", "_057_"), ("_ro_", "_xx_"), ("-1_", "-2_"), ("_57_", "_-1_")] {
            assert_eq!(name.replace(from, to).parse::<AttachmentLabel>(), Err(()), "{to}");
        }
    }
}
