//! What devices of arrays with checksums lie about: that it is repaired within the budget, that the
//! device is named, and that beyond the budget errors come out and nothing wrong.
//!
//! What must stay true: only devices that have lied are blamed (`life::judge_events`), and whoever
//! had a block stored anew while everything healed was blamed before.

use crate::abuse::Abuses;
use crate::audit;
use crate::config::Payload;
use crate::drive_slot::{DriveSlot, DriveSlots};
use crate::life::{Outlook, assemble};
use crate::stage::Stage;
use ashlar_engine::{Array, Engine, SlotState, event_names as names};
use ashlar_layout::Geometry;
use ashlar_ondisk::Role;
use ashlar_ondisk::bitmap::array_tag;
use ashlar_ondisk::checksums::{SumPageIdentity, UNKNOWN, block_sum, locate, place_offset};
use ashlar_sim::{Random, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripeNo, to_u64, to_usize};
use std::collections::{BTreeMap, BTreeSet};

/// A block that is not what it should be: the drive slot, where, and what it holds.
pub(crate) type DamagedBlock = (usize, Extent, Vec<u8>);

/// Blocks of the window that are damaged on devices in sync, but for those that cannot be read:
/// what they hold nobody sees.
pub(crate) fn on_members(drive_slots: &DriveSlots, array: &Array) -> Vec<DamagedBlock> {
    let mut found = Vec::new();
    for (at, drive_slot) in drive_slots.all.iter().enumerate() {
        let is_in_sync = |slot: usize| array.slot_states()[slot] == SlotState::InSync;
        if !drive_slot.slot.is_some_and(is_in_sync) || !drive_slot.disk.is_damaged_anywhere() {
            continue;
        }
        let end = drive_slots.data_offset + rows_end(array);
        for offset in (drive_slots.data_offset..end).step_by(to_usize(BLOCK_BYTES)) {
            let block = Extent::new(offset, BLOCK_BYTES);
            if drive_slot.disk.is_damaged(block) && !drive_slot.disk.is_broken(block) {
                found.push((at, block, drive_slot.disk.peek(block)));
            }
        }
    }
    found
}

/// What a start after a crash may make of a row in doubt with damaged blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Believed {
    /// The damaged blocks count as found, and what follows from them.
    Damaged,
    /// Half of the row or more is damaged: it may as well be the part that was written last, and
    /// the start may take all of the row back to what that part is of.
    All,
}

/// Rows with `damaged` blocks in which a start after a crash may believe what it finds, if they are
/// in doubt: those that were written since the last flush, so that nobody knows what their blocks
/// should be, and those with more blocks damaged or `gone` than the parity replaces. All others it
/// repairs (docs/on-disk-format.md, R8 and R9; docs/adr/0013, *Price*).
pub(crate) fn believed(
    (stage, geometry): (&Stage, &Geometry),
    damaged: &BTreeSet<(StripeNo, StripIdx, u64)>,
    is_gone: impl Fn(StripeNo, StripIdx) -> bool,
) -> BTreeMap<(StripeNo, u64), Believed> {
    let (config, ledger) = (stage.config(), stage.ledger());
    let start = config.window.0 * config.stripe_bytes();
    let is_flushed = |stripe: StripeNo, row: u64| {
        (0..to_u64(geometry.data_strips())).all(|strip| {
            let within = strip * geometry.strip_bytes() + row * BLOCK_BYTES;
            let first = (stripe.0 * config.stripe_bytes() + within - start) / config.unit_bytes;
            ledger.are_flushed(first..first + BLOCK_BYTES / config.unit_bytes)
        })
    };
    let strips = || (0..geometry.stripe_width()).map(StripIdx::from_at);
    let judged = |(stripe, row): (StripeNo, u64)| {
        let lies = strips().filter(|strip| damaged.contains(&(stripe, *strip, row))).count();
        let lost = strips().filter(|strip| is_gone(stripe, *strip)).count();
        let is_wrong =
            |strip: &StripIdx| is_gone(stripe, *strip) || damaged.contains(&(stripe, *strip, row));
        let is_within = strips().filter(is_wrong).count() <= geometry.parity_strips();
        let left = geometry.stripe_width() - lost;
        let needed = geometry.data_strips();
        match is_flushed(stripe, row) {
            // The table says what they should be, unless most of the row says something else.
            true if lies > needed && 2 * lies > left => Some(Believed::All),
            true if is_within => None,
            // The table says what they were before. Tags of two writes differ by the same bits in
            // all strips: then an older block that is left makes the others follow as they were.
            false if lies >= needed && 2 * lies >= left || config.payload == Payload::Tags => {
                Some(Believed::All)
            }
            _ => Some(Believed::Damaged),
        }
    };
    let rows = damaged.iter().map(|(stripe, _, row)| (*stripe, *row));
    rows.filter_map(|row| Some((row, judged(row)?))).collect()
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
pub(crate) fn were_named(
    engine: &Engine,
    stage: &Stage,
    (drive_slots, damaged): (&DriveSlots, &[DamagedBlock]),
) {
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
    for (at, block, held) in damaged {
        let DriveSlot { disk, name, .. } = &drive_slots.all[*at];
        if disk.peek(*block) == *held {
            continue;
        }
        if !named.contains(name) {
            stage.fail(format!("{name} was repaired at {block}, and no event names it"));
        }
        stage.mark("damaged.repaired_and_named");
    }
}

impl Abuses<'_> {
    /// More blocks of a row are damaged than the parity replaces: whatever is read is right or an
    /// error. Undone afterwards.
    pub(crate) fn spoil_beyond(&mut self, random: &mut Random, outlook: &Outlook) {
        let config = self.stage.config();
        // After a crash rows in doubt are taken as they are found.
        let is_clear = |drive_slot: &DriveSlot| {
            drive_slot.trouble.is_none() && !drive_slot.disk.is_damaged_anywhere()
        };
        if !config.has_checksums || outlook.was_crash || !self.drive_slots.all.iter().all(is_clear)
        {
            return;
        }
        let Some(geometry) = self.drive_slots.geometry else { return };
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
        let mut damaged = geometry.parity_strips() + 1;
        if is_forged {
            let parity = StripIdx::from_at(geometry.data_strips());
            self.forge((&geometry, stripe, parity), row);
            strips.retain(|strip| *strip < geometry.data_strips());
            damaged = 1;
        }
        for strip in strips.into_iter().take(damaged).map(StripIdx::from_at) {
            let member: MemberIdx = geometry.place(geometry.stripe(stripe), strip).member;
            let Some(at) = self.drive_slots.in_slot(member.at()) else { continue };
            let place = self.drive_slots.strip_extent(&geometry, stripe, strip);
            self.drive_slots.all[at].disk.rot(Extent::new(place.offset + row, BLOCK_BYTES));
        }
        let how = if is_forged { "with parity of another time" } else { "beyond the budget" };
        self.stage.say(|| format!("abuse: a row of stripe {stripe} is damaged {how}"));
        let failed_before = self.stage.marks().of("abuse.read_failed");
        let (opener, stage, drive_slots) =
            (self.world.opener(), self.stage.clone(), &mut *self.drive_slots);
        self.world
            .run(async |handle| {
                let outlook = Outlook { is_beyond: true, ..*outlook };
                let running = assemble((opener, &handle), &stage, drive_slots, &outlook).await;
                audit::read_all(&running.engine, &stage).await;
            })
            .done();
        self.world.call_off();
        self.world.stop(Stop::Kill);
        self.stage.mark(if is_forged { "abuse.parity_forged" } else { "abuse.damaged_beyond" });
        if self.stage.marks().of("abuse.read_failed") > failed_before {
            self.stage.mark("abuse.damaged_is_an_error");
        }
        self.put_back(before);
        self.stage.say(|| "abuse: over, all is as it was".to_owned());
    }

    /// Every slot has a device that holds all it should.
    fn lacks_none(&self) -> bool {
        self.drive_slots.at_rest().is_some_and(|rest| {
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
        let Some(drive_slot) =
            self.drive_slots.in_slot(member.at()).map(|at| &self.drive_slots.all[at])
        else {
            return;
        };
        let Some(newest) = self.drive_slots.at_rest().map(|rest| rest.newest) else { return };
        let block = self.drive_slots.strip_extent(geometry, stripe, strip).offset + row;
        let number = (block - self.drive_slots.data_offset) / BLOCK_BYTES;
        let (page, entry) = locate(number);
        let identity = SumPageIdentity { array_tag: array_tag(newest.array_uuid), page };
        let place_of = |place| newest.areas.checksums.offset + place_offset(page, place);
        let read = |place| drive_slot.disk.peek(Extent::new(place_of(place), BLOCK_BYTES));
        let (first, second) = (read(0), read(1));
        let Some((mut table, place)) = identity.newest([Some(&first), Some(&second)]) else {
            return;
        };
        if table.sums[entry] == UNKNOWN {
            return;
        }
        let mut bytes = drive_slot.disk.peek(Extent::new(block, BLOCK_BYTES));
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        table.sums[entry] = block_sum(member, number, &bytes);
        drive_slot.disk.poke(block, &bytes);
        drive_slot.disk.poke(place_of(place), &identity.encode(table.sequence, &table.sums));
    }
}
