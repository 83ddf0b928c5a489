//! Which commands a page of the documents has.
//!
//! What must stay true: a line of a fenced block without a language is a command, and nothing else
//! is. A page has the lines of what it includes. Each command knows the file and the line where
//! somebody would correct it.

use std::fs;
use std::path::{Path, PathBuf};

/// A command of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageCommand {
    /// File and line, as `docs/operating.md:26`.
    pub place: String,
    /// What the page has the reader type, with the comment behind it.
    pub text: String,
}

/// A line and where it stands.
struct Line {
    place: String,
    text: String,
}

/// The commands of the page `docs/NAME.md`, in order.
///
/// # Panics
/// If it includes what there is not, or leaves a block open.
pub fn commands(name: &str) -> Vec<PageCommand> {
    commands_in(page(&format!("{name}.md")))
}

fn commands_in(page: Vec<Line>) -> Vec<PageCommand> {
    let (mut found, mut fence): (Vec<PageCommand>, Option<String>) = (Vec::new(), None);
    let mut goes_on = false;
    for Line { place, text } in page {
        if let Some(language) = text.trim().strip_prefix("```") {
            fence = fence.is_none().then(|| language.to_owned());
            continue;
        }
        let is_command = fence.as_deref() == Some("") && !text.trim().is_empty();
        if !is_command {
            continue;
        }
        match found.last_mut() {
            Some(last) if goes_on => last.text.push_str(&format!("\n{text}")),
            _ => found.push(PageCommand { place, text: text.clone() }),
        }
        goes_on = text.ends_with('\\');
    }
    assert!(fence.is_none(), "a block has no end");
    found
}

/// The lines of a file of the documents, with those that it includes in their places.
fn page(file: &str) -> Vec<Line> {
    let included = |line: &Line| {
        let inner = line.text.strip_prefix("{{#include ")?.strip_suffix("}}")?;
        let (file, anchor) = inner.split_once(':').expect("a part of a file");
        Some(part(lines(file), anchor))
    };
    lines(file).into_iter().flat_map(|line| included(&line).unwrap_or_else(|| vec![line])).collect()
}

/// The lines between the marks of this name.
fn part(lines: Vec<Line>, anchor: &str) -> Vec<Line> {
    let is_mark = |line: &Line, mark: &str| line.text == format!("<!-- {mark}: {anchor} -->");
    let inside = lines.into_iter().skip_while(|line| !is_mark(line, "ANCHOR"));
    let part: Vec<Line> = inside.skip(1).take_while(|line| !is_mark(line, "ANCHOR_END")).collect();
    assert!(!part.is_empty(), "no part {anchor}");
    part
}

fn lines(file: &str) -> Vec<Line> {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let line = |(at, text): (usize, &str)| Line {
        place: format!("docs/{file}:{}", at + 1),
        text: text.to_owned(),
    };
    text.lines().enumerate().map(line).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn a_command_is_a_line_of_a_block_without_a_language_wherever_it_is_included_from() {
    let text = "type `no`\n```\none    # why\n\ntwo \\\n    more\n```\n```toml\nno = 1\n```\n\
                ```\nthree\n```\n";
    let line = |text: &str| Line { place: "here".to_owned(), text: text.to_owned() };
    let found = commands_in(text.lines().map(line).collect());
    let texts: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(texts, ["one    # why", "two \\\n    more", "three"]);
    let first = commands("first-array").into_iter().next().expect("it has commands");
    let (file, at) = first.place.rsplit_once(':').expect("a file and a line");
    assert_eq!(file, "docs/operating.md");
    let at: usize = at.parse().expect("a number");
    let lines = lines("operating.md");
    assert_eq!(lines[at - 1].text, first.text);
}
