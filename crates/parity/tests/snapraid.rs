//! The SnapRAID program as an oracle: a black box that writes all six parity strips to files of its
//! own.
//!
//! How its files map to strips, as found with Debian's snapraid 12.2: with one data directory for
//! each column, named in the order of the columns, and one file in each, block n of every file
//! (`blocksize` bytes, the last one padded with zeros) forms stripe n, and block n of the file
//! `J-parity` is parity strip J - 1 of that stripe. `--test-skip-device` lets all directories be on
//! one file system, and `--test-skip-self` spares two seconds of self-test a run. Every level needs
//! its parity file, and there must be one content file more than parity files.
//!
//! What must stay true: rows 0 to 5 give SnapRAID's bytes, for full blocks and padded ones. Without
//! the program (Debian's package snapraid) the test says so and claims nothing.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use ashlar_parity::{Code, Kernel, Locality};

const PARITIES: usize = 6;
/// The least that SnapRAID takes.
const BLOCK_KIB: usize = 32;
const BLOCK_BYTES: usize = BLOCK_KIB * 1024;
/// Two blocks and a part of one, so that all of a file's mapping is seen.
const FILE_BYTES: usize = 2 * BLOCK_BYTES + 4321;
const BLOCKS: usize = 3;

/// The content of data file `column`, padded to whole blocks.
fn content(column: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ u64::try_from(column).unwrap();
    let mut bytes: Vec<u8> = (0..FILE_BYTES)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    bytes.resize(BLOCKS * BLOCK_BYTES, 0);
    bytes
}

/// Lays out `columns` data directories, six parity files and seven content files under `root`.
fn configure(root: &Path, columns: usize) -> String {
    let mut config = format!("blocksize {BLOCK_KIB}\n");
    let root_name = root.display();
    for level in 1..=PARITIES {
        let prefix = if level == 1 { String::new() } else { format!("{level}-") };
        writeln!(config, "{prefix}parity {root_name}/parity.{level}").unwrap();
    }
    for copy in 0..=PARITIES {
        writeln!(config, "content {root_name}/content.{copy}").unwrap();
    }
    for column in 0..columns {
        let directory = root.join(format!("data.{column}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), &content(column)[..FILE_BYTES]).unwrap();
        writeln!(config, "data d{column} {}/", directory.display()).unwrap();
    }
    config
}

/// Has SnapRAID write its parity files, and reads them. `None` without the program.
fn theirs(columns: usize) -> Option<Vec<Vec<u8>>> {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("config");
    fs::write(&config, configure(root.path(), columns)).unwrap();
    let run = Command::new("snapraid")
        .arg("--conf")
        .arg(&config)
        .args(["--test-skip-device", "--test-skip-self", "--log", "/dev/null", "sync"])
        .output();
    let run = match run {
        Ok(run) => run,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("snapraid: {error}"),
    };
    assert!(run.status.success(), "snapraid: {}", String::from_utf8_lossy(&run.stderr));
    let parity = |level| fs::read(root.path().join(format!("parity.{level}"))).unwrap();
    Some((1..=PARITIES).map(parity).collect())
}

#[test]
fn six_parity_files_of_snapraid_are_our_rows() {
    for columns in [1, 2, 7, 32] {
        let Some(theirs) = theirs(columns) else {
            eprintln!(
                "skipped: no snapraid here (Debian's package snapraid), rows 3 to 6 not compared"
            );
            return;
        };
        let data: Vec<Vec<u8>> = (0..columns).map(content).collect();
        for kernel in Kernel::all() {
            let code = Code::new(columns, PARITIES, kernel).unwrap();
            let strips: Vec<&[u8]> = data.iter().map(|strip| &strip[..]).collect();
            let mut ours = vec![vec![0; BLOCKS * BLOCK_BYTES]; PARITIES];
            let mut parity: Vec<Option<&mut [u8]>> =
                ours.iter_mut().map(|strip| Some(&mut strip[..])).collect();
            code.generate(&strips, &mut parity, Locality::Cached).unwrap();
            for (row, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(ours.len(), theirs.len(), "{columns} columns, parity {row}");
                let differs = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
                assert_eq!(differs, None, "{kernel}: {columns} columns, parity {row}");
            }
        }
    }
}
