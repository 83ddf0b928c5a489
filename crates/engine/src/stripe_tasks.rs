//! The tasks of a worker that do stripe work: each takes the next piece in line, has it done, and
//! answers.
//!
//! What must stay true: this is the one place that knows every kind of stripe work, of requests
//! and of jobs. A task that ends by a panic, or with its executor, takes the worker's shares of
//! arrays along.

use crate::background::{discard, step};
use crate::datapath::merge::{self, Way};
use crate::datapath::payload::Payload;
use crate::datapath::write::write_stripe;
use crate::datapath::{reconstruct, trim};
use crate::local_array::LocalArray;
use crate::stripe::work::{Answer, StripeWork};
use crate::worker::pieces::Seat;
use crate::worker::{StripeTask, Worker};
use ashlar_volume::VolumeErrorKind;
use std::pin::pin;
use std::rc::Rc;

/// Start one more task of this worker.
pub(crate) fn start(worker: &Rc<Worker>) {
    let seat = Rc::new(Seat::default());
    let task = work_on_stripes(Rc::clone(worker), Rc::clone(&seat));
    seat.set_task(worker.handle.spawn_callable(task));
}

async fn work_on_stripes(worker: Rc<Worker>, seat: Rc<Seat>) {
    let _parting = worker.parting();
    loop {
        let StripeTask { local, piece, reply } = worker.next_piece(&seat).await;
        let answer = {
            let _under_way = local.begin();
            // Pinned where they are: what is awaited by value is moved first, and these are large.
            match piece {
                StripeWork::Write(write) => {
                    let _changing = local.begin_change();
                    done(match merge::way(&local, &write) {
                        Way::Alone => {
                            let payload = Payload::new(&local.array, write);
                            pin!(write_stripe(&local, payload)).await
                        }
                        way => pin!(merge::write(&local, write, way)).await,
                    })
                }
                other => pin!(perform(&local, other)).await,
            }
        };
        drop(local);
        worker.end_piece(reply, answer);
    }
}

/// Do one piece of work on a stripe that this worker owns.
async fn perform(local: &Rc<LocalArray>, piece: StripeWork) -> Answer {
    match piece {
        StripeWork::Write(_) => unreachable!("the task itself does writes"),
        StripeWork::Zero(stripe_zero) => {
            let _changing = local.begin_change();
            done(pin!(trim::zero_stripe(local, stripe_zero)).await)
        }
        StripeWork::Reconstruct(read) => match reconstruct::read_stripe(local, read).await {
            Ok(buffer) => Answer::Data(buffer),
            Err(kind) => Answer::Failed(kind),
        },
        // Boxed: rare next to client requests, and its future is large.
        StripeWork::Step(step) => Answer::Stepped(Box::pin(step::take(local, step)).await),
        StripeWork::RebuildEach(work) => {
            Answer::SteppedEach(Box::pin(step::rebuild_each(local, work)).await)
        }
        StripeWork::Settle => done(match local.log() {
            Some(log) if !log.settle_all(local).await => Err(VolumeErrorKind::Io),
            _ => Ok(()),
        }),
        StripeWork::PassBy => {
            local.locks.pass_by().await;
            Answer::Done
        }
        StripeWork::GiveBack(run) => {
            Box::pin(discard::take(local, run)).await;
            Answer::Done
        }
    }
}

fn done(result: Result<(), VolumeErrorKind>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(kind) => Answer::Failed(kind),
    }
}
