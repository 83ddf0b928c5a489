//! What makers state about drives, and NVMe drives of several namespaces.

use super::captures::{AFTER, FLASH, capture, check, inspection, server};
use crate::inspect::models::Library;
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, page};
use crate::metrics::bandwidth::Rate;
use crate::source::Capture;
use crate::source::tree::Entry;
use crate::validity::Outcome;

const OWN_MODELS: &str = "format = 1
name = \"ours\"
version = 2
[[family]]
name = \"EX7\"
model = 'EXAMPLE EX7 .*'
medium = \"flash\"
source = \"its data sheet\"
[[family.capacity]]
gigabytes = 3840
sequential_read = 6000
sequential_write = 3100
random_read = 900000
";

#[test]
fn what_makers_state_is_used_and_who_says_so_is_told() {
    let text = page::text(&inspection(AFTER), false);
    assert!(
        text.contains(
            "60 x TOSHIBA MG07SCA14TA: Toshiba MG07SCA 14000 GB: \
             outer edge 265 MB/s, inner edge 145 MB/s"
        ) && text.contains("library drives 1: measured at both edges by the user"),
        "{text}"
    );
    // A model that nobody knows is said, and taken for what its link carries.
    let flash = inspection(FLASH);
    let text = page::text(&flash, false);
    assert!(text.contains("24 x EXAMPLE EX7 3840GB: not in the library of drive models"), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ours.toml");
    std::fs::write(&path, OWN_MODELS).expect("written");
    let models = Library::with(&[&path]).expect("good");
    let given = Given { models: models.clone(), ..Given::default() };
    let known = Inspection::of(server(capture(FLASH)), None, given);
    assert_eq!(known.read.demand, Rate::mega(24 * 6_000));
    assert_ne!(flash.read.demand, known.read.demand);
    assert!(known.topology.assumptions.iter().all(|it| !it.contains("EX7")));
    let text = page::text(&known, false);
    assert!(
        text.contains(
            "EX7 3840 GB: read 6.00 GB/s, written 3.10 GB/s, random reads 900 k IOPS (ours 2 of "
        ),
        "{text}"
    );
    // What the operator says comes first.
    let given = Given { models, drive_rate: Some(Rate::mega(100)), ..Given::default() };
    let said = Inspection::of(server(capture(FLASH)), None, given);
    assert_eq!(said.read.demand, Rate::mega(24 * 100));
}

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
