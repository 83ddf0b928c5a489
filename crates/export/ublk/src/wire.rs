//! The bytes between the kernel's driver ublk_drv and its server.
//!
//! What must stay true: everything here is pure and total; integers are in the machine's own order,
//! as both sides run on it. Numbers and layouts are those of the kernel's `linux/ublk_cmd.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers of commands, as of ioctl(2).
pub mod command {
    const fn number(direction: u32, argument_bytes: u32, number: u32) -> u32 {
        direction << 30 | argument_bytes << 16 | (b'u' as u32) << 8 | number
    }
    const fn control(direction: u32, of: u32) -> u32 {
        number(direction, 32, of)
    }
    const READ: u32 = 0b10;
    const BOTH: u32 = 0b11;

    /// Make a device.
    pub const ADD: u32 = control(BOTH, 0x04);
    /// Unmake one.
    pub const DELETE: u32 = control(BOTH, 0x05);
    /// Show its block device, once all queues are served.
    pub const START: u32 = control(BOTH, 0x06);
    /// Take its block device away.
    pub const STOP: u32 = control(BOTH, 0x07);
    /// Say what it is like.
    pub const SET_PARAMETERS: u32 = control(BOTH, 0x08);
    /// Begin to serve a device whose server is gone.
    pub const BEGIN_TAKEOVER: u32 = control(BOTH, 0x10);
    /// Its queues are served again.
    pub const END_TAKEOVER: u32 = control(BOTH, 0x11);
    /// What a device was made with.
    pub const GET_INFO: u32 = control(READ, 0x02);
    /// What the driver can do.
    pub const GET_FEATURES: u32 = control(READ, 0x13);
    /// Unmake one, once nobody has it open any more; the answer does not wait for that (Linux 6.9).
    pub const DELETE_LATER: u32 = control(READ, 0x14);
    /// What it is like.
    pub const GET_PARAMETERS: u32 = control(READ, 0x09);
    /// It has another size, in sectors (Linux 6.16).
    pub const RESIZE: u32 = control(BOTH, 0x15);

    /// Wait for the first request of a tag.
    pub const FETCH: u32 = number(BOTH, 16, 0x20);
    /// Answer a request and wait for the next of its tag.
    pub const COMMIT_AND_FETCH: u32 = number(BOTH, 16, 0x21);
}

/// What a driver can do, and what is asked of it.
pub mod feature {
    /// A device survives its server.
    pub const USER_RECOVER: u64 = 1 << 3;
    /// And the next server gets unanswered requests again.
    pub const REISSUE: u64 = 1 << 4;
    /// Commands have numbers as of ioctl(2).
    pub const IOCTL_NUMBERS: u64 = 1 << 6;
    /// Data is copied by pread(2) and pwrite(2) of the server.
    pub const USER_COPY: u64 = 1 << 7;
    /// A device can become larger while it is served (Linux 6.16).
    pub const RESIZE: u64 = 1 << 10;
    /// Users other than root may have made it, and may use it.
    pub const UNPRIVILEGED: u64 = 1 << 5;
}

/// States of a device; in all others it is served.
pub mod state {
    /// Made, or stopped.
    pub const DEAD: u16 = 0;
    /// Its server is gone, and requests wait for the next.
    pub const QUIESCED: u16 = 2;
}

/// What a device is made with (`struct ublksrv_ctrl_dev_info`).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DeviceInfo {
    /// How many queues.
    pub queues: u16,
    /// How many requests in each.
    pub depth: u16,
    /// See [`state`].
    pub state: u16,
    /// Zero.
    pub padding0: u16,
    /// Largest request with data, in bytes.
    pub request_bytes_max: u32,
    /// N of `/dev/ublkbN`; all ones asks for any.
    pub number: u32,
    /// Who serves it.
    pub server_pid: i32,
    /// Zero.
    pub padding1: u32,
    /// See [`feature`].
    pub features: u64,
    /// The server's own; the driver keeps it.
    pub owner: u64,
    /// Who made it.
    pub uid: u32,
    /// Who made it.
    pub gid: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Which parts of [`Parameters`] count.
pub mod parameter {
    /// The basic ones.
    pub const BASIC: u32 = 1 << 0;
    /// Those about discards.
    pub const DISCARD: u32 = 1 << 1;
}

/// Attributes of a device.
pub mod attribute {
    /// Writes are refused.
    pub const READ_ONLY: u32 = 1 << 0;
    /// Seeks cost.
    pub const ROTATIONAL: u32 = 1 << 1;
    /// What is answered is durable after a flush only.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// A single write can be durable when it is answered.
    pub const FUA: u32 = 1 << 3;
}

/// What a device is like (`struct ublk_params` with its basic and discard parts).
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq, Default,
)]
#[repr(C)]
pub struct Parameters {
    /// Length of all this.
    pub bytes: u32,
    /// See [`parameter`].
    pub parts: u32,
    /// See [`attribute`].
    pub attributes: u32,
    /// Logical block, as a power of two.
    pub logical_shift: u8,
    /// Physical block, as a power of two.
    pub physical_shift: u8,
    /// Best size of a request, as a power of two.
    pub optimal_shift: u8,
    /// Smallest size that pays, as a power of two.
    pub minimum_shift: u8,
    /// Largest request, in sectors.
    pub sectors_max: u32,
    /// A request does not cross multiples of this; zero for no such thing. In sectors.
    pub boundary_sectors: u32,
    /// Size in sectors.
    pub device_sectors: u64,
    /// For buffers of several pages.
    pub virtual_boundary: u64,
    /// Where the first block that can be discarded lies.
    pub discard_alignment: u32,
    /// Unit of a discard, in bytes.
    pub discard_granularity: u32,
    /// Longest discard, in sectors.
    pub discard_sectors_max: u32,
    /// Longest write of zeros, in sectors.
    pub zeroes_sectors_max: u32,
    /// Extents in one discard.
    pub discard_extents_max: u16,
    /// Zero.
    pub reserved: u16,
    /// Zero: up to the end of a word.
    pub padding: u32,
}

/// Length of [`Parameters`].
pub const PARAMETERS_BYTES: u32 = 64;

/// Parameters of a newer driver, which has more parts, begin with these.
const _: () = assert!(size_of::<Parameters>() == 64);
const _: () = assert!(size_of::<DeviceInfo>() == 64);

/// A request as the driver shows it (`struct ublksrv_io_desc`).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Descriptor {
    /// Operation in the low byte, flags above.
    pub operation: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// First sector.
    pub start_sector: u64,
    /// Where the server has the data.
    pub address: u64,
}

/// Length of a [`Descriptor`].
pub const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

/// Operations.
pub mod operation {
    /// Read.
    pub const READ: u8 = 0;
    /// Write.
    pub const WRITE: u8 = 1;
    /// Make durable.
    pub const FLUSH: u8 = 2;
    /// The content is not needed any more.
    pub const DISCARD: u8 = 3;
    /// Zero.
    pub const WRITE_ZEROES: u8 = 5;
    /// Durable when answered.
    pub const FUA: u32 = 1 << 13;
    /// Keep the space.
    pub const NO_UNMAP: u32 = 1 << 15;
}

/// Most descriptors of a queue. Each queue's area begins at a multiple of this many.
const DEPTH_MAX: usize = 4096;

/// Where the descriptors of a queue begin in the character device, in bytes.
pub fn descriptors_at(queue: u16) -> u64 {
    let area = (DEPTH_MAX * DESCRIPTOR_BYTES).next_multiple_of(4096);
    u64::from(queue) * ashlar_units::to_u64(area)
}

/// Length of the descriptors of a queue, in bytes.
pub fn descriptors_bytes(depth: u16) -> usize {
    (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(4096)
}

/// The area of a queue's command: queue, tag, and the result of the request before.
pub fn queue_area(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut area = [0; 16];
    area[0..2].copy_from_slice(&queue.to_ne_bytes());
    area[2..4].copy_from_slice(&tag.to_ne_bytes());
    area[4..8].copy_from_slice(&result.to_ne_bytes());
    area
}

/// The area of a control command: device, no queue, and a word of data.
pub fn control_area(device: u32, data: u64) -> [u8; 80] {
    let mut area = [0; 80];
    area[0..4].copy_from_slice(&device.to_ne_bytes());
    area[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    area[16..24].copy_from_slice(&data.to_ne_bytes());
    area
}

#[cfg(test)]
mod tests {
    use super::{Parameters, command, control_area, descriptors_at, descriptors_bytes};
    use super::{parameter, queue_area};
    use std::mem::offset_of;

    /// What a C program prints that is built with `linux/ublk_cmd.h` of Linux 6.12.
    #[test]
    fn numbers_and_places_are_those_of_the_kernel() {
        let numbers = [
            (command::ADD, 0xc020_7504),
            (command::DELETE, 0xc020_7505),
            (command::START, 0xc020_7506),
            (command::STOP, 0xc020_7507),
            (command::SET_PARAMETERS, 0xc020_7508),
            (command::GET_PARAMETERS, 0x8020_7509),
            (command::BEGIN_TAKEOVER, 0xc020_7510),
            (command::END_TAKEOVER, 0xc020_7511),
            (command::GET_INFO, 0x8020_7502),
            (command::GET_FEATURES, 0x8020_7513),
            (command::DELETE_LATER, 0x8020_7514),
            (command::RESIZE, 0xc020_7515),
            (command::FETCH, 0xc010_7520),
            (command::COMMIT_AND_FETCH, 0xc010_7521),
        ];
        for (ours, kernels) in numbers {
            assert_eq!(ours, kernels, "{ours:#x} {kernels:#x}");
        }
        assert_eq!((descriptors_at(0), descriptors_at(3)), (0, 3 * 98_304));
        assert_eq!((descriptors_bytes(64), descriptors_bytes(171)), (4096, 8192));
        assert_eq!(offset_of!(Parameters, device_sectors), 24);
        assert_eq!(offset_of!(Parameters, discard_alignment), 40);
        assert_eq!(offset_of!(Parameters, discard_extents_max), 56);
        assert_eq!(parameter::BASIC | parameter::DISCARD, 3);
    }

    #[test]
    fn areas_have_their_fields_where_the_driver_looks_and_no_address() {
        let queue = queue_area(0x0102, 0x0304, -5);
        assert_eq!(queue[0..2], 0x0102_u16.to_ne_bytes());
        assert_eq!(queue[2..4], 0x0304_u16.to_ne_bytes());
        assert_eq!(queue[4..8], (-5_i32).to_ne_bytes());
        assert_eq!(queue[8..], [0; 8]);
        let control = control_area(7, 99);
        assert_eq!(control[0..4], 7_u32.to_ne_bytes());
        assert_eq!(control[4..6], [0xff; 2], "no queue");
        assert_eq!(control[6..16], [0; 10], "length and address are the ring's");
        assert_eq!(control[16..24], 99_u64.to_ne_bytes());
        assert_eq!(control[24..], [0; 56]);
    }
}
