//! Updates under way: their numbers, their way into the log rings, their end.
//!
//! What must stay true: the rules of `log.rs`.

use super::Log;
use super::holders::Held;
use super::log_ring::Item;
use super::space::NoLogSpace;
use super::update::Body;
use crate::in_flight::StoreWrite;
use crate::lists::List;
use crate::local_array::LocalArray;
use crate::log::update::NewUpdate;
use ashlar_device::Outcome;
use ashlar_ondisk::log::RecordKind;
use ashlar_ring::Pending;
use smallvec::SmallVec;
use std::rc::Rc;

/// An update under way. It ends when this drops: its writes in place have ended then, or it has
/// none.
pub(crate) struct Update {
    pub(super) local: Rc<LocalArray>,
    pub(super) body: Option<Rc<Body>>,
}

impl Log {
    /// Number an update and hand its record to the log rings of its holders; waits for space. What
    /// comes back besides are the batches, one for each holder, to be waited for.
    ///
    /// # Errors
    /// [`NoLogSpace`]: then it has no number and no record.
    pub(crate) async fn begin(
        &self,
        local: &Rc<LocalArray>,
        mut new: NewUpdate,
    ) -> Result<(Update, List<StoreWrite>), NoLogSpace> {
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
    ) -> (Update, List<StoreWrite>) {
        {
            let body = Rc::get_mut(&mut body).expect("not handed out yet");
            body.sequence = self.window.borrow_mut().begin();
            body.holders.extend(held.iter().map(|(_, _, holder)| *holder));
        }
        if body.kind != RecordKind::InDoubt {
            self.ahead.borrow_mut().note(body.stripe, body.sequence);
        }
        if body.kind == RecordKind::Full {
            self.newest_full.borrow_mut().note(body.stripe, body.sequence);
        }
        local.counts().log_records.add(1);
        if body.kind.change().is_some() {
            local.counts().parity_only_records.add(1);
        }
        let mut batches = local.pools.writes.list();
        for (log_ring, target, holder) in held {
            let (done, pending): (_, Pending<Outcome>) = local.worker.outcomes.pair();
            let (strip, blocks) = (holder.strip, body.blocks_of(holder.strip));
            log_ring.push(Item { body: Rc::clone(&body), strip, blocks, done });
            batches.push((target, pending, None));
        }
        (Update { local: Rc::clone(local), body: Some(body) }, batches)
    }

    /// The update has ended.
    fn end(&self, local: &Rc<LocalArray>, body: Rc<Body>) {
        self.recycle(body);
        self.settle_if_awaited(local);
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        if let (Some(log), Some(body)) = (self.local.log(), self.body.take()) {
            log.end(&self.local, body);
        }
    }
}
