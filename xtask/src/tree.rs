//! The repository as a list of files in memory, so that rules are functions of plain values.
//!
//! What must stay true: paths are relative to the root with forward slashes, sorted; files that git
//! ignores are not here. A file that is not UTF-8 has no text but keeps its size.

use std::path::Path;
use std::process::Command;

/// One file of the repository.
pub struct File {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// Content, if it is UTF-8.
    pub text: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
}

/// All files of the repository.
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// Every file below `root` that git knows or would add; without git, every file outside
    /// `target`.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let mut paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        paths.sort();
        paths.dedup();
        let files = paths.into_iter().filter_map(|path| read_file(root, path)).collect();
        Ok(Tree { files })
    }

    /// The text of the file at `path`.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }

    /// Whether a file or a folder is at `path`.
    pub fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    /// Rust files with their text.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_extension("rs")
    }

    /// Files whose name ends in `.extension`, with their text.
    pub fn with_extension(&self, extension: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(move |file| {
            let has = Path::new(&file.path).extension().is_some_and(|it| it == extension);
            Some((file.path.as_str(), file.text.as_deref().filter(|_| has)?))
        })
    }

    /// The folders that hold a package: those with a Cargo.toml that has a `[package]` table.
    pub fn packages(&self) -> Vec<&str> {
        self.with_extension("toml")
            .filter(|(_, text)| text.contains("[package]"))
            .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
            .collect()
    }

    /// The package that `path` belongs to: the deepest package folder above it.
    pub fn package_of<'a>(packages: &[&'a str], path: &str) -> Option<&'a str> {
        packages
            .iter()
            .filter(|folder| path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/')))
            .max_by_key(|folder| folder.len())
            .copied()
    }
}

fn read_file(root: &Path, path: String) -> Option<File> {
    // A path that git lists and that is gone from the disk was deleted and not yet committed.
    let content = std::fs::read(root.join(&path)).ok()?;
    let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
    Some(File { path, text: String::from_utf8(content).ok(), bytes })
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> =
        text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    // An export of the sources inside some other repository lists nothing.
    (!paths.is_empty()).then_some(paths)
}

fn walk(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let complain = |error| format!("tidy: {} cannot be read: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(complain)? {
            let path = entry.map_err(complain)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else if let Some(path) = path.strip_prefix(root).ok().and_then(Path::to_str) {
                found.push(path.to_owned());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
impl Tree {
    /// A tree of the given paths and texts, for tests of rules.
    pub fn planted(files: &[(&str, &str)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                text: Some((*text).to_owned()),
                bytes: u64::try_from(text.len()).expect("small"),
            })
            .collect();
        Tree { files }
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn a_file_belongs_to_the_deepest_package_above_it() {
        let packages = ["crates/export", "crates/export/nbd", "crates/gf"];
        assert_eq!(
            Tree::package_of(&packages, "crates/export/nbd/src/lib.rs"),
            Some("crates/export/nbd")
        );
        assert_eq!(Tree::package_of(&packages, "crates/gfx/src/lib.rs"), None);
    }

    #[test]
    fn this_repository_can_be_read_and_holds_this_file() {
        let tree = Tree::read(&crate::root()).expect("readable");
        assert!(tree.text("xtask/src/tree.rs").is_some());
        assert!(tree.holds("xtask/src") && !tree.holds("xtask/srcs"));
        assert!(tree.packages().contains(&"xtask"));
        assert!(!tree.files.iter().any(|file| file.path.starts_with("target/")));
    }
}
