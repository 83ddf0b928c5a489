//! Checks that clippy cannot do: who may depend on whom, and the house style.
//!
//! `cargo xtask layers` compares the edges between our crates with layers.toml, and those between
//! the engine's files with `xtask/engine-layers.toml`. `cargo xtask tidy` reads every file of the
//! repository and applies the rules in `tidy/`. `cargo xtask tidy --ratchet` also lowers the
//! recorded counts to what was found; it never raises one.
//!
//! What must stay true: a rule is a pure function from files to findings, so that its test can
//! plant a violation without touching the disk. Only this file reads files, runs programs and
//! prints.
#![forbid(unsafe_code)]

mod circles;
mod layers;
mod lexer;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tree::Tree;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["layers"] => check_layers(&root()),
        ["tidy"] => check_tidy(&root(), false),
        ["tidy", "--ratchet"] => check_tidy(&root(), true),
        _ => Err("usage: cargo xtask layers | tidy [--ratchet]".to_owned()),
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(complaint) => {
            eprintln!("{complaint}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace: the one above this package, where cargo runs it now. Two work trees
/// may share one folder of built programs.
fn root() -> PathBuf {
    let now = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = now.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    package.parent().unwrap_or(&package).to_path_buf()
}

fn check_layers(root: &Path) -> Result<String, String> {
    let metadata = cargo_metadata(root)?;
    let allowed = std::fs::read_to_string(root.join("layers.toml"))
        .map_err(|error| format!("layers: layers.toml cannot be read: {error}"))?;
    let edges = layers::check(&metadata, &allowed).map_err(|faults| {
        faults.iter().map(|fault| format!("layers: {fault}\n")).collect::<String>()
    })?;
    let figures = check_engine(root)?;
    Ok(format!("layers: {edges} edges between our crates, all in layers.toml; engine: {figures}"))
}

/// The files of the engine, by the layers that are written down for them.
fn check_engine(root: &Path) -> Result<String, String> {
    const WRITTEN: &str = "xtask/engine-layers.toml";
    let tree = Tree::read(root)?;
    let below = |(path, text)| Some((str::strip_prefix(path, "crates/engine/src/")?, text));
    let files: Vec<(&str, &str)> = tree.rust().filter_map(below).collect();
    let written = tree.text(WRITTEN).unwrap_or_default();
    circles::check(&files, written)
        .map_err(|faults| faults.iter().map(|fault| format!("{WRITTEN}: {fault}\n")).collect())
}

fn cargo_metadata(root: &Path) -> Result<String, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("layers: cargo metadata cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "layers: cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("layers: cargo metadata: {error}"))
}

fn check_tidy(root: &Path, lower: bool) -> Result<String, String> {
    let tree = Tree::read(root)?;
    let report = tidy::check(&tree);
    for line in &report.notes {
        println!("tidy: {line}");
    }
    if lower {
        for (path, text) in tidy::lowered_ratchets(&tree) {
            std::fs::write(root.join(&path), text)
                .map_err(|error| format!("tidy: {path} cannot be written: {error}"))?;
        }
    }
    if report.findings.is_empty() {
        return Ok(format!("tidy: {} files, nothing to complain about", tree.files.len()));
    }
    for finding in &report.findings {
        eprintln!("tidy: {finding}");
    }
    Err(format!("tidy: {} findings", report.findings.len()))
}
