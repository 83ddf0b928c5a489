//! What devices of arrays with checksums lie about: that it is repaired within the budget, that the
//! device is named, and that beyond the budget errors come out and nothing wrong.
//!
//! What must stay true: only devices that have lied are blamed (`life::judge_events`), and whoever
//! had a block stored anew while everything healed was blamed before.

use crate::audit;
use crate::bay::{Bay, Bays};
use crate::life::{Outlook, assemble};
use crate::ordeal::Ordeals;
use crate::stage::Stage;
use ashlar_engine::{Array, Engine, SlotState, event_names as names};
use ashlar_layout::Geometry;
use ashlar_ondisk::Role;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::checksums::{SumPageIdentity, UNKNOWN, block_sum, locate, place_offset};
use ashlar_sim::{Random, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripeNo, to_u64, to_usize};
use std::collections::BTreeSet;

/// A block that is not what it should be: the bay, where, and what it holds.
pub(crate) type Spoilt = (usize, Extent, Vec<u8>);

/// Blocks of the window that are spoilt on devices in sync, but for those that cannot be read: what
/// they hold nobody sees.
pub(crate) fn on_members(bays: &Bays, array: &Array) -> Vec<Spoilt> {
    let mut found = Vec::new();
    for (at, bay) in bays.all.iter().enumerate() {
        let is_in_sync = |slot: usize| array.slot_states()[slot] == SlotState::InSync;
        if !bay.slot.is_some_and(is_in_sync) || !bay.disk.is_spoilt_anywhere() {
            continue;
        }
        let end = bays.data_offset + rows_end(array);
        for offset in (bays.data_offset..end).step_by(to_usize(BLOCK_BYTES)) {
            let block = Extent::new(offset, BLOCK_BYTES);
            if bay.disk.is_spoilt(block) && !bay.disk.is_broken(block) {
                found.push((at, block, bay.disk.peek(block)));
            }
        }
    }
    found
}

/// Rows with `spoilt` blocks in which a start after a crash may believe what it finds, if they are
/// in doubt: those that were written since the last flush, so that nobody knows what their blocks
/// should be, and those with more blocks spoilt or `gone` than the parity replaces. All others it
/// mends (docs/on-disk-format.md, R8 and R9; docs/adr/0013, *Price*).
pub(crate) fn believed(
    (stage, geometry): (&Stage, &Geometry),
    spoilt: &BTreeSet<(StripeNo, StripIdx, u64)>,
    is_gone: impl Fn(StripeNo, StripIdx) -> bool,
) -> BTreeSet<(StripeNo, u64)> {
    let (config, ledger) = (stage.config(), stage.ledger());
    let start = config.window.0 * config.stripe_bytes();
    let is_flushed = |stripe: StripeNo, row: u64| {
        (0..to_u64(geometry.data_strips())).all(|strip| {
            let within = strip * geometry.strip_bytes() + row * BLOCK_BYTES;
            let first = (stripe.0 * config.stripe_bytes() + within - start) / config.unit_bytes;
            ledger.are_flushed(first..first + BLOCK_BYTES / config.unit_bytes)
        })
    };
    let is_mended = |&(stripe, row): &(StripeNo, u64)| {
        let strips = (0..geometry.stripe_width()).map(StripIdx::from_at);
        let is_wrong =
            |strip: &StripIdx| is_gone(stripe, *strip) || spoilt.contains(&(stripe, *strip, row));
        strips.filter(is_wrong).count() <= geometry.parity_strips() && is_flushed(stripe, row)
    };
    let rows = spoilt.iter().map(|(stripe, _, row)| (*stripe, *row));
    rows.filter(|row| !is_mended(row)).collect()
}

/// Where the data of a member ends, from where it begins.
fn rows_end(array: &Array) -> u64 {
    let geometry = array.geometry();
    geometry.member_bytes()
}

/// Blocks that did not match, as the engine has counted them.
pub(crate) fn mismatches(engine: &Engine) -> usize {
    let all = engine.events().since(0);
    all.iter().filter(|event| event.name == names::MEMBER_CHECKSUM_MISMATCH).count()
}

/// Where a block was stored anew since, the device was named.
pub(crate) fn were_named(engine: &Engine, stage: &Stage, (bays, spoilt): (&Bays, &[Spoilt])) {
    // What clients gave back may be given back on the members, whatever it was.
    if stage.config().passes_discards {
        return;
    }
    let named: Vec<String> = engine
        .events()
        .since(0)
        .into_iter()
        .filter(|event| event.name == names::MEMBER_CHECKSUM_MISMATCH)
        .flat_map(|event| event.fields)
        .filter_map(|(name, value)| (name == "path").then_some(value))
        .collect();
    for (at, block, held) in spoilt {
        let Bay { disk, name, .. } = &bays.all[*at];
        if disk.peek(*block) == *held {
            continue;
        }
        if !named.contains(name) {
            stage.fail(format!("{name} was repaired at {block}, and no event names it"));
        }
        stage.mark("spoilt.repaired_and_named");
    }
}

impl Ordeals<'_> {
    /// More blocks of a row are spoilt than the parity replaces: whatever is read is right or an
    /// error. Undone afterwards.
    pub(crate) fn spoil_beyond(&mut self, random: &mut Random, outlook: &Outlook) {
        let config = self.stage.config();
        // After a crash rows in doubt are taken as they are found.
        let is_clear = |bay: &Bay| bay.trouble.is_none() && !bay.disk.is_spoilt_anywhere();
        if !config.has_checksums || outlook.was_crash || !self.bays.all.iter().all(is_clear) {
            return;
        }
        let Some(geometry) = self.bays.geometry else { return };
        let before = self.keep();
        let stripe = StripeNo(config.window.0 + random.below(config.window.1));
        let row = random.below(geometry.strip_bytes() / BLOCK_BYTES) * BLOCK_BYTES;
        let mut strips: Vec<usize> = (0..geometry.stripe_width()).collect();
        random.shuffle(&mut strips);
        // A stream of its own, so that this draws nothing from the other.
        let mut own = Random::stream(random.clone().next_u64(), 0xD4);
        // What a device that is out would say of its block, nobody can: what is decoded for it with
        // such parity looks right.
        let is_forged = geometry.data_strips() > 1 && own.percent(40) && self.lacks_none();
        let mut spoilt = geometry.parity_strips() + 1;
        if is_forged {
            let parity = StripIdx::from_at(geometry.data_strips());
            self.forge((&geometry, stripe, parity), row);
            strips.retain(|strip| *strip < geometry.data_strips());
            spoilt = 1;
        }
        for strip in strips.into_iter().take(spoilt).map(StripIdx::from_at) {
            let member: MemberIdx = geometry.place(geometry.stripe(stripe), strip).member;
            let Some(at) = self.bays.in_slot(member.at()) else { continue };
            let place = self.bays.strip_extent(&geometry, stripe, strip);
            self.bays.all[at].disk.rot(Extent::new(place.offset + row, BLOCK_BYTES));
        }
        let how = if is_forged { "with parity of another time" } else { "beyond the budget" };
        self.stage.say(|| format!("ordeal: a row of stripe {stripe} is spoilt {how}"));
        let failed_before = self.stage.marks().of("ordeal.read_failed");
        let (opener, stage, bays) = (self.world.opener(), self.stage.clone(), &mut *self.bays);
        self.world
            .run(async |handle| {
                let running = assemble((opener, &handle), &stage, bays, outlook).await;
                stage.allow_errors(true);
                audit::read_all(&running.engine, &stage).await;
            })
            .done();
        self.world.call_off();
        self.world.stop(Stop::Kill);
        self.stage.mark(if is_forged { "ordeal.parity_forged" } else { "ordeal.spoilt_beyond" });
        if self.stage.marks().of("ordeal.read_failed") > failed_before {
            self.stage.mark("ordeal.spoilt_is_an_error");
        }
        self.put_back(before);
        self.stage.say(|| "ordeal: over, all is as it was".to_owned());
    }

    /// Every slot has a device that holds all it should.
    fn lacks_none(&self) -> bool {
        self.bays.at_rest().is_some_and(|rest| {
            let is_held =
                |slot| rest.newest.holder(slot).is_some_and(|holder| holder.role == Role::Active);
            (0..rest.newest.geometry.slots()).map(MemberIdx).all(is_held)
        })
    }

    /// A block of a strip says something else, and so does its checksum: as if the device had lost
    /// the last writes of both. By itself it is right; only of what follows from it can anybody see
    /// that it is not.
    fn forge(&self, (geometry, stripe, strip): (&Geometry, StripeNo, StripIdx), row: u64) {
        let member = geometry.place(geometry.stripe(stripe), strip).member;
        let Some(bay) = self.bays.in_slot(member.at()).map(|at| &self.bays.all[at]) else { return };
        let Some(newest) = self.bays.at_rest().map(|rest| rest.newest) else { return };
        let block = self.bays.strip_extent(geometry, stripe, strip).offset + row;
        let number = (block - self.bays.data_offset) / BLOCK_BYTES;
        let (page, entry) = locate(number);
        let identity = SumPageIdentity { array_tag: array_tag(newest.array_uuid), page };
        let place_of = |place| newest.areas.checksums.offset + place_offset(page, place);
        let read = |place| bay.disk.peek(Extent::new(place_of(place), BLOCK_BYTES));
        let (first, second) = (read(0), read(1));
        let Some((mut table, place)) = identity.newest([Some(&first), Some(&second)]) else {
            return;
        };
        if table.sums[entry] == UNKNOWN {
            return;
        }
        let mut bytes = bay.disk.peek(Extent::new(block, BLOCK_BYTES));
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        table.sums[entry] = block_sum(member, number, &bytes);
        bay.disk.poke(block, &bytes);
        bay.disk.poke(place_of(place), &identity.encode(table.sequence, &table.sums));
    }
}
