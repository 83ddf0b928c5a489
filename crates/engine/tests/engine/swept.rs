//! The write-intent bits of idle regions are cleared, and the power goes.
//!
//! What must stay true: what lies in a region that is called clean is a codeword on the media, and
//! not in caches alone, whatever else has been flushed meanwhile or not.

use crate::world::jobs::{filled, pair, raid5, scrub, started, until_idle, world_for};
use crate::world::{assemble_spec, engine, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::ArrayVolume;
use ashlar_sim::{Fate, SimDisk, Stop};
use ashlar_units::Extent;
use ashlar_volume::{Command, Volume};
use std::time::Duration;

/// Nothing that the written map would be flushed for.
async fn overwrite_some(volume: ArrayVolume) {
    for at in 0..20 {
        let mut buffer = volume.buffer(8192).await;
        buffer.fill(1 + at);
        let extent = Extent::new(u64::from(at) * (200 << 10), 8192);
        submit(&volume, Command::Write(buffer.freeze()), extent, false).await;
    }
}

/// Members are flushed for their marks as well, but one does not take these. The power goes when
/// some regions are idle, and one member loses all that its cache held.
#[test]
pub fn a_region_is_called_clean_when_all_members_have_flushed_what_was_written_there() {
    for (lost, half_seconds) in (0..4).flat_map(|lost| (3..14).map(move |at| (lost, at))) {
        let (mut world, disks, new) = world_for(680, &raid5());
        let (opener, own) = (world.opener(), disks.clone());
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, raid5()).await;
                filled(&engine, 680).await;
                handle.sleep(Duration::from_secs(60)).await;
                engine.with_volume(0, "tank", overwrite_some).await.expect("runs");
                own[(lost + 1) % 4].fail(CommandKind::Write, FaultKind::Media, Some(2));
                handle.sleep(Duration::from_millis(500 * half_seconds)).await;
            })
            .done();
        world.stop(Stop::Freeze);
        let settle = |(at, disk): (usize, &SimDisk)| {
            disk.stop_failing();
            disk.settle(|_| if at == lost { Fate::Lost } else { Fate::Whole });
        };
        disks.iter().chain([&new]).enumerate().for_each(settle);
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = engine(opener, &handle, 2);
                engine.assemble(assemble_spec(4)).await.expect("assembled");
                until_idle(&engine, &handle).await;
                let found = scrub(&engine, &handle, false).await;
                assert_eq!(found, pair(0, 0), "{lost}, {half_seconds}");
            })
            .done();
    }
}
