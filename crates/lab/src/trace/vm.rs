//! How a guest's disks are attached, from a libvirt domain or from QEMU's command line, and what of
//! it a measurement in the guest must know (item 80).
//!
//! - xml: libvirt's domain
//! - words: QEMU's command line
//!
//! What must stay true: what is not said is QEMU's default and is called so; nothing is asked of a
//! running guest.

mod words;
mod xml;

use crate::Refusal;
use crate::validity::{Finding, Severity};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// One disk of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Disk {
    /// As the guest or the emulator calls it: `vda`, `drive0`.
    pub name: String,
    /// What lies behind it on the host.
    pub source: String,
    /// How the guest sees it: `virtio-blk`, `scsi-block`, `scsi-hd`, `ide`.
    pub bus: String,
    /// How the emulator submits: `threads`, `native`, `io_uring`; None is the default.
    pub io: Option<String>,
    /// Whether it goes past the host's page cache; None is the default, which does not.
    pub direct: Option<bool>,
    /// Whether the guest's flushes are thrown away.
    pub no_flush: bool,
    /// Thread that serves it; None is the emulator's main loop.
    pub iothread: Option<String>,
    /// Queues, if they are said.
    pub queues: Option<u64>,
    /// Format of the image: `raw`, `qcow2`.
    pub format: Option<String>,
}

/// A disk and what is to be known of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// The disk.
    pub disk: Disk,
    /// What rules say.
    pub findings: Vec<Finding>,
}

/// The disks described in `path`: a libvirt domain (`virsh dumpxml`), or QEMU's command line
/// (`/proc/PID/cmdline`, or as text).
///
/// # Errors
/// If it cannot be read, or describes no disk.
pub fn read(path: &Path) -> Result<Vec<Judged>, Refusal> {
    let hint = "give what virsh dumpxml prints, or /proc/PID/cmdline of the emulator";
    let bytes = std::fs::read(path).map_err(|error| Refusal::file(path, &error, hint))?;
    let disks = parse(&String::from_utf8_lossy(&bytes));
    if disks.is_empty() {
        let said = format!("{}: no disk of a guest is described in it", path.display());
        return Err(Refusal::cannot_run("trace.no_vm", said, hint));
    }
    let judged = |disk: Disk| Judged { findings: findings(&disk), disk };
    Ok(disks.into_iter().map(judged).collect())
}

fn parse(text: &str) -> Vec<Disk> {
    if text.trim_start().starts_with('<') { xml::disks(text) } else { words::disks(text) }
}

/// As text.
pub fn text(all: &[Judged]) -> String {
    let mut out = String::new();
    for Judged { disk, findings } in all {
        let or = |value: &Option<String>, default: &str| {
            value.clone().unwrap_or_else(|| format!("{default} (default)"))
        };
        let cache = match (disk.direct, disk.no_flush) {
            (_, true) => "page cache, flushes thrown away",
            (Some(true), _) => "direct",
            (Some(false), _) => "page cache",
            (None, _) => "page cache (default)",
        };
        let queues = disk.queues.map_or("not said".to_owned(), |it| it.to_string());
        let _never_fails = writeln!(
            out,
            "disk {}  {}  {}\n  io {}, cache {cache}, served by {}, queues {queues}, format {}",
            disk.name,
            disk.bus,
            disk.source,
            or(&disk.io, "threads"),
            or(&disk.iothread, "main loop"),
            or(&disk.format, "probed"),
        );
        for finding in findings {
            let word = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Info => "note",
            };
            let next = finding.correction.as_deref().unwrap_or("nothing to do");
            let _never_fails = writeln!(out, "  {word}: {}; {next}", finding.reason);
        }
    }
    out
}

/// What a measurement in the guest must know of how its disk is attached.
fn findings(disk: &Disk) -> Vec<Finding> {
    let mut told = submitted(disk);
    told.extend(attached(disk));
    told
}

fn told(severity: Severity, reason: &str, correction: &str) -> Finding {
    Finding {
        rule: "F80".to_owned(),
        severity,
        reason: reason.to_owned(),
        correction: Some(correction.to_owned()),
    }
}

/// How the emulator submits to what lies behind the disk.
fn submitted(disk: &Disk) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut say = |severity, reason, correction| all.push(told(severity, reason, correction));
    let is_direct = disk.direct == Some(true);
    if disk.no_flush {
        say(
            Severity::Error,
            "flushes of the guest are thrown away: nothing it calls durable is, \
             and its figures are the host's memory",
            "cache='none'",
        );
    } else if !is_direct {
        say(
            Severity::Error,
            "the host's page cache answers beside the drive",
            "cache='none' (or directsync), then measure",
        );
    }
    match disk.io.as_deref() {
        Some("native") if !is_direct => say(
            Severity::Error,
            "io='native' needs cache='none' or directsync: QEMU refuses it otherwise",
            "cache='none'",
        ),
        Some("native" | "io_uring") => {}
        _ => say(
            Severity::Warning,
            "io='threads': a pool of threads submits one I/O each, \
             so what the guest hands over together comes one by one",
            "io='native' or io_uring with cache='none', and measure both",
        ),
    }
    all
}

/// How the guest sees the disk, and who serves it.
fn attached(disk: &Disk) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut say = |severity, reason, correction| all.push(told(severity, reason, correction));
    let bus = disk.bus.as_str();
    let is_virtio = matches!(bus, "virtio-blk" | "scsi-block" | "scsi-hd" | "scsi-generic");
    match bus {
        "virtio-blk" => say(
            Severity::Info,
            "virtio-blk has limits of its own and may split and merge",
            "trace the guest and the host: lab trace --layers",
        ),
        "scsi-block" | "scsi-generic" => say(
            Severity::Info,
            "the drive's own commands and limits reach the guest",
            "take the limits of trace from the guest as the drive's",
        ),
        "scsi-hd" => say(
            Severity::Info,
            "the emulator translates SCSI commands: limits are its own",
            "scsi-block for a whole drive, and measure both",
        ),
        _ => say(
            Severity::Warning,
            "an emulated controller: each I/O stops the guest several times",
            "virtio-blk or virtio-scsi",
        ),
    }
    if is_virtio && disk.iothread.is_none() {
        say(
            Severity::Warning,
            "the emulator's main loop serves it, beside everything else",
            "an iothread of its own",
        );
    }
    if disk.queues == Some(1) {
        say(
            Severity::Warning,
            "one queue: all CPUs of the guest share it",
            "as many as the guest has CPUs",
        );
    }
    if disk.format.as_deref().is_some_and(|it| it != "raw") {
        say(
            Severity::Warning,
            "an image that allocates as it is written: first writes cost more, \
             and reads may find nothing",
            "a raw device or image, or write it whole first",
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Disk, findings, parse, read, text};
    use crate::validity::Severity;
    use std::path::Path;

    const DOMAIN: &str = "<domain type='kvm'>\n <!-- <disk device='disk'/> -->\n <devices>\n\
                          <disk type='block' device='disk'>\n \
                          <driver name='qemu' type='raw' cache='none' io='native' iothread='1' \
                          queues='4'/>\n\
                          <source dev='/dev/disk/by-id/a&amp;b'/>\n\
                          <backingStore type='file'><source file='/below.img'/></backingStore>\
                          <target dev='vda' bus='virtio'/>\n </disk>\n\
                          <disk type='file' device=\"disk\">\n \
                          <driver name='qemu' type='qcow2'/>\n <source file='/images/b.qcow2'/>\n \
                          <target dev='sda' bus='scsi'/>\n </disk>\n\
                          <disk type='block' device='lun'>\
                          <driver name='qemu' type='raw' cache='unsafe' io='threads'/>\
                          <source dev='/dev/sdc'/><target dev='sdb' bus='scsi'/></disk>\n\
                          <disk type='file' device='cdrom'><target dev='hdc' bus='ide'/></disk>\n\
                          <controller type='scsi' index='0' model='virtio-scsi'>\
                          <driver queues='1' iothread='2'/></controller>\n </devices>\n</domain>\n";

    #[test]
    fn a_libvirt_domain_says_how_each_disk_is_attached() {
        let disks = parse(DOMAIN);
        assert_eq!(disks.len(), 3, "no CD-ROM, nothing from a comment: {disks:?}");
        let first = Disk {
            name: "vda".into(),
            source: "/dev/disk/by-id/a&b".into(),
            bus: "virtio-blk".into(),
            io: Some("native".into()),
            direct: Some(true),
            iothread: Some("1".into()),
            queues: Some(4),
            format: Some("raw".into()),
            ..Disk::default()
        };
        assert_eq!(disks[0], first);
        assert_eq!(
            (disks[1].bus.as_str(), disks[1].direct, disks[1].queues),
            ("scsi-hd", None, Some(1))
        );
        assert_eq!((disks[2].bus.as_str(), disks[2].no_flush), ("scsi-block", true));
        assert_eq!(disks[2].iothread.as_deref(), Some("2"), "of its controller");
        let severe = |at: usize| findings(&disks[at]).iter().map(|it| it.severity).max();
        assert_eq!(severe(0), Some(Severity::Info), "nothing speaks against it");
        assert_eq!((severe(1), severe(2)), (Some(Severity::Error), Some(Severity::Error)));
    }

    #[test]
    fn a_command_line_of_qemu_says_the_same_in_both_of_its_ways() {
        let old = "qemu-system-x86_64 -m 1G -object iothread,id=io0 \
            -drive file=/dev/sdb,if=none,id=d0,format=raw,cache=none,aio=native \
            -device virtio-blk-pci,drive=d0,iothread=io0,num-queues=1 \
            -drive file=/a,,b.img,if=virtio,format=qcow2";
        let disks = parse(old);
        assert_eq!(disks.len(), 2, "{disks:?}");
        assert_eq!((disks[0].source.as_str(), disks[0].direct), ("/dev/sdb", Some(true)));
        assert_eq!((disks[0].io.as_deref(), disks[0].queues), (Some("native"), Some(1)));
        assert_eq!((disks[1].bus.as_str(), disks[1].source.as_str()), ("virtio-blk", "/a,b.img"));
        let new = "qemu\0-blockdev\0{\"driver\":\"host_device\",\"filename\":\"/dev/sdc\",\
            \"aio\":\"io_uring\",\"node-name\":\"s\",\"cache\":{\"direct\":true,\
            \"no-flush\":false}}\0\
            -blockdev\0{\"node-name\":\"f\",\"driver\":\"raw\",\"file\":\"s\"}\0\
            -device\0{\"driver\":\"virtio-scsi-pci\",\"id\":\"scsi0\",\"num_queues\":8,\
            \"iothread\":\"io1\"}\0\
            -device\0{\"driver\":\"scsi-block\",\"drive\":\"f\",\"bus\":\"scsi0.0\",\
            \"id\":\"disk0\"}\0";
        let disks = parse(new);
        let wanted = Disk {
            name: "disk0".into(),
            source: "/dev/sdc".into(),
            bus: "scsi-block".into(),
            io: Some("io_uring".into()),
            direct: Some(true),
            iothread: Some("io1".into()),
            queues: Some(8),
            format: Some("raw".into()),
            ..Disk::default()
        };
        assert_eq!(disks, [wanted]);
        let shell = "qemu -blockdev '{\"driver\":\"file\",\"filename\":\"/x y\",\
                     \"node-name\":\"n\"}' -device ide-hd,drive=n";
        let disks = parse(shell);
        assert_eq!((disks[0].source.as_str(), disks[0].bus.as_str()), ("/x y", "ide-hd"));
        assert!(
            text(&[super::Judged { findings: findings(&disks[0]), disk: disks[0].clone() }])
                .contains("emulated controller")
        );
    }

    #[test]
    fn native_through_the_page_cache_is_an_error_and_threads_a_warning() {
        let disk = |io: &str, direct| Disk {
            bus: "virtio-blk".into(),
            io: Some(io.into()),
            direct: Some(direct),
            iothread: Some("1".into()),
            ..Disk::default()
        };
        let has = |disk: &Disk, severity, word: &str| {
            findings(disk).iter().any(|it| it.severity == severity && it.reason.contains(word))
        };
        assert!(has(&disk("native", false), Severity::Error, "needs cache='none'"));
        assert!(has(&disk("threads", true), Severity::Warning, "one by one"));
        assert!(!has(&disk("native", true), Severity::Warning, ""), "as it should be");
    }

    #[test]
    fn what_describes_no_disk_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("vm");
        for odd in ["", "<domain>", "<disk", "<disk device='disk'", "qemu -drive", "-device x", "'"]
        {
            std::fs::write(&path, odd).expect("written");
            assert_eq!(read(&path).expect_err(odd).code, "trace.no_vm", "{odd}");
        }
        assert!(read(Path::new("/nonexistent")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_readers_panic(
            text in "(<(disk|driver|source|controller)?( [a-z]{0,6}=?'?[a-z]{0,4}'?)?/?>?|-(drive|\
                     device|blockdev) [{}a-z=,\"':]{0,12} ?|\\PC{0,6}){0,12}"
        ) {
            let _any = parse(&text);
        }
    }
}
