//! What is looked at when everything is at rest: all units through the engine, and the devices with
//! the test's own eyes.
//!
//! What must stay true: the white box knows the geometry and the code, nothing of the engine.

use crate::client;
use crate::director::TANK;
use crate::drive_slot::{DriveSlots, Rest};
use crate::life::{Outlook, window_stripes};
use crate::stage::Stage;
use ashlar_engine::{ArrayStatus, Engine};
use ashlar_layout::Geometry;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::checksums::{SumPageIdentity, block_sum, locate, place_offset};
use ashlar_ondisk::format::BITS_PER_PAGE;
use ashlar_ondisk::{BitmapKind, ChecksumKind, ConsistencyPolicy, PageIdentity, Role};
use ashlar_parity::{Code, Kernel, Locality};
use ashlar_sim::Random;
use ashlar_units::{
    BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, MemberIdx, StripIdx, StripeNo, to_u64, to_usize,
};

/// Bytes of one read of the audit.
const READ_BYTES: u64 = 64 << 10;

/// Read every unit and hold it against the ledger.
pub(crate) async fn read_all(engine: &Engine, stage: &Stage) {
    let own = stage.clone();
    let look = async move |volume: ashlar_engine::ArrayVolume| {
        let window = own.ledger().bytes();
        let mut offset = 0;
        while offset < window {
            let extent = Extent::new(offset, READ_BYTES.min(window - offset));
            if let Err(kind) = client::read(&volume, &own, extent).await {
                if !own.errors_are_allowed() {
                    own.fail(format!("the audit's read at {extent} was answered {kind:?}"));
                }
                own.mark("abuse.read_failed");
            }
            offset = extent.end();
        }
    };
    if let Err(refusal) = engine.with_volume(0, TANK, look).await {
        stage.fail(format!("no volume to audit: {refusal}"));
    }
}

/// The same, from the end.
pub(crate) async fn read_backwards(engine: &Engine, stage: &Stage) {
    let own = stage.clone();
    let look = async move |volume: ashlar_engine::ArrayVolume| {
        let mut end = own.ledger().bytes();
        while end > 0 {
            let offset = (end - 1) / READ_BYTES * READ_BYTES;
            let extent = Extent::new(offset, end - offset);
            if let Err(kind) = client::read(&volume, &own, extent).await {
                own.fail(format!("the audit's read at {extent} was answered {kind:?}"));
            }
            end = offset;
        }
    };
    if let Err(refusal) = engine.with_volume(0, TANK, look).await {
        stage.fail(format!("no volume to audit: {refusal}"));
    }
}

/// Lose as many members of each group as may be lost, and read everything.
pub(crate) async fn read_with_losses(
    engine: &Engine,
    stage: &Stage,
    drive_slots: &mut DriveSlots,
    random: &mut Random,
) {
    for set in drive_slots.sets() {
        let mut slots: Vec<usize> = set.collect();
        random.shuffle(&mut slots);
        for slot in &slots[..stage.config().losses()] {
            if let Some(at) = drive_slots.in_slot(*slot) {
                drive_slots.all[at].disk.vanish();
            }
        }
    }
    stage.say(|| "as many members vanish as may be lost".to_owned());
    read_all(engine, stage).await;
}

/// The generation the devices are at, on their media: it never falls.
pub(crate) fn generation(stage: &Stage, drive_slots: &DriveSlots, before: u64) -> u64 {
    let Some(now) = drive_slots.durable_generation() else { return before };
    if now < before {
        stage.fail(format!("generation fell from {before} to {now}"));
    }
    now
}

/// Nobody uses the devices and the array was stopped cleanly: everything on them agrees.
pub(crate) fn at_rest(stage: &Stage, drive_slots: &DriveSlots, generation: u64) {
    let Some(rest) = drive_slots.at_rest() else { stage.fail("no superblock at rest") };
    if rest.newest.generation != generation || rest.newest.unclean {
        stage.fail("the superblocks at rest are not those of a clean stop");
    }
    let Some(geometry) = rest.newest.geometry.to_layout() else {
        stage.fail("an impossible geometry at rest")
    };
    let members = members(stage, drive_slots, &rest, &geometry);
    let written = written(stage, drive_slots, &rest, &members);
    let sums = Table { stage, drive_slots, rest: &rest, members: &members };
    let mut checked = 0;
    for stripe in window_stripes(stage) {
        if written(stripe) {
            check_stripe(stage, (drive_slots, &members), &geometry, StripeNo(stripe));
            if rest.newest.checksums == ChecksumKind::Crc32c {
                sums.check(&geometry, StripeNo(stripe));
            }
            checked += 1;
        }
    }
    stage.marks().add("audit.stripes_checked", checked);
}

/// The drive slot in each slot; all know the newest generation.
fn members(
    stage: &Stage,
    drive_slots: &DriveSlots,
    rest: &Rest,
    geometry: &Geometry,
) -> Vec<usize> {
    let mut members = Vec::new();
    for slot in 0..geometry.members() {
        let holds = |at: &usize| rest.places[*at] == Some((slot, Role::Active));
        let Some(at) = (0..drive_slots.all.len()).find(holds) else {
            stage.fail(format!("no device is active in slot {slot} at rest"))
        };
        if rest.generations[at] != Some(rest.newest.generation) {
            stage.fail(format!("{} missed a generation", drive_slots.all[at].name));
        }
        members.push(at);
    }
    members
}

/// What pages carry on a drive slot.
fn page_tag(rest: &Rest, at: usize) -> u64 {
    rest.newest.page_tag(rest.own[at].as_ref().expect("it is active").member_uuid)
}

/// Which stripes the members call written: all say the same.
fn written(
    stage: &Stage,
    drive_slots: &DriveSlots,
    rest: &Rest,
    members: &[usize],
) -> impl Fn(u64) -> bool + use<> {
    let places = rest.newest.written_map_places();
    let identity = |at: usize, page: u64| PageIdentity {
        kind: BitmapKind::WrittenMap,
        owner_tag: page_tag(rest, at),
        page: u32::try_from(page).expect("few pages"),
    };
    let last = window_stripes(stage).end;
    let mut pages = Vec::new();
    for page in 0..last.div_ceil(BITS_PER_PAGE) {
        let read = |at: &usize| {
            let place = |place: u64| {
                let offset = rest.newest.written_map_offset(page, place);
                let bytes = drive_slots.all[*at].disk.peek(Extent::new(offset, BLOCK_BYTES));
                let read = identity(*at, page).decode(&bytes).ok();
                read.filter(|read| read.sequence > 0 || !rest.newest.has_whole_map())
            };
            let newest = (0..places).filter_map(place).max_by_key(|page| page.sequence);
            let Some(newest) = newest else {
                stage.fail(format!("{} has no page {page} of the map", drive_slots.all[*at].name))
            };
            newest.bits
        };
        let copies: Vec<_> = members.iter().map(read).collect();
        let first = copies[0];
        if copies.iter().any(|copy| *copy != first) {
            stage.fail(format!("the members disagree about page {page} of the written map"));
        }
        pages.push(first);
    }
    move |stripe: u64| {
        let (page, bit) = (to_usize(stripe / BITS_PER_PAGE), stripe % BITS_PER_PAGE);
        pages[page][to_usize(bit / 64)] & (1 << (bit % 64)) != 0
    }
}

fn check_stripe(
    stage: &Stage,
    (drive_slots, members): (&DriveSlots, &[usize]),
    geometry: &Geometry,
    stripe: StripeNo,
) {
    let strip = |at: usize| {
        let index = StripIdx::from_at(at);
        let member = geometry.place(geometry.stripe(stripe), index).member.at();
        drive_slots.all[members[member]]
            .disk
            .peek(drive_slots.strip_extent(geometry, stripe, index))
    };
    let (k, m) = (geometry.data_strips(), geometry.parity_strips());
    let data: Vec<Vec<u8>> = (0..k).map(strip).collect();
    let mut wanted = vec![vec![0; data[0].len()]; m];
    if m > 0 {
        let code = Code::new(k, m, Kernel::best()).expect("geometries are valid codes");
        let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut targets: Vec<Option<&mut [u8]>> =
            wanted.iter_mut().map(|strip| Some(strip.as_mut_slice())).collect();
        code.generate(&sources, &mut targets, Locality::Cached).expect("equal lengths");
    }
    for (at, wanted) in wanted.iter().enumerate() {
        let found = strip(k + at);
        if let Some(byte) = found.iter().zip(wanted).position(|(one, other)| one != other) {
            stage.fail(format!(
                "parity {at} of stripe {stripe} is not that of its data from byte {byte}"
            ));
        }
    }
    check_data(stage, geometry, stripe, &data);
}

/// What lies on the devices is what a read would say.
fn check_data(stage: &Stage, geometry: &Geometry, stripe: StripeNo, data: &[Vec<u8>]) {
    let window = stage.config().window.0 * geometry.stripe_bytes();
    let start = stripe.0 * geometry.stripe_bytes() - window;
    for (at, strip) in data.iter().enumerate() {
        let extent = Extent::new(start + to_u64(at) * geometry.strip_bytes(), to_u64(strip.len()));
        let begun = stage.ledger().begin_read();
        let observed = stage.ledger().observe(begun, extent, strip);
        if let Err(wrong) = observed {
            stage.fail(format!("on the device, stripe {stripe}, strip {at}: {wrong}"));
        }
    }
}

/// The checksums that the members keep.
struct Table<'t> {
    stage: &'t Stage,
    drive_slots: &'t DriveSlots,
    rest: &'t Rest,
    /// The drive slot in each slot.
    members: &'t [usize],
}

impl Table<'_> {
    /// Every block of a stripe has its checksum in the table of its member.
    fn check(&self, geometry: &Geometry, stripe: StripeNo) {
        for strip in (0..geometry.stripe_width()).map(StripIdx::from_at) {
            let place = geometry.place(geometry.stripe(stripe), strip);
            let disk = &self.drive_slots.all[self.members[place.member.at()]].disk;
            let bytes = disk.peek(self.drive_slots.strip_extent(geometry, stripe, strip));
            let first = place.offset / BLOCK_BYTES;
            for (number, block) in (first..).zip(bytes.chunks(BLOCK_BYTES_USIZE)) {
                let wanted = block_sum(place.member, number, block);
                if self.sum(place.member, number) != Some(wanted) {
                    let name = &self.drive_slots.all[self.members[place.member.at()]].name;
                    self.stage.fail(format!(
                        "stripe {stripe}, {strip:?}: the table of {name} has another checksum of \
                         block {number}"
                    ));
                }
            }
        }
    }

    fn sum(&self, member: MemberIdx, number: u64) -> Option<u32> {
        let (page, entry) = locate(number);
        let (area, tag) =
            (self.rest.newest.areas.checksums, array_tag(self.rest.newest.array_uuid));
        let disk = &self.drive_slots.all[self.members[member.at()]].disk;
        let read =
            |place| disk.peek(Extent::new(area.offset + place_offset(page, place), BLOCK_BYTES));
        let (first, second) = (read(0), read(1));
        let identity = SumPageIdentity { array_tag: tag, page };
        let (newest, _) = identity.newest([Some(&first), Some(&second)])?;
        Some(newest.sums[entry])
    }
}

/// A start was read-only: its contract says so, and it names its way out.
pub(crate) fn read_only(stage: &Stage, status: &ArrayStatus, outlook: &Outlook, missing: bool) {
    let is_owed = outlook.was_crash && (outlook.was_degraded || missing);
    // A clean stop with a resync to come is no crash, but parity is not trusted all the same.
    let is_owed = is_owed || outlook.was_unsynced && missing;
    if stage.config().policy == ConsistencyPolicy::Log || !is_owed {
        stage.fail("the array started read-only against its contract");
    }
    let way_out = status.read_only.map(|why| why.way_out(TANK)).unwrap_or_default();
    if !way_out.contains("--accept-dirty-degraded") {
        stage.fail(format!("no way out of a read-only start is named: {way_out}"));
    }
    stage.mark("start.read_only");
}
