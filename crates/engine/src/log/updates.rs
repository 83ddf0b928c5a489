//! Updates under way: their numbers, their way into the log rings, their end.
//!
//! What must stay true: the rules of `log.rs`.

use super::Log;
use super::holders::Held;
use super::log_ring::Item;
use super::places::Numbered;
use super::space::NoLogSpace;
use super::update::Body;
use crate::blame::{FailedMembers, blame};
use crate::local_array::LocalArray;
use crate::log::update::NewUpdate;
use ashlar_ondisk::log::RecordKind;
use smallvec::SmallVec;
use std::rc::Rc;

/// An update under way. It ends when this drops: its writes in place have ended then, or it has
/// none.
pub(crate) struct Update {
    pub(super) local: Rc<LocalArray>,
    pub(super) body: Option<Rc<Body>>,
}

impl Log {
    /// Number an update and hand its record to the log rings of its holders; waits for space.
    ///
    /// # Errors
    /// [`NoLogSpace`]: then it has no number and no record.
    pub(crate) async fn begin(
        &self,
        local: &Rc<LocalArray>,
        mut new: NewUpdate,
    ) -> Result<Update, NoLogSpace> {
        let body = self.body_of(&mut new);
        let held = self.space_for(local, &new, &body).await?;
        Ok(self.number(local, body, held))
    }

    /// The update is one from here on: it has a number, and its record is on its way to the
    /// holders.
    pub(super) fn number(
        &self,
        local: &Rc<LocalArray>,
        mut body: Rc<Body>,
        held: SmallVec<[Held; 8]>,
    ) -> Update {
        {
            let body = Rc::get_mut(&mut body).expect("not handed out yet");
            body.sequence = self.window.borrow_mut().begin();
            body.holders.extend(held.iter().map(|(_, _, holder)| *holder));
            body.targets.extend(held.iter().map(|(_, target, _)| *target));
            body.arrivals.begin(held.len());
        }
        let mut numbers = self.numbers.borrow_mut();
        if body.kind != RecordKind::InDoubt {
            numbers.note(body.stripe, Numbered::Record, body.sequence);
        }
        if body.kind == RecordKind::Full {
            numbers.note(body.stripe, Numbered::Full, body.sequence);
        }
        drop(numbers);
        local.counts().log_records.add(1);
        if body.kind.change().is_some() {
            local.counts().parity_only_records.add(1);
        }
        for (at, (log_ring, ..)) in held.into_iter().enumerate() {
            log_ring.push(Item::new(&body, at));
        }
        Update { local: Rc::clone(local), body: Some(body) }
    }

    /// The update has ended.
    fn end(&self, local: &Rc<LocalArray>, body: Rc<Body>) {
        self.recycle(body);
        self.settle_if_awaited(local);
    }
}

impl Update {
    /// Wait until every holder has its record, and blame those that failed it.
    pub(crate) async fn failed_holders(&self) -> FailedMembers {
        let mut failed = FailedMembers::new();
        if let Some(body) = &self.body {
            blame_failed(&self.local, body, &mut failed).await;
        }
        failed
    }
}

/// The same for an update that has no owner yet.
pub(super) async fn blame_failed(local: &Rc<LocalArray>, body: &Body, failed: &mut FailedMembers) {
    for (target, fault) in body.failed_records().await {
        blame(local, target, fault, failed).await;
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        if let (Some(log), Some(body)) = (self.local.log(), self.body.take()) {
            log.end(&self.local, body);
        }
    }
}
