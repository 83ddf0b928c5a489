//! What makers state about drives.

use super::captures::{AFTER, FLASH, capture, inspection, server};
use crate::inspect::Inspection;
use crate::inspect::models::Library;
use crate::inspect::page;
use crate::inspect::topology::Given;
use crate::metrics::bandwidth::Rate;

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
