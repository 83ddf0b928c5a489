//! A capture as a directory: `manifest.json`, `files.txt`, and `commands/NAME.txt` as each program
//! printed it.
//!
//! What must stay true: a directory that holds anything is not written to; a name from a manifest
//! never leads out of the directory.

use super::tool::{Ending, Run};
use super::tree::Tree;
use super::{Capture, Origin};
use crate::{AtPath, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Serialize, Deserialize)]
struct Manifest {
    #[serde(flatten)]
    origin: Origin,
    commands: BTreeMap<String, Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    argv: Vec<String>,
    ending: Ending,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    stderr: String,
}

/// Write `capture` into `folder`, which is made, or is empty.
pub fn write(capture: &Capture, folder: &Path) -> Result<(), Refusal> {
    let commands = folder.join("commands");
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        let message = format!("{} holds something already; nothing was written", folder.display());
        return Err(
            Refusal::cannot_run("capture.folder_in_use", message).hint("name a new directory")
        );
    }
    std::fs::create_dir_all(&commands).at(folder, "choose a directory that you may write to")?;
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).at(&path, "is there space left?")
    };
    let mut manifest = Manifest { origin: capture.origin.clone(), commands: BTreeMap::new() };
    for (name, run) in &capture.runs {
        if !run.stdout.is_empty() {
            put(&format!("commands/{}.txt", file_name(name)), &run.stdout)?;
        }
        let line =
            Line { argv: run.argv.clone(), ending: run.ending.clone(), stderr: run.stderr.clone() };
        manifest.commands.insert(name.clone(), line);
    }
    put("files.txt", &capture.tree.print())?;
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
    put("manifest.json", &format!("{text}\n"))
}

/// Read a capture back, and how many lines of it were not understood.
pub fn read(folder: &Path) -> Result<(Capture, usize), Refusal> {
    let hint = "name a directory made by `lab capture`";
    let get = |name: &str| {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).at(&path, hint)?;
        Ok::<String, Refusal>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let manifest: Manifest = serde_json::from_str(&get("manifest.json")?).map_err(|error| {
        let message = format!("{}: manifest.json: {error}", folder.display());
        Refusal::cannot_run("capture.manifest_malformed", message).hint(hint)
    })?;
    let (tree, odd) = Tree::parse(&get("files.txt")?);
    let mut capture = Capture { tree, runs: BTreeMap::new(), origin: manifest.origin };
    for (name, line) in manifest.commands {
        let stdout = get(&format!("commands/{}.txt", file_name(&name))).unwrap_or_default();
        let run = Run { argv: line.argv, ending: line.ending, stdout, stderr: line.stderr };
        capture.runs.insert(name, run);
    }
    Ok((capture, odd))
}

/// A name without anything that could lead elsewhere.
fn file_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_:.".contains(c) { c } else { '_' };
    name.trim_start_matches('.').chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::{file_name, read, write};
    use crate::source::Source;
    use std::time::Duration;

    #[test]
    fn a_capture_is_read_back_as_it_was_written() {
        let live = Source::live(Duration::from_secs(120));
        live.text("/proc/version");
        live.run("printf", &["printf", "two\\nlines"]);
        live.run("gone", &["no-such-tool-of-ours"]);
        let capture = live.into_capture();
        let folder = tempfile::tempdir().expect("a folder");
        write(&capture, folder.path()).expect("written");
        assert_eq!(read(folder.path()).expect("read"), (capture.clone(), 0));
        let refused = write(&capture, folder.path()).expect_err("it is in use");
        assert_eq!(refused.code, "capture.folder_in_use");
    }

    #[test]
    fn a_folder_that_is_no_capture_is_refused_and_names_of_outputs_stay_inside_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()).expect_err("empty").exit_code(), 2);
        std::fs::write(folder.path().join("manifest.json"), "{").expect("written");
        let refused = read(folder.path()).expect_err("malformed");
        assert_eq!(refused.code, "capture.manifest_malformed");
        assert_eq!(file_name("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(file_name("smp_discover-expander-1:0"), "smp_discover-expander-1:0");
    }
}
