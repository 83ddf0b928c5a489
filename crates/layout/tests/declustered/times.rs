//! The model of rebuild times against figures worked out by hand.

use ashlar_layout::declustered::{
    Declustered, DeclusteredParts, DriveModel, EFFICIENCY_ROTATING, flat_counts, flat_forecast,
    forecast,
};

use crate::parts;

const TB: u64 = 1_000_000_000_000;
const HOUR: f64 = 3600.0;

fn pool(members: usize, bytes: u64) -> Declustered {
    let parts = DeclusteredParts {
        cell_rows: 256,
        strip_bytes: 65_536,
        rows: bytes / 65_536,
        ..parts(members, (8, 2), 2)
    };
    Declustered::new(parts).expect("a layout")
}

fn rotating(busy: f64) -> DriveModel {
    DriveModel {
        bytes: 20 * TB,
        reads_per_second: 200_000_000,
        writes_per_second: 200_000_000,
        efficiency: EFFICIENCY_ROTATING,
        busy,
    }
}

fn is_near(found: Option<f64>, wanted: f64) {
    let found = found.expect("it ends");
    assert!((found / wanted - 1.0).abs() < 0.01, "{found} and not {wanted}");
}

#[test]
fn forty_two_drives_of_20_tb_are_those_worked_out_by_hand() {
    let map = pool(42, 20 * TB);
    let idle = (flat_forecast(&map, &rotating(0.0)), forecast(&map, &rotating(0.0)));
    is_near(idle.0.rebuild_seconds, 27.78 * HOUR);
    // 40/42 of 20 TB, eight reads and a write for each strip, on 41 drives at 180 MB/s.
    is_near(idle.1.rebuild_seconds, 6.45 * HOUR);
    is_near(idle.1.critical_seconds, 1.61 * HOUR);
    assert!((idle.1.critical_share - 9.0 / 41.0).abs() < 1e-9);
    let busy = (flat_forecast(&map, &rotating(0.3)), forecast(&map, &rotating(0.3)));
    is_near(busy.0.rebuild_seconds, 56.98 * HOUR);
    is_near(busy.1.rebuild_seconds, 10.06 * HOUR);
    let half = (flat_forecast(&map, &rotating(0.5)), forecast(&map, &rotating(0.5)));
    is_near(half.0.rebuild_seconds, 444.4 * HOUR);
    is_near(half.1.rebuild_seconds, 16.03 * HOUR);
}

#[test]
fn sixty_flash_drives_are_those_worked_out_by_hand() {
    let drive = DriveModel {
        bytes: 15_360_000_000_000,
        reads_per_second: 6_800_000_000,
        writes_per_second: 4_000_000_000,
        efficiency: 1.0,
        busy: 0.0,
    };
    let map = pool(60, drive.bytes);
    is_near(flat_forecast(&map, &drive).rebuild_seconds, 64.0 * 60.0);
    is_near(forecast(&map, &drive).rebuild_seconds, 357.0);
}

#[test]
fn a_pool_and_a_flat_array_of_42_drives_hold_as_much() {
    let map = pool(42, 20 * TB);
    let (flat, pool) = (flat_forecast(&map, &rotating(0.0)), forecast(&map, &rotating(0.0)));
    let counts = flat_counts(&map);
    assert_eq!((counts.groups, counts.spares), (4, 2));
    assert_eq!((flat.data_bytes, flat.spare_bytes), (640 * TB, 40 * TB));
    assert_eq!(pool.spare_bytes, 40 * TB);
    // All but the part of a slice at the end.
    assert!(flat.data_bytes - pool.data_bytes < 32 * (16 << 20));
}

#[test]
fn drives_without_time_for_a_rebuild_never_end_one() {
    let map = pool(42, 20 * TB);
    assert_eq!(flat_forecast(&map, &rotating(0.55)).rebuild_seconds, None);
    assert!(forecast(&map, &rotating(0.55)).rebuild_seconds.is_some());
    assert_eq!(forecast(&map, &rotating(0.9)).rebuild_seconds, None);
}
