//! What a crash left in doubt, stripe by stripe. The judgement of a start looks at members: it
//! calls an array with missing ones in doubt. Its maps and its spare table say more.
//!
//! What must stay true: a stripe is in doubt if it was written, its parity is not trusted, and one
//! of its data strips cannot be read. Any other is settled by a resync, which makes parity from its
//! data: an array without a stripe in doubt starts for writing. Where the operator accepts the
//! doubt, parity is believed in the regions that have such a stripe, and only there, until the
//! resync has made the parity that is left agree with what was decoded from it.
//!
//! Not here: the judgement (`ashlar_ondisk::assembly`), the resync (`background/compare.rs`).

use crate::array::Array;
use crate::intent::RegionNo;
use crate::worker::Worker;
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_units::StripeNo;
use std::ops::ControlFlow;

/// Stripes that are looked at before others may go on.
const STRIPES_AT_ONCE: u64 = 4096;

/// The maps and the states of cells are there: whether a stripe is in doubt.
pub(super) async fn is_any(worker: &Worker, array: &Array, policy: ConsistencyPolicy) -> bool {
    look(worker, array, policy, |_| ControlFlow::Break(())).await.is_break()
}

/// The operator accepts the doubt: parity is believed where there is one.
pub(super) async fn accept(worker: &Worker, array: &Array, policy: ConsistencyPolicy) {
    let believe = |region| {
        array.intent.believe(region);
        ControlFlow::Continue(())
    };
    let _all = look(worker, array, policy, believe).await;
}

/// Tells of each region that has a stripe in doubt, until told to stop.
async fn look(
    worker: &Worker,
    array: &Array,
    policy: ConsistencyPolicy,
    mut tell: impl FnMut(RegionNo) -> ControlFlow<()>,
) -> ControlFlow<()> {
    // Without a bitmap every written stripe is unsynced, and each of them would be looked at.
    let has_bitmap = policy != ConsistencyPolicy::None;
    let mut looked_at = 0;
    for region in array.intent.unsynced_regions() {
        if !has_bitmap || is_in_doubt(array, region) {
            tell(region)?;
        }
        looked_at += array.intent.stripes_per_region();
        if looked_at >= STRIPES_AT_ONCE {
            looked_at = 0;
            worker.handle.yield_now().await;
        }
    }
    ControlFlow::Continue(())
}

fn is_in_doubt(array: &Array, region: RegionNo) -> bool {
    let mut stripes = array.intent.stripes_of(region);
    stripes.end = stripes.end.min(array.geometry().stripe_count());
    stripes.map(|number| array.layouts.recorded(StripeNo(number))).any(|stripe| {
        let data = array.geometry_of(stripe).data();
        array.written.is_written(stripe) && !data.is_subset_of(array.view(stripe).readable)
    })
}
