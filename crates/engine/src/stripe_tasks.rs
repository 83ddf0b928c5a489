//! The tasks of a worker that do stripe work: each takes the next piece in line, has it done, and
//! answers.
//!
//! What must stay true: this is the one place that knows every kind of stripe work, of requests
//! and of jobs. A task that ends by a panic, or with its executor, takes the worker's shares of
//! arrays along.

use crate::background::{discard, step};
use crate::datapath::{merge, reconstruct, trim};
use crate::local_array::LocalArray;
use crate::stripe::work::{Answer, StripeWork};
use crate::worker::Worker;
use ashlar_volume::VolumeErrorKind;
use std::pin::{Pin, pin};
use std::rc::Rc;

/// Start one more task of this worker.
pub(crate) fn start(worker: &Rc<Worker>) {
    worker.handle.spawn(work_on_stripes(Rc::clone(worker)));
}

async fn work_on_stripes(worker: Rc<Worker>) {
    let _parting = worker.parting();
    loop {
        let (local, piece, reply) = worker.next_piece().await;
        // Pinned where it is: what is awaited by value is moved first, and this is large.
        let answer = pin!(perform(&local, piece)).await;
        drop(local);
        worker.end_piece(reply, answer);
    }
}

/// Do one piece of work on a stripe that this worker owns.
async fn perform(local: &Rc<LocalArray>, piece: StripeWork) -> Answer {
    let _under_way = local.begin();
    match piece {
        StripeWork::Write(stripe_write) => {
            done(changing(local, pin!(merge::write(local, stripe_write))).await)
        }
        StripeWork::Zero(stripe_zero) => {
            done(changing(local, pin!(trim::zero_stripe(local, stripe_zero))).await)
        }
        StripeWork::Reconstruct(read) => match reconstruct::read_stripe(local, read).await {
            Ok(buffer) => Answer::Data(buffer),
            Err(kind) => Answer::Failed(kind),
        },
        // Boxed: rare next to client requests, and its future is large.
        StripeWork::Step(step) => Answer::Stepped(Box::pin(step::take(local, step)).await),
        StripeWork::Settle => done(match local.log() {
            Some(log) if !log.settle_all(local).await => Err(VolumeErrorKind::Io),
            _ => Ok(()),
        }),
        StripeWork::GiveBack(run) => {
            Box::pin(discard::take(local, run)).await;
            Answer::Done
        }
    }
}

/// `change` is pinned where it was made: by value it would be moved, twice.
async fn changing<T>(local: &LocalArray, change: Pin<&mut impl Future<Output = T>>) -> T {
    let count = &local.changes_under_way;
    count.set(count.get() + 1);
    let done = change.await;
    count.set(count.get() - 1);
    done
}

fn done(result: Result<(), VolumeErrorKind>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(kind) => Answer::Failed(kind),
    }
}
