//! A host of the tests, with the queues of its controllers.

use crate::queue::{Queue, Wishes};
use crate::server::TestTarget;
use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::command::DYNAMIC_CONTROLLER;
use ashlar_nvme_protocol::property::offset;

/// The admin queue of a controller that is enabled, and its identifier.
pub fn admin(target: &TestTarget, wishes: &Wishes) -> (Queue, u16) {
    let mut queue = Queue::greeted(target.connect(0), wishes);
    let completion = queue.connect(wishes, 0, DYNAMIC_CONTROLLER);
    assert_eq!(completion.status(), Status::SUCCESS);
    let id = u16::try_from(completion.result.get() & 0xffff).expect("16 bits");
    assert_eq!(queue.set_property(offset::CONFIGURATION, 0x0046_0001), Status::SUCCESS);
    assert_eq!(queue.property(offset::STATUS, false), 1);
    (queue, id)
}

/// I/O queue `number` of a controller, on this worker.
pub fn io(target: &TestTarget, wishes: &Wishes, (number, id): (u16, u16), worker: usize) -> Queue {
    let mut queue = Queue::greeted(target.connect(worker), wishes);
    assert_eq!(queue.connect(wishes, number, id).status(), Status::SUCCESS);
    queue
}

/// A host with an admin queue and one I/O queue.
pub fn connected(target: &TestTarget, wishes: &Wishes) -> (Queue, Queue) {
    let (admin, id) = admin(target, wishes);
    let io = io(target, wishes, (1, id), 1);
    (admin, io)
}
