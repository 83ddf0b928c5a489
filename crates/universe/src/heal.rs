//! How a director heals an array: calm before a crash that the contract covers only in calm, and a
//! whole array at the end, within a deadline of virtual time.
//!
//! What must stay true: it does only what an operator could do. No fault is undone here.

use crate::client;
use crate::damaged;
use crate::director::{Director, TANK};
use crate::drive_slot::out_of_sync;
use crate::life::DEADLINE;
use ashlar_engine::{ArrayVolume, SlotState};
use ashlar_ondisk::JobKind;
use ashlar_units::{Extent, StripeNo};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time between two looks at an array that heals: at first; it grows with the time that healing
/// takes.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Director<'_> {
    /// Wait until nothing is wrong and everything is in sync, so that a crash is within any
    /// contract.
    pub(crate) async fn await_calm(&mut self) {
        for _ in 0..400 {
            let is_calm = self.drive_slots.are_well(self.handle.now());
            if is_calm && !out_of_sync(&self.array).contains(&true) {
                return;
            }
            self.handle.sleep(Duration::from_millis(100)).await;
        }
        self.stage.fail("an array without faults does not come to rest");
    }

    /// Nothing is wrong with any device any more: whoever was lost can be taken back.
    pub(crate) fn heal_devices(&mut self) {
        for at in 0..self.drive_slots.all.len() {
            self.drive_slots.heal(at, self.stage.config(), self.handle.now());
        }
    }

    /// Bring every slot back into sync, and no block is left that a resync could not prove. True if
    /// there were some, and what was lost was written anew.
    pub(crate) async fn make_whole(&mut self) -> bool {
        let began = self.handle.now();
        let mut restored = BTreeSet::new();
        loop {
            if self.handle.now().since(began) > DEADLINE {
                let jobs = self.array.running_jobs();
                let states = self.array.slot_states();
                self.stage.fail(format!(
                    "the array does not become whole within an hour of virtual time: {states:?}, \
                     {jobs:?}"
                ));
            }
            for kind in [JobKind::Rebuild, JobKind::Resync, JobKind::Scrub, JobKind::Grow] {
                // Most of the time there is none.
                let _none = self.engine.unpause(TANK, kind).await;
            }
            let out = out_of_sync(&self.array);
            if !out.contains(&true) && self.array.running_jobs().is_empty() {
                return !restored.is_empty();
            }
            self.restore_lost(&mut restored).await;
            // To ask for the whole status each time took half of a universe's time.
            if self.array.slot_states().contains(&SlotState::Out) {
                self.refresh().await;
            }
            for slot in 0..out.len() {
                self.bring_back(slot).await;
            }
            let wait = LOOK_EVERY.max(self.handle.now().since(began) / 50);
            self.handle.sleep(wait).await;
        }
    }

    /// A crash left a region in doubt, and a sector of it cannot be read: the block is lost, and
    /// the array waits for it. An operator writes it anew.
    async fn restore_lost(&mut self, restored: &mut BTreeSet<StripeNo>) {
        let jobs = self.array.running_jobs();
        let resyncs = jobs.iter().filter(|job| job.kind == JobKind::Resync);
        let lost: Vec<StripeNo> =
            resyncs.flat_map(|job| job.lost_stripes.iter().copied()).collect();
        for stripe in lost {
            if !restored.insert(stripe) {
                continue;
            }
            self.say(&format!("stripe {stripe} is lost in doubt, and written anew"));
            let config = self.stage.config();
            let bytes = config.stripe_bytes();
            let extent = Extent::new((stripe.0 - config.window.0) * bytes, bytes);
            let stage = self.stage.clone();
            let write = async move |volume: ArrayVolume| {
                client::restore(&volume, &stage, extent).await;
            };
            let written = self.engine.with_volume(0, TANK, write).await;
            written.unwrap_or_else(|refusal| self.stage.fail(format!("no volume: {refusal}")));
        }
    }

    async fn bring_back(&mut self, slot: usize) {
        if self.array.slot_states()[slot] != SlotState::Out {
            return;
        }
        if let Some(at) = self.drive_slots.in_slot(slot)
            && self.re_add(at).await
        {
            return;
        }
        // A member that is not taken back may be filled anew, as the refusal says.
        let own = self.drive_slots.in_slot(slot);
        if let Some(at) = self.drive_slots.free().first().copied().or(own) {
            self.replace_with(slot, at).await;
        }
    }

    /// A scrub of everything finds nothing; with checksums, what is still damaged, and the next
    /// finds nothing.
    pub(crate) async fn scrub_clean(&mut self) {
        self.scrub_all().await;
        if !self.stage.config().has_checksums {
            return;
        }
        let found = damaged::mismatches(&self.engine);
        self.scrub_all().await;
        if damaged::mismatches(&self.engine) != found {
            self.stage.fail("a scrub found blocks that the scrub before it had to repair");
        }
    }

    async fn scrub_all(&mut self) {
        let answer = self.engine.scrub(TANK, false).await;
        self.answered("the last scrub", answer, &[]);
        let began = self.handle.now();
        loop {
            self.handle.sleep(Duration::from_millis(20)).await;
            if self.array.running_jobs().is_empty() {
                return;
            }
            if self.handle.now().since(began) > DEADLINE {
                self.stage.fail("the last scrub does not end within an hour of virtual time");
            }
        }
    }
}
