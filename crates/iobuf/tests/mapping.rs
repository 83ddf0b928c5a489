//! Buffers in memory that somebody else shares: a memfd that this test maps a second time.

use ashlar_iobuf::{Access, SharedMapping, can_shrink};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

const BYTES: usize = 16 << 10;

/// The other side's memory, each byte the low byte of its place.
fn memory() -> (OwnedFd, File) {
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let memory = memory.expect("a memfd");
    ftruncate(&memory, BYTES.try_into().expect("small")).expect("room");
    let other = File::from(memory.try_clone().expect("a duplicate"));
    let content: Vec<u8> = (0..=255).cycle().take(BYTES).collect();
    other.write_all_at(&content, 0).expect("content");
    (memory, other)
}

#[test]
fn both_sides_see_what_the_other_wrote() {
    let (memory, other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::ReadWrite).expect("mapped");
    let mut buffer = mapping.lend(4096..8192).expect("lent");
    assert!(buffer.iter().copied().eq((0..=255).cycle().take(4096)));
    buffer.fill(7);
    drop(buffer);
    let mut seen = [0; 4098];
    other.read_exact_at(&mut seen, 4095).expect("read");
    assert_eq!((seen[0], seen[1], seen[4096], seen[4097]), (255, 7, 7, 0));
    other.write_all_at(b"and back", 100).expect("write");
    let mut loaded = [0; 8];
    mapping.load(100, &mut loaded).expect("within");
    assert_eq!(&loaded, b"and back");
}

#[test]
fn loads_of_any_place_and_length_are_what_is_there_and_end_with_the_mapping() {
    let (memory, _other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::Read).expect("mapped");
    for at in 0..20_usize {
        for bytes in 0..40 {
            let mut loaded = vec![0; bytes];
            mapping.load(at, &mut loaded).expect("within");
            assert!(loaded.iter().copied().eq((0..=255).cycle().skip(at).take(bytes)));
        }
    }
    let mut word = [0; 8];
    assert!(mapping.load(BYTES - 8, &mut word).is_some());
    for at in [BYTES - 7, BYTES, BYTES + 1, usize::MAX - 7, usize::MAX] {
        assert!(mapping.load(at, &mut word).is_none(), "{at}");
    }
    assert!(mapping.load(BYTES, &mut []).is_some());
}

#[test]
fn a_byte_is_lent_once_at_a_time_and_comes_back_with_the_last_piece() {
    let (memory, _other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::ReadWrite).expect("mapped");
    let mut buffer = mapping.lend(1000..3000).expect("lent");
    for range in [1000..3000, 999..1001, 2999..4000, 1500..1600, 0..BYTES] {
        assert!(mapping.lend(range).is_none());
    }
    let neighbours = [mapping.lend(0..1000), mapping.lend(3000..BYTES)];
    assert!(neighbours.iter().all(Option::is_some));
    let front = buffer.split_to(500).freeze();
    let part = front.slice(10..20);
    drop((buffer, front));
    assert!(mapping.lend(1000..3000).is_none(), "a part of it is still out");
    drop(part);
    assert!(mapping.lend(1000..3000).is_some());
    drop(neighbours);
    assert!(mapping.lend(0..BYTES).is_some());
}

#[test]
fn what_is_not_there_or_not_to_be_written_is_not_lent() {
    let (memory, _other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::ReadWrite).expect("mapped");
    let (start, end) = (2, 1);
    for range in [0..BYTES + 1, BYTES..usize::MAX, start..end] {
        assert!(mapping.lend(range).is_none());
    }
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::Read).expect("mapped");
    assert!(mapping.lend(0..1).is_none());
    assert!(SharedMapping::map(&memory, 0, 0, Access::Read).is_err());
    assert!(SharedMapping::map(&memory, 1, 4096, Access::Read).is_err(), "not at a page");
}

#[test]
fn a_buffer_keeps_the_mapping_whoever_else_lets_go_of_it() {
    let (memory, other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::ReadWrite).expect("mapped");
    let buffer = mapping.lend(256..512).expect("lent");
    drop((mapping, memory, other));
    assert!(buffer.iter().copied().eq(0..=255));
    let dropped_elsewhere = std::thread::spawn(move || drop(buffer));
    dropped_elsewhere.join().expect("it is nobody's in particular");
}

#[test]
fn only_memory_that_is_sealed_and_devices_cannot_shrink() {
    let (memory, _other) = memory();
    assert!(can_shrink(&memory));
    fcntl_add_seals(&memory, SealFlags::SHRINK).expect("sealed");
    assert!(!can_shrink(&memory));
    assert!(can_shrink(tempfile::tempfile().expect("a file")));
    assert!(!can_shrink(File::open("/dev/null").expect("it opens")));
}

#[test]
fn stores_of_any_place_and_length_change_that_and_nothing_else() {
    let (memory, other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::ReadWrite).expect("mapped");
    for at in 0..20_usize {
        for bytes in 0..40 {
            let mut seen = [0; 100];
            let is_new = |place| (at..at + bytes).contains(&place);
            let right = |(place, byte): (usize, &u8)| *byte == if is_new(place) { 0xEE } else { 9 };
            other.write_all_at(&[9; 100], 0).expect("write");
            mapping.store(at, &vec![0xEE; bytes]).expect("within");
            other.read_exact_at(&mut seen, 0).expect("read");
            assert!(seen.iter().enumerate().all(right), "{bytes} bytes at {at}");
        }
    }
    assert!(mapping.store(BYTES - 7, &[0; 8]).is_none());
    assert!(mapping.store(usize::MAX, &[0; 8]).is_none());
    let only_read = SharedMapping::map(&memory, 0, BYTES, Access::Read).expect("mapped");
    assert!(only_read.store(0, &[0; 8]).is_none());
}

#[test]
fn numbers_are_loaded_and_stored_at_even_places_within() {
    let (memory, other) = memory();
    let mapping = SharedMapping::map(&memory, 0, BYTES, Access::ReadWrite).expect("mapped");
    mapping.store_index(BYTES - 2, 0x0102).expect("within");
    let mut seen = [0; 2];
    other.read_exact_at(&mut seen, (BYTES - 2).try_into().expect("small")).expect("read");
    assert_eq!(seen, 0x0102_u16.to_ne_bytes());
    assert_eq!(mapping.load_index(BYTES - 2), Some(0x0102));
    for at in [1, BYTES - 1, BYTES, usize::MAX] {
        assert_eq!((mapping.load_index(at), mapping.store_index(at, 1)), (None, None), "{at}");
    }
    let only_read = SharedMapping::map(&memory, 0, BYTES, Access::Read).expect("mapped");
    assert!(only_read.store_index(0, 1).is_none());
}
