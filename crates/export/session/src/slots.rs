//! The tasks that carry out a session's requests: so many, made when it begins.
//!
//! What must stay true: a slot takes one request after the other, so the number of slots bounds
//! what is carried out at the same time, and no request makes a task. Not here: where a slot gets
//! its requests from.

use ashlar_ring::Handle;
use ashlar_ring::local::Signal;
use std::cell::Cell;
use std::rc::Rc;

/// Slots that run. Dropping it does not end them.
pub struct Slots(Rc<Running>);

struct Running {
    count: Cell<usize>,
    ended: Signal,
}

impl Slots {
    /// Starts `count` tasks, each made by `slot`.
    pub fn start<S>(handle: &Handle, count: usize, slot: impl Fn() -> S) -> Slots
    where
        S: Future<Output = ()> + 'static,
    {
        let running = Rc::new(Running { count: Cell::new(count), ended: Signal::new() });
        for _ in 0..count {
            let (slot, running) = (slot(), Rc::clone(&running));
            handle.spawn(async move {
                slot.await;
                running.count.set(running.count.get() - 1);
                running.ended.notify_all();
            });
        }
        Slots(running)
    }

    /// Waits until every slot has ended.
    pub async fn all_ended(&self) {
        while self.0.count.get() > 0 {
            self.0.ended.changed().await;
        }
    }
}
