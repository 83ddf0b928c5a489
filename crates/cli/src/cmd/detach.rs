//! `ashlar detach`: the reverse of attach.

use super::attach::{loop_devices, losetup};
use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::codes;
use ashlar_api::v1::export::FuseDetach;
use ashlar_api::v1::status::GetStatus;

/// Take a volume's block device away. Refuses while it is mounted.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the array.
    array: String,
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let status = reach.call(&GetStatus {})?;
    let mut exports = status.exports.iter();
    let is_it = |it: &&ashlar_api::v1::export::ExportStatus| {
        it.protocol == "fuse" && it.array.as_ref() == Some(&args.array)
    };
    if let Some(export) = exports.find(is_it) {
        for device in loop_devices(&export.address)? {
            refuse_if_mounted(&device)?;
            losetup(&["--detach", &device])?;
        }
    }
    reach.change(&FuseDetach { array: args.array }).map(drop)
}

/// The kernel would only mark a mounted loop device for later, and the volume would stay in use.
fn refuse_if_mounted(device: &str) -> Result<(), Fault> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    match mounted_at(&mounts, device) {
        Some(place) => Err(Fault::new(
            codes::EXPORT_BUSY,
            format!("{device} is mounted at {place}; nothing was changed"),
            format!("unmount it first: umount {place}"),
        )),
        None => Ok(()),
    }
}

/// Where `device` or one of its partitions is mounted, according to the text of /proc/self/mounts.
fn mounted_at<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let (source, rest) = line.split_once(' ')?;
        let part = source.strip_prefix(device)?;
        let is_it = part.is_empty() || part.starts_with('p');
        is_it.then(|| rest.split(' ').next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::mounted_at;

    #[test]
    fn a_device_and_its_partitions_count_as_mounted_and_its_neighbours_do_not() {
        let mounts =
            "proc /proc proc rw 0 0\n/dev/loop10 /a xfs rw 0 0\n/dev/loop2p1 /b xfs rw 0 0\n";
        assert_eq!(mounted_at(mounts, "/dev/loop10"), Some("/a"));
        assert_eq!(mounted_at(mounts, "/dev/loop2"), Some("/b"));
        assert_eq!(mounted_at(mounts, "/dev/loop1"), None);
    }
}
