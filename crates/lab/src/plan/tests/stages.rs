//! Stages whose points the lab makes up: working sets, block sizes, file systems, first
//! writes.

use super::{blank, expanded};
use crate::inspect::server::software::Memory;
use crate::plan::findings::{first_write, knee, memory};
use crate::record::ArrayCondition;
use crate::validity::Outcome;
use std::collections::BTreeMap;
use std::path::Path;

const DRIVES: &str = "question = \"q\"\ndrives = [\"/dev/a\", \"/dev/b\", \"/dev/c\"]\n";
const ARRAY: &str = "[[arrays]]\npath = \"/dev/md9\"\nstrip = \"64k\"\ndata_members = 2\n";

#[test]
fn a_block_size_sweep_asks_for_the_same_load_in_every_size() {
    let stage = "[[stages]]\nkind = \"block-sizes\"\nprofiles = [\"seq-read-1m\"]\n";
    let sizes = |text: &str| -> Vec<(u64, String)> {
        let all = expanded(text).unwrap();
        all.points().map(|it| (it.workload.block_bytes, it.workload.name.clone())).collect()
    };
    let whole = sizes(&format!("{DRIVES}{ARRAY}{stage}"));
    let blocks: Vec<u64> = whole.iter().map(|(block, _)| *block).collect();
    assert_eq!(blocks, [4096, 16_384, 65_536, 262_144, 1 << 20]);
    assert_eq!(whole[0].1, "seq-read-1m-j1-q32-bs4k");
    let own = sizes(&format!("{DRIVES}{stage}sizes = [\"512\"]\n"));
    assert_eq!(own.len(), 3, "without arrays each drive by itself");
    assert_eq!(own[0].0, 512);
}

#[test]
fn a_file_system_is_made_only_on_an_array_that_names_one_and_counts_as_overwriting_it() {
    let stage = "[[stages]]\nkind = \"file-system\"\nprofiles = [\"rr-4k\"]\n";
    let none = expanded(&format!("{DRIVES}{ARRAY}{stage}")).unwrap();
    assert!(none.left_out["file-system"].contains("no array names a file_system"));
    let text = format!("{DRIVES}{ARRAY}file_system = \"ext4\"\nspan = \"8m\"\n{stage}");
    let all = expanded(&text).unwrap();
    let group = &all.groups[0];
    assert!(group.has_file_system && group.points[0].condition == ArrayCondition::FileSystem);
    assert_eq!(group.points[0].jobs.jobs()[0].bytes("size"), Some(8 << 20));
    assert_eq!(all.written(), [Path::new("/dev/md9")], "although the load only reads");
    assert!(group.before_s > 1.0, "filling 70 % of 1 GB is in the estimate");
    let full = text.replace("span =", "fill_percent = 99\nspan =");
    assert!(expanded(&full).unwrap_err().to_string().contains("fill_percent"));
}

#[test]
fn what_the_first_write_costs_is_told_in_both_directions_and_not_of_a_short_fill() {
    let fill = |rate: f64, seconds: f64| {
        let mut one = blank("f", &crate::record::Workload::default());
        (one.write.bytes_per_s, one.write.bytes) = (rate, crate::units::whole(rate * seconds));
        one
    };
    let told = |first: f64, second: f64| first_write(&fill(first, 60.0), &fill(second, 60.0));
    let thin = told(200e6, 500e6);
    assert!(thin.outcome == Outcome::Fail && thin.found.contains("\u{d7}2.50; first writes cost"));
    let fresh = told(1.5e9, 0.4e9);
    assert!(fresh.outcome == Outcome::Fail && fresh.found.contains("a fresh drive"), "{fresh:?}");
    assert_eq!(told(500e6, 480e6).outcome, Outcome::Pass);
    let short = first_write(&fill(200e6, 2.0), &fill(500e6, 2.0));
    assert_eq!(short.outcome, Outcome::CannotTell);
}

#[test]
fn a_knee_is_named_with_both_sizes_and_no_knee_below_twice_the_memory_tells_nothing() {
    let (gib, memory) = (1_u64 << 30, Some(16_u64 << 30));
    let sizes = |rates: [f64; 3]| {
        [gib, 8 * gib, 32 * gib].into_iter().zip(rates).collect::<Vec<(u64, f64)>>()
    };
    let found = knee("md9, rr-4k", &sizes([100e3, 98e3, 10e3]), memory);
    assert_eq!(found.outcome, Outcome::Pass);
    assert!(found.found.contains("between 8.59 GB and 34.4 GB"), "{found:?}");
    assert!(found.next.unwrap().contains("34.4 GB and more"));
    assert_eq!(knee("t", &sizes([99.0, 98.0, 97.0]), memory).outcome, Outcome::Pass);
    let small = &sizes([99.0, 98.0, 97.0])[..2];
    assert_eq!(knee("t", small, memory).outcome, Outcome::CannotTell);
    assert_eq!(knee("t", &sizes([99.0, 98.0, 97.0]), None).outcome, Outcome::CannotTell);
}

#[test]
fn each_drive_has_a_series_of_the_jobs_that_ran_on_it() {
    use crate::plan::execute::numbers;
    let stage = "[[stages]]\nkind = \"raw.all\"\nprofiles = [\"rr-4k\"]\njobs = [4]\n";
    let all = expanded(&format!("{DRIVES}{stage}")).unwrap();
    let point = all.points().next().unwrap();
    let of: Vec<Vec<u32>> = point.targets.iter().map(|target| numbers(point, target)).collect();
    assert_eq!(of, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10, 11, 12]]);
}

#[test]
fn the_example_is_a_plan_of_which_nothing_is_left_out() {
    let all = expanded(crate::plan::cli::EXAMPLE).unwrap();
    assert!(all.left_out.is_empty(), "{:?}", all.left_out);
    assert_eq!(all.arrays[0].stripe_data_bytes(), Some(256 << 10));
    assert!(all.points().count() > 40, "{}", all.points().count());
}

fn memory_at(available: u64, kernel: u64, raid: u64) -> Memory {
    let slabs =
        BTreeMap::from([("dentry".to_owned(), raid / 1000), ("raid6-md0".to_owned(), raid)]);
    Memory { available, total: 100_000_000_000, kernel, slabs }
}

#[test]
fn the_slab_that_grew_most_is_named_and_too_little_memory_fails() {
    let before = memory_at(90_000_000_000, 1_000_000_000, 10_000_000);
    let check = memory("md0", &before, &memory_at(80_000_000_000, 3_000_000_000, 2_010_000_000));
    assert_eq!(check.outcome, Outcome::Pass);
    for word in ["fell by 10", "grew by 2", "raid6-md0 by 2", "80.0 %"] {
        assert!(check.found.contains(word), "{word}: {}", check.found);
    }
    let short = memory("md0", &before, &memory_at(4_000_000_000, 0, 0));
    assert_eq!(short.outcome, Outcome::Fail);
    assert!(!short.found.contains("most of all"), "no slab grew: {}", short.found);
}
