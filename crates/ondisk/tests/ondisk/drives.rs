//! Drive pages: what they say survives, the newest counts, and damage says nothing.

use ashlar_ondisk::format::{DRIVE_PAGE_OFFSET, DRIVES_PER_PAGE, FIRST_AREA_OFFSET};
use ashlar_ondisk::{Drive, DrivePage, Drives, Text};
use ashlar_units::{MemberIdx, to_usize};
use uuid::Uuid;

const ARRAY: Uuid = Uuid::from_u128(7);

fn member(slot: usize) -> Uuid {
    Uuid::from_u128(1000 + u128::try_from(slot).expect("small"))
}

fn drive(slot: usize, path: &str) -> Drive {
    Drive {
        model: Text::cut("Drive 9000"),
        path: Text::cut(path),
        by_path: Text::cut("pci-0000:5e:00.0-sas-exp0x500056b36789abff-phy12-lun-0"),
        enclosure: Text::cut("0x500304801f2a8d3f"),
        bay: Text::cut("Slot 07"),
        host: Text::cut("store1"),
        ..Drive::default()
    }
    .of(member(slot))
}

/// The first bytes of a device with these pages.
fn head(pages: &[DrivePage]) -> Vec<u8> {
    let mut head = vec![0; to_usize(FIRST_AREA_OFFSET)];
    for page in pages {
        let at = to_usize(page.offset());
        head[at..at + 4096].copy_from_slice(&page.encode());
    }
    head
}

fn read(heads: &[&[u8]], array: Uuid) -> Drives {
    let pages: Vec<DrivePage> = heads.iter().flat_map(|head| DrivePage::all_in(head)).collect();
    Drives::newest(pages.iter(), array)
}

fn all(path: &str, slots: usize) -> Drives {
    Drives::new((0..slots).map(|slot| drive(slot, path)).collect())
}

#[test]
fn as_many_drives_as_an_array_can_have_come_back_as_they_were() {
    let drives = all("/dev/sda", 480);
    let pages = drives.pages(ARRAY, 5);
    assert_eq!(pages.len(), 27);
    let head = head(&pages);
    let known = read(&[&head], ARRAY);
    for slot in 0..480 {
        let one = known.of(MemberIdx::from_at(slot), member(slot));
        assert_eq!(one, Some(drive(slot, "/dev/sda")), "slot {slot}");
    }
    let none = read(&[&head], Uuid::from_u128(8));
    assert_eq!(none.of(MemberIdx(0), member(0)), None, "another array's");
}

#[test]
fn of_each_page_the_newest_counts_and_only_for_the_member_that_it_names() {
    let old = head(&all("/dev/old", 20).pages(ARRAY, 3));
    let new = head(&all("/dev/new", 20).pages(ARRAY, 4)[1..]);
    let known = read(&[&old, &new], ARRAY);
    let path = |slot| known.of(MemberIdx::from_at(slot), member(slot)).expect("known").path;
    assert_eq!(path(0).as_str(), "/dev/old");
    assert_eq!(path(DRIVES_PER_PAGE).as_str(), "/dev/new");
    assert_eq!(known.of(MemberIdx(0), member(1)), None, "the slot has had another member since");
    assert_eq!(known.of(MemberIdx(300), member(300)), None, "a slot of a page that is not there");
}

#[test]
fn a_page_with_any_bit_changed_or_in_another_place_says_nothing() {
    let pages = all("/dev/sda", 3).pages(ARRAY, 1);
    let whole = pages[0].encode();
    for at in [0, 8, 12, 16, 32, 40, 44, 64, 100, 4095] {
        let mut torn = whole;
        torn[at] ^= 1;
        assert_eq!(DrivePage::decode(&torn), None, "byte {at}");
    }
    assert_eq!(DrivePage::decode(&whole[..4095]), None);
    let mut moved = head(&[]);
    let at = to_usize(DRIVE_PAGE_OFFSET) + 4096;
    moved[at..at + 4096].copy_from_slice(&whole);
    let known = read(&[&moved, &moved[..100]], ARRAY);
    assert_eq!(known.of(MemberIdx(0), member(0)), None);
}
