//! The way to an array's coordinator, and from it to the array's share on every worker.

use crate::local_array::LocalArray;
use futures_channel::oneshot;
use std::future::Future;
use std::rc::Rc;

/// More members of a group are gone than its parity replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("more members are missing than the array can do without")]
pub(crate) struct ArrayLost;

/// Run `action` on the array's coordinator; `None` if the array is gone there.
pub(crate) async fn on_coordinator<T, A, F>(local: &Rc<LocalArray>, action: A) -> Option<T>
where
    T: Send + 'static,
    A: FnOnce(Rc<LocalArray>) -> F + Send + 'static,
    F: Future<Output = T> + 'static,
{
    let coordinator = local.array.coordinator;
    if coordinator == local.worker.index {
        return Some(action(Rc::clone(local)).await);
    }
    let (answer, answered) = oneshot::channel();
    let id = local.array.identity.id;
    local.worker.run_on(coordinator, move |worker| {
        let Some(local) = worker.local(id) else { return };
        worker.handle.spawn(async move {
            // The caller may have gone, and then the answer is dropped.
            let _unwanted = answer.send(action(local).await);
        });
    });
    answered.await.ok()
}

/// Run `action` on the array's share of every worker, and wait until all have run it. What those
/// workers do afterwards sees whatever was changed here before.
pub(crate) async fn everywhere(
    local: &Rc<LocalArray>,
    action: impl Fn(&Rc<LocalArray>) + Clone + Send + 'static,
) {
    let id = local.array.identity.id;
    let mut under_way = Vec::new();
    for worker in 0..local.worker.worker_count() {
        if worker == local.worker.index {
            action(local);
            continue;
        }
        let action = action.clone();
        let (done, is_done) = oneshot::channel::<()>();
        local.worker.run_on(worker, move |worker| {
            if let Some(local) = worker.local(id) {
                action(&local);
            }
            drop(done);
        });
        under_way.push(is_done);
    }
    for is_done in under_way {
        // The sender is dropped when the action has run, or when the worker has ended.
        let _ran_or_gone = is_done.await;
    }
}

/// Run `action` on the array's share of every worker: here at once, elsewhere soon.
pub(crate) fn on_every_local(
    local: &Rc<LocalArray>,
    action: impl Fn(&Rc<LocalArray>) + Clone + Send + 'static,
) {
    let id = local.array.identity.id;
    for worker in 0..local.worker.worker_count() {
        if worker == local.worker.index {
            action(local);
            continue;
        }
        let action = action.clone();
        local.worker.run_on(worker, move |worker| {
            if let Some(local) = worker.local(id) {
                action(&local);
            }
        });
    }
}
