//! Nothing is written to a device that carries something, unless its user names it.
//!
//! What must stay true: a mounted or held device is refused whatever was named; a block device is
//! named by its serial number, a file by its path; a device counts as blank only if it has no
//! signature and reads as zeros; when a tool cannot tell what is on it, that counts as something.

use crate::adapter::commands::Commands;
use crate::adapter::word;
use crate::lint::live::extent::reads_zeros;
use crate::lint::live::{Sysfs, in_use};
use crate::refusal::{AtPath, Refusal};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Refuse `targets` that must not be written to; `named` are the serials and paths given with
/// `--destroy`.
///
/// # Errors
/// The first target that must not be written to, and how to go on. Nothing was written.
pub fn refuse_unless_named(
    commands: &dyn Commands,
    targets: &[PathBuf],
    named: &[String],
) -> Result<(), Refusal> {
    for (at, target) in targets.iter().enumerate() {
        if targets[..at].contains(target) {
            let said = format!("{} was named twice; nothing was written", target.display());
            return Err(Refusal::cannot_run("target.twice", said).hint("name each target once"));
        }
        refuse_one(commands, target, named)?;
    }
    Ok(())
}

fn refuse_one(commands: &dyn Commands, target: &Path, named: &[String]) -> Result<(), Refusal> {
    let facts = std::fs::metadata(target).at(target, "nothing was written; name what is there")?;
    let (is_block, shown) = (facts.file_type().is_block_device(), target.display());
    if !is_block && !facts.is_file() {
        let said = format!("{shown} is neither a file nor a block device; nothing was written");
        return Err(
            Refusal::cannot_run("target.unusable", said).hint("name files or block devices")
        );
    }
    let real = std::fs::canonicalize(target).at(target, "")?;
    if is_block {
        refuse_in_use(&real, facts.rdev())?;
    }
    let wanted = if is_block { serial(commands, &real)? } else { Some(real.display().to_string()) };
    if named.iter().any(|name| Some(name) == wanted.as_ref() || Path::new(name) == target) {
        return Ok(());
    }
    let found = signatures(commands, &real)?;
    match (is_block, found.join(", ").as_str()) {
        (false, "") => Ok(()),
        (true, "") if is_blank(&real) => Ok(()),
        (_, found) => {
            let carries = match found {
                "" => "would be overwritten".to_owned(),
                found => format!("carries {found}"),
            };
            let say = wanted.unwrap_or_else(|| shown.to_string());
            let said = format!("{shown} {carries}; nothing was written");
            Err(Refusal::new("target.not_named", said)
                .hint(format!("if it may go, say --destroy {say}")))
        }
    }
}

/// Bytes from the beginning of a blank device that are looked at, all of them.
const HEAD_BYTES: usize = 16 << 20;

/// Whether a block device holds nothing but zeros, as far as its beginning and samples spread over
/// all of it say. What cannot be read is not blank.
fn is_blank(device: &Path) -> bool {
    use std::io::{Read, Seek, SeekFrom};
    let read = || {
        let mut file = std::fs::File::open(device)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut head = vec![0; HEAD_BYTES.min(usize::try_from(bytes).unwrap_or(HEAD_BYTES))];
        file.read_exact(&mut head)?;
        Ok::<_, std::io::Error>((bytes, head.iter().all(|byte| *byte == 0)))
    };
    read().is_ok_and(|(bytes, is_zero)| is_zero && reads_zeros(device, bytes) == Ok(true))
}

/// Mounted, held by another device (md, dm, LVM), or divided.
fn refuse_in_use(device: &Path, number: u64) -> Result<(), Refusal> {
    let shown = device.display();
    let looked = Sysfs::of(number).and_then(|sysfs| match sysfs.bytes()? {
        0 => Err("it has no size; losetup sets a loop device up".to_owned()),
        _ => in_use(device, &sysfs),
    });
    let used = looked.map_err(|why| {
        let said = format!("{shown}: whether it is in use cannot be told; nothing was written");
        Refusal::cannot_run("target.unknown", said).hint(why)
    })?;
    if used.is_empty() {
        return Ok(());
    }
    let said = format!("{shown} is {}; nothing was written", used.join(", "));
    Err(Refusal::new("target.in_use", said).hint("let it go first; --destroy does not help here"))
}

/// Serial number of a block device; `None` if it has none, as loop devices have not.
pub fn serial(commands: &dyn Commands, device: &Path) -> Result<Option<String>, Refusal> {
    let argv = ["lsblk", "--nodeps", "--noheadings", "--raw", "--output", "SERIAL", word(device)?];
    let told = commands.succeed(&argv, "which drive is it?")?;
    Ok(Some(told.trim().to_owned()).filter(|serial| !serial.is_empty()))
}

/// What is on a device or file, by its signatures.
pub fn signatures(commands: &dyn Commands, target: &Path) -> Result<Vec<String>, Refusal> {
    let argv = ["wipefs", "--noheadings", "--output", "TYPE", word(target)?];
    let told = commands.succeed(&argv, "what is on it?")?;
    let mut names: Vec<String> = told.split_whitespace().map(str::to_owned).collect();
    names.dedup();
    names.extend(is_of_ashlar(target).then(|| "ashlar".to_owned()));
    Ok(names)
}

/// Whether it is a member of an array of Ashlar, which wipefs does not know.
fn is_of_ashlar(target: &Path) -> bool {
    let holds = |file: &File, at| {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, at).is_ok() && magic == *b"ASHLARSB"
    };
    File::open(target).is_ok_and(|file| [0, 4096].iter().any(|at| holds(&file, *at)))
}

#[cfg(test)]
mod tests {
    use super::refuse_unless_named;
    use crate::adapter::recorded::Recorded;

    #[test]
    fn a_blank_file_may_be_used_and_one_with_a_signature_only_if_named() {
        let place = tempfile::tempdir().expect("a directory");
        let path = std::fs::canonicalize(place.path()).expect("there").join("drive0");
        std::fs::write(&path, [0; 512]).expect("written");
        let shown = path.display();
        let look = format!("$ wipefs --noheadings --output TYPE {shown}\n");
        let blank = Recorded::parse(&look);
        refuse_unless_named(&blank, std::slice::from_ref(&path), &[]).expect("blank");
        let signed = Recorded::parse(&format!("{look}xfs\n"));
        let refusal =
            refuse_unless_named(&signed, std::slice::from_ref(&path), &[]).expect_err("signed");
        assert_eq!(
            refusal.to_string(),
            format!(
                "{shown} carries xfs; nothing was written; if it may go, say --destroy {shown}"
            )
        );
        let named = [path.display().to_string()];
        refuse_unless_named(&Recorded::default(), std::slice::from_ref(&path), &named)
            .expect("named");
        let mut member = vec![0; 8192];
        member[4096..4104].copy_from_slice(b"ASHLARSB");
        std::fs::write(&path, member).expect("written");
        let refusal =
            refuse_unless_named(&Recorded::parse(&look), std::slice::from_ref(&path), &[])
                .expect_err("a member");
        assert!(refusal.message.contains("carries ashlar"), "{refusal}");
        let twice = refuse_unless_named(&Recorded::default(), &[path.clone(), path], &named)
            .expect_err("twice");
        assert_eq!(twice.code, "target.twice");
        // What is not there, or a directory.
        let nothing = Recorded::default();
        assert!(refuse_unless_named(&nothing, &[place.path().join("none")], &[]).is_err());
        let refusal =
            refuse_unless_named(&nothing, &[place.path().into()], &[]).expect_err("a directory");
        assert_eq!(refusal.code, "target.unusable");
    }
}
