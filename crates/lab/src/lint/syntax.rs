//! What fio itself says of the jobs: it reads them and starts nothing (`--parse-only`).
//!
//! What must stay true: without fio nothing is said; nothing of a command line is handed on but its
//! jobs, for other options make fio write files or serve the network.

use std::process::{Command, Stdio};

/// fio's complaints about the job file `text`; none if it has none, or is not there.
pub fn complaints(text: &str) -> Vec<String> {
    let Ok(folder) = tempfolder() else { return Vec::new() };
    let path = folder.join("jobs.fio");
    let said = std::fs::write(&path, text).ok().and_then(|()| {
        let mut command = Command::new("fio");
        command.arg("--parse-only").arg(&path).stdin(Stdio::null()).current_dir(&folder);
        command.output().ok()
    });
    let _left_to_the_system = std::fs::remove_dir_all(&folder);
    said.filter(|said| !said.status.success()).map_or_else(Vec::new, |said| {
        let text = [said.stderr, said.stdout].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<String> =
            lines.map(|line| line.trim_start_matches("fio: ").to_owned()).take(4).collect();
        if lines.is_empty() { vec!["it does not say why".to_owned()] } else { lines }
    })
}

fn tempfolder() -> std::io::Result<std::path::PathBuf> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let name = format!("ashlar-lab-lint-{:016x}", u64::from_be_bytes(bytes));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder)?;
    Ok(folder)
}
