//! Commands to devices. `/dev/null` takes any and answers with success, so these tests need nothing
//! but the kernel (6.5 and later).
//!
//! What must stay true: memory of a command stays until the device answered; a command that a
//! device never answers does not keep a ring from ending.

use crate::{BLOCK, in_use, pool, world};
use ashlar_iobuf::BufMut;
use ashlar_ring::{
    DeviceCommand, EntryBytes, Executor, Operation, Ring, RingConfig, Schedule, WideCommand,
};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `_IOWR('u', 0x20, struct ublksrv_io_cmd)`.
const QUEUE: u32 = 0b11 << 30 | 16 << 16 | (b'u' as u32) << 8 | 0x20;
/// `_IOR('u', 0x13, struct ublksrv_ctrl_cmd)`.
const CONTROL: u32 = 0b10 << 30 | 32 << 16 | (b'u' as u32) << 8 | 0x13;

fn null() -> Arc<OwnedFd> {
    Arc::new(File::options().read(true).write(true).open("/dev/null").expect("it opens").into())
}

fn wide_world() -> (Executor, Ring) {
    let config = RingConfig { entries: 8, entry_bytes: EntryBytes::Wide };
    let ring = Ring::new(config).expect("a ring of wide entries");
    (Executor::new(ring.reactor(), Schedule::InOrder), ring)
}

#[test]
fn a_command_is_answered_and_brings_its_memory_back() {
    let device = null();
    let (mut executor, _, ring) = world(8);
    executor.block_on(async {
        let command = DeviceCommand::new(QUEUE, [0; 16], None);
        let (answer, memory) = ring.command(&device, command).await;
        assert_eq!((answer.expect("null takes anything"), memory.is_none()), (0, true));
        let memory = Some(BufMut::copied(b"what is lent"));
        let command = DeviceCommand::new(QUEUE, [0; 16], memory);
        let (answer, memory) = ring.command(&device, command).await;
        answer.expect("null takes anything");
        assert_eq!(&memory.expect("it comes back")[..], b"what is lent");
    });
    let (mut executor, ring) = wide_world();
    executor.block_on(async {
        let memory = Some(BufMut::copied(b"wide"));
        let command = WideCommand::new(CONTROL, [0; 80], memory);
        let (answer, memory) = ring.wide_command(&device, command).await;
        answer.expect("null takes anything");
        assert_eq!(&memory.expect("it comes back")[..], b"wide");
        let (answer, _) = ring.command(&device, DeviceCommand::new(QUEUE, [0; 16], None)).await;
        answer.expect("a wide ring takes both");
    });
}

#[test]
fn a_file_without_commands_says_so() {
    let (mut executor, _, ring) = world(8);
    let file = crate::temporary_file();
    let pool = pool(1);
    executor.block_on(async {
        let memory = pool.try_get(BLOCK);
        let command = DeviceCommand::new(QUEUE, [0; 16], memory);
        let (answer, memory) = ring.command(&file, command).await;
        assert!(answer.is_err());
        drop(memory);
    });
    assert_eq!((in_use(&pool), ring.load().in_flight), (0, 0));
}

/// Without a turn of the executor the device never gets it.
#[test]
fn a_ring_ends_before_a_device_answers_and_what_the_device_may_yet_use_is_leaked() {
    let (executor, _, ring) = world(8);
    let pool = pool(1);
    let command = DeviceCommand::new(QUEUE, [0; 16], pool.try_get(BLOCK));
    let unanswered = ring.start(Operation::Command { file: null(), command });
    drop((executor, ring));
    drop(unanswered);
    assert_eq!(in_use(&pool), 1);
}

#[test]
#[should_panic(expected = "a wide command on a ring of narrow entries")]
fn a_wide_command_needs_a_ring_of_wide_entries() {
    let (_executor, _, ring) = world(8);
    let command = Box::new(WideCommand::new(CONTROL, [0; 80], None));
    let _refused = ring.start(Operation::WideCommand { file: null(), command });
}
