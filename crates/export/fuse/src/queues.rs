//! Requests over io_uring: the kernel puts them into memory of ours and says so in a completion.
//!
//! What must stay true: once this was agreed with the kernel, no request is answered before each
//! CPU that the machine may have has a queue here; a classic server runs beside, which hears what
//! needs no answer. Each entry answers its request before it asks for the next. The memory of an
//! entry is the kernel's: data goes in and out of it by a copy. Requests of a server that is gone
//! end with errors: the kernel does not send them again. Not here: what requests mean (`server`).

use crate::answer::{Answer, PAYLOAD_BYTES_MAX};
use crate::counters::add;
use crate::server::{Worker, new_payload};
use crate::wire::{InMessage, OUT_HEADER_BYTES, OutHeader, WriteIn, opcode};
use ashlar_iobuf::BufMut;
use ashlar_ring::FuseEntry;
use ashlar_session::Slots;
use ashlar_volume::Volume;
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Where the kernel says whether it offers this.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Where it lists the CPUs that the machine may have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// How often a worker looks whether another one has heard the kernel begin.
const BEGIN_PAUSE: Duration = Duration::from_millis(1);

/// Whether the kernel offers requests over io_uring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingOffer {
    /// It does, to mounts that are made from now on.
    Offered,
    /// It could, and its administrator has not allowed it.
    Off,
    /// It cannot: Linux 6.14 can.
    Unknown,
}

/// What the kernel offers at this moment.
pub fn ring_offer() -> RingOffer {
    match std::fs::read_to_string(PARAMETER).as_deref().map(str::trim) {
        Ok("Y" | "1") => RingOffer::Offered,
        Ok(_) => RingOffer::Off,
        Err(_) => RingOffer::Unknown,
    }
}

/// How many CPUs the machine may have: as many queues has a mount.
///
/// # Errors
/// The kernel does not say.
pub fn possible_cpus() -> io::Result<u16> {
    let listed = std::fs::read_to_string(POSSIBLE)?;
    count_of(&listed).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// One more than the highest number of a list such as `0-3,8`.
fn count_of(listed: &str) -> Option<u16> {
    let last = listed.trim().rsplit([',', '-']).next()?;
    last.parse::<u16>().ok()?.checked_add(1)
}

/// The queues that one worker serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Their numbers: those of CPUs.
    pub numbers: Vec<u16>,
    /// Requests of each at the same time. Each takes a place in the ring all the time, and up to
    /// 2 MiB once it had a long request.
    pub entries: usize,
}

/// Serve the queues of a worker, if it has some and the kernel agreed, until the mount ends.
pub async fn serve<V: Volume + 'static>(worker: &Rc<Worker<V>>) {
    let Some(queues) = &worker.server.queues else { return };
    let agreed = loop {
        match worker.server.agreed.get() {
            None if worker.is_over.get() => return,
            None => worker.server.handle.sleep(BEGIN_PAUSE).await,
            Some(agreed) => break agreed,
        }
    };
    if !agreed.over_ring {
        return;
    }
    let all = queues.numbers.iter().flat_map(|it| std::iter::repeat_n(*it, queues.entries));
    let all: Vec<u16> = all.collect();
    let (count, left) = (all.len(), RefCell::new(all));
    let slot = || {
        let queue = left.borrow_mut().pop().expect("one for each slot");
        run_entry(Rc::clone(worker), queue)
    };
    Slots::start(&worker.server.handle, count, slot).all_ended().await;
}

async fn run_entry<V: Volume + 'static>(worker: Rc<Worker<V>>, queue: u16) {
    let mut payload = new_payload();
    let bytes = ashlar_units::to_usize(u64::from(PAYLOAD_BYTES_MAX));
    let entry = FuseEntry::new(worker.server.device.clone(), queue, bytes);
    let mut next = worker.server.ring.next_fuse_request(entry).await;
    loop {
        match next {
            Ok(mut entry) => {
                payload = carry_out(&worker, &mut entry, payload).await;
                next = worker.server.ring.next_fuse_request(entry).await;
            }
            Err(error) => return worker.note_end(error),
        }
    }
}

/// Carry out the request of an entry, and put the answer there. `payload` comes back.
async fn carry_out<V: Volume + 'static>(
    worker: &Worker<V>,
    entry: &mut FuseEntry,
    mut payload: BufMut,
) -> BufMut {
    let (header, body) = entry.request();
    let Some(message) = InMessage::of_parts(header, body, entry.payload()) else {
        return payload;
    };
    add(&worker.server.counters.over_ring, 1);
    let (unique, node) = (message.header.unique, message.header.node);
    let answer = if message.header.opcode == opcode::WRITE {
        let data = entry.payload();
        payload[..data.len()].copy_from_slice(data);
        let (answer, back) =
            worker.write(node, message.body::<WriteIn>(), payload, data.len()).await;
        payload = back;
        answer
    } else {
        worker.answer(&message).await
    };
    put(entry, unique, answer);
    payload
}

fn put(entry: &mut FuseEntry, unique: u64, answer: Result<Answer, Errno>) {
    let (error, data) = match &answer {
        Ok(Answer::None) => (0, &[][..]),
        Ok(Answer::Small(bytes, len)) => (0, &bytes[..*len]),
        Ok(Answer::Data(data)) => (0, &data[..]),
        Err(errno) => (-errno.raw_os_error(), &[][..]),
    };
    let bytes = u32::try_from(OUT_HEADER_BYTES + data.len()).expect("at most 1 MiB and a header");
    entry.answer(OutHeader { bytes, error, unique }.as_bytes(), data);
}

#[cfg(test)]
mod tests {
    use super::count_of;

    #[test]
    fn there_are_as_many_queues_as_the_highest_cpu_says() {
        assert_eq!(count_of("0\n"), Some(1));
        assert_eq!(count_of("0-1\n"), Some(2));
        assert_eq!(count_of("0-3,8-11\n"), Some(12));
        assert_eq!(count_of("0-3,8\n"), Some(9));
        for wrong in ["", "\n", "0-", "x", "65535", "-1-"] {
            assert_eq!(count_of(wrong), None, "{wrong}");
        }
    }
}
