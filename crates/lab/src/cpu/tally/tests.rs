//! What belongs to whom: stacks as perf shows them for md, ZFS, btrfs, SPDK and Ashlar.

use super::{CONTEXTS, Counts, Tally};
use crate::cpu::groups::Groups;
use regex::Regex;

const NONE: [&str; 0] = [];

/// Counts of folded lines, and the groups they were counted against.
fn tally(lines: &[&str]) -> (Counts, Groups) {
    let groups = Groups::load(&NONE).expect("sound");
    let client = Regex::new("^fio").expect("sound");
    let mut tally = Tally::new(&groups, &client, true);
    lines.iter().for_each(|line| tally.folded(line.as_bytes()));
    (tally.finish(), groups)
}

/// Engine, context and kind of work of one stack.
fn one(line: &str) -> Option<String> {
    let (counts, groups) = tally(&[line]);
    let (engine, group) = counts.engines.iter().zip(&groups.all).find(|(it, _)| it.total() > 0)?;
    let context = *engine.contexts.keys().next().expect("one");
    let context = CONTEXTS.iter().find(|(it, _)| *it == context).expect("known").1;
    let work = engine.work.iter().position(|count| *count > 0).expect("one");
    let work = group.work.get(work).map_or("not told apart", |(name, _)| name.as_str());
    Some(format!("{}, {context}, {work}", group.name))
}

#[test]
fn every_stack_is_the_engine_s_whose_work_it_is_wherever_it_ran() {
    let lines = include_str!("../../../tests/golden/whose.txt").lines();
    let lines = lines.filter_map(|line| line.split_once(" | "));
    let told: Vec<(&str, &str)> = lines.collect();
    assert!(told.len() > 20, "{told:?}");
    for (whose, stack) in told {
        let found = one(&format!("{stack} 1"));
        assert_eq!(found.as_deref().unwrap_or("nobody"), whose, "{stack}");
    }
}

#[test]
fn idle_is_counted_as_nothing() {
    let (counts, _) =
        tally(&["swapper;do_idle_[k];default_idle_[k] 70", "swapper/3;x 5", "fio;main 20"]);
    assert_eq!((counts.total, counts.idle, counts.client), (95, 75, 20));
}

#[test]
fn polling_is_counted_as_consumed() {
    let (counts, _) = tally(&[
        "fio;io_uring_enter;iocb_bio_iopoll_[k];bio_poll_[k] 7",
        "iou-sqp-12;io_sq_thread_[k] 3",
        "fio;x 1",
    ]);
    assert_eq!(counts.polling, 10);
}

#[test]
fn delimiters_of_bcc_are_understood_and_what_is_no_stack_is_counted() {
    let lines = ["fio-77/78;main;-;raid5_make_request_[k] 4", "", "# note", "no count", "x;y -3"];
    let (counts, _) = tally(&[&lines[..], &["a b;c 2.0"]].concat());
    assert_eq!((counts.total, counts.client, counts.unread), (6, 4, 2));
}
