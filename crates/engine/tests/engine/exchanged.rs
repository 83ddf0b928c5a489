//! Requests that are under way on a device when another one takes its slot.
//!
//! What must stay true: with members out, too, they get what the successor has. The read on the
//! device that left fails with it; before, that strip counted as lost though nothing was, and the
//! client got an error.

use crate::world::jobs::{Rig, count, filled, ms, on_array, raid5};
use crate::world::{range, read, submit};
use ashlar_engine::event_names as names;
use ashlar_sim::Latency;
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, Volume};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CLIENTS: usize = 12;

/// Read, and write what is there, until told to end.
async fn work(rig: &Rig, client: usize, bytes: Arc<Vec<u8>>, ends: Arc<AtomicBool>) {
    let clients = u64::try_from(CLIENTS).expect("few");
    let first = u64::try_from(client).expect("few");
    let run = rig.engine.with_volume(client % 3, "tank", async move |volume| {
        let pieces = u64::try_from(bytes.len()).expect("small") / 8192;
        for at in (0..).map(|turn| (first + turn * clients) % pieces) {
            if ends.load(Ordering::Relaxed) {
                return;
            }
            let extent = Extent::new(at * 8192, 8192);
            if at % 3 == 0 {
                let mut buffer = volume.buffer(8192).await;
                buffer.copy_from_slice(&bytes[range(extent)]);
                submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
            } else {
                let found = read(&volume, extent).await.expect("nothing is lost");
                assert!(found == bytes[range(extent)], "wrong bytes at {extent}");
            }
        }
    });
    run.await.expect("runs");
}

#[test]
pub fn what_is_under_way_on_a_device_that_leaves_its_slot_is_asked_of_the_next() {
    for seed in 0..2 {
        on_array(seed, &raid5(), async |rig| {
            let bytes = Arc::new(filled(&rig.engine, seed).await.bytes);
            rig.engine.fail("tank", MemberIdx(1)).await.expect("one may go");
            // Longer than a device that leaves its slot has for what it owes.
            let slow = Latency { read: ms(3000)..=ms(16_000), ..Latency::default() };
            rig.disks[0].set_latency(slow);
            rig.engine.replace("tank", MemberIdx(0), "new0", true).await.expect("replacing");
            let (ends, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let rig = Rc::new(rig);
            for client in 0..CLIENTS {
                let (rig_of, bytes, ends) = (Rc::clone(&rig), Arc::clone(&bytes), ends.clone());
                let ended = Arc::clone(&ended);
                rig.handle.spawn(async move {
                    work(&rig_of, client, bytes, ends).await;
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let mut looks = 0;
            while count(&rig.engine, names::MEMBER_REPLACED) == 0 {
                rig.handle.sleep(ms(20)).await;
                looks += 1;
                assert!(looks < 180_000, "it is never replaced");
            }
            ends.store(true, Ordering::Relaxed);
            rig.handle.sleep(ms(20_000)).await;
            assert_eq!(ended.load(Ordering::Relaxed), CLIENTS, "a client had an error");
            assert_eq!(count(&rig.engine, names::BLOCK_LOST), 0);
        });
    }
}
