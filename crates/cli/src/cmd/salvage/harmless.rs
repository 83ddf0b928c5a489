//! That nobody needs what the target holds: it is no member of an array, under any name.
//!
//! What must stay true: the target is only looked at. A member is told by where its bytes lie, and
//! by a superblock of ours at either end. Not here: who else has the target in use (`target.rs`).

use crate::fault::Fault;
use ashlar_device::{open_to_look, overlap};
use ashlar_ondisk::assembly::{MemberReading, ReadLabel};
use ashlar_ondisk::examine::{DeviceEnds, examine_ranges, split_copies};
use ashlar_ondisk::{Choice, Label, SuperblockCopies};
use ashlar_salvage::FileImage;
use ashlar_units::{Extent, to_usize};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a partition begins that `ashlar partition` makes.
const PARTITION_AT: u64 = 1 << 20;

/// That a copy at `path` overwrites no member: neither one of `images`, given as `members`, nor any
/// other.
///
/// # Errors
/// One line that says whose it is; nothing was written.
pub fn check(path: &Path, images: &[FileImage], members: &[PathBuf]) -> Result<(), Fault> {
    for path in [path, &super::super::partition_on(path)] {
        let is_it = |image: &FileImage| overlap(path, &descriptor_path(image.file()));
        if let Some(at) = images.iter().position(is_it) {
            let member = members[at].display();
            let message = format!("--to names {member}, which is a member; nothing was written");
            return Err(Fault::usage(message, "name a file that is not a member"));
        }
    }
    // What is not there yet holds nothing, and what cannot be looked at is not written either.
    let Ok(mut file) = open_to_look(path) else { return Ok(()) };
    let Ok(bytes) = file.seek(SeekFrom::End(0)) else { return Ok(()) };
    let own = DeviceEnds::read(bytes, |extent| read(&file, extent)).choice;
    match owner(own).or_else(|| owner(in_a_partition(&file, bytes))) {
        None => Ok(()),
        Some(owner) => {
            let path = path.display();
            let message = format!("--to names {path}, which is {owner}; nothing was written");
            let hint = format!("name another file; if what is there may go: ashlar wipe {path}");
            Err(Fault::new("salvage.refused", message, hint))
        }
    }
}

/// What a superblock says where a partition of a whole drive, or of a copy of one, would begin.
fn in_a_partition(file: &File, bytes: u64) -> Choice {
    let head = examine_ranges(bytes).map(|[head, _]| Extent::new(PARTITION_AT, head.bytes));
    let head = head.and_then(|head| read(file, head));
    SuperblockCopies::choose(&split_copies(head.as_deref(), None))
}

fn owner(choice: Choice) -> Option<String> {
    match &choice.newest {
        Some(Label::Member(superblock)) => {
            return Some(format!("a member of array '{}'", superblock.array_name));
        }
        Some(Label::Spare(spare)) => return Some(format!("a spare of pool '{}'", spare.pool_name)),
        None => {}
    }
    let label = MemberReading::new("", 0, "", choice).label;
    let is_ours = !matches!(label, ReadLabel::Blank | ReadLabel::Foreign);
    is_ours.then(|| "a member or spare whose superblock is damaged or newer".to_owned())
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn read(file: &File, extent: Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; to_usize(extent.bytes)];
    file.read_exact_at(&mut bytes, extent.offset).ok()?;
    Some(bytes)
}
