//! Dependencies between crates: every edge between our crates must be written in layers.toml.
//!
//! What must stay true: each of these fails with one line: a crate that layers.toml does not name,
//! a name in it that is no crate, and an edge that is not in it. An allowed edge without use is no
//! fault.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A crate's folder name: the package name without our prefix.
fn short(package: &str) -> &str {
    package.strip_prefix("ashlar-").unwrap_or(package)
}

struct Edge {
    from: String,
    to: String,
    dev: bool,
}

/// Compare `cargo metadata` (JSON) with layers.toml.
///
/// Returns the number of edges, or one line for each fault.
pub fn check(metadata: &str, allowed: &str) -> Result<usize, Vec<String>> {
    let allowed = Allowed::parse(allowed).map_err(|fault| vec![fault])?;
    let (crates, edges) = edges(metadata).map_err(|fault| vec![fault])?;
    let mut faults = Vec::new();
    for name in &crates {
        if !allowed.normal.contains_key(name) {
            faults.push(format!(
                "crate '{name}' is not in layers.toml; add a line that says what it may use"
            ));
        }
    }
    for name in allowed.names() {
        if !crates.contains(name) {
            faults.push(format!("layers.toml names '{name}', which is no crate of this workspace"));
        }
    }
    for edge in &edges {
        if !allowed.permits(edge) {
            let kind = if edge.dev { " for tests" } else { "" };
            faults.push(format!(
                "'{}' may not depend on '{}'{kind}; the edge is not in layers.toml",
                edge.from, edge.to
            ));
        }
    }
    if faults.is_empty() { Ok(edges.len()) } else { Err(faults) }
}

type Table = BTreeMap<String, BTreeSet<String>>;

struct Allowed {
    normal: Table,
    dev: Table,
}

impl Allowed {
    fn parse(text: &str) -> Result<Allowed, String> {
        let table: toml::Table =
            text.parse().map_err(|error| format!("layers.toml cannot be read: {error}"))?;
        let mut allowed = Allowed { normal: Table::new(), dev: Table::new() };
        for (name, value) in &table {
            match value {
                toml::Value::Table(dev) if name == "dev" => {
                    for (name, value) in dev {
                        allowed.dev.insert(name.clone(), names(name, value)?);
                    }
                }
                _ => {
                    allowed.normal.insert(name.clone(), names(name, value)?);
                }
            }
        }
        Ok(allowed)
    }

    /// Every crate name that the file mentions, on either side of an edge.
    fn names(&self) -> BTreeSet<&String> {
        let tables = self.normal.iter().chain(&self.dev);
        tables.flat_map(|(from, to)| std::iter::once(from).chain(to)).collect()
    }

    fn permits(&self, edge: &Edge) -> bool {
        let has = |table: &Table| table.get(&edge.from).is_some_and(|to| to.contains(&edge.to));
        has(&self.normal) || (edge.dev && has(&self.dev))
    }
}

fn names(from: &str, value: &toml::Value) -> Result<BTreeSet<String>, String> {
    let wrong = || format!("layers.toml: '{from}' must be a list of crate names");
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn edges(metadata: &str) -> Result<(BTreeSet<String>, Vec<Edge>), String> {
    let wrong = || "cargo metadata printed something unexpected".to_owned();
    let metadata: Value = serde_json::from_str(metadata).map_err(|_| wrong())?;
    let packages = metadata["packages"].as_array().ok_or_else(wrong)?;
    let ours: BTreeSet<&str> = packages.iter().filter_map(|it| it["name"].as_str()).collect();
    let mut edges = Vec::new();
    for package in packages {
        let from = package["name"].as_str().ok_or_else(wrong)?;
        for dependency in package["dependencies"].as_array().ok_or_else(wrong)? {
            let to = dependency["name"].as_str().ok_or_else(wrong)?;
            if ours.contains(to) {
                let dev = dependency["kind"].as_str() == Some("dev");
                edges.push(Edge { from: short(from).to_owned(), to: short(to).to_owned(), dev });
            }
        }
    }
    Ok((ours.into_iter().map(|name| short(name).to_owned()).collect(), edges))
}

#[cfg(test)]
mod tests {
    use super::check;

    /// Three crates: engine uses gf, and sim in its tests; serde is somebody else's.
    const METADATA: &str = r#"{"packages": [
        {"name": "ashlar-gf", "dependencies": []},
        {"name": "ashlar-sim", "dependencies": []},
        {"name": "ashlar-engine", "dependencies": [
            {"name": "ashlar-gf", "kind": null},
            {"name": "serde", "kind": null},
            {"name": "ashlar-sim", "kind": "dev"}]}
    ]}"#;

    fn faults(allowed: &str) -> Vec<String> {
        check(METADATA, allowed).expect_err("planted violation")
    }

    #[test]
    fn edges_that_are_written_down_pass() {
        let allowed = "gf = []\nsim = []\nengine = [\"gf\"]\n[dev]\nengine = [\"sim\"]";
        assert_eq!(check(METADATA, allowed), Ok(2));
    }

    #[test]
    fn a_missing_edge_fails_with_one_line() {
        let faults = faults("gf = []\nsim = []\nengine = []\n[dev]\nengine = [\"sim\"]");
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("'engine' may not depend on 'gf'"), "{faults:?}");
    }

    #[test]
    fn a_test_edge_needs_its_own_line() {
        let faults = faults("gf = []\nsim = []\nengine = [\"gf\"]");
        assert_eq!(
            faults,
            ["'engine' may not depend on 'sim' for tests; the edge is not in layers.toml"]
        );
    }

    #[test]
    fn a_test_edge_does_not_permit_a_normal_one() {
        let faults = faults("gf = []\nsim = []\nengine = []\n[dev]\nengine = [\"sim\", \"gf\"]");
        assert!(faults[0].contains("'engine' may not depend on 'gf'"), "{faults:?}");
    }

    #[test]
    fn unknown_crates_fail_on_both_sides() {
        let faults = faults("gf = []\nengine = [\"gf\", \"ghost\"]\n[dev]\nengine = [\"sim\"]");
        assert!(
            faults.iter().any(|fault| fault.starts_with("crate 'sim' is not in")),
            "{faults:?}"
        );
        assert!(faults.iter().any(|fault| fault.contains("names 'ghost'")), "{faults:?}");
    }

    #[test]
    fn a_broken_file_is_one_line() {
        assert_eq!(faults("gf = 3"), ["layers.toml: 'gf' must be a list of crate names"]);
    }
}
