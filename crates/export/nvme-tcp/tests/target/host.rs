//! A host of the tests, with the queues of its controllers.

use crate::queue::{Queue, Wishes};
use crate::server::TestTarget;

/// The admin queue of a controller that is enabled, and its identifier.
pub fn admin(target: &TestTarget, wishes: &Wishes) -> (Queue, u16) {
    Queue::admin(target.connect(0), wishes)
}

/// I/O queue of this number of a controller, on this worker.
pub fn io(target: &TestTarget, wishes: &Wishes, place: (u16, u16), worker: usize) -> Queue {
    Queue::io(target.connect(worker), wishes, place)
}

/// A host with an admin queue and one I/O queue.
pub fn connected(target: &TestTarget, wishes: &Wishes) -> (Queue, Queue) {
    let (admin, id) = admin(target, wishes);
    let io = io(target, wishes, (1, id), 1);
    (admin, io)
}
