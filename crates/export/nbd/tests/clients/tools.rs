//! Running other people's clients. A missing tool is a failure that names the package.

use std::path::Path;
use std::process::Command;

/// No client may take longer, in seconds.
const SECONDS_MAX: &str = "300";

/// Where Debian puts the tools; before anything else on the path, since nbdsh needs the system's
/// Python.
fn search_path() -> String {
    format!("/usr/bin:/usr/sbin:{}", std::env::var("PATH").unwrap_or_default())
}

/// Run a tool and return what it printed and whether it succeeded.
pub fn try_run(tool: &str, arguments: &[&str]) -> (bool, String) {
    let package = match tool {
        "nbdinfo" | "nbdcopy" => "libnbd-bin",
        "nbdsh" => "libnbd-bin python3-libnbd",
        "qemu-img" | "qemu-io" => "qemu-utils",
        _ => tool,
    };
    let is_there = search_path().split(':').any(|folder| Path::new(folder).join(tool).exists());
    assert!(is_there, "{tool} is missing: apt-get install {package}");
    let output = Command::new("timeout")
        .args(["-k", "5", SECONDS_MAX, tool])
        .args(arguments)
        .env("PATH", search_path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Run a tool that must succeed.
pub fn run(tool: &str, arguments: &[&str]) -> String {
    let (is_good, text) = try_run(tool, arguments);
    assert!(is_good, "{tool} {arguments:?} failed:\n{text}");
    text
}

/// Run a Python script in nbdsh, with `h` not yet connected and `uri` set. Assertions are the
/// script's own.
pub fn nbdsh(uri: &str, script: &str) -> String {
    run("nbdsh", &["-c", &format!("uri = '{uri}'\n"), "-c", script])
}
