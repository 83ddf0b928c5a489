//! NVMe drives with several namespaces.

use super::captures::{FLASH, capture, check, server};
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, page};
use crate::source::Capture;
use crate::source::tree::Entry;
use crate::validity::Outcome;

/// The first drive has two ports with two lanes each, of which one is used, and two namespaces.
fn divided() -> Capture {
    let mut capture = capture(FLASH);
    let (one, other) = ("/sys/block/nvme0n1", "/sys/block/nvme0n2");
    let of_first = |path: &str| {
        path.strip_prefix(one).filter(|rest| rest.is_empty() || rest.starts_with('/')).is_some()
    };
    let copied: Vec<(String, Entry)> = capture
        .tree
        .iter()
        .filter(|(path, _)| of_first(path))
        .map(|(path, entry)| (path.replacen(one, other, 1), entry.clone()))
        .collect();
    for (path, entry) in copied {
        let entry = match entry {
            Entry::Link(to) => Entry::Link(to.replacen("nvme0n1", "nvme0n2", 1)),
            entry => entry,
        };
        capture.tree.insert(path, entry);
    }
    for name in [one, other] {
        capture.tree.insert(format!("{name}/size"), Entry::Text("3750738264".to_owned()));
    }
    let run = capture.runs.get_mut("nvme_id_ctrl-nvme0").expect("asked");
    run.stdout = run.stdout.replacen("\"cmic\": 0", "\"cmic\": 3", 1);
    capture
}

/// Two namespaces counted as two drives with a link each.
#[test]
fn namespaces_of_one_drive_share_its_link_its_media_and_its_capacity() {
    let whole = Inspection::of(server(capture(FLASH)), None, Given::default());
    let divided = Inspection::of(server(divided()), None, Given::default());
    assert_eq!(divided.server.drives.len(), 25, "both namespaces are devices");
    assert_eq!(divided.topology.drive_count, 24);
    assert_eq!(divided.read.demand, whole.read.demand, "no link was added");
    let text = page::text(&divided, false);
    assert!(text.contains("24 x EXAMPLE EX7 3840GB: not in the library"), "{text}");
    assert!(text.contains("; 24 drives on 24 controllers"), "{text}");
    let names = divided.topology.drive_names.iter().flat_map(|(_, names)| names);
    assert_eq!(names.filter(|name| name.starts_with("nvme0n")).count(), 2, "I/O of both counts");
    assert_eq!(divided.server.drives[0].drive_bytes, 2 * 3_750_738_264 * 512);
    let (outcome, found) = check(&divided, "dual_port.second_host");
    assert_eq!(outcome, Outcome::Fail);
    assert!(found.contains("1 NVMe drives have a second port"), "{found}");
}

#[test]
fn a_drive_that_says_its_capacity_is_known_by_that() {
    let mut capture = divided();
    let run = capture.runs.get_mut("nvme_id_ctrl-nvme0").expect("asked");
    run.stdout = run.stdout.replacen("\"cmic\"", "\"tnvmcap\": 7681501126656, \"cmic\"", 1);
    let drives = server(capture).drives;
    let bytes = |name: &str| drives.iter().find(|it| it.name == name).unwrap().drive_bytes;
    assert_eq!((bytes("nvme0n1"), bytes("nvme0n2")), (7_681_501_126_656, 7_681_501_126_656));
    assert_eq!(bytes("nvme1n1"), 7_501_476_528 * 512, "one that does not say it");
}
