//! Dependencies between the files of one crate: circles, and arrows that run up its layers.
//!
//! What must stay true: a file depends on the file that defines what its code names, whatever
//! module re-exports it. Test code does not count, nor does a `use` that no code uses. A file that
//! no layer names fails, and so does a larger circle or one more arrow up than was recorded.
//!
//! Method calls do not count: their paths do not say where the method is.

use crate::lexer::{code_only, is_identifier};
use std::collections::{BTreeMap, BTreeSet};

/// The layers of a crate, and what it may have at most.
struct Layers {
    /// Lowest first: the modules of each, a module with all below it.
    layers: Vec<Vec<String>>,
    circle_max: usize,
    arrows_up_max: usize,
}

/// Compare the files of a crate, as (path below its `src`, text), with the layers written down.
///
/// Returns a line of figures, or one line for each fault.
pub fn check(files: &[(&str, &str)], written: &str) -> Result<String, Vec<String>> {
    let layers = Layers::parse(written).map_err(|fault| vec![fault])?;
    let source = Source::parse(files);
    let arrows = source.arrows();
    let mut faults = layers.strangers(&source);
    let largest = largest_circle(&arrows);
    if largest.len() > layers.circle_max {
        let (found, most) = (largest.len(), layers.circle_max);
        let names: Vec<String> = largest.iter().map(|module| file_of(module)).collect();
        let names = names.join(", ");
        faults.push(format!("{found} files depend on each other, {most} allowed: {names}"));
    }
    let rank = |module: &str| layers.rank(module).unwrap_or(usize::MAX);
    let is_up = |(from, to): &&(String, String)| rank(from) < rank(to);
    let up: Vec<String> = arrows
        .iter()
        .filter(is_up)
        .map(|(from, to)| format!("{} uses {}, which is above it", file_of(from), file_of(to)))
        .collect();
    if up.len() > layers.arrows_up_max {
        let (found, most) = (up.len(), layers.arrows_up_max);
        faults.push(format!("{found} arrows run up, {most} allowed: {}", up.join("; ")));
    }
    let (circle, up) = (largest.len(), up.len());
    let figures = format!("largest circle {circle} files, {up} arrows up");
    if faults.is_empty() { Ok(figures) } else { Err(faults) }
}

impl Layers {
    fn parse(text: &str) -> Result<Layers, String> {
        let wrong = |what: &str| format!("the layers cannot be read: {what}");
        let table: toml::Table = text.parse().map_err(|error| wrong(&format!("{error}")))?;
        let number = |name: &str| {
            let value = table.get(name).and_then(toml::Value::as_integer);
            value.and_then(|it| usize::try_from(it).ok()).ok_or_else(|| wrong(name))
        };
        let modules = |layer: &toml::Value| {
            let list = layer.get("modules").and_then(toml::Value::as_array)?;
            list.iter().map(|it| it.as_str().map(|it| it.replace('/', "::"))).collect()
        };
        let layers = table.get("layer").and_then(toml::Value::as_array);
        let layers: Option<Vec<Vec<String>>> =
            layers.and_then(|it| it.iter().map(modules).collect());
        Ok(Layers {
            layers: layers.ok_or_else(|| wrong("layer"))?,
            circle_max: number("circle_max")?,
            arrows_up_max: number("arrows_up_max")?,
        })
    }

    /// The layer of a module: that of the longest name that covers it.
    fn rank(&self, module: &str) -> Option<usize> {
        let covers = |name: &&String| {
            module
                .strip_prefix(name.as_str())
                .is_some_and(|it| it.is_empty() || it.starts_with("::"))
        };
        let ranked = self.layers.iter().enumerate().flat_map(|(rank, names)| {
            names.iter().filter(covers).map(move |name| (name.len(), rank))
        });
        ranked.max().map(|(_, rank)| rank)
    }

    /// Files without a layer, and names without a file.
    fn strangers(&self, source: &Source) -> Vec<String> {
        let without = source.0.keys().filter(|module| self.rank(module).is_none());
        let mut faults: Vec<String> =
            without.map(|module| format!("{} is in no layer", file_of(module))).collect();
        let named = self.layers.iter().flatten().filter(|name| !source.0.contains_key(*name));
        faults.extend(
            named.map(|name| format!("the layers name {}, which is no file", file_of(name))),
        );
        faults
    }
}

fn file_of(module: &str) -> String {
    module.replace("::", "/") + ".rs"
}

/// A name that a file has from elsewhere.
struct Import {
    path: Vec<String>,
    name: String,
}

/// A file: its imports, and its code without them.
struct Code {
    imports: Vec<Import>,
    body: String,
}

/// The files of a crate by their modules. The root is not among them: it is a map.
struct Source(BTreeMap<String, Code>);

impl Source {
    fn parse(files: &[(&str, &str)]) -> Source {
        let mut modules = BTreeMap::new();
        for (path, text) in files {
            let module = path.trim_end_matches(".rs").replace('/', "::");
            if module != "lib" && !module.ends_with("tests") {
                modules.insert(module, Code::parse(text));
            }
        }
        Source(modules)
    }

    /// Which file uses what another one defines.
    fn arrows(&self) -> BTreeSet<(String, String)> {
        let mut arrows = BTreeSet::new();
        for (module, code) in &self.0 {
            let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for import in &code.imports {
                if let Some(path) = self.absolute(module, &import.path) {
                    names.insert(&import.name, path);
                }
            }
            for mut path in paths(&code.body) {
                let first = path.remove(0);
                let absolute = match names.get(first.as_str()) {
                    Some(known) => Some(known.iter().cloned().chain(path).collect()),
                    None => {
                        path.insert(0, first);
                        (path.len() > 1).then(|| self.absolute(module, &path)).flatten()
                    }
                };
                let owner = absolute.and_then(|path| self.owner(&path, 0));
                if let Some(owner) = owner.filter(|owner| owner != module) {
                    arrows.insert((module.clone(), owner));
                }
            }
        }
        arrows
    }

    /// The path from the crate's root; `None` if it leads into another crate.
    fn absolute(&self, module: &str, path: &[String]) -> Option<Vec<String>> {
        let mut base: Vec<String> = module.split("::").map(str::to_owned).collect();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|it| it == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child if self.0.contains_key(&format!("{module}::{child}")) => {}
            _ => return None,
        }
        Some(base.into_iter().chain(rest.iter().cloned()).collect())
    }

    /// The module that defines what is at `path`, through re-exports.
    fn owner(&self, path: &[String], depth: usize) -> Option<String> {
        let is_module = |at: &usize| self.0.contains_key(&path[..*at].join("::"));
        let at = (1..=path.len()).rev().find(is_module)?;
        let (module, name) = (path[..at].join("::"), path.get(at)?);
        let again = self.0[&module].imports.iter().find(|import| import.name == *name);
        let through = again.filter(|_| depth < 8).and_then(|import| {
            let mut path_there = self.absolute(&module, &import.path)?;
            path_there.extend_from_slice(&path[at + 1..]);
            self.owner(&path_there, depth + 1)
        });
        through.or(Some(module))
    }
}

impl Code {
    fn parse(text: &str) -> Code {
        let code = without_tests(&code_only(text));
        let (mut imports, mut body) = (Vec::new(), String::new());
        let mut rest = code.as_str();
        while let Some(at) = word(rest, "use") {
            body.push_str(&rest[..at]);
            let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
            expand(&[], rest[at..end].trim_start_matches("use"), &mut imports);
            rest = &rest[end..];
        }
        body.push_str(rest);
        Code { imports, body }
    }
}

/// Where `wanted` stands in `code` as a word of its own.
fn word(code: &str, wanted: &str) -> Option<usize> {
    let is_alone = |at: usize| {
        let before = code[..at].chars().next_back();
        let after = code[at + wanted.len()..].chars().next();
        !before.is_some_and(is_identifier) && !after.is_some_and(is_identifier)
    };
    code.match_indices(wanted).map(|(at, _)| at).find(|at| is_alone(*at))
}

/// The leaves of a `use`.
fn expand(before: &[String], tree: &str, imports: &mut Vec<Import>) {
    let (head, branches) = match tree.split_once('{') {
        Some((head, inner)) => (head, Some(&inner[..inner.rfind('}').unwrap_or(inner.len())])),
        None => (tree, None),
    };
    let (head, alias) = match head.split_once(" as ") {
        Some((head, alias)) => (head, Some(alias.trim())),
        None => (head, None),
    };
    let steps = head.split("::").map(str::trim).filter(|step| !step.is_empty());
    let mut path: Vec<String> = before.iter().cloned().chain(steps.map(str::to_owned)).collect();
    let Some(branches) = branches else {
        if before.len() < path.len() && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(last) = path.last().cloned() else { return };
        imports.push(Import { name: alias.map_or(last, str::to_owned), path });
        return;
    };
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in branches.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&path, &branches[start..at], imports);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !branches[start..].trim().is_empty() {
        expand(&path, &branches[start..], imports);
    }
}

/// The code without items under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        let (mut depth, mut end) = (0usize, rest.len());
        for (offset, c) in rest[at..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(c, '}' | ';') {
                end = at + offset + 1;
                break;
            }
        }
        rest = &rest[end..];
    }
    kept + rest
}

/// The paths in code: words with `::` between them, single words included. What follows a dot is a
/// field or a method.
fn paths(body: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| is_identifier(c) || c == ':';
    let mut found = Vec::new();
    let mut before = ' ';
    let mut rest = body;
    while let Some(start) = rest.find(is_identifier) {
        before = rest[..start].chars().next_back().unwrap_or(before);
        let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |end| start + end);
        let steps: Vec<&str> = rest[start..end].split("::").collect();
        // One colon ends a path: a field's name and its type.
        let names = steps.iter().map(|step| step.trim_end_matches(':').to_owned());
        let path: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        if before != '.' && !path.is_empty() {
            found.push(path);
        }
        before = rest[start..end].chars().next_back().unwrap_or(' ');
        rest = &rest[end..];
    }
    found
}

/// The largest set of files of which each depends on each other one, by whatever way.
fn largest_circle(arrows: &BTreeSet<(String, String)>) -> Vec<String> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
    }
    let reached = |from: &str| {
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = next.get(from).cloned().unwrap_or_default();
        while let Some(module) = open.pop() {
            if reached.insert(module) {
                open.extend(next.get(module).into_iter().flatten());
            }
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reached(from))).collect();
    let circle = |from: &str| {
        let back = |to: &&&str| all.get(**to).is_some_and(|it| it.contains(from));
        all[from].iter().filter(back).map(|to| (*to).to_owned()).collect::<Vec<String>>()
    };
    all.keys().map(|from| circle(from)).max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::check;

    const LAYERS: &str = "circle_max = 0\narrows_up_max = 0\n\
        [[layer]]\nmodules = [\"low\"]\n[[layer]]\nmodules = [\"high\", \"map\", \"map/deep\"]\n";
    const LOW: (&str, &str) = ("low.rs", "pub struct Low;");
    const MAP: (&str, &str) = ("map.rs", "mod deep; pub use deep::{Deep, other as Other};");
    const DEEP: (&str, &str) = ("map/deep.rs", "pub struct Deep; pub struct other;");

    fn faults(low: &str, high: &str) -> Vec<String> {
        let files = [("low.rs", low), ("high.rs", high), MAP, DEEP];
        check(&files, LAYERS).expect_err("planted violation")
    }

    #[test]
    fn arrows_down_pass_and_what_is_only_imported_is_none() {
        let files = [
            ("low.rs", "use crate::high::High; // High\nfn low(it: &str) { it.High(\"High\") }"),
            (
                "high.rs",
                "use crate::{low::{self, Low}, map}; fn f(_: Low, _: map::Deep) { low::f() }",
            ),
            MAP,
            DEEP,
        ];
        assert_eq!(check(&files, LAYERS), Ok("largest circle 0 files, 0 arrows up".to_owned()));
    }

    #[test]
    fn an_arrow_up_is_found_through_an_alias_and_a_re_export() {
        for low in [
            "use crate::map::Other as It; fn low(_: It) {}",
            "use crate::map; fn low(_: map::Deep) {}",
            "fn low(_: super::map::Deep) {}",
        ] {
            let faults = faults(low, "fn high() {}");
            assert_eq!(
                faults,
                ["1 arrows run up, 0 allowed: low.rs uses map/deep.rs, which is above it"]
            );
        }
    }

    #[test]
    fn a_circle_is_found() {
        let deep = ("map/deep.rs", "use crate::high::High; pub struct Deep(High);");
        let high = ("high.rs", "use super::map; pub struct High(map::Deep);");
        let faults = check(&[LOW, high, MAP, deep], LAYERS).expect_err("planted violation");
        assert_eq!(faults, ["2 files depend on each other, 0 allowed: high.rs, map/deep.rs"]);
        let allowed = LAYERS.replace("circle_max = 0", "circle_max = 2");
        assert!(check(&[LOW, high, MAP, deep], &allowed).is_ok());
    }

    #[test]
    fn test_code_does_not_count() {
        let low =
            "pub struct Low; #[cfg(test)]\nmod tests { use crate::high::High; fn f(_: High) {} }";
        assert!(
            check(&[("low.rs", low), ("high.rs", "pub struct High;"), MAP, DEEP], LAYERS).is_ok()
        );
    }

    #[test]
    fn a_file_without_a_layer_and_a_layer_without_a_file_fail() {
        let faults = check(&[LOW, MAP, DEEP, ("new.rs", "")], LAYERS).expect_err("planted");
        assert_eq!(faults, ["new.rs is in no layer", "the layers name high.rs, which is no file"]);
    }
}
