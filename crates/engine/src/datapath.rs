//! The path of every request, from a volume's extent to the members and back.
//!
//! In reading order:
//! - `submit`       admit a request, cut it at stripes, send each piece to the stripe's owner
//! - `read`         straight from the members, where the request arrived
//! - `reconstruct`  parts of a stripe that cannot be read straight, on the stripe's owner
//! - `write`        the story of one stripe write
//! - `clock`        how long its stages take
//! - `edges`        complete a write of partial blocks
//! - `merge`        pieces of a sequential stream become full stripes
//! - `gather`       read what a plan asks for
//! - `parity`       compute what a plan stores besides the data
//! - `log`          make the record durable before anything changes in place
//! - `parity_only`  record and order of writes if a device writes a block whole
//! - `store`        write it, in parallel
//! - `blame`        what failed, and which members must record it before the client is answered
//! - `trim`         discard and write zeroes
//! - `flush`        FLUSH and FUA
//! - `rows`         buffers that hold rows of strips
//!
//! What must stay true: plans (the layout crate) decide what to read and write; code here carries
//! them out. Nothing here allocates once its pools are warm. Pieces of one stripe run on the
//! stripe's owner only.

pub(crate) mod blame;
mod clock;
mod edges;
pub(crate) mod flush;
pub(crate) mod gather;
mod log;
pub(crate) mod merge;
mod parity;
mod parity_only;
pub(crate) mod read;
pub(crate) mod reconstruct;
pub(crate) mod rows;
pub(crate) mod store;
pub(crate) mod submit;
mod trim;
pub(crate) mod write;

use crate::background::discard;
use crate::background::step::{Step, StepReport};
use crate::local_array::LocalArray;
use ashlar_iobuf::BufMut;
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// Work on one stripe, done by its owner.
pub(crate) enum StripeWork {
    /// Store this.
    Write(write::StripeWrite),
    /// Make this part read as zeros.
    Zero(trim::StripeZero),
    /// Read this although it cannot be read straight.
    Reconstruct(reconstruct::StripeRead),
    /// One step of a background job.
    Step(Step),
    /// Tell the members that the blocks of these stripes are not needed.
    GiveBack(discard::Run),
}

/// What came of a piece.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Done.
    Done,
    /// The data of a read.
    Data(BufMut),
    /// What a job's step did.
    Stepped(StepReport),
    /// Not done.
    Failed(VolumeErrorKind),
}

/// Do one piece of work on a stripe that this worker owns.
pub(crate) async fn perform(local: &Rc<LocalArray>, piece: StripeWork) -> Answer {
    let _under_way = local.begin();
    match piece {
        StripeWork::Write(stripe_write) => {
            done(changing(local, merge::write(local, stripe_write)).await)
        }
        StripeWork::Zero(stripe_zero) => {
            done(changing(local, trim::zero_stripe(local, stripe_zero)).await)
        }
        StripeWork::Reconstruct(read) => match reconstruct::read_stripe(local, read).await {
            Ok(buffer) => Answer::Data(buffer),
            Err(kind) => Answer::Failed(kind),
        },
        // Boxed: rare next to client requests, and its future is large.
        StripeWork::Step(step) => {
            Answer::Stepped(Box::pin(crate::background::step::take(local, step)).await)
        }
        StripeWork::GiveBack(run) => {
            Box::pin(discard::take(local, run)).await;
            Answer::Done
        }
    }
}

async fn changing<T>(local: &LocalArray, change: impl Future<Output = T>) -> T {
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
