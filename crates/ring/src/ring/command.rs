//! Commands that a device takes through io_uring (IORING_OP_URING_CMD) in place of ioctl(2).
//!
//! What must stay true: this file alone writes an address into a command, and it is that of the
//! buffer which the command owns. So no caller can make the kernel touch other memory by a number.
//! This file therefore knows, for every family of commands, where the kernel looks for an address
//! and for a length. Another family is one more row of [`FAMILIES`]. Not here: what the commands
//! mean.

use ashlar_iobuf::BufMut;
use io_uring::{opcode, squeue, types};
use std::ops::Range;

/// Bytes of a [`DeviceCommand`]'s area.
pub const AREA_BYTES: usize = 16;
/// Bytes of a [`WideCommand`]'s area.
pub const WIDE_AREA_BYTES: usize = 80;

/// Commands that look alike.
struct Family {
    /// Numbers as of ioctl(2), without the direction in their two highest bits.
    numbers: Range<u32>,
    /// Where in the area the address is.
    address: Range<usize>,
    /// Where in the area the length of the memory is; two bytes.
    length: Option<Range<usize>>,
}

/// The number of ioctl(2) without direction: size of the argument, type, number.
const fn numbers(argument_bytes: u32, kind: u8, first: u8, end: u8) -> Range<u32> {
    let base = argument_bytes << 16 | (kind as u32) << 8;
    base | first as u32..base | end as u32
}

const FAMILIES: [Family; 2] = [
    // `struct ublksrv_io_cmd`: queue u16, tag u16, result i32, address u64.
    Family { numbers: numbers(16, b'u', 0x20, 0x30), address: 8..16, length: None },
    // `struct ublksrv_ctrl_cmd`: device u32, queue u16, length u16, address u64, data u64, ...
    Family { numbers: numbers(32, b'u', 0x01, 0x20), address: 8..16, length: Some(6..8) },
];

/// The two highest bits of a number say in which direction its argument goes.
const DIRECTION: u32 = 0b11 << 30;

fn family_of(number: u32) -> &'static Family {
    let found = FAMILIES.iter().find(|family| family.numbers.contains(&(number & !DIRECTION)));
    found.unwrap_or_else(|| panic!("command {number:#x} is of no family that is known here"))
}

/// A command whose arguments fit any ring.
pub struct DeviceCommand {
    number: u32,
    area: [u8; AREA_BYTES],
    /// What the kernel reads or writes for it.
    pub memory: Option<BufMut>,
}

/// A command with a larger area, for rings of [`EntryBytes::Wide`](crate::EntryBytes::Wide).
pub struct WideCommand {
    number: u32,
    area: [u8; WIDE_AREA_BYTES],
    /// What the kernel reads or writes for it.
    pub memory: Option<BufMut>,
}

impl DeviceCommand {
    /// A command by its number. The places of address and length in `area` are zero: they are
    /// filled in for `memory`.
    ///
    /// # Panics
    /// If the number is of no known family, or the area holds an address or a length.
    pub fn new(number: u32, area: [u8; AREA_BYTES], memory: Option<BufMut>) -> DeviceCommand {
        check(number, &area);
        DeviceCommand { number, area, memory }
    }

    /// The entry that asks for it. Valid while the memory stays where it is.
    pub(super) fn entry(&mut self, device: types::Fd) -> squeue::Entry {
        let area = with_memory(self.number, self.area, self.memory.as_mut());
        opcode::UringCmd16::new(device, self.number).cmd(area).build()
    }
}

impl WideCommand {
    /// As [`DeviceCommand::new`].
    ///
    /// # Panics
    /// As [`DeviceCommand::new`].
    pub fn new(number: u32, area: [u8; WIDE_AREA_BYTES], memory: Option<BufMut>) -> WideCommand {
        check(number, &area);
        WideCommand { number, area, memory }
    }

    /// As [`DeviceCommand::entry`].
    pub(super) fn entry(&mut self, device: types::Fd) -> squeue::Entry128 {
        let area = with_memory(self.number, self.area, self.memory.as_mut());
        opcode::UringCmd80::new(device, self.number).cmd(area).build()
    }
}

fn check(number: u32, area: &[u8]) {
    let family = family_of(number);
    let length = family.length.clone().unwrap_or(0..0);
    let is_free = |place: Range<usize>| area[place].iter().all(|byte| *byte == 0);
    assert!(is_free(family.address.clone()), "an address is filled in by the ring alone");
    assert!(is_free(length), "a length is filled in by the ring alone");
}

fn with_memory<const BYTES: usize>(
    number: u32,
    mut area: [u8; BYTES],
    memory: Option<&mut BufMut>,
) -> [u8; BYTES] {
    let Some(memory) = memory else { return area };
    let family = family_of(number);
    let address = ashlar_units::to_u64(memory.as_mut_ptr().expose_provenance());
    area[family.address.clone()].copy_from_slice(&address.to_ne_bytes());
    if let Some(place) = family.length.clone() {
        let bytes = u16::try_from(memory.len()).expect("a command's memory is below 64 KiB");
        area[place].copy_from_slice(&bytes.to_ne_bytes());
    }
    area
}

#[cfg(test)]
mod tests {
    use super::{DeviceCommand, WideCommand, with_memory};
    use ashlar_iobuf::BufMut;

    const QUEUE: u32 = 0b11 << 30 | 16 << 16 | (b'u' as u32) << 8 | 0x20;
    const CONTROL: u32 = 0b10 << 30 | 32 << 16 | (b'u' as u32) << 8 | 0x13;

    #[test]
    fn address_and_length_are_those_of_the_commands_own_memory() {
        let mut memory = BufMut::zeroed(24);
        let address = memory.address().to_ne_bytes();
        let area = with_memory(CONTROL, [0; 80], Some(&mut memory));
        assert_eq!((&area[8..16], &area[6..8]), (&address[..], &24_u16.to_ne_bytes()[..]));
        let area = with_memory(QUEUE, [7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], None);
        assert_eq!(area, [7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "an address is filled in by the ring alone")]
    fn an_address_of_the_callers_is_refused() {
        let mut area = [0; 16];
        area[8] = 1;
        let _refused = DeviceCommand::new(QUEUE, area, None);
    }

    #[test]
    #[should_panic(expected = "a length is filled in by the ring alone")]
    fn a_length_of_the_callers_is_refused() {
        let mut area = [0; 80];
        area[6] = 1;
        let _refused = WideCommand::new(CONTROL, area, Some(BufMut::zeroed(8)));
    }

    #[test]
    #[should_panic(expected = "of no family")]
    fn a_number_of_no_known_family_is_refused() {
        let _refused = DeviceCommand::new(1, [0; 16], None);
    }

    #[test]
    #[should_panic(expected = "below 64 KiB")]
    fn memory_longer_than_its_length_field_is_refused() {
        let _refused = with_memory(CONTROL, [0; 80], Some(&mut BufMut::zeroed(1 << 16)));
    }
}
