//! The claim of a start: of several starts at the same time at most one goes on.
//!
//! What must stay true, however slow the devices are: a start writes its first block over the
//! newest heartbeat that it saw, finds no other start in the other place, writes its second block
//! there, and finds only itself in both. Each step begins when the one before has ended on every
//! device that takes part. So of two starts that take part on one device the later one finds the
//! earlier one: whoever comes after a whole claim leaves its second block alone until it has
//! looked. This is Lamport's fast mutual exclusion without its wait: a start that meets another
//! gives up.
//!
//! More than half of the devices that answer at all take part, so that any two starts share one. A
//! device that fails is none: the start puts it out.
//!
//! What a start that gives up leaves has lower numbers than the one that goes on. Time matters for
//! one thing: whoever watches a claim must see it go on. So a block names the time to the next one,
//! and a claim whose last look took longer is void and begins again with a longer time.

use super::speaker::Speaker;
use super::{Found, Seen, in_use, other_since};
use crate::canary::{Canary, sings};
use crate::config::Runner;
use crate::error::Refusal;
use crate::local_array::LocalArray;
use ashlar_device::Device;
use ashlar_ondisk::Heartbeat;
use ashlar_ondisk::format::HEARTBEAT_SLOTS;
use ashlar_units::{Nanos, to_u64};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// How long a claim waits for the devices in each of its steps.
const STEP_TIME: Duration = Duration::from_secs(10);
/// Claims of one start, each with a longer time to the next block.
const CLAIMS_MAX: u64 = 4;

/// Why a claim did not come about.
enum Lost {
    /// Somebody else starts or runs the array.
    To(Box<Heartbeat>),
    /// Too few devices answered in time.
    Unheard,
    /// Blocks were overwritten by somebody who is gone.
    Overwritten,
}

/// A start that claims an array.
struct Claimant<'c> {
    speaker: Speaker<'c>,
    /// The newest number when it was found that nobody runs the array.
    last: u64,
    /// Those that have taken part in every step so far.
    devices: Vec<Rc<dyn Device>>,
    /// How many did not answer in time.
    late: usize,
}

/// Claim the array for the start `incarnation`, before that writes anything else.
///
/// # Errors
/// A refusal if somebody else claimed it since `seen`, or too few devices answer.
pub(crate) async fn claim(
    local: &Rc<LocalArray>,
    runner: &Runner,
    incarnation: Uuid,
    seen: Seen,
) -> Result<(), Refusal> {
    let speaker = Speaker::new(local, runner, incarnation);
    let last = seen.0.map_or(0, |beat| beat.sequence);
    let devices = speaker.devices();
    let mut claimant = Claimant { speaker, last, devices, late: 0 };
    // The first look is before anything is written.
    let lost = match claimant.look(&[]).await {
        Err(lost) => lost,
        Ok(()) => match claimant.claim().await {
            Ok(()) => return Ok(()),
            Err(lost) => {
                claimant.release().await;
                lost
            }
        },
    };
    let name = local.array.name();
    Err(match lost {
        Lost::To(other) => in_use(name, &other, runner),
        Lost::Overwritten => undecided(name, "another start was under way"),
        Lost::Unheard => undecided(name, "too few of its members answered in time"),
    })
}

fn undecided(name: &str, why: &str) -> Refusal {
    Refusal::new(
        "array.in_use",
        format!("whether array '{name}' runs elsewhere could not be found out: {why}"),
        "repeat the start; nothing but heartbeats was written",
    )
}

impl Claimant<'_> {
    fn number_of(&self, attempt: u64) -> u64 {
        self.last + (attempt + 1) * to_u64(HEARTBEAT_SLOTS)
    }

    /// Claim after claim, until one does not take longer than it says.
    async fn claim(&mut self) -> Result<(), Lost> {
        let mut interval = self.speaker.runner.interval;
        for attempt in 0..CLAIMS_MAX {
            let first = self.number_of(attempt);
            let took = self.attempt(first, interval).await?;
            if took <= interval {
                let beats = &self.speaker.local.coordinator().beats;
                beats.last.set(Some(first + 1));
                beats.interval.set(interval);
                return Ok(());
            }
            interval = took * 2;
        }
        Err(Lost::Unheard)
    }

    /// Write the first block, look, write the second one, and look: how long it took from writing
    /// the second one.
    async fn attempt(&mut self, first: u64, interval: Duration) -> Result<Duration, Lost> {
        self.write(first, interval).await?;
        self.look(&[first]).await?;
        let began = self.speaker.now();
        self.write(first + 1, interval).await?;
        self.look(&[first, first + 1]).await?;
        Ok(self.speaker.now().since(began))
    }

    async fn write(&mut self, sequence: u64, interval: Duration) -> Result<(), Lost> {
        let devices = std::mem::take(&mut self.devices);
        let end = self.end_of_step();
        let (written, late) = self.speaker.write_to(devices, (sequence, interval), end).await;
        self.devices = written;
        self.go_on_without(late)
    }

    /// Look for others, and for the own blocks of these numbers.
    async fn look(&mut self, own: &[u64]) -> Result<(), Lost> {
        let end = self.end_of_step();
        let (found, late) = self.speaker.read_all(&self.devices, end).await;
        let incarnation = self.speaker.incarnation;
        if let Some(other) = other_since(found.iter().map(|(_, it)| it), self.last, incarnation) {
            return Err(Lost::To(Box::new(other)));
        }
        let has = |found: &Found, sequence: u64| {
            found.heartbeats.iter().any(|it| it.sequence == sequence && self.is_own(it))
        };
        if !found.iter().all(|(_, found)| own.iter().all(|sequence| has(found, *sequence))) {
            return Err(Lost::Overwritten);
        }
        self.devices = found.into_iter().map(|(device, _)| device).collect();
        self.go_on_without(late)
    }

    fn end_of_step(&self) -> Nanos {
        let time = match sings(Canary::ClaimImpatient) {
            true => self.speaker.runner.interval / 2,
            false => STEP_TIME,
        };
        self.speaker.now().after(time)
    }

    fn go_on_without(&mut self, late: usize) -> Result<(), Lost> {
        self.late += late;
        let are_enough = self.devices.len() > self.late || sings(Canary::ClaimImpatient);
        if are_enough { Ok(()) } else { Err(Lost::Unheard) }
    }

    /// Take back the claims, where they still are: the array does not run here. The numbers stay:
    /// whoever goes on has higher ones.
    async fn release(&self) {
        let (devices, end) = (self.speaker.devices(), self.end_of_step());
        let (found, _) = self.speaker.read_all(&devices, end).await;
        for sequence in self.number_of(0)..self.number_of(CLAIMS_MAX) {
            let is_own = |found: &Found| {
                let is_it = |it: &Heartbeat| it.sequence == sequence;
                let mut own = found.heartbeats.iter().filter(|it| self.is_own(it));
                own.any(is_it)
            };
            let own = found.iter().filter(|(_, found)| is_own(found));
            let own: Vec<_> = own.map(|(device, _)| Rc::clone(device)).collect();
            if !own.is_empty() {
                let end = self.end_of_step();
                self.speaker.write_to(own, (sequence, Duration::ZERO), end).await;
            }
        }
    }

    fn is_own(&self, beat: &Heartbeat) -> bool {
        beat.incarnation == self.speaker.incarnation
    }
}
