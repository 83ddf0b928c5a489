//! In one crate a type has a name of its own: no two types that are visible beyond their module
//! share one.
//!
//! What must stay true: every visibility that begins with `pub` counts. Private types do not.

use super::{Finding, Report};
use crate::lexer::{code_only, is_identifier};
use crate::tree::Tree;
use std::collections::HashMap;

/// Crates in which names may repeat, with the reason.
const EXEMPT_CRATES: [(&str, &str); 1] =
    [("crates/lab", "its tools are small programs of their own that share one crate")];

/// Names that may repeat in a crate, with the reason.
const EXEMPT_NAMES: [(&str, &str, &str); 1] =
    [("crates/cli", "Args", "each command derives its arguments from a type of its own module")];

pub fn check(tree: &Tree, report: &mut Report) {
    let packages = tree.packages();
    let mut seen: HashMap<(&str, String), String> = HashMap::new();
    for (path, text) in tree.rust() {
        let Some(package) = Tree::package_of(&packages, path) else { continue };
        let in_src = path[package.len()..].starts_with("/src/");
        if !in_src || EXEMPT_CRATES.iter().any(|(exempt, _)| *exempt == package) {
            continue;
        }
        for (line, name) in visible_types(text) {
            if EXEMPT_NAMES.iter().any(|(of, exempt, _)| *of == package && *exempt == name) {
                continue;
            }
            let place = format!("{path}:{line}");
            if let Some(first) = seen.get(&(package, name.clone())) {
                let what = format!("{name} is also a type at {first}; give each its own name");
                report.findings.push(Finding::at(path, line, what));
            } else {
                seen.insert((package, name), place);
            }
        }
    }
}

/// The types that a file shows to others, with their lines.
fn visible_types(text: &str) -> Vec<(usize, String)> {
    let code = code_only(text);
    let lines = code.lines().enumerate();
    lines.filter_map(|(at, line)| Some((at + 1, visible_type(line)?.to_owned()))).collect()
}

/// The name of the type that a line of code defines and shows to others.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "union" | "trait" | "type");
    let name = rest.split(|c| !is_identifier(c)).next()?;
    (is_type && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::found;

    const X: (&str, &str) = ("crates/x/Cargo.toml", "[package]");
    const Y: (&str, &str) = ("crates/y/Cargo.toml", "[package]");

    fn pair(first: &str, second: &str) -> Vec<String> {
        found(check, &[X, ("crates/x/src/a.rs", first), ("crates/x/src/b.rs", second)])
    }

    #[test]
    fn two_visible_types_of_one_name_in_a_crate_are_found() {
        assert_eq!(
            pair("//! A.\npub struct Piece {", "pub(crate) enum Piece {"),
            ["crates/x/src/b.rs:1: Piece is also a type at crates/x/src/a.rs:2; give each its \
              own name"]
        );
        for second in [
            "pub(super) struct Piece<'a> {",
            "    pub(in crate::a) union Piece {",
            "pub unsafe trait Piece {",
            "pub type Piece = u8;",
            "pub struct Piece;",
            "pub struct Piece(u8);",
        ] {
            assert_eq!(pair("pub struct Piece;", second).len(), 1, "{second}");
        }
    }

    #[test]
    fn private_types_other_names_and_comments_are_not_found() {
        for second in [
            "struct Piece;",
            "    type Piece = u8;",
            "pub struct Pieces;",
            "pub fn Piece() {}",
            "pub use a::Piece;",
            "// pub struct Piece;",
            "/// pub struct Piece;",
        ] {
            assert!(pair("pub struct Piece;", second).is_empty(), "{second}");
        }
    }

    #[test]
    fn other_crates_and_tests_may_have_the_name() {
        let one = "pub struct Piece;";
        let files = [X, Y, ("crates/x/src/a.rs", one), ("crates/y/src/a.rs", one)];
        assert!(found(check, &files).is_empty());
        let files = [X, ("crates/x/src/a.rs", one), ("crates/x/tests/a.rs", one)];
        assert!(found(check, &files).is_empty());
    }

    #[test]
    fn only_the_listed_exceptions_may_repeat() {
        let cli = ("crates/cli/Cargo.toml", "[package]");
        let of = |name: &str| format!("pub struct {name} {{");
        let twice = |name: &str| {
            let text = of(name);
            found(check, &[cli, ("crates/cli/src/a.rs", &text), ("crates/cli/src/b.rs", &text)])
        };
        assert!(twice("Args").is_empty());
        assert_eq!(twice("Plan").len(), 1);
        let lab = ("crates/lab/Cargo.toml", "[package]");
        let (a, b) = ("crates/lab/src/a.rs", "crates/lab/src/b.rs");
        assert!(found(check, &[lab, (a, &of("Plan")), (b, &of("Plan"))]).is_empty());
    }
}
