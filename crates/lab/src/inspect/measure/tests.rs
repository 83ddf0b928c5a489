//! What is going to be tried, on processors of other machines.

use super::Plan;
use crate::inspect::server::Cpu;
use crate::inspect::server::cpu::Thread;
use crate::source::{Capture, Source};
use std::collections::BTreeSet;

/// Two sockets, `cores` each, two threads a core; a node of each socket.
fn cpu(cores: u64) -> Cpu {
    let thread = |cpu: u64| {
        let core = cpu % (2 * cores);
        let socket = core / cores;
        Thread { cpu, core, socket, node: Some(socket) }
    };
    let threads: Vec<Thread> = (0..4 * cores).map(thread).collect();
    let of = |node: u64| -> BTreeSet<u64> {
        threads.iter().filter(|it| it.node == Some(node)).map(|it| it.cpu).collect()
    };
    let nodes = [0, 1].map(|node| (node, of(node))).into();
    Cpu { threads, nodes, ..Cpu::default() }
}

fn source(cache_kib: Option<u64>, cpus: u64, cores: u64) -> Source {
    let mut capture = Capture::default();
    for cpu in 0..cpus {
        let socket = cpu % (2 * cores) / cores;
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        let mut put = |name: &str, text: String| {
            capture.tree.insert(format!("{folder}/{name}"), crate::source::tree::Entry::Text(text));
        };
        if let Some(kib) = cache_kib {
            put("index0/size", "32K".into());
            put("index0/shared_cpu_list", cpu.to_string());
            put("index3/size", format!("{kib}K"));
            put("index3/shared_cpu_list", format!("of socket {socket}"));
        }
    }
    Source::captured(capture)
}

#[test]
fn one_thread_of_each_core_works_on_each_node_and_all_where_cores_are_few() {
    let plan = Plan::of(&source(Some(20_480), 32, 8), &cpu(8), Some(64 << 30));
    let cpus: Vec<&[u64]> = plan.tasks.iter().map(|it| it.cpus.as_slice()).collect();
    assert_eq!(cpus, [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[8, 9, 10, 11, 12, 13, 14, 15][..]]);
    assert_eq!(plan.tasks.iter().filter_map(|it| it.socket).collect::<Vec<_>>(), [0, 1]);
    let few = Plan::of(&source(Some(4_096), 8, 2), &cpu(2), Some(64 << 30));
    assert_eq!(few.tasks[0].cpus, [0, 1, 4, 5]);
}

#[test]
fn memory_is_larger_than_the_last_cache_several_times_over() {
    let plan = Plan::of(&source(Some(307_200), 32, 8), &cpu(8), Some(64 << 30));
    assert_eq!(plan.tasks[0].cache_bytes, Some(307_200 << 10));
    assert_eq!(plan.buffer_bytes, 4 * (307_200 << 10));
    assert!(
        plan.sentence().starts_with("trying memory and processors, about 8 s"),
        "{}",
        plan.sentence()
    );
    assert!(plan.sentence().contains("from socket to socket"));
    let small = Plan::of(&source(Some(8_192), 32, 8), &cpu(8), Some(64 << 30));
    assert_eq!(small.buffer_bytes, 512 << 20);
}

#[test]
fn with_too_little_memory_nothing_is_tried_and_the_reason_is_said() {
    let plan = |available| Plan::of(&source(Some(307_200), 32, 8), &cpu(8), available);
    // Half of it for two nodes: 1 GiB each is three times the cache, 256 MiB are not even one.
    assert_eq!(plan(Some(4 << 30)).why_not, None);
    assert_eq!(plan(Some(4 << 30)).buffer_bytes, 1 << 30);
    let tried = plan(Some(1 << 30)).run();
    assert!(tried.nodes.is_empty() && tried.not_tried[0].contains("of cache"), "{tried:?}");
    assert!(
        plan(None).sentence().starts_with("memory and processors are not tried: /proc/meminfo")
    );
    let none = Plan::of(&source(None, 0, 1), &Cpu::default(), Some(1 << 40));
    assert!(none.run().not_tried[0].contains("which CPUs"));
}
