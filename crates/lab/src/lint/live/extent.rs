//! What was never written: holes of files, and samples of devices.
//!
//! What must stay true: only reading; a file that is being written to may change while it is looked
//! at.

use super::Sysfs;
use crate::lint::machine::Known;
use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SAMPLES: u64 = 256;
/// The least that file systems and flash allocate.
const SAMPLE_BYTES: usize = 4096;

/// Bytes of holes in a file. Space that was reserved and never written counts as a hole, if the
/// file system says so.
pub fn unwritten_of_file(path: &Path) -> Known<u64> {
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fault)?;
    let end = file.metadata().map_err(fault)?.len();
    let mut holes = 0;
    let mut at = 0;
    while at < end {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            Err(rustix::io::Errno::NXIO) => end,
            Err(error) => return Err(format!("its file system does not show holes: {error}")),
        };
        holes += data - at;
        if data == end {
            break;
        }
        at = seek(&file, SeekFrom::Hole(data)).map_err(|error| fault(error.into()))?.min(end);
    }
    Ok(holes)
}

/// Bytes never written of a device: known for loop devices from the file below.
pub fn unwritten_of_device(sysfs: &Sysfs) -> Known<u64> {
    let name = sysfs.disk.join("loop/backing_file");
    match std::fs::read_to_string(&name) {
        Ok(path) => unwritten_of_file(Path::new(path.trim_end_matches('\n'))),
        Err(_) => Err("the device does not say which of its blocks were written".to_owned()),
    }
}

/// Whether samples spread over the first `bytes` of a target are all zeros.
pub fn reads_zeros(path: &Path, bytes: u64) -> Known<bool> {
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fault)?;
    let blocks = bytes / 4096;
    if blocks == 0 {
        return Err("it has no blocks to sample".to_owned());
    }
    let mut sample = [0; SAMPLE_BYTES];
    for at in 0..SAMPLES {
        let block = u128::from(blocks) * u128::from(at) / u128::from(SAMPLES);
        let offset = u64::try_from(block).unwrap_or(0) * 4096;
        file.read_exact_at(&mut sample, offset).map_err(fault)?;
        if sample.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{reads_zeros, unwritten_of_file};
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_counted_to_the_byte_and_zeros_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(16 << 20).unwrap();
        assert_eq!(reads_zeros(&path, 16 << 20), Ok(true));
        assert_eq!(unwritten_of_file(&path), Ok(16 << 20));
        file.write_all_at(&[7; 1 << 20], 4 << 20).unwrap();
        file.sync_all().unwrap();
        assert_eq!(unwritten_of_file(&path), Ok(15 << 20));
        assert_eq!(reads_zeros(&path, 16 << 20), Ok(false));
        file.write_all_at(&vec![7; 16 << 20], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(unwritten_of_file(&path), Ok(0));
    }
}
