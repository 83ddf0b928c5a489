//! Names, nodes and listings, while volumes come and go.

use crate::Files;
use crate::files::{FileTable, node_of};
use ashlar_volume::MemVolume;
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Shelf(Rc<RefCell<Vec<(String, MemVolume)>>>);

impl Shelf {
    fn put(&self, name: &str, bytes: u64) {
        self.0.borrow_mut().push((name.to_owned(), MemVolume::new(name, bytes)));
    }

    fn take(&self, name: &str) {
        self.0.borrow_mut().retain(|(known, _)| known != name);
    }
}

impl Files for Shelf {
    type Volume = MemVolume;

    fn names(&self) -> Vec<String> {
        self.0.borrow().iter().map(|(name, _)| name.clone()).collect()
    }

    fn open(&self, name: &str) -> Option<MemVolume> {
        let shelf = self.0.borrow();
        shelf.iter().find(|(known, _)| known == name).map(|(_, volume)| volume.clone())
    }
}

#[test]
fn a_node_finds_its_volume_on_a_worker_that_never_looked_the_name_up() {
    let shelf = Shelf::default();
    shelf.put("disk", 8192);
    let node = FileTable::new(shelf.clone()).look_up("disk").unwrap().node;
    let other = FileTable::new(shelf);
    assert_eq!(other.file(node).unwrap().facts.size_bytes, 8192);
    assert!(other.file(node + 1).is_none());
}

#[test]
fn a_volume_that_went_is_gone_at_the_next_look() {
    let shelf = Shelf::default();
    shelf.put("disk", 8192);
    let table = FileTable::new(shelf.clone());
    let node = table.look_up("disk").unwrap().node;
    shelf.take("disk");
    assert!(table.refreshed(node).is_none());
    assert!(table.file(node).is_none());
    shelf.put("disk", 16384);
    assert_eq!(table.file(node).unwrap().facts.size_bytes, 16384, "same node, new volume");
}

#[test]
fn a_listing_goes_on_where_it_stopped_and_names_all() {
    let shelf = Shelf::default();
    for number in 0..100 {
        shelf.put(&format!("volume-{number}"), 4096);
    }
    shelf.put("no/slash", 4096);
    shelf.put(&"l".repeat(256), 4096);
    let table = FileTable::new(shelf);
    let (mut names, mut from) = (Vec::new(), 0);
    loop {
        let list = table.list(from, 200);
        assert!(list.len() <= 200);
        if list.is_empty() {
            break;
        }
        let mut rest = &list[..];
        while !rest.is_empty() {
            from = u64::from_ne_bytes(rest[8..16].try_into().unwrap());
            let bytes = u32::from_ne_bytes(rest[16..20].try_into().unwrap()) as usize;
            names.push(String::from_utf8(rest[24..24 + bytes].to_vec()).unwrap());
            rest = &rest[(24 + bytes).next_multiple_of(8)..];
        }
    }
    assert_eq!(names.len(), 102);
    assert_eq!(names[..3], [".", "..", "volume-0"]);
}

#[test]
fn nodes_stay_what_they_are() {
    // Published values of FNV-1a: every worker must come to the same node, whatever it saw before.
    assert_eq!(node_of("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(node_of("foobar"), 0x8594_4171_f739_67e8);
    assert!(FileTable::new(Shelf::default()).look_up("..").is_none());
}
