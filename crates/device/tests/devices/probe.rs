//! Claims about finding other people's data, on images made by hand and by their own programs.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ashlar_device::{Prober, Signature, signatures, signatures_built_in};
use tempfile::NamedTempFile;

const SIZE: u64 = 8 << 20;

fn image(size_bytes: u64, parts: &[(u64, &[u8])]) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file for the test");
    file.as_file().set_len(size_bytes).expect("sparse");
    for (offset, bytes) in parts {
        file.as_file().write_all_at(bytes, *offset).expect("written");
    }
    file
}

fn found(parts: &[(u64, &[u8])]) -> Vec<Signature> {
    let image = image(SIZE, parts);
    let probe = signatures_built_in(image.path()).expect("readable");
    assert_eq!(probe.by, Prober::BuiltIn);
    probe.signatures
}

#[track_caller]
fn assert_found(parts: &[(u64, &[u8])], kind: &str, offset: u64) {
    let found = found(parts);
    let places: Vec<(&str, u64)> =
        found.iter().map(|found| (found.kind.as_str(), found.offset)).collect();
    assert_eq!(places, [(kind, offset)]);
}

#[test]
fn the_built_in_check_finds_each_format_where_it_is() {
    assert_found(&[(512, b"EFI PART")], "gpt", 512);
    assert_found(&[(SIZE - 512, b"EFI PART")], "gpt", SIZE - 512);
    assert_found(&[(SIZE - 4096, b"EFI PART")], "gpt", SIZE - 4096);
    assert_found(&[(510, &[0x55, 0xAA]), (450, &[0x83])], "dos", 510);
    assert_found(&[(0x438, &[0x53, 0xEF])], "ext", 0x438);
    assert_found(&[(0, b"XFSB")], "xfs", 0);
    assert_found(&[(0x1_0040, b"_BHRfS_M")], "btrfs", 0x1_0040);
    let md = &[0xFC, 0x4E, 0x2B, 0xA9];
    assert_found(&[(0, md)], "linux_raid_member", 0);
    assert_found(&[(4096, md)], "linux_raid_member", 4096);
    assert_found(&[(SIZE - 8192, md)], "linux_raid_member", SIZE - 8192);
    assert_found(&[(SIZE - 65_536, md)], "linux_raid_member", SIZE - 65_536);
    assert_found(&[(512 + 24, b"LVM2 001")], "LVM2_member", 512 + 24);
    assert_found(&[(0, b"LUKS\xBA\xBE")], "crypto_LUKS", 0);
    assert_found(&[(4086, b"SWAPSPACE2")], "swap", 4086);
    let uberblock = 0x00BA_B10C_u64.to_le_bytes();
    assert_found(&[(128 << 10, &uberblock)], "zfs_member", 128 << 10);
    let in_last_pair = SIZE - (512 << 10) + (128 << 10) + 3 * 1024;
    assert_found(&[(in_last_pair, &uberblock)], "zfs_member", in_last_pair);
}

#[test]
fn a_blank_image_a_boot_sector_and_a_short_file_have_no_signature() {
    assert_eq!(found(&[]), []);
    assert_eq!(found(&[(510, &[0x55, 0xAA])]), [], "a mark without any partition");
    assert_eq!(found(&[(510, &[0x55, 0xAA]), (446, &[7, 0, 0, 0, 0x83])]), [], "nonsense flags");
    for size in [0, 1, 511, 512, 4096] {
        let image = image(size, &[]);
        assert_eq!(signatures_built_in(image.path()).expect("readable").signatures, []);
    }
}

#[test]
fn identity_and_label_are_told_with_the_format() {
    let uuid: Vec<u8> = (0..16).collect();
    let found = found(&[(0, b"XFSB"), (32, &uuid), (108, b"backup\0\0")]);
    let wanted = "xfs 'backup' 00010203-0405-0607-0809-0a0b0c0d0e0f at byte 0";
    assert_eq!(found[0].to_string(), wanted);
}

#[test]
fn what_cannot_be_read_is_an_error_and_not_blank() {
    assert!(signatures(Path::new("/none/such")).is_err());
    assert!(signatures_built_in(Path::new("/none/such")).is_err());
    assert!(signatures_built_in(Path::new("/proc")).is_err(), "a directory");
}

/// Runs a program that makes a format, or says why `test` cannot.
fn make(test: &str, program: &str, options: &[&str], image: &Path) -> bool {
    let output = Command::new(format!("/usr/sbin/{program}"))
        .args(options)
        .arg(image)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            panic!("{program} failed: {reason}");
        }
        Err(error) => {
            eprintln!("SKIPPED {test} for {program}: {error}");
            false
        }
    }
}

#[test]
fn both_probers_agree_on_what_the_formats_own_programs_make() {
    let test = "both_probers_agree_on_what_the_formats_own_programs_make";
    let label = "my data";
    let makers: [(&str, &[&str], &str); 4] = [
        ("mkfs.ext4", &["-q", "-F", "-L", label], "ext4"),
        ("mkfs.xfs", &["-q", "-f", "-L", "my_data"], "xfs"),
        ("mkfs.btrfs", &["-q", "-f", "-L", label], "btrfs"),
        ("mkswap", &["-q", "-L", label], "swap"),
    ];
    for (program, options, kind) in makers {
        let image = image(400 << 20, &[]);
        if !make(test, program, options, image.path()) {
            continue;
        }
        let ours = signatures_built_in(image.path()).expect("readable").signatures;
        let probe = signatures(image.path()).expect("readable");
        if probe.by == Prober::BuiltIn {
            eprintln!("SKIPPED {test} for {program}: there is no wipefs to compare with");
            continue;
        }
        assert_eq!(probe.signatures.len(), 1, "{program}: {:?}", probe.signatures);
        assert_eq!(probe.signatures[0].kind, kind);
        let mut ours = ours;
        // We do not tell the generations of ext apart.
        ours[0].kind = ours[0].kind.replace("ext", "ext4");
        assert_eq!(ours, probe.signatures, "{program}");
        assert!(probe.signatures[0].uuid.is_some() && probe.signatures[0].label.is_some());
    }
}

#[test]
fn probing_writes_nothing() {
    let mut image = image(SIZE, &[(0x438, &[0x53, 0xEF]), (0, b"XFSB")]);
    image.flush().expect("flushed");
    let before = std::fs::read(image.path()).expect("read");
    let _ = signatures(image.path()).expect("readable");
    let _ = signatures_built_in(image.path()).expect("readable");
    assert!(std::fs::read(image.path()).expect("read") == before);
}
