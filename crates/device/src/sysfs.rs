//! The facts of a block device in sysfs.
//!
//! What must stay true: a partition has a size of its own and everything else from its disk. A
//! missing file gives the cautious answer (volatile cache, no zeroing discard), never an error. Not
//! here: opening anything. The root is handed in so that tests can bring their own.

use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ashlar_units::SECTOR_BYTES;

/// Where sysfs is.
pub(crate) const SYS: &str = "/sys";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockFacts {
    pub(crate) size_bytes: Option<u64>,
    pub(crate) logical_block_bytes: u32,
    /// Memory alignment of the device's DMA, in bytes.
    pub(crate) dma_alignment: Option<u32>,
    pub(crate) is_rotational: bool,
    pub(crate) has_volatile_cache: bool,
    /// The largest write that is whole or not at all whatever happens to the power, if the device
    /// tells of any.
    pub(crate) atomic_write_bytes: Option<u64>,
    /// The device can make ranges zero by itself, which is what the kernel's hole punching asks it
    /// for.
    pub(crate) can_zero: bool,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    /// See [`appearance`].
    pub(crate) appearance: Option<u64>,
}

/// Facts of block device `major:minor`; `None` if sysfs does not know it.
pub(crate) fn read(sys: &Path, major: u32, minor: u32) -> Option<BlockFacts> {
    let own = directory(sys, major, minor)?;
    let disk = whole_disk(&own);
    let queue = disk.join("queue");
    Some(BlockFacts {
        size_bytes: number(&own.join("size")).map(|sectors| {
            let bytes = sectors * SECTOR_BYTES;
            backed_bytes(&own, &disk).map_or(bytes, |backed| bytes.min(backed))
        }),
        logical_block_bytes: number(&queue.join("logical_block_size"))
            .and_then(|bytes| u32::try_from(bytes).ok())
            .unwrap_or(512),
        dma_alignment: number(&queue.join("dma_alignment"))
            .and_then(|mask| u32::try_from(mask + 1).ok())
            .filter(|alignment| alignment.is_power_of_two()),
        is_rotational: number(&queue.join("rotational")) == Some(1),
        has_volatile_cache: text(&queue.join("write_cache")).as_deref() != Some("write through"),
        atomic_write_bytes: number(&queue.join("atomic_write_unit_max_bytes"))
            .filter(|bytes| *bytes > 0),
        can_zero: number(&queue.join("write_zeroes_max_bytes")).is_some_and(|bytes| bytes > 0),
        model: text(&disk.join("device/model")),
        serial: serial(&disk),
        appearance: appearance(sys, &disk),
    })
}

/// Bytes of a loop device, or of a partition of one, that the file beneath it has. A file that was
/// cut short while nobody looked leaves the device as long as it was, and grows by the first write
/// beyond its end. `None` if there is no file beneath.
fn backed_bytes(own: &Path, disk: &Path) -> Option<u64> {
    let file = text(&disk.join("loop/backing_file"))?;
    let about = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    let offset = number(&disk.join("loop/offset")).unwrap_or(0);
    let start = number(&own.join("start")).unwrap_or(0) * SECTOR_BYTES;
    Some(about.len().saturating_sub(offset + start))
}

/// The kernel's number of this appearance of a disk: another one after the disk has gone and come.
///
/// A device that lies on others has no cache of its own and loses nothing when it is taken down and
/// set up again: a loop device over a file, a logical volume, an md array. So theirs count. Where
/// the others are paths to one disk, a path that comes back says nothing. `None`: nobody counts.
fn appearance(sys: &Path, disk: &Path) -> Option<u64> {
    let beneath = |(major, minor)| appearance(sys, &whole_disk(&directory(sys, major, minor)?));
    if let Some(file) = text(&disk.join("loop/backing_file")) {
        let about = fs::metadata(file).ok()?;
        let is_device = about.file_type().is_block_device();
        let number = if is_device { about.rdev() } else { about.dev() };
        return beneath((major(number), minor(number)));
    }
    let others = lower(disk, "slaves", "");
    let are_paths = text(&disk.join("dm/uuid")).is_some_and(|name| name.starts_with("mpath-"));
    if others.is_empty() || are_paths {
        return number(&disk.join("diskseq"));
    }
    let others = others.iter().map(|device| appearance(sys, &whole_disk(device)));
    let mut others = others.collect::<Option<Vec<u64>>>()?;
    others.sort_unstable();
    // One number for all of them (FNV-1a); of a single one, its own.
    let joined = |all: u64, one: &u64| (all ^ one).wrapping_mul(0x0100_0000_01b3);
    Some(others[1..].iter().fold(others[0], joined))
}

/// Whether block device `major:minor` is write-protected.
pub(crate) fn is_protected(sys: &Path, major: u32, minor: u32) -> bool {
    directory(sys, major, minor).is_some_and(|own| number(&own.join("ro")) == Some(1))
}

/// The directory of block device `major:minor`, without symbolic links in its path.
pub(crate) fn directory(sys: &Path, major: u32, minor: u32) -> Option<PathBuf> {
    fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()
}

/// The disk that a partition is on; a disk itself otherwise.
pub(crate) fn whole_disk(own: &Path) -> PathBuf {
    match own.parent() {
        Some(parent) if own.join("partition").exists() => parent.to_owned(),
        _ => own.to_owned(),
    }
}

/// The serial of a disk, or its world-wide name.
pub(crate) fn serial(disk: &Path) -> Option<String> {
    let plain = ["device/serial", "serial"].iter().find_map(|file| text(&disk.join(file)));
    let named = || ["wwid", "device/wwid"].iter().find_map(|file| text(&disk.join(file)));
    plain.or_else(|| unit_serial(&disk.join("device/vpd_pg80"))).or_else(named)
}

/// What tells a disk from every other one, and is the same by all paths to it: its world-wide name,
/// EUI-64, NGUID or UUID, or of a namespace without any of these its number in its subsystem. Never
/// a serial alone: docks show the same for all of their drives, and namespaces have that of their
/// controller. `None`: the kernel's number of the device is all there is.
///
/// A name that the kernel makes of vendor and serial (`t10.`) counts where a drive may have several
/// paths: by SAS, Fibre Channel or iSCSI.
pub(crate) fn unit(disk: &Path) -> Option<String> {
    let own = |file: &str| text(&disk.join(file)).filter(|it| !is_empty_name(it));
    let named = own("wwid").or_else(|| own("device/wwid"));
    let named = named.filter(|it| !it.starts_with("t10.") || may_have_paths(disk));
    let labelled = |file: &str| Some(format!("{file}.{}", own(file)?));
    named.or_else(|| labelled("nguid")).or_else(|| labelled("eui")).or_else(|| labelled("uuid"))
}

/// A name that is there and says nothing: zeros, behind its kind.
fn is_empty_name(name: &str) -> bool {
    let digits = name.split_once('.').map_or(name, |(_, digits)| digits);
    digits.chars().all(|c| matches!(c, '0' | '-' | ' ' | ':'))
}

fn may_have_paths(disk: &Path) -> bool {
    const PARTS: [&str; 3] = ["end_device-", "rport-", "session"];
    let mut names = disk.iter().map(|part| part.to_string_lossy());
    names.any(|name| PARTS.iter().any(|part| name.starts_with(part)))
}

/// The serial number in a SCSI "unit serial number" page: four bytes of header, then text.
fn unit_serial(page: &Path) -> Option<String> {
    let page = fs::read(page).ok()?;
    tidy(&String::from_utf8_lossy(page.get(4..)?))
}

/// The NUMA node of the block device with this directory: the one that the nearest part names on
/// the way to it. A device that lies on others is where the first of them is, and so is a namespace
/// that several controllers serve.
pub(crate) fn node(sys: &Path, own: &Path) -> Option<u32> {
    let on_the_way = |device: &Path| {
        let parts = device.ancestors().take_while(|part| part.starts_with(sys));
        parts.filter_map(|part| text(&part.join("numa_node"))?.parse().ok()).next()
    };
    let beneath = || lower(own, "slaves", "").iter().find_map(|device| node(sys, device));
    let controllers = || lower(own, "device", "nvme").iter().find_map(|device| on_the_way(device));
    on_the_way(own).or_else(beneath).or_else(controllers)
}

/// The devices that a folder of a device names, by the beginning of their names.
fn lower(own: &Path, folder: &str, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(own.join(folder)).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|it| it.file_name().to_string_lossy().starts_with(name))
        .filter_map(|it| fs::canonicalize(it.path()).ok())
        .collect();
    found.sort();
    found
}

fn number(file: &Path) -> Option<u64> {
    text(file)?.parse().ok()
}

/// The text of a file, without padding; `None` if it is not there or empty.
pub(crate) fn text(file: &Path) -> Option<String> {
    tidy(&fs::read_to_string(file).ok()?)
}

/// Without the padding that drives and the kernel put around names; `None` if nothing is left.
fn tidy(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{BlockFacts, appearance, node, read};
    use rustix::fs::{major, minor};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    /// A sysfs with one disk 259:0 and its partition 259:1.
    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory for the test");
        let disk = root.path().join("devices/nvme0/nvme0n1");
        fs::create_dir_all(disk.join("nvme0n1p1")).expect("made");
        fs::create_dir_all(disk.join("queue")).expect("made");
        fs::create_dir_all(disk.join("device")).expect("made");
        fs::create_dir_all(root.path().join("dev/block")).expect("made");
        let link = |to: &str, at: &str| {
            symlink(Path::new("../..").join(to), root.path().join(at)).expect("linked");
        };
        link("devices/nvme0/nvme0n1", "dev/block/259:0");
        link("devices/nvme0/nvme0n1/nvme0n1p1", "dev/block/259:1");
        for (file, content) in files {
            fs::write(disk.join(file), content).expect("written");
        }
        root
    }

    #[test]
    fn a_loop_device_ends_where_the_file_beneath_it_does() {
        let root = tree(&[("size", b"1000\n"), ("nvme0n1p1/size", b"600\n")]);
        let disk = root.path().join("devices/nvme0/nvme0n1");
        let file = root.path().join("file");
        fs::create_dir_all(disk.join("loop")).expect("made");
        for (name, content) in [
            ("loop/backing_file", format!("{}\n", file.display())),
            ("loop/offset", "4096\n".to_owned()),
            ("nvme0n1p1/partition", "1\n".to_owned()),
            ("nvme0n1p1/start", "8\n".to_owned()),
        ] {
            fs::write(disk.join(name), content).expect("written");
        }
        let sizes = || [0, 1].map(|minor| read(root.path(), 259, minor).expect("told").size_bytes);
        assert_eq!(sizes(), [Some(512_000), Some(307_200)], "the file cannot be found");
        for (bytes, wanted) in
            [(1 << 20, [512_000, 307_200]), (104_096, [100_000, 95_904]), (0, [0, 0])]
        {
            fs::File::create(&file).and_then(|it| it.set_len(bytes)).expect("made");
            assert_eq!(sizes(), wanted.map(Some), "{bytes} bytes beneath");
        }
    }

    const NVME: &[(&str, &[u8])] = &[
        ("size", b"1000\n"),
        ("nvme0n1p1/size", b"600\n"),
        ("nvme0n1p1/partition", b"1\n"),
        ("queue/logical_block_size", b"4096\n"),
        ("queue/dma_alignment", b"3\n"),
        ("queue/rotational", b"0\n"),
        ("queue/write_cache", b"write through\n"),
        ("queue/write_zeroes_max_bytes", b"131072\n"),
        ("queue/atomic_write_unit_max_bytes", b"16384\n"),
        ("device/model", b"Drive 9000    \n"),
        ("device/serial", b"  S1234\n"),
        ("wwid", b"eui.0001\n"),
        ("diskseq", b"17\n"),
    ];

    #[test]
    fn a_partition_has_its_own_size_and_its_disks_nature() {
        let sys = tree(NVME);
        let disk = read(sys.path(), 259, 0).expect("known");
        let wanted = BlockFacts {
            size_bytes: Some(512_000),
            logical_block_bytes: 4096,
            dma_alignment: Some(4),
            is_rotational: false,
            has_volatile_cache: false,
            atomic_write_bytes: Some(16 << 10),
            can_zero: true,
            model: Some("Drive 9000".to_owned()),
            serial: Some("S1234".to_owned()),
            appearance: Some(17),
        };
        assert_eq!(disk, wanted);
        let partition = read(sys.path(), 259, 1).expect("known");
        assert_eq!(partition, BlockFacts { size_bytes: Some(307_200), ..wanted });
    }

    #[test]
    fn a_scsi_disk_gives_its_unit_serial_before_its_world_wide_name() {
        let sys = tree(&[
            ("device/vpd_pg80", b"\0\x80\0\x08 Z4K1ABC"),
            ("device/wwid", b"naa.5000\n"),
            ("queue/write_cache", b"write back\n"),
            ("queue/rotational", b"1\n"),
            ("queue/atomic_write_unit_max_bytes", b"0\n"),
        ]);
        let facts = read(sys.path(), 259, 0).expect("known");
        assert_eq!(facts.atomic_write_bytes, None);
        assert_eq!(facts.serial.as_deref(), Some("Z4K1ABC"));
        assert!(facts.has_volatile_cache && facts.is_rotational);
    }

    /// Four namespaces of one subsystem, and four drives in a dock, were one device.
    #[test]
    fn a_unit_is_told_by_its_world_wide_name_and_never_by_a_serial_alone() {
        let unit_of = |files: &[(&str, &[u8])]| {
            let serial: &[(&str, &[u8])] = &[("device/serial", b"JBOF1\n")];
            let sys = tree(&[serial, files].concat());
            super::unit(&sys.path().join("devices/nvme0/nvme0n1"))
        };
        let one = unit_of(&[("wwid", b"uuid.6b29fc40-ca47-1067-b31d-00dd010662da\n")]);
        let two = unit_of(&[("wwid", b"uuid.6b29fc40-ca47-1067-b31d-00dd010662db\n")]);
        assert!(one.is_some() && one != two);
        // Without any other name the kernel puts the number of the namespace behind the serial.
        let numbered = |number: &str| {
            let name = format!("nvme.1d1d-4a424f4631-4c696e7578-0000000{number}\n");
            unit_of(&[("wwid", name.as_bytes())])
        };
        assert!(numbered("1").is_some() && numbered("1") != numbered("2"));
        assert_eq!(numbered("1"), numbered("1"), "two paths to one namespace");
        assert_eq!(unit_of(&[]), None, "a serial alone");
        let dock: &[(&str, &[u8])] = &[("device/wwid", b"t10.JMicron Tech    DD20160323\n")];
        assert_eq!(unit_of(dock), None, "a serial in other words");
        assert_eq!(unit_of(&[("wwid", b"eui.0000000000000000\n")]), None);
        let scsi = unit_of(&[("device/wwid", b"naa.5000c500a1b2c3d4\n")]);
        assert_eq!(scsi.as_deref(), Some("naa.5000c500a1b2c3d4"));
        assert!(unit_of(&[("nguid", b"01020304-0506-0708-090a-0b0c0d0e0f10\n")]).is_some());
    }

    #[test]
    fn names_made_of_a_serial_count_where_a_drive_may_have_several_paths() {
        let disk = tempfile::tempdir().expect("a directory for the test");
        for (way, counts) in
            [("usb2/host6/target6:0:0", false), ("host3/session1/target3:0:0", true)]
        {
            let own = disk.path().join(way).join("sda");
            fs::create_dir_all(own.join("device")).expect("made");
            fs::write(own.join("device/wwid"), "t10.IET     00010001\n").expect("written");
            assert_eq!(super::unit(&own).is_some(), counts, "{way}");
        }
    }

    #[test]
    fn the_node_is_the_one_that_the_nearest_part_of_a_device_names() {
        let root = tree(&[("nvme0n1p1/partition", b"1\n")]);
        let (sys, at) = (root.path(), |path: &str| root.path().join(path));
        let node_of = |own: &str| node(sys, &at(own));
        let (disk, partition) = ("devices/nvme0/nvme0n1", "devices/nvme0/nvme0n1/nvme0n1p1");
        assert_eq!(node_of(disk), None);
        fs::write(at("devices/numa_node"), "3\n").expect("written");
        fs::write(at("devices/nvme0/numa_node"), "-1\n").expect("written");
        assert_eq!(node_of(disk), Some(3), "the controller does not know");
        fs::write(at("devices/nvme0/numa_node"), "1\n").expect("written");
        assert_eq!((node_of(disk), node_of(partition)), (Some(1), Some(1)));
        // A mapped device is where the device below it is, a shared namespace where its controller
        // is.
        fs::remove_file(at("devices/numa_node")).expect("removed");
        for (folder, link, to) in [
            ("devices/virtual/dm-0/slaves", "nvme0n1p1", partition),
            ("devices/virtual/subsystem/nvme1n1/device", "nvme0", "devices/nvme0"),
        ] {
            fs::create_dir_all(at(folder)).expect("made");
            symlink(at(to), at(folder).join(link)).expect("linked");
        }
        assert_eq!(node_of("devices/virtual/dm-0"), Some(1));
        assert_eq!(node_of("devices/virtual/subsystem/nvme1n1"), Some(1));
    }

    #[test]
    fn a_device_on_others_appears_as_they_do() {
        let root = tree(&[("nvme0n1p1/partition", b"1\n"), ("diskseq", b"17\n")]);
        let at = |path: &str| root.path().join(path);
        let (disk, partition) = ("devices/nvme0/nvme0n1", "devices/nvme0/nvme0n1/nvme0n1p1");
        let other = "devices/sdb";
        for device in ["dm-0", "dm-1", "loop0"] {
            fs::create_dir_all(at("devices/virtual").join(device).join("slaves")).expect("made");
            fs::write(at("devices/virtual").join(device).join("diskseq"), "90\n").expect("written");
        }
        fs::create_dir_all(at(other)).expect("made");
        fs::write(at(other).join("diskseq"), "18\n").expect("written");
        let appears = |device: &str| appearance(root.path(), &at(device));
        let (volume, paths) = ("devices/virtual/dm-0", "devices/virtual/dm-1");
        let below = |device: &str, name: &str, to: &str| {
            symlink(at(to), at(device).join("slaves").join(name)).expect("linked");
        };
        assert_eq!(appears(volume), Some(90), "nothing is known beneath it");
        below(volume, "nvme0n1p1", partition);
        assert_eq!((appears(disk), appears(volume)), (Some(17), Some(17)));
        below(volume, "sdb", other);
        let both = appears(volume).expect("all are counted");
        assert!(![17, 18, 90].contains(&both));
        fs::write(at(other).join("diskseq"), "19\n").expect("written");
        assert!(appears(volume).is_some_and(|now| now != both), "one of them is another");
        fs::remove_file(at(other).join("diskseq")).expect("removed");
        assert_eq!(appears(volume), None, "of one nobody counts");
        // A path that comes back.
        below(paths, "nvme0n1", disk);
        fs::create_dir_all(at(paths).join("dm")).expect("made");
        fs::write(at(paths).join("dm/uuid"), "mpath-36001405\n").expect("written");
        assert_eq!(appears(paths), Some(90));
        // A file whose file system is on a disk that this tree does not know.
        fs::create_dir_all(at("devices/virtual/loop0/loop")).expect("made");
        let beneath = at("devices/virtual/loop0/loop/backing_file");
        fs::write(&beneath, format!("{}\n", beneath.display())).expect("written");
        assert_eq!(appears("devices/virtual/loop0"), None);
        let about = fs::metadata(&beneath).expect("there");
        let number = format!("dev/block/{}:{}", major(about.dev()), minor(about.dev()));
        symlink(at(disk), at(&number)).expect("linked");
        assert_eq!(appears("devices/virtual/loop0"), Some(17));
    }

    #[test]
    fn what_sysfs_does_not_tell_is_taken_cautiously() {
        let sys = tree(&[]);
        let facts = read(sys.path(), 259, 0).expect("known");
        assert!(facts.has_volatile_cache && !facts.can_zero);
        assert_eq!((facts.size_bytes, facts.logical_block_bytes), (None, 512));
        assert_eq!((facts.model, facts.serial, facts.atomic_write_bytes), (None, None, None));
        assert_eq!(read(sys.path(), 8, 0), None, "a device it does not know");
    }
}
