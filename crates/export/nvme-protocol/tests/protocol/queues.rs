//! Queues: identifiers that are under way, room, and the head.

use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::queue::{NotTaken, Queue};

#[test]
fn an_identifier_is_under_way_once() {
    let mut queue = Queue::new(1, 31, true);
    assert_eq!(queue.take(5), Ok(()));
    assert_eq!(queue.take(5), Err(NotTaken::InUse(Status::COMMAND_ID_CONFLICT)));
    assert_eq!(queue.under_way(), 1);
    queue.complete(5);
    assert_eq!(queue.take(5), Ok(()));
}

#[test]
fn a_queue_of_n_entries_takes_n_less_one_commands() {
    for less_one in [1, 2, 127, 1023] {
        let mut queue = Queue::new(1, less_one, true);
        for command in 0..less_one {
            assert_eq!(queue.take(command), Ok(()));
        }
        assert_eq!(queue.take(less_one), Err(NotTaken::QueueFull));
    }
}

#[test]
fn the_head_moves_by_one_for_each_completion_and_wraps() {
    let mut queue = Queue::new(1, 3, true);
    let heads: Vec<u16> = (0..9).map(|command| queue.complete(command)).collect();
    assert_eq!(heads, [1, 2, 3, 0, 1, 2, 3, 0, 1]);
}

#[test]
fn the_longest_queue_has_a_head_in_16_bits() {
    let mut queue = Queue::new(1, u16::MAX, true);
    for _ in 0..65_535 {
        queue.advance();
    }
    assert_eq!(queue.advance(), 0);
}

#[test]
fn without_flow_control_the_head_is_not_told() {
    let mut queue = Queue::new(1, 3, false);
    assert_eq!([queue.complete(1), queue.advance()], [0xffff, 0xffff]);
}
