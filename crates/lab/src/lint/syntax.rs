//! What fio itself says of the jobs: it reads them and starts nothing (`--parse-only`).
//!
//! What must stay true: without fio nothing is said; nothing of a command line is handed on but its
//! jobs, for other options make fio write files or serve the network.

use std::process::{Command, Stdio};

/// fio's complaints about the job file `text`; none if it has none, or is not there.
pub fn complaints(text: &str) -> Vec<String> {
    let Ok(folder) = tempfile::tempdir() else { return Vec::new() };
    let path = folder.path().join("jobs.fio");
    let said = std::fs::write(&path, text).ok().and_then(|()| {
        let mut command = Command::new("fio");
        command.arg("--parse-only").arg(&path).stdin(Stdio::null()).current_dir(folder.path());
        // What is filled in later is no mistake.
        command.envs(
            variables(text).filter(|name| std::env::var_os(name).is_none()).map(|name| (name, "1")),
        );
        command.output().ok()
    });
    let mut found = engine_complaints(text);
    if let Some(said) = said.filter(|said| !said.status.success()) {
        let text = String::from_utf8_lossy(&[said.stderr, said.stdout].concat()).into_owned();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        found.extend(lines.map(|line| line.trim_start_matches("fio: ").to_owned()).take(4));
    }
    found
}

/// Engines that fio does not have: it does not look for them before it runs.
fn engine_complaints(text: &str) -> Vec<String> {
    let known = Command::new("fio").arg("--enghelp").stdin(Stdio::null()).output();
    let known = known.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let known = known.unwrap_or_default();
    let named = text.lines().filter_map(|line| {
        let (key, engine) = line.split_once('=')?;
        let engine = engine.trim();
        let is_plain = !engine.contains([':', '$']);
        (key.trim() == "ioengine" && is_plain).then(|| engine.to_owned())
    });
    let is_missing = |engine: &String| {
        !known.is_empty() && !known.lines().any(|line| line.trim() == engine.as_str())
    };
    named.filter(is_missing).map(|engine| format!("it has no I/O engine '{engine}'")).collect()
}

/// Names of variables: `${DEPTH}`.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}
