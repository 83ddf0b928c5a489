//! A device that joins is made blank first: nothing that it carried may speak of it again.
//!
//! What must stay true: this is the first write to the device, and comes after every check. Other
//! programs know their devices by what lies at both ends, and some formats have a second copy where
//! nobody looks first: what a prober finds is wiped until it finds nothing, and both ends are
//! zeroed whatever it finds. Not here: whether the content may go (`joining_device`).

use crate::aside::{self, Aside};
use crate::config::Wiper;
use crate::control_io::{self, refused};
use crate::error::Refusal;
use crate::worker::Worker;
use ashlar_device::Device;
use ashlar_units::Extent;
use std::rc::Rc;
use std::sync::Arc;

/// Cleared at the front: labels and superblocks of others are found here.
pub(crate) const FRONT_BYTES: u64 = 2 << 20;

/// Cleared at the end. Two labels of ZFS are in the last whole 512 KiB, everything else is behind
/// them: md, DDF and other metadata of arrays, second tables of partitions.
pub(crate) const BACK_BYTES: u64 = 1 << 20;

/// How a new device is made blank.
#[derive(Clone)]
pub(crate) struct Blanking {
    /// How to wipe what a prober finds, if the operator said that it may go. Otherwise a prober
    /// found nothing.
    wiping: Option<(Wiper, Aside, String)>,
}

impl Blanking {
    /// Of a device on which nothing was found.
    pub(crate) fn of_unused() -> Blanking {
        Blanking { wiping: None }
    }

    /// Of a device whose content may go; `at` is a path to it that leads nowhere else.
    pub(crate) fn of_given_up(wiper: &Wiper, aside: &Aside, at: String) -> Blanking {
        Blanking { wiping: Some((Arc::clone(wiper), Arc::clone(aside), at)) }
    }

    /// Make the device blank.
    ///
    /// # Errors
    /// A signature stays, or the device fails.
    pub(crate) async fn run(
        &self,
        worker: &Rc<Worker>,
        device: &dyn Device,
    ) -> Result<(), Refusal> {
        let path = &device.facts().path;
        if let Some((wiper, aside, at)) = self.wiping.clone() {
            let wiped = aside::run(&worker.handle, &aside, move || wiper(&at)).await;
            wiped.map_err(|why| not_wiped(path, &why))?;
        }
        for end in ends(device) {
            let zeroed = control_io::zero(worker, device, end).await;
            zeroed.map_err(|fault| refused(path, "clearing both of its ends", fault))?;
        }
        Ok(())
    }
}

/// Both ends of a device, in whole blocks of its own.
fn ends(device: &dyn Device) -> [Extent; 2] {
    let facts = device.facts();
    let block = u64::from(facts.logical_block_bytes);
    let end = facts.size_bytes - facts.size_bytes % block;
    let front = FRONT_BYTES.min(end);
    let back = end.saturating_sub(BACK_BYTES).next_multiple_of(block).max(front);
    [Extent::new(0, front), Extent::new(back, end - back)]
}

fn not_wiped(path: &str, why: &str) -> Refusal {
    Refusal::new(
        "device.not_wiped",
        format!("{path}: {why}; what it carried may be damaged, and no array has it"),
        format!("see what is on it: wipefs {path}; clear it, and run the command again"),
    )
}
