//! Pages of bits on the members: which stripes were ever written, which regions were being written.
//!
//! What must stay true: a page that nobody has intact is taken the safe way, as if all its bits
//! were set. Of the intact ones the highest sequence counts. Nothing is kept but the page looked at
//! last, whatever the geometry claims.

use crate::bytes::{checksum, index, is_blank, u32_at, u64_at};
use crate::image::ReadAt;
use crate::superblock::Area;
use std::cell::RefCell;

/// Bits of a page.
pub const PAGE_BITS: u64 = 32_512;
const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 32;

/// One kind of bitmap of an array.
#[derive(Debug)]
pub struct Pages {
    magic: [u8; 4],
    area: Area,
    /// Where pages lie for which it has no room, in two blocks each.
    more: Area,
    /// Blocks that a page can lie in, written in turns.
    places: u64,
    /// Zeros are a page that was never written.
    has_blanks: bool,
    /// What tells its pages from those of an earlier use of the area.
    life_tag: u64,
    latest: RefCell<Option<(u64, Option<Vec<u8>>)>>,
}

/// A member that has pages.
pub struct Keeper<'a, I> {
    /// Its image.
    pub image: &'a I,
    /// What its pages carry, or may: of an image that does not say which member it is, that of each
    /// it could be.
    pub tags: Vec<u64>,
    /// Whether its head is as it was written; a page of zeros elsewhere may be the work of what
    /// destroyed it.
    pub blank_counts: bool,
}

impl Pages {
    /// The map in `area`, of an array that was created with `stripes` stripes. Each page has two
    /// places, unless the area is too small for that; where it has, creation may have made all
    /// pages (`is_whole`). `more` has pages of stripes that growths opened.
    pub fn written_map(area: Area, more: Area, stripes: u64, is_whole: bool) -> Pages {
        let pages = stripes.div_ceil(PAGE_BITS);
        let places = if area.bytes / 4096 >= pages.saturating_mul(2) { 2 } else { 1 };
        Pages { more, has_blanks: !is_whole || places == 1, ..Pages::new(*b"AWRM", area, places) }
    }

    /// The write-intent bitmap in `area`.
    pub fn write_intent(area: Area) -> Pages {
        Pages::new(*b"AWIB", area, 1)
    }

    /// The states of cells of an entry of the spare table.
    pub fn spare_states(area: Area, life_tag: u64) -> Pages {
        Pages { life_tag, has_blanks: false, ..Pages::new(*b"ASCS", area, 2) }
    }

    fn new(magic: [u8; 4], area: Area, places: u64) -> Pages {
        let (more, latest) = (Area { offset: 0, bytes: 0 }, RefCell::new(None));
        Pages { magic, area, more, places, has_blanks: true, life_tag: 0, latest }
    }

    /// The pair of bits `number` of page `page`, by the newest copy; 0 if nobody has it.
    pub fn pair<I: ReadAt>(&self, page: u64, number: u64, keepers: &[Keeper<'_, I>]) -> u8 {
        let bit = index(2 * number);
        self.with_page(page, keepers, |bits| {
            bits.map_or(0, |bits| bits[HEADER_BYTES + bit / 8] >> (bit % 8) & 3)
        })
    }

    /// Pages that lie in the first `bytes` of a member.
    pub fn within(&self, bytes: u64) -> u64 {
        let reach = |area: Area| bytes.saturating_sub(area.offset).min(area.bytes) / 4096;
        reach(self.area) / self.places + reach(self.more) / 2
    }

    /// Where a place of a page lies.
    fn offset(&self, number: u64, place: u64) -> Option<u64> {
        let first = self.area.bytes / 4096 / self.places;
        let (area, block) = match number.checked_sub(first) {
            Some(number) if self.more.bytes > 0 => (self.more, number.checked_mul(2)?),
            _ => (self.area, number.checked_mul(self.places)?),
        };
        let at = block.checked_add(place)?.checked_mul(4096).filter(|at| *at < area.bytes)?;
        area.offset.checked_add(at)
    }

    /// Whether bit `number` is set, by the newest page that a keeper has.
    pub fn is_set<I: ReadAt>(&self, number: u64, keepers: &[Keeper<'_, I>]) -> bool {
        let bit = index(number % PAGE_BITS);
        self.with_page(number / PAGE_BITS, keepers, |page| {
            page.is_none_or(|bits| bits[HEADER_BYTES + bit / 8] & (1 << (bit % 8)) != 0)
        })
    }

    /// Whether no bit of page `number` is set.
    pub fn is_clear<I: ReadAt>(&self, number: u64, keepers: &[Keeper<'_, I>]) -> bool {
        self.with_page(number, keepers, |page| {
            page.is_some_and(|bits| is_blank(&bits[HEADER_BYTES..]))
        })
    }

    /// Whether nobody has page `number` intact.
    pub fn is_lost<I: ReadAt>(&self, number: u64, keepers: &[Keeper<'_, I>]) -> bool {
        self.with_page(number, keepers, |page| page.is_none())
    }

    fn with_page<I: ReadAt, T>(
        &self,
        number: u64,
        keepers: &[Keeper<'_, I>],
        look: impl FnOnce(Option<&[u8]>) -> T,
    ) -> T {
        let mut latest = self.latest.borrow_mut();
        if !matches!(&*latest, Some((kept, _)) if *kept == number) {
            *latest = Some((number, self.newest(number, keepers)));
        }
        look(latest.as_ref().and_then(|(_, page)| page.as_deref()))
    }

    fn newest<I: ReadAt>(&self, number: u64, keepers: &[Keeper<'_, I>]) -> Option<Vec<u8>> {
        let mut newest: Option<(u64, Vec<u8>)> = None;
        for (keeper, place) in keepers.iter().flat_map(|it| (0..self.places).map(move |p| (it, p)))
        {
            let Some((sequence, page)) = self.read(number, place, keeper) else { continue };
            if newest.as_ref().is_none_or(|(best, _)| *best < sequence) {
                newest = Some((sequence, page));
            }
        }
        newest.map(|(_, page)| page)
    }

    /// One place of the page on one keeper with its sequence, if it is intact. A blank one has
    /// sequence 0.
    fn read<I: ReadAt>(
        &self,
        number: u64,
        place: u64,
        keeper: &Keeper<'_, I>,
    ) -> Option<(u64, Vec<u8>)> {
        let offset = self.offset(number, place)?;
        let mut page = vec![0; PAGE_BYTES];
        keeper.image.read_at(offset, &mut page).ok()?;
        if is_blank(&page) {
            return (self.has_blanks && keeper.blank_counts).then_some((0, page));
        }
        let is_ours = page[..4] == self.magic
            && u64::from(u32_at(&page, 8)) == number
            && keeper.tags.contains(&(u64_at(&page, 16) ^ self.life_tag))
            && u32_at(&page, 4) == checksum(&page, 4);
        is_ours.then(|| (u64_at(&page, 24), page))
    }
}
