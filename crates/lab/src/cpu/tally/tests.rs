//! What belongs to whom: stacks as perf shows them for md, ZFS, btrfs, SPDK and Ashlar.

use super::{Context, Counts, Tally};
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
fn one(line: &str) -> Option<(String, Context, String)> {
    let (counts, groups) = tally(&[line]);
    let (engine, group) = counts.engines.iter().zip(&groups.all).find(|(it, _)| it.total() > 0)?;
    let context = *engine.contexts.keys().next().expect("one");
    let work = engine.work.iter().position(|count| *count > 0).expect("one");
    let name = group.work.get(work).map_or("not told apart", |(name, _)| name.as_str());
    Some((group.name.clone(), context, name.to_owned()))
}

#[track_caller]
fn is(line: &str, group: &str, context: Context, work: &str) {
    assert_eq!(one(line), Some((group.to_owned(), context, work.to_owned())), "{line}");
}

#[test]
fn an_engine_s_work_in_a_client_s_context_is_the_engine_s() {
    let path = "fio;entry_SYSCALL_64_[k];io_submit_one_[k];submit_bio_noacct_[k];\
                md_handle_request [md_mod]_[k];raid5_make_request [raid456]_[k]";
    is(&format!("{path};_raw_spin_lock_irq_[k] 1"), "md", Context::Client, "locks");
    is(
        &format!("{path};raid5_get_active_stripe [raid456]_[k] 1"),
        "md",
        Context::Client,
        "stripe cache",
    );
    is(&format!("{path};memcpy_erms_[k] 1"), "md", Context::Client, "copies");
    is("mysqld;pwrite;raid5_make_request_[k] 1", "md", Context::Client, "stripe cache");
    assert_eq!(one("fio;entry_SYSCALL_64_[k];io_submit_one_[k];blk_finish_plug_[k] 1"), None);
}

#[test]
fn threads_kworkers_and_softirqs_are_told_apart() {
    let thread = "md0_raid6;ret_from_fork_[k];kthread_[k];md_thread [md_mod]_[k];\
                  raid5d [raid456]_[k];handle_stripe [raid456]_[k]";
    is(
        &format!("{thread};raid_run_ops_[k];raid6_avx5124_gen_syndrome [raid6_pq]_[k] 1"),
        "md",
        Context::KernelThread,
        "parity",
    );
    is(
        &format!("{thread};raid_run_ops_[k];raid6_2data_recov_avx2 [raid6_pq]_[k] 1"),
        "md",
        Context::KernelThread,
        "reconstruct",
    );
    is(
        "kworker/u128:3;ret_from_fork_[k];kthread_[k];worker_thread_[k];process_one_work_[k];\
         raid5_do_work [raid456]_[k];handle_active_stripes_[k] 1",
        "md",
        Context::Kworker,
        "stripe cache",
    );
    is(
        "fio;do_syscall_64_[k];asm_common_interrupt_[k];handle_softirqs_[k];blk_complete_reqs_[k];\
         raid5_end_write_request [raid456]_[k];md_wakeup_thread_[k] 1",
        "md",
        Context::Softirq,
        "submission",
    );
}

#[test]
fn what_an_interrupt_does_is_not_the_work_of_whom_it_interrupted() {
    let line = "md0_raid6;kthread_[k];raid5d [raid456]_[k];asm_sysvec_apic_timer_interrupt_[k];\
                hrtimer_interrupt_[k] 1";
    assert_eq!(one(line), None);
}

#[test]
fn code_that_several_engines_call_belongs_to_the_caller() {
    is(
        "kworker/u8:1;kthread_[k];worker_thread_[k];rmw_rbio_work_[k];rmw_rbio_[k];\
         raid6_avx5124_gen_syndrome_[k] 1",
        "btrfs",
        Context::Kworker,
        "parity",
    );
    is(
        "btrfs-endio;kthread_[k];worker_thread_[k];crc32c_[k] 1",
        "btrfs",
        Context::KernelThread,
        "checksum",
    );
    is(
        "dd;vfs_write_[k];btrfs_direct_write_[k];btrfs_submit_bbio_[k];btrfs_csum_one_bio_[k];\
         crc32c_x86_3way_[k] 1",
        "btrfs",
        Context::Client,
        "checksum",
    );
}

#[test]
fn the_engine_nearest_to_the_leaf_has_the_work() {
    // A file system on md: what md does is md's.
    is(
        "fio;btrfs_submit_bio_[k];submit_bio_[k];md_submit_bio_[k];raid5_make_request_[k] 1",
        "md",
        Context::Client,
        "stripe cache",
    );
    is(
        "fio;dm_submit_bio_[k];__map_bio_[k];submit_bio_noacct_[k];raid5_make_request_[k] 1",
        "md",
        Context::Client,
        "stripe cache",
    );
}

#[test]
fn user_space_engines_have_their_threads_whole() {
    is(
        "ashlar-worker-0;start;ashlar_engine::worker::Worker::run;\
         ashlar_parity::avx512::generate 1",
        "ashlar",
        Context::EngineThread,
        "parity",
    );
    is(
        "ashlar-worker-0;ashlar_ring::submit;syscall;do_syscall_64_[k];io_submit_sqes_[k] 1",
        "ashlar",
        Context::EngineThread,
        "submission",
    );
    is(
        "reactor_3;reactor_run;_reactor_run;spdk_thread_poll 1",
        "spdk",
        Context::EngineThread,
        "polling",
    );
    is(
        "z_wr_iss;kthread_[k];taskq_thread [spl]_[k];\
         zio_execute [zfs]_[k];vdev_raidz_generate_parity [zfs]_[k] 1",
        "zfs",
        Context::KernelThread,
        "parity",
    );
    assert_eq!(one("ashlar-lab;main;ashlar_lab::cpu::run 1"), None);
}

#[test]
fn idle_is_counted_as_nothing_and_interrupts_on_idle_cores_as_work() {
    let (counts, _) =
        tally(&["swapper;do_idle_[k];default_idle_[k] 70", "swapper/3;x 5", "fio;main 20"]);
    assert_eq!((counts.total, counts.idle, counts.client), (95, 75, 20));
    is(
        "swapper;do_idle_[k];common_interrupt_[k];handle_softirqs_[k];\
         raid5_end_write_request_[k] 1",
        "md",
        Context::Softirq,
        "not told apart",
    );
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
fn pid_suffixes_of_collapse_programs_and_delimiters_of_bcc_are_understood() {
    is("md0_raid6-1234;kthread_[k];raid5d_[k] 2", "md", Context::KernelThread, "stripe cache");
    let (counts, _) = tally(&[
        "fio-77/78;main;-;raid5_make_request_[k] 4",
        "",
        "# note",
        "no count",
        "x;y -3",
        "a b;c 2.0",
    ]);
    assert_eq!((counts.total, counts.client, counts.unread), (6, 4, 2));
}

#[test]
fn two_tallies_added_are_one_tally_of_both() {
    let lines = [
        "fio;raid5_make_request_[k];memcpy_[k] 3",
        "md0_raid6;raid5d_[k] 5",
        "swapper;do_idle_[k] 9",
        "bad",
    ];
    let (mut first, _) = tally(&lines[..2]);
    let (second, _) = tally(&lines[2..]);
    first.add(second);
    let (both, _) = tally(&lines);
    assert_eq!(first.engines, both.engines);
    assert_eq!(
        (first.total, first.idle, first.unread, first.client),
        (both.total, both.idle, both.unread, both.client)
    );
    assert_eq!((first.threads, first.leaves), (both.threads, both.leaves));
    assert_eq!(first.stacks.expect("kept").counts, both.stacks.expect("kept").counts);
}
