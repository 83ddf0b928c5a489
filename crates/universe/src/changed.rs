//! What devices say of themselves changes while nobody uses them: their sizes for good, their
//! serial numbers and the paths to them for a while.
//!
//! What must stay true: whose member a device is, its superblock says. A device that grew is what
//! it was, and paths say nothing. Where serials differ a start leaves the devices alone, until the
//! operator accepts it; once a start recorded that, they are as good as before.

use crate::abuse::{Abuses, is_clear};
use crate::audit;
use crate::director::{IN_USE, TANK};
use crate::drive_slot::{DriveSlot, DriveSlots, Rest, out_of_sync};
use crate::ledger::Crash;
use crate::life::{Outlook, Running, assemble_as, assemble_on, engine, stop};
use crate::stage::Stage;
use ashlar_engine::{AssembleSpec, SlotState};
use ashlar_ring::Handle;
use ashlar_sim::{Ended, Random, Stop};
use ashlar_units::{MemberIdx, to_u64, to_usize};
use std::time::Duration;

/// Between two lives, of a hundred: how often devices grow, and how often they are called
/// otherwise.
const GROWS: u64 = 40;
const IS_CALLED_OTHERWISE: u64 = 60;
/// Of starts that accept other serials, how many are cut off and made once more, of a hundred.
const CUT: u64 = 40;
/// Devices grow by some of these, bytes.
const STEP_BYTES: u64 = 192 << 10;

/// Some devices are larger from now on, all of them, or one.
pub(crate) fn grow_some(stage: &Stage, slots: &mut DriveSlots, number: u64) {
    let mut random = Random::stream(stage.config().seed, 0xE200 + number);
    if !stage.config().devices_change || !random.percent(GROWS) {
        return;
    }
    let is_all = random.percent(50);
    let one = to_usize(random.below(to_u64(slots.all.len())));
    for at in (0..slots.all.len()).filter(|at| is_all || *at == one) {
        slots.grow(at, STEP_BYTES * (1 + random.below(20)));
    }
    stage.say(|| format!("devices grow: all {is_all}, {one}"));
    stage.mark(if is_all { "device.all_grew" } else { "device.grew" });
}

impl Abuses<'_> {
    /// Sometimes, devices are called otherwise than they were.
    pub(crate) fn call_otherwise(&mut self, random: &mut Random, rest: &Rest, outlook: &Outlook) {
        let is_due = self.stage.config().devices_change && random.percent(IS_CALLED_OTHERWISE);
        if !is_due || !self.drive_slots.all.iter().all(is_clear) {
            return;
        }
        let before = self.keep();
        self.drive_slots.make_room();
        self.drive_slots.go_on();
        match random.below(3) {
            0 => self.move_paths(random, outlook),
            1 => self.renumber_one(random, rest, outlook),
            _ => self.renumber_all(random, outlook),
        }
        self.world.call_off();
        self.world.stop(Stop::Kill);
        self.put_back(before);
    }

    /// Every path leads somewhere else. A member that goes out comes back by the path that leads to
    /// it now.
    fn move_paths(&mut self, random: &mut Random, outlook: &Outlook) {
        let paths = self.drive_slots.second_paths();
        let mut exchanges = Vec::new();
        for at in (1..paths.len()).rev() {
            let other = to_usize(random.below(to_u64(at)));
            self.world.exchange_paths(&paths[at], &paths[other]);
            exchanges.push((at, other));
        }
        self.stage.say(|| "every path leads to another device".to_owned());
        let disk_at: Vec<String> =
            paths.iter().map(|path| self.world.disk(path).expect("one").name()).collect();
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let slot = MemberIdx::from_at(to_usize(random.below(to_u64(self.drive_slots.slots()))));
        let drive_slots = &mut *self.drive_slots;
        let is_path_to = |path: &str, name: &str| {
            paths.iter().position(|it| it == path).is_some_and(|at| disk_at[at] == name)
        };
        self.world
            .run(async |handle| {
                let slots = (&mut *drive_slots, outlook);
                let engine = engine(opener, &handle, &stage);
                let running = assemble_on((engine, paths.clone()), &handle, &stage, slots).await;
                audit::read_all(&running.engine, &stage).await;
                let members = match running.engine.status().await {
                    Ok(mut status) => status.arrays.remove(0).members,
                    Err(refusal) => stage.fail(format!("no status: {refusal}")),
                };
                for (slot, member) in members.iter().enumerate() {
                    // A copy that ended before the crash may have been recorded or not.
                    let may_hold = |it: &&DriveSlot| [it.slot, it.target_of].contains(&Some(slot));
                    let mut own = drive_slots.all.iter().filter(may_hold);
                    let is_here = own.any(|it| is_path_to(&member.path, &it.name));
                    if member.state == SlotState::InSync && !is_here {
                        stage.fail(format!("slot {slot} is not at {}", member.path));
                    }
                }
                let is_whole = !out_of_sync(&running.array).contains(&true);
                // Otherwise a loss goes with the crash.
                let is_settled = !outlook.was_crash && !outlook.was_unsynced
                    || stage.config().contract.survives_losses_with_crash;
                let may_go = is_whole && is_settled && stage.config().losses() > 0;
                if may_go && !running.is_read_only {
                    let path = &members[slot.at()].path;
                    comes_back((&running, &handle), &stage, (slot, path)).await;
                }
            })
            .done();
        self.world.stop(Stop::Kill);
        for (at, other) in exchanges.into_iter().rev() {
            self.world.exchange_paths(&paths[at], &paths[other]);
        }
        self.stage.mark("device.paths_moved");
    }

    /// One member shows another serial: it is not taken, or the operator says that it may be.
    fn renumber_one(&mut self, random: &mut Random, rest: &Rest, outlook: &Outlook) {
        let Some(&at) = self.in_service(rest, random).first() else { return };
        self.renumber(at, random);
        if random.percent(50) {
            self.leave_out(at, rest, outlook);
        } else {
            self.accept_serials(random, outlook);
        }
    }

    /// All do, as drives behind another adapter: nothing starts, and the refusal names the way.
    fn renumber_all(&mut self, random: &mut Random, outlook: &Outlook) {
        (0..self.drive_slots.all.len()).for_each(|at| self.renumber(at, random));
        self.must_refuse();
        self.world.stop(Stop::Kill);
        self.stage.mark("device.serials_refused");
        self.accept_serials(random, outlook);
    }

    fn renumber(&self, at: usize, random: &mut Random) {
        let drive_slot = &self.drive_slots.all[at];
        let serial = format!("{}-{}", drive_slot.name, 1 + random.below(1 << 20));
        self.stage.say(|| format!("{} shows serial {serial}", drive_slot.name));
        drive_slot.disk.set_serial(&serial);
    }

    /// The operator accepts the serials; sometimes that start is cut off first. The next start has
    /// the same members, and nobody accepts anything.
    fn accept_serials(&mut self, random: &mut Random, outlook: &Outlook) {
        let mut outlook = *outlook;
        if self.stage.config().contract.survives_losses_with_crash && random.percent(CUT) {
            let stop = if random.percent(50) { Stop::PowerCut } else { Stop::Kill };
            self.world.switch().stop_after(random.below(120), stop);
            if let Ended::Stopped(stop) = self.start_by_name(true, &outlook) {
                let crash = match stop {
                    Stop::Kill => Crash::Kill { discards_stay: self.stage.keeps_map() },
                    Stop::PowerCut | Stop::Freeze => Crash::Power,
                };
                self.stage.ledger().crashed(crash, true);
                outlook.was_crash = true;
                self.stage.mark("device.serials_accepted_and_cut_off");
            }
            self.world.call_off();
            self.world.stop(Stop::Kill);
        }
        let (is_recorded, out) = self.start_by_name(true, &outlook).done();
        self.world.stop(Stop::Kill);
        if !is_recorded {
            return;
        }
        let (_, now) = self.start_by_name(false, &outlook).done();
        if now.iter().zip(&out).any(|(now, before)| *now && !before) {
            self.stage.fail(format!("out after serials were accepted: {out:?}, then {now:?}"));
        }
        self.stage.mark("device.serials_accepted");
    }

    /// Start it and read all. Whether it may be written and was stopped, and the slots that are
    /// out.
    fn start_by_name(&mut self, accepts: bool, outlook: &Outlook) -> Ended<(bool, Vec<bool>)> {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let drive_slots = &mut *self.drive_slots;
        self.world.run(async |handle| {
            let mut spec = AssembleSpec { devices: drive_slots.names(), ..Default::default() };
            spec.request.accept_serials = accepts;
            let engine = engine(opener, &handle, &stage);
            let slots = (&mut *drive_slots, outlook);
            let running = assemble_as((engine, spec), &handle, &stage, slots).await;
            audit::read_all(&running.engine, &stage).await;
            let out = out_of_sync(&running.array);
            (!running.is_read_only && stop((&running.engine, &handle), &stage).await, out)
        })
    }
}

/// Seconds in which the commands of any device that is not silent end.
const COMMANDS_END_S: usize = 120;

/// A member is put out and taken back by its path.
async fn comes_back(
    (running, handle): (&Running, &Handle),
    stage: &Stage,
    (slot, path): (MemberIdx, &str),
) {
    if let Err(refusal) = running.engine.fail(TANK, slot).await {
        stage.fail(format!("put out: refused with {}: {refusal}", refusal.code));
    }
    let mut answer = running.engine.re_add(TANK, path).await;
    // A slow device is not opened again before what was under way on it has ended.
    for _ in 0..COMMANDS_END_S {
        if answer.as_ref().err().is_none_or(|refusal| refusal.code != IN_USE) {
            break;
        }
        handle.sleep(Duration::from_secs(1)).await;
        answer = running.engine.re_add(TANK, path).await;
    }
    match answer {
        Ok(()) => stage.mark("device.came_back_by_another_path"),
        // A spare was quicker.
        Err(refusal) if ["slot.taken", "member.none_out"].contains(&refusal.code) => {}
        Err(refusal) => {
            stage.fail(format!("{path} is not taken back: {}: {refusal}", refusal.code));
        }
    }
    audit::read_all(&running.engine, stage).await;
}
