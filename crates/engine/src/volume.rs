//! An array as exports see it: a volume on one worker.

use crate::datapath::submit::{BegunRequest, begin, finish};
use crate::datapath::turn::turn;
use crate::datapath::written_stripes::Looking;
use crate::entrance::{Entrance, Inside};
use crate::local_array::LocalArray;
use ashlar_iobuf::BufMut;
use ashlar_ring::Handle;
use ashlar_units::Extent;
use ashlar_volume::{
    AllocationRun, Reply, Request, Transfer, Volume, VolumeError, VolumeErrorKind, VolumeFacts,
};
use std::pin::pin;
use std::rc::Rc;

/// One array's address space on one worker. Cheap to clone.
#[derive(Clone)]
pub struct ArrayVolume {
    entrance: Rc<Entrance>,
}

impl ArrayVolume {
    pub(crate) fn new(entrance: Rc<Entrance>) -> Self {
        ArrayVolume { entrance }
    }

    /// The executor this volume lives on.
    pub fn handle(&self) -> Handle {
        self.entrance.worker.handle.clone()
    }

    /// Into the array: at once, or when it has started again.
    async fn enter(&self) -> Result<Inside<'_>, VolumeErrorKind> {
        Box::pin(self.entrance.enter()).await
    }
}

impl Volume for ArrayVolume {
    fn facts(&self) -> VolumeFacts {
        self.entrance.facts()
    }

    async fn turn(&self, transfer: Transfer, bytes: u64) {
        if let Some(local) = self.entrance.limited() {
            Box::pin(async move { turn(&local, transfer, bytes).await }).await;
        }
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        let pool = &self.entrance.worker.payload;
        // A buffer that is free is nobody's in line.
        match pool.try_get(bytes) {
            Some(buffer) => buffer,
            None => pool.get(bytes).await,
        }
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        let extent = request.extent;
        // Without a future of its own where it is open: that is the way of every request.
        let inside = match self.entrance.try_enter() {
            Ok(Some(inside)) => inside,
            _ => self.enter().await.map_err(|kind| VolumeError::new(kind, extent))?,
        };
        let answer = match begin(&inside.local, request) {
            BegunRequest::Answered(answer) => answer,
            // Pinned where it is: what is awaited by value is moved first.
            BegunRequest::Under(request) => pin!(finish(&inside.local, request)).await,
        };
        match answer {
            Err(_) if inside.local.array.is_handed_over() => std::future::pending().await,
            answer => answer,
        }
    }

    async fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        let inside = self.enter().await.map_err(|kind| VolumeError::new(kind, extent))?;
        if !self.facts().covers(extent) {
            return Err(VolumeError::new(VolumeErrorKind::BadExtent, extent));
        }
        Ok(runs(&inside.local, extent, runs_max).await)
    }
}

/// From one run to the next, with turns for others in between.
async fn runs(local: &LocalArray, extent: Extent, runs_max: usize) -> Vec<AllocationRun> {
    let array = &local.array;
    let (mut runs, mut looking): (Vec<AllocationRun>, _) = (Vec::new(), Looking::new(local));
    let mut at = extent.offset;
    while at < extent.end() {
        let rest = Extent::new(at, extent.end() - at);
        let Some(stripe) = array.layouts.cut(rest).next().map(|piece| piece.stripe) else {
            break;
        };
        let stripe_bytes = array.geometry_of(stripe).stripe_bytes();
        let is_written = array.written.is_written(stripe);
        let is_same = runs.last().is_some_and(|run| run.is_written == is_written);
        if runs.len() == runs_max && !is_same {
            break;
        }
        let others = stripe.number().0 + 1..extent.end().div_ceil(stripe_bytes);
        let next = looking.next(!is_written, others).await;
        let end = next.map_or(extent.end(), |next| (next.0 * stripe_bytes).min(extent.end()));
        match runs.last_mut() {
            // It has changed since the look.
            Some(run) if is_same => run.bytes += end - at,
            _ => runs.push(AllocationRun { bytes: end - at, is_written }),
        }
        at = end;
    }
    runs
}
