//! Chains of descriptors that no driver makes, one row each; and those that drivers make.

use crate::chain::Fault;
use crate::hostile::{ENTRIES, MEMORY_AT, Met, descriptor, meet};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Where the guest has the head of a request, its data, its status, and an indirect table.
const HEAD: u64 = MEMORY_AT + 0x400;
const DATA: u64 = MEMORY_AT + 0x1000;
const STATUS: u64 = MEMORY_AT + 0x500;
const OTHER_TABLE: u64 = MEMORY_AT + 0x600;
/// How much memory it has.
const BYTES: usize = 0x8000;
const END: u64 = MEMORY_AT + 0x8000;

/// A guest's memory with these descriptors in the table of its ring, and those in another one.
fn memory(table: &[[u8; 16]], other: &[[u8; 16]], kind: u32) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..table.len() * 16].copy_from_slice(&table.concat());
    bytes[0x600..0x600 + other.len() * 16].copy_from_slice(&other.concat());
    bytes[0x400..0x404].copy_from_slice(&kind.to_le_bytes());
    bytes
}

fn met(head: u8, table: &[[u8; 16]], other: &[[u8; 16]]) -> Met {
    meet(&[vec![head], memory(table, other, 0)].concat())
}

fn whole_read() -> [[u8; 16]; 3] {
    [
        descriptor(HEAD, 16, (NEXT, 1)),
        descriptor(DATA, 4096, (WRITE | NEXT, 2)),
        descriptor(STATUS, 1, (WRITE, 0)),
    ]
}

#[test]
fn what_drivers_do_is_admitted() {
    let read = whole_read();
    assert_eq!(met(0, &read, &[]), Met::Admitted);
    let indirect = [descriptor(OTHER_TABLE, 48, (INDIRECT, 0))];
    assert_eq!(met(0, &indirect, &read), Met::Admitted);
    // The flag to write says nothing of a table.
    let indirect = [descriptor(OTHER_TABLE, 48, (INDIRECT | WRITE, 9))];
    assert_eq!(met(0, &indirect, &read), Met::Admitted);
    let after_one = [descriptor(HEAD, 16, (NEXT, 1)), descriptor(OTHER_TABLE, 32, (INDIRECT, 0))];
    let rest = [descriptor(DATA, 4096, (WRITE | NEXT, 1)), descriptor(STATUS, 1, (WRITE, 0))];
    assert_eq!(met(0, &after_one, &rest), Met::Admitted);
    let split = [
        descriptor(HEAD, 5, (NEXT, 3)),
        descriptor(0, 0, (0, 0)),
        descriptor(DATA + 100, 3997, (WRITE, 0)),
        descriptor(HEAD + 5, 11, (NEXT, 4)),
        descriptor(DATA, 100, (WRITE | NEXT, 2)),
    ];
    assert_eq!(met(0, &split, &[]), Met::Admitted, "head, data and status anywhere");
    let data_to_the_end = [
        descriptor(HEAD, 16, (NEXT, 1)),
        descriptor(END - 4096, 4096, (WRITE | NEXT, 2)),
        descriptor(STATUS, 1, (WRITE, 0)),
    ];
    assert_eq!(met(0, &data_to_the_end, &[]), Met::Admitted);
}

/// What the device says of these tables: that of the ring, and the other one.
type Row = (&'static str, Vec<[u8; 16]>, Vec<[u8; 16]>);

const NO_END: &str = "a chain of descriptors has no end";
const BEYOND: &str = "a descriptor beyond the end of its table";
const NESTED: &str = "an indirect table where there can be none";

fn chains_of_the_ring() -> Vec<Row> {
    let [head, data, status] = whole_read();
    let outside = "a descriptor names memory that the guest does not have";
    let empty = "a descriptor of no bytes";
    let out_of_order = "a descriptor to read comes after one to write";
    let no_head = "a request without a head";
    let at = |at, bytes| vec![head, descriptor(at, bytes, (WRITE | NEXT, 2)), status];
    let first = |bytes, next| descriptor(HEAD, bytes, (NEXT, next));
    let rows = [
        (NO_END, vec![first(16, 0)]),
        (NO_END, vec![first(16, 1), first(1, 0)]),
        (NO_END, vec![first(16, ENTRIES - 1); 16]),
        (BEYOND, vec![first(16, ENTRIES)]),
        (BEYOND, vec![first(16, u16::MAX)]),
        (outside, at(END - 4095, 4096)),
        (outside, at(END, 1)),
        (outside, at(MEMORY_AT - 1, 4096)),
        (outside, at(0, 4096)),
        (outside, at(u64::MAX, 4096)),
        (outside, at(u64::MAX - 4095, 4096)),
        (outside, at(DATA, u32::MAX)),
        (empty, at(DATA, 0)),
        (empty, vec![first(0, 1), data]),
        (out_of_order, vec![head, data, descriptor(DATA, 1, (0, 0))]),
        (out_of_order, vec![descriptor(HEAD, 16, (WRITE | NEXT, 1)), head]),
        (no_head, vec![first(15, 2), data, status]),
        (no_head, vec![descriptor(STATUS, 1, (WRITE, 0))]),
        ("a request without room for a status", vec![descriptor(HEAD, 16, (0, 0))]),
    ];
    rows.into_iter().map(|(what, table)| (what, table, Vec::new())).collect()
}

fn chains_of_another_table() -> Vec<Row> {
    let indirect = |bytes| vec![descriptor(OTHER_TABLE, bytes, (INDIRECT, 0))];
    let at = |at, bytes| vec![descriptor(at, bytes, (INDIRECT, 0))];
    let not_whole = "an indirect table of no whole descriptors";
    let outside = "an indirect table outside the guest's memory";
    let too_long = "an indirect table is too long";
    let after_it = vec![descriptor(OTHER_TABLE, 48, (INDIRECT | NEXT, 1)), whole_read()[2]];
    vec![
        (NO_END, indirect(16), vec![descriptor(HEAD, 16, (NEXT, 0))]),
        (BEYOND, indirect(16), vec![descriptor(HEAD, 16, (NEXT, 1))]),
        (NESTED, indirect(16), indirect(16)),
        ("a descriptor after an indirect table", after_it, Vec::new()),
        (not_whole, indirect(0), Vec::new()),
        (not_whole, indirect(47), Vec::new()),
        (too_long, indirect(16 * 257), Vec::new()),
        (too_long, indirect(u32::MAX - 15), Vec::new()),
        (outside, at(END - 16, 32), Vec::new()),
        (outside, at(u64::MAX - 7, 16), Vec::new()),
    ]
}

#[test]
fn what_no_driver_does_breaks_the_device() {
    for (what, table, other) in chains_of_the_ring().into_iter().chain(chains_of_another_table()) {
        assert_eq!(met(0, &table, &other), Met::Broken(Fault(what)), "{table:?} {other:?}");
    }
    let read = whole_read();
    assert_eq!(met(16, &read, &[]), Met::Broken(Fault(BEYOND)), "it begins nowhere");
    let indirect = [descriptor(OTHER_TABLE, 48, (INDIRECT, 0))];
    let not_agreed = met(0x80, &indirect, &read);
    assert_eq!(not_agreed, Met::Broken(Fault(NESTED)), "tables were not agreed on");
    let table = Fault("a table of descriptors outside the guest's memory");
    assert_eq!(meet(&[0; 10]), Met::Broken(table));
}

#[test]
fn the_longest_table_is_followed_to_its_end() {
    let mut bytes = memory(&[descriptor(OTHER_TABLE, 16 * 256, (INDIRECT, 0))], &[], 0);
    for index in 0..256_u16 {
        let at = 0x600 + usize::from(index) * 16;
        let last = index == 255;
        let flags = if last { 0 } else { NEXT };
        let one = descriptor(HEAD, 1, (flags, index + 1));
        bytes[at..at + 16].copy_from_slice(&one);
    }
    // The table of the ring has one descriptor, so all of them are one too many.
    assert_eq!(meet(&[vec![0], bytes].concat()), Met::Broken(Fault(NO_END)));
}
