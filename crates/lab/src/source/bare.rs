//! Outputs of programs as somebody sent them: files of any name, without a manifest. What each is,
//! its content tells.
//!
//! What must stay true: a file that no row knows is named and left out; nothing is taken for an
//! output because of its name.

use super::tool::{Ending, Run};
use super::tree::Entry;
use super::{Capture, tree};
use crate::{AtPath, Refusal};
use std::path::{Path, PathBuf};

/// Bytes of a file that are looked at.
const BYTES_MAX: u64 = 16 << 20;

/// An output: the name that a capture has for it, its command, and marks that are all in it.
/// `*` stands for an expander's or an enclosure's name.
const OUTPUTS: [(&str, &[&str], &[&str]); 6] = [
    ("dmidecode-memory", &["dmidecode", "-t", "memory"], &["DMI type 17", "Memory Device"]),
    ("lspci", &["lspci", "-vv", "-D"], &["LnkSta:", "LnkCap:"]),
    ("lscpu", &["lscpu"], &["Architecture:", "CPU(s):"]),
    ("smp_discover-*", &["smp_discover"], &["phy ", ":attached:["]),
    ("smp_rep_phy_err_log-*", &["smp_rep_phy_err_log"], &["nvalid dword count"]),
    ("sg_ses-*", &["sg_ses", "-p", "2"], &["Enclosure Status diagnostic page"]),
];

/// What the files at `paths` (folders stand for what is in them) told, and those that told nothing.
pub fn read(paths: &[PathBuf]) -> Result<(Capture, Vec<PathBuf>), Refusal> {
    let (mut capture, mut unknown) = (Capture::default(), Vec::new());
    for path in files(paths)? {
        let text = text(&path)?;
        if !take(&mut capture, &text) {
            unknown.push(path);
        }
    }
    if capture.runs.is_empty() && capture.tree.iter().next().is_none() {
        let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let said = format!("{}: no output that the lab knows", named.join(", "));
        let hint = "name a directory made by `lab capture`, or outputs of dmidecode -t memory, \
                    lspci -vv, smp_discover, smp_rep_phy_err_log or sg_ses -p 2";
        return Err(Refusal::cannot_run("capture.unknown", said).hint(hint));
    }
    Ok((capture, unknown))
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let items = std::fs::read_dir(path).at(path, "check the name")?;
        let items = items.filter_map(Result::ok).map(|item| item.path());
        files.extend(items.filter(|item| item.is_file()));
    }
    files.sort();
    Ok(files)
}

fn text(path: &Path) -> Result<String, Refusal> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    read.at(path, "check the name")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Put what `text` is into `capture`; whether it is anything.
fn take(capture: &mut Capture, text: &str) -> bool {
    let is_it = |row: &&(&str, &[&str], &[&str])| row.2.iter().all(|mark| text.contains(mark));
    if let Some((name, argv, _)) = OUTPUTS.iter().find(is_it) {
        let name = match name.strip_suffix('*') {
            Some(begin) => format!("{begin}{}", expander(capture, begin, text)),
            None => (*name).to_owned(),
        };
        let stdout = capture.runs.get(&name).map_or(String::new(), |run| run.stdout.clone()) + text;
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let run = Run { argv, ending: Ending::Exit(0), stdout, stderr: String::new() };
        capture.runs.insert(name, run);
        return true;
    }
    let before = capture.tree.iter().count();
    text.lines().filter_map(counter).for_each(|(path, value)| {
        capture.tree.insert(path, Entry::Text(tree::plain(&value)));
    });
    capture.tree.iter().count() > before
}

/// The expander that the command line in `text` names: `/dev/bsg/expander-1\:0`.
fn named(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("/dev/bsg/expander-")?;
    let rest = rest.replace('\\', "");
    let (host, rest) = rest.split_once(':')?;
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let (host, id) = (number(host), number(rest));
    (!host.is_empty() && !id.is_empty()).then(|| format!("expander-{host}:{id}"))
}

/// A name for the next expander or enclosure of which there is an output of this kind.
fn expander(capture: &mut Capture, begin: &str, text: &str) -> String {
    if let Some(name) = named(text).filter(|_| begin.starts_with("smp")) {
        capture.tree.note(format!("/dev/bsg/{name}"));
        return name;
    }
    let known = capture.runs.keys().filter(|name| name.starts_with(begin)).count();
    if begin.starts_with("smp") {
        let name = format!("expander-0:{known}");
        capture.tree.note(format!("/dev/bsg/{name}"));
        return name;
    }
    let name = format!("0:0:{known}:0");
    capture.tree.note(format!("/sys/class/enclosure/{name}/device/scsi_generic/sg{known}"));
    name
}

/// `/sys/class/sas_phy/phy-0:1/invalid_dword_count:12`, as `grep .` prints the files of sysfs.
fn counter(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (dir, rest) = line.rsplit_once('/').filter(|_| line.starts_with("/sys/"))?;
    let (file, value) = rest.split_once([':', '=', ' '])?;
    let is_plain = tree::is_plain(dir) && tree::is_plain(file);
    is_plain.then(|| (format!("{dir}/{file}"), value.trim_start_matches(['=', ' ']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::inspect::server::{PhyErrors, Server};
    use crate::source::Source;
    use std::path::Path;

    #[test]
    fn outputs_under_any_name_are_known_by_what_they_say() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/story-before-repair/commands");
        let place = tempfile::tempdir().expect("a directory");
        for (from, to) in [
            ("dmidecode-memory.txt", "mail from Monday"),
            ("lspci.txt", "2.log"),
            ("smp_discover-expander-0:0.txt", "a"),
            ("smp_rep_phy_err_log-expander-0:0.txt", "b"),
        ] {
            std::fs::copy(fixture.join(from), place.path().join(to)).expect("copied");
        }
        std::fs::write(place.path().join("shopping list"), "milk").expect("written");
        let counters = ["invalid_dword_count:7", "running_disparity_error_count:2"];
        let more = ["loss_of_dword_sync_count:1", "phy_reset_problem_count:0"];
        let lines: Vec<String> = counters
            .iter()
            .chain(&more)
            .map(|line| format!("/sys/class/sas_phy/phy-9:4/{line}\n"))
            .collect();
        std::fs::write(place.path().join("grep"), lines.concat()).expect("written");
        let (capture, unknown) = read(&[place.path().into()]).expect("known");
        assert_eq!(unknown, [place.path().join("shopping list")]);
        let server = Server::read(&Source::captured(capture));
        assert_eq!(server.memory.as_ref().map(|memory| memory.modules().count()), Some(2));
        assert!(server.pci.values().any(|device| device.is_storage() && device.capable.is_some()));
        assert_eq!(server.expanders.len(), 1);
        let phy = server.phys.iter().find(|phy| phy.name == "phy-9:4").expect("counted");
        let errors =
            PhyErrors { invalid_dwords: 7, disparity_errors: 2, sync_losses: 1, reset_problems: 0 };
        assert_eq!(phy.errors, Some(errors));
        assert!(server.phys.len() > 1, "those of the expander");
        let nothing = read(&[place.path().join("shopping list")]).expect_err("nothing in it");
        assert_eq!(nothing.code, "capture.unknown");
    }
}
