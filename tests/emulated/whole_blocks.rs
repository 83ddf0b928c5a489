//! Drives that report how much they write whole, as members in Linux 6.12: the emulator's NVMe
//! drives.

use crate::guest::{Beside, Talk, run_beside};

/// The serials of the drives, and their blocks in bytes.
const DRIVES: [(&str, u32); 5] =
    [("large0", 4096), ("large1", 4096), ("large2", 4096), ("large3", 4096), ("small", 512)];

const DRIVE_BYTES: u64 = 256 << 20;

#[test]
fn blocks_of_a_parity_only_log_are_writes_that_drives_report_to_do_whole() {
    let test = "blocks_of_a_parity_only_log_are_writes_that_drives_report_to_do_whole";
    let folder = tempfile::tempdir().expect("a folder");
    let mut machine = Vec::new();
    for (serial, block) in DRIVES {
        let path = folder.path().join(serial);
        std::fs::File::create(&path).and_then(|file| file.set_len(DRIVE_BYTES)).expect("a file");
        let drive = format!("if=none,id={serial},format=raw,file={}", path.display());
        let blocks = format!("logical_block_size={block},physical_block_size={block}");
        let device = format!("nvme,drive={serial},serial={serial},{blocks}");
        machine.extend(["-drive".to_owned(), drive, "-device".to_owned(), device]);
    }
    let tend = |_: &mut Talk| {};
    if let Some(said) = run_beside(test, "whole_blocks.sh", Beside { settings: &[], machine, tend })
    {
        println!("{said}");
    }
}
