//! A machine with two NUMA nodes of four processors each, and NVMe drives on either: where workers,
//! their memory and the interrupts of their drives are.

use crate::guest::{Beside, Talk, run_beside};
use std::fs::File;
use std::path::Path;

/// Drives on each node.
const DRIVES: u32 = 3;
const DRIVE_BYTES: u64 = 128 << 20;

/// Two nodes with half of the memory each, and a PCI bus with drives on each of them.
fn machine(folder: &Path) -> Vec<String> {
    // All buffers are filled at the start: a node must have room for those of its workers.
    let words = ["-smp", "8,sockets=2,cores=4", "-m", "2G"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    let mut add = |kind: &str, what: String| words.extend([format!("-{kind}"), what]);
    for node in 0..2 {
        let (first, last) = (node * 4, node * 4 + 3);
        add("object", format!("memory-backend-ram,id=memory{node},size=1G"));
        add("numa", format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}"));
        let bus = format!("pxb-pcie,id=bus{node},bus=pcie.0,numa_node={node}");
        add("device", format!("{bus},bus_nr={}", 64 * (node + 1)));
        for drive in 0..DRIVES {
            let (name, number) = (format!("n{node}d{drive}"), node * DRIVES + drive);
            let path = folder.join(&name);
            File::create(&path).and_then(|it| it.set_len(DRIVE_BYTES)).expect("a sparse file");
            add("drive", format!("if=none,id={name},format=raw,file={}", path.display()));
            let port = format!("pcie-root-port,id=port-{name},bus=bus{node}");
            add("device", format!("{port},chassis={number},slot={number}"));
            add("device", format!("nvme,drive={name},serial={name},bus=port-{name}"));
        }
    }
    words
}

#[test]
fn workers_memory_and_interrupts_are_on_the_node_of_the_drives() {
    let test = "workers_memory_and_interrupts_are_on_the_node_of_the_drives";
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let beside = Beside { settings: &[], machine, tend: |_: &mut Talk| {} };
    if let Some(said) = run_beside(test, "numa.sh", beside) {
        println!("{said}");
    }
}
