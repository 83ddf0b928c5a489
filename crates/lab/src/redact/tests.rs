//! No original identifier survives, wherever it stands; facts stay.

use super::redact;
use crate::source::Capture;
use crate::source::folder;
use crate::source::tool::{Ending, Run};
use crate::source::tree::Tree;

/// Invented; every form in which tools print identifiers.
const PLANTED: [&str; 13] = [
    "5000C500DEAD0001",
    "5000c500dead0002",
    "ZQX1B2C3D4",
    "S4N0QRS7T",
    "93817265",
    "stable7-rack12",
    "stable7-rack12.lab.example",
    "192.0.2.77",
    "2001:db8::7:1",
    "02:1a:2b:3c:4d:5e",
    "c7a1f0e2-1b2c-4d3e-8f90-a1b2c3d4e5f6",
    "50-06-05-b0-0a-1b-2c-30",
    "nqn.2019-08.com.example:nvme:ZQX1B2C3D4",
];

fn run(stdout: &str) -> Run {
    let argv = vec!["smartctl".into(), "/dev/disk/by-id/wwn-0x5000c500dead0002".into()];
    Run {
        argv,
        ending: Ending::Exit(1),
        stdout: stdout.into(),
        stderr: "stable7-rack12: no".into(),
    }
}

fn planted() -> Capture {
    let (tree, odd) = Tree::parse(
        "/proc/sys/kernel/hostname = stable7-rack12.lab.example\n\
         /sys/class/sas_phy/phy-1:0/sas_address = 0x5000c500dead0002\n\
         /sys/class/block/sda -> ../wwn-0x5000c500dead0002/stable7-rack12/sda\n\
         /sys/x/by-id/wwn-0x5000c500dead0001 = 02:1a:2b:3c:4d:5e 192.0.2.77 2001:db8::7:1\n\
         /sys/block/sda/device/serial = S4N0QRS7T\n\
         /sys/block/sda/size = 27344764928\n\
         /proc/cmdline = root=UUID=c7a1f0e2-1b2c-4d3e-8f90-a1b2c3d4e5f6 ip=192.0.2.77::\n\
         /sys/bus/pci/devices/0000:05:00.0/class = 0x010700\n",
    );
    assert_eq!(odd, 0);
    let mut capture = Capture { tree, ..Capture::default() };
    let texts = [
        (
            "smartctl-sda",
            "{\"serial_number\":\"ZQX1B2C3D4\",\"wwn\":{\"naa\":5,\"oui\":3152,\"id\":93817265},\"subnqn\":\"nqn.2019-08.com.example:nvme:ZQX1B2C3D4\"}",
        ),
        (
            "dmidecode-memory",
            "Memory Device\n\tSerial Number: S4N0QRS7T\n\tAsset Tag: Not Specified\n\tSpeed: 2400 MT/s\n",
        ),
        ("lspci", "\tCapabilities: [1b8 v1] Device Serial Number 50-06-05-b0-0a-1b-2c-30\n"),
        (
            "smp_discover-5000C500DEAD0001",
            "  phy  12:U:attached:[5000c500dead0002:00  t(SSP)]  12 Gbps\nsda_ZQX1B2C3D4-part1\n",
        ),
    ];
    for (name, text) in texts {
        capture.runs.insert(name.into(), run(text));
    }
    capture
}

/// Everything a written capture consists of: names of files and what they hold.
fn all_text(capture: &Capture) -> String {
    fn walk(folder: &std::path::Path, out: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("readable").path();
            out.push_str(&path.file_name().expect("a name").to_string_lossy());
            out.push('\n');
            match path.is_dir() {
                true => walk(&path, out),
                false => out.push_str(&std::fs::read_to_string(&path).expect("text")),
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    folder::write(capture, folder.path()).expect("written");
    let mut out = String::new();
    walk(folder.path(), &mut out);
    out
}

#[test]
fn no_identifier_survives_in_names_or_contents() {
    let before = all_text(&planted()).to_lowercase();
    let (redacted, counts) = redact(&planted(), "salt");
    let after = all_text(&redacted).to_lowercase();
    for identifier in PLANTED {
        let identifier = identifier.to_lowercase();
        assert!(before.contains(&identifier), "{identifier} is not planted");
        assert!(!after.contains(&identifier), "{identifier} survives in\n{after}");
    }
    assert_eq!(counts["host names"], 2);
    assert!(after.contains("\"is_redacted\": true"));
}

#[test]
fn facts_and_places_stay() {
    let (redacted, _) = redact(&planted(), "salt");
    let after = all_text(&redacted);
    for fact in [
        "27344764928",
        "0000:05:00.0",
        "2400 MT/s",
        "Not Specified",
        "phy-1:0/",
        "12 Gbps",
        "0x010700",
    ] {
        assert!(after.contains(fact), "{fact} is gone from\n{after}");
    }
}

#[test]
fn one_salt_gives_one_name_and_another_salt_another() {
    let text = |salt| all_text(&redact(&planted(), salt).0);
    assert_eq!(text("a"), text("a"));
    assert_ne!(text("a"), text("b"));
    // One WWN printed by two tools is still one WWN.
    let after = text("a");
    let (_, rest) = after.split_once("sas_address = 0x").expect("there");
    assert!(after.matches(&rest[..16]).count() >= 3, "{after}");
}
