//! Sparse bytes: pages of 4 KiB in a map, zeros where there is none.
//!
//! What must stay true: iteration follows addresses, never memory layout, so that it is the same
//! every time.

use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_units::{to_u64, to_usize};

pub(crate) const PAGE_BYTES: u64 = 4096;

/// Shared between copies of the same bytes until one of them is written: a test keeps and restores
/// whole disks.
type Page = Arc<[u8]>;

#[derive(Clone, Default)]
pub(crate) struct Pages(BTreeMap<u64, Page>);

impl Pages {
    /// Copies what is there, and where nothing is what is `below`, to all of `target`; zeros where
    /// neither has a page.
    pub(crate) fn copy_over(&self, below: &Pages, offset: u64, target: &mut [u8]) {
        for part in parts(offset, to_u64(target.len())) {
            let from = to_usize(part.offset - offset);
            let target = &mut target[from..from + part.bytes];
            match self.0.get(&part.page).or_else(|| below.0.get(&part.page)) {
                Some(page) => target.copy_from_slice(&page[part.at..part.at + part.bytes]),
                None => target.fill(0),
            }
        }
    }

    /// Stores `source`; a page that is new here starts as a copy of that of `below`.
    pub(crate) fn write_over(&mut self, below: &Pages, offset: u64, source: &[u8]) {
        for part in parts(offset, to_u64(source.len())) {
            let from = to_usize(part.offset - offset);
            let source = &source[from..from + part.bytes];
            if to_u64(part.bytes) == PAGE_BYTES {
                self.0.insert(part.page, Page::from(source));
                continue;
            }
            self.page_over(below, part.page)[part.at..part.at + part.bytes].copy_from_slice(source);
        }
    }

    /// Makes `bytes` bytes zeros, here and as seen over `below`. The work depends on the pages that
    /// are there, not on the length.
    pub(crate) fn zero_over(&mut self, below: &Pages, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (first, last) = (offset / PAGE_BYTES, (offset + bytes - 1) / PAGE_BYTES);
        let mut there: Vec<u64> = self.0.range(first..=last).map(|(page, _)| *page).collect();
        there.extend(below.0.range(first..=last).map(|(page, _)| *page));
        for page in there {
            let start = page * PAGE_BYTES;
            let from = offset.max(start) - start;
            let to = (offset + bytes).min(start + PAGE_BYTES) - start;
            self.page_over(below, page)[to_usize(from)..to_usize(to)].fill(0);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn page_over(&mut self, below: &Pages, page: u64) -> &mut [u8] {
        Arc::make_mut(self.0.entry(page).or_insert_with(|| match below.0.get(&page) {
            Some(page) => Arc::clone(page),
            None => Arc::from(vec![0; to_usize(PAGE_BYTES)]),
        }))
    }
}

/// The piece of an extent that is on one page.
struct Part {
    page: u64,
    /// Where it begins, in the whole address space and within the page.
    offset: u64,
    at: usize,
    bytes: usize,
}

fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let (mut next, end) = (offset, offset + bytes);
    std::iter::from_fn(move || {
        if next == end {
            return None;
        }
        let at = next % PAGE_BYTES;
        let bytes = (end - next).min(PAGE_BYTES - at);
        let page = next / PAGE_BYTES;
        let part = Part { page, offset: next, at: to_usize(at), bytes: to_usize(bytes) };
        next += bytes;
        Some(part)
    })
}
