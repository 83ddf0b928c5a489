//! The pages of the checksum table that are in memory, for all workers.
//!
//! What must stay true: each page has at most one copy, and one reader fetches it for all that
//! wait. A page that is dirty or held stays in memory, so a fetched page is never older than an
//! earlier copy. The cache holds at most its limit, plus the pages that requests under way hold.
//!
//! The locks here are held for a look into a table, never across I/O.

use super::page::Page;
use crate::checksums::page::Key;
use ashlar_device::Fault;
use ashlar_units::{BLOCK_BYTES, to_usize};
use futures_channel::oneshot;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tables that the pages are dealt out to, so that workers seldom meet.
const SHELVES: usize = 16;

/// Pages that each of them has room for at least.
const SHELF_PAGES_MIN: usize = 4;

/// What became of fetching a page.
pub(super) type Fetched = Result<Arc<Page>, Fault>;

enum Entry {
    Here(Arc<Page>),
    /// Being fetched; these wait for it.
    Coming(Vec<oneshot::Sender<Fetched>>),
}

/// A keyed hash would cost as much as a fifth of a block's checksum, and nobody chooses keys.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        // A product is well spread in its upper bits; a table begins with the lower ones.
        self.0.rotate_left(26)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys hash as one word");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[derive(Default)]
struct Shelf {
    entries: HashMap<Key, Entry, BuildHasherDefault<KeyHasher>>,
    /// The pages that are here, next to be let go first.
    line: VecDeque<Key>,
}

/// Pages of the checksum table that are in memory, of 4 KiB each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheUsage {
    /// For how many there is room, beside those that requests under way hold.
    pub pages_room: usize,
    /// How many are here.
    pub pages: usize,
    /// The most that were here at once.
    pub pages_max: usize,
}

/// Pages in memory.
pub(crate) struct Cache {
    shelves: [Mutex<Shelf>; SHELVES],
    shelf_pages: usize,
    dirty: Mutex<Vec<Arc<Page>>>,
    dirty_count: AtomicUsize,
    pages: AtomicUsize,
    pages_max: AtomicUsize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// No page yet, and room for `bytes` of them.
    pub(super) fn new(bytes: u64) -> Cache {
        let shelf_pages = to_usize(bytes / BLOCK_BYTES) / SHELVES;
        Cache {
            shelves: Default::default(),
            shelf_pages: shelf_pages.max(SHELF_PAGES_MIN),
            dirty: Mutex::default(),
            dirty_count: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            pages_max: AtomicUsize::new(0),
        }
    }

    /// How many pages are here.
    pub(super) fn usage(&self) -> CacheUsage {
        CacheUsage {
            pages_room: self.shelf_pages * SHELVES,
            pages: self.pages.load(Ordering::Relaxed),
            pages_max: self.pages_max.load(Ordering::Relaxed),
        }
    }

    /// The page, if it is here.
    pub(super) fn get(&self, key: Key) -> Option<Arc<Page>> {
        match self.shelf(key).entries.get(&key)? {
            Entry::Here(page) => {
                page.was_used.store(true, Ordering::Relaxed);
                Some(Arc::clone(page))
            }
            Entry::Coming(_) => None,
        }
    }

    /// The page has changed and waits to be stored.
    pub(crate) fn note_dirty(&self, page: &Arc<Page>) {
        if page.mark_dirty() {
            self.dirty_count.fetch_add(1, Ordering::AcqRel);
            locked(&self.dirty).push(Arc::clone(page));
        }
    }

    /// The pages that wait to be stored, none of them any more.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Page>> {
        let taken = std::mem::take(&mut *locked(&self.dirty));
        self.dirty_count.fetch_sub(taken.len(), Ordering::AcqRel);
        taken
    }

    /// So many pages wait that those to come might find no room.
    pub(super) fn is_mostly_dirty(&self) -> bool {
        self.dirty_count.load(Ordering::Acquire) > self.shelf_pages * SHELVES / 2
    }

    fn shelf(&self, key: Key) -> MutexGuard<'_, Shelf> {
        let spread =
            (u64::from(key.page) << 16 | u64::from(key.member)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        locked(&self.shelves[to_usize(spread >> 60)])
    }

    /// The page, or a place in its line of waiters; true if the caller must fetch it.
    pub(super) fn get_or_wait(
        &self,
        key: Key,
    ) -> Result<Arc<Page>, (oneshot::Receiver<Fetched>, bool)> {
        let mut shelf = self.shelf(key);
        let (told, waits) = oneshot::channel();
        match shelf.entries.get_mut(&key) {
            Some(Entry::Here(page)) => return Ok(Arc::clone(page)),
            Some(Entry::Coming(waiting)) => {
                waiting.push(told);
                return Err((waits, false));
            }
            None => {}
        }
        shelf.entries.insert(key, Entry::Coming(vec![told]));
        Err((waits, true))
    }

    /// The page was fetched, or could not be: its waiters get the result.
    pub(super) fn put(&self, key: Key, fetched: Fetched) {
        let mut shelf = self.shelf(key);
        let before = shelf.entries.remove(&key);
        if let Ok(page) = &fetched {
            shelf.entries.insert(key, Entry::Here(Arc::clone(page)));
            shelf.line.push_back(key);
            let now = self.pages.fetch_add(1, Ordering::Relaxed) + 1;
            self.pages_max.fetch_max(now, Ordering::Relaxed);
            let gone = shelf.make_room(self.shelf_pages);
            self.pages.fetch_sub(gone, Ordering::Relaxed);
        }
        drop(shelf);
        if let Some(Entry::Coming(waiting)) = before {
            for told in waiting {
                // The caller may have gone.
                let _unwanted = told.send(fetched.clone());
            }
        }
    }
}

impl Shelf {
    /// Let pages go that nobody needs until there are few enough, or none can go. How many went.
    fn make_room(&mut self, most: usize) -> usize {
        let mut gone = 0;
        let mut looks = 2 * self.line.len();
        while self.line.len() > most && looks > 0 {
            looks -= 1;
            let Some(key) = self.line.pop_front() else { break };
            let is_needed = match self.entries.get(&key) {
                Some(Entry::Here(page)) => {
                    page.was_used.swap(false, Ordering::Relaxed)
                        || page.is_dirty()
                        || Arc::strong_count(page) > 1
                }
                _ => false,
            };
            if is_needed {
                self.line.push_back(key);
            } else {
                self.entries.remove(&key);
                gone += 1;
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, CacheUsage, Entry, Key, SHELVES};
    use crate::checksums::page::Page;
    use std::sync::Arc;

    fn key(page: u32) -> Key {
        Key { member: 0, device_epoch: 0, page }
    }

    pub(super) fn put(cache: &Cache, page: u32) -> Arc<Page> {
        let made = Arc::new(Page::new(key(page), None));
        cache.put(key(page), Ok(Arc::clone(&made)));
        made
    }

    #[test]
    fn pages_beyond_the_room_go_but_not_those_that_are_dirty_or_held() {
        let cache = Cache::new(0);
        let room = cache.usage().pages_room;
        let held = put(&cache, 0);
        let dirty = put(&cache, 1);
        dirty.set(5, 77);
        cache.note_dirty(&dirty);
        drop(dirty);
        for page in 2..2000 {
            drop(put(&cache, page));
        }
        let CacheUsage { pages, pages_max: most, .. } = cache.usage();
        assert!(pages <= room + 2 && most <= room + SHELVES, "{pages} of {room}, {most} at most");
        assert!(Arc::ptr_eq(&cache.get(key(0)).expect("held"), &held));
        assert_eq!(cache.get(key(1)).expect("dirty").sum(5), 77);
        assert!(cache.get(key(2)).is_none(), "the oldest went");
        let taken = cache.take_dirty();
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].take()[5], 77);
    }

    #[test]
    fn a_page_is_fetched_by_one_and_waited_for_by_all() {
        let cache = Cache::new(1 << 20);
        let Err((mut first, true)) = cache.get_or_wait(key(3)) else { panic!("nobody had it") };
        let Err((mut second, false)) = cache.get_or_wait(key(3)) else { panic!("it is coming") };
        assert!(cache.get(key(3)).is_none());
        let page = put(&cache, 3);
        for waits in [&mut first, &mut second] {
            let told = waits.try_recv().expect("told").expect("now").expect("well");
            assert!(Arc::ptr_eq(&told, &page));
        }
        assert!(matches!(cache.shelf(key(3)).entries.get(&key(3)), Some(Entry::Here(_))));
    }

    #[test]
    fn a_change_after_the_page_was_taken_is_stored_by_the_next_round() {
        let cache = Cache::new(1 << 20);
        let page = put(&cache, 0);
        page.set(1, 10);
        cache.note_dirty(&page);
        cache.note_dirty(&page);
        assert_eq!(cache.take_dirty().len(), 1, "listed once");
        assert_eq!(page.take()[1], 10);
        page.set(1, 11);
        cache.note_dirty(&page);
        assert_eq!(cache.take_dirty().len(), 1);
    }
}
