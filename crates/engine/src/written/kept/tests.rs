//! A kept map in a place of a test: what it says, and when it is not believed.

use super::{KeptMap, KeptMemory, KeptPlace, place_name};
use crate::layouts::geometry_of;
use crate::written::WrittenMap;
use ashlar_layout::Stripe;
use ashlar_ondisk::format::BITS_PER_PAGE;
use ashlar_units::{StripeNo, to_usize};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

#[derive(Clone, Default)]
struct Memory {
    files: Files,
    fails: Arc<AtomicBool>,
}

struct Place {
    memory: Memory,
    name: String,
}

impl Place {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        let mut files = self.memory.files.lock().expect("one thread at a time");
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        Ok(look(files.get_mut(&self.name).ok_or_else(gone)?))
    }
}

impl KeptPlace for Place {
    fn bytes(&self) -> io::Result<u64> {
        self.with(|bytes| bytes.len() as u64)
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        let range = to_usize(offset)..to_usize(offset) + target.len();
        self.with(|bytes| target.copy_from_slice(&bytes[range]))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.memory.fails.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let range = to_usize(offset)..to_usize(offset) + bytes.len();
        self.with(|own| own[range].copy_from_slice(bytes))
    }

    fn forget(&self) {
        self.memory.forget(&self.name);
    }
}

impl KeptMemory for Memory {
    fn boot(&self) -> [u8; 16] {
        [1; 16]
    }

    fn make(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn KeptPlace>> {
        self.files.lock().expect("ours").insert(name.to_owned(), vec![0; to_usize(bytes)]);
        Ok(Arc::new(Place { memory: self.clone(), name: name.to_owned() }))
    }

    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn KeptPlace>>> {
        let is_there = self.files.lock().expect("ours").contains_key(name);
        let place: Arc<dyn KeptPlace> =
            Arc::new(Place { memory: self.clone(), name: name.to_owned() });
        Ok(is_there.then_some(place))
    }

    fn names(&self) -> Vec<String> {
        self.files.lock().expect("ours").keys().cloned().collect()
    }

    fn forget(&self, name: &str) {
        self.files.lock().expect("ours").remove(name);
    }
}

const ARRAY: Uuid = Uuid::from_u128(0xA77A);
const START: Uuid = Uuid::from_u128(0x57A7);
/// Two pages and a part of one.
const STRIPES: u64 = 2 * BITS_PER_PAGE + 70;

fn at(number: u64) -> Stripe {
    geometry_of(STRIPES).stripe(StripeNo(number))
}

fn map() -> WrittenMap {
    WrittenMap::new(&geometry_of(STRIPES), BITS_PER_PAGE)
}

fn kept_by(memory: &Memory) -> WrittenMap {
    let map = map();
    map.keep_in(KeptMap::make(memory, ARRAY, START, map.page_count()).expect("made"));
    map
}

fn read(memory: &Memory, names: (Uuid, Uuid)) -> Option<Vec<usize>> {
    let pages = KeptMap::read(memory, names.0, names.1, map().page_count())?;
    Some(pages.pages.into_iter().map(|(page, _)| page).collect())
}

#[test]
fn a_start_finds_the_pages_that_changed_as_they_are() {
    let memory = Memory::default();
    let before = kept_by(&memory);
    assert_eq!(read(&memory, (ARRAY, START)), Some(vec![]));
    for (stripe, is_written) in [(3, true), (64, true), (64, false), (STRIPES - 1, true)] {
        before.set(at(stripe), is_written);
        assert!(before.outlives_process_in(0..STRIPES) && !before.is_settled_in(0..STRIPES));
    }
    assert_eq!(read(&memory, (ARRAY, START)), Some(vec![0, 2]));
    // The members say that stripe 64 is written, and know of nothing in page 1.
    let after = map();
    after.load_page(0, &[1 << 5, 1]);
    let pages = KeptMap::read(&memory, ARRAY, START, after.page_count()).expect("whole");
    pages.pages.iter().for_each(|(page, bits)| after.load_kept(*page, bits));
    let written = |stripe| after.is_written(at(stripe));
    assert!(written(3) && written(STRIPES - 1) && !written(64) && !written(5));
    assert_eq!((after.written_count(), after.take_dirty_pages()), (2, vec![0, 2]));
    assert!(!after.is_settled_in(64..65), "the members would bring it back");
}

#[test]
fn what_a_start_kept_is_in_the_map_of_the_next_before_anything_changes() {
    let memory = Memory::default();
    let map = map();
    map.set(at(BITS_PER_PAGE), true);
    map.keep_in(KeptMap::make(&memory, ARRAY, START, map.page_count()).expect("made"));
    assert_eq!(read(&memory, (ARRAY, START)), Some(vec![1]));
}

#[test]
fn the_first_mark_after_a_change_is_in_the_map_and_later_ones_are_not() {
    let memory = Memory::default();
    let map = kept_by(&memory);
    let mark = || KeptMap::read(&memory, ARRAY, START, map.page_count()).expect("whole").mark;
    assert!(!map.lacks_mark() && !map.begin_mark());
    map.end_mark(Some(7), false);
    assert_eq!(mark(), 0, "nothing has changed");
    map.set(at(3), true);
    assert!(map.lacks_mark());
    assert_eq!(mark(), 7);
    assert!(map.begin_mark() && !map.lacks_mark());
    map.end_mark(None, true);
    assert!(map.lacks_mark(), "the members do not have it");
    assert!(map.begin_mark());
    // It comes in between: the next mark follows it.
    map.set(at(BITS_PER_PAGE), true);
    map.end_mark(Some(9), true);
    assert_eq!(mark(), 9);
    assert!(map.lacks_mark() && map.begin_mark());
    map.end_mark(Some(10), true);
    assert!(!map.begin_mark());
    map.end_mark(Some(11), false);
    assert_eq!(mark(), 10, "members with mark 10 have all that the map says");
    assert_eq!(read(&memory, (ARRAY, START)), Some(vec![0, 1]));
}

#[test]
fn a_map_of_another_array_or_start_or_with_a_damaged_page_is_not_believed() {
    let memory = Memory::default();
    kept_by(&memory).set(at(3), true);
    let name = place_name(ARRAY, START);
    let own = memory.files.lock().expect("ours")[&name].clone();
    let with = |change: fn(&mut Vec<u8>)| {
        let mut bytes = own.clone();
        change(&mut bytes);
        memory.files.lock().expect("ours").insert(name.clone(), bytes);
        read(&memory, (ARRAY, START))
    };
    assert_eq!(with(|_| ()), Some(vec![0]));
    assert_eq!(with(|bytes| bytes[40] ^= 1), None, "a bit");
    assert_eq!(with(|bytes| bytes[8192..].fill(0)), None, "a page that was never put");
    assert_eq!(with(|bytes| bytes.truncate(8192)), None, "too short");
    assert_eq!(with(|bytes| bytes.rotate_left(4096)), None, "pages in other places");
    for other in [(Uuid::from_u128(1), START), (ARRAY, Uuid::from_u128(2)), (START, ARRAY)] {
        assert_eq!(read(&memory, other), None, "there is none of that name");
        let place = place_name(other.0, other.1);
        memory.files.lock().expect("ours").insert(place, own.clone());
        assert_eq!(read(&memory, other), None, "its pages name their start");
    }
}

#[test]
fn a_map_that_misses_a_change_is_found_by_nobody() {
    let memory = Memory::default();
    let map = kept_by(&memory);
    map.set(at(3), true);
    memory.fails.store(true, Ordering::Relaxed);
    map.set(at(4), true);
    assert!(map.has_broken_kept_map() && !map.is_kept());
    assert!(!map.outlives_process_in(3..5), "whoever waits now waits for a flush");
    assert!(memory.names().is_empty());
    memory.fails.store(false, Ordering::Relaxed);
    map.set(at(5), true);
    assert!(memory.names().is_empty() && !map.is_kept());
}
