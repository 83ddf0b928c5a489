//! Flame graphs at three zooms (whole machine, client, one engine), and folded files.
//!
//! What must stay true: a picture says in its subtitle what it shows and how it was sampled; the
//! same stacks give the same picture. inferno draws; its script is inside the pictures (NOTICE).

use super::files::FOLDED_HEAD;
use super::tally::{Found, Stacks};
use crate::{AtPath, Refusal};
use inferno::flamegraph::{self, Options};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

const UNWRITTEN: &str = "what was sampled is still there; free space or choose another directory";

/// What part of the stacks a picture shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zoom {
    Whole,
    Client,
    Group(usize),
}

impl Zoom {
    fn shows(self, found: Found) -> bool {
        match self {
            _ if found.is_idle => false,
            Zoom::Whole => true,
            Zoom::Client => found.is_client,
            Zoom::Group(group) => found.engine.is_some_and(|(of, _, _)| of == group),
        }
    }
}

/// The lines `a;b;c N` of what `zoom` shows, sorted.
pub fn folded(stacks: &Stacks, zoom: Zoom) -> Vec<String> {
    let shown = stacks.iter().filter(|(_, (found, _))| zoom.shows(*found));
    let mut lines: Vec<String> =
        shown.map(|(stack, (_, count))| format!("{stack} {count}")).collect();
    lines.sort_unstable();
    lines
}

/// Write a folded file that says its unit and can be read by every flame graph program.
pub fn write_folded(path: &Path, lines: &[String], unit: &str) -> Result<(), Refusal> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, format!("{FOLDED_HEAD}{unit}\n{text}")).at(path, UNWRITTEN)
}

/// Draw `lines` into `path`. Nothing is drawn, and `false` returned, if there are none.
pub fn draw(path: &Path, lines: &[String], title: &str, subtitle: &str) -> Result<bool, Refusal> {
    if lines.is_empty() {
        return Ok(false);
    }
    let mut options = options(title, subtitle);
    let file = File::create(path).at(path, UNWRITTEN)?;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), BufWriter::new(file))
        .at(path, UNWRITTEN)?;
    Ok(true)
}

fn options(title: &str, subtitle: &str) -> Options<'static> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(subtitle.to_owned());
    options.count_name = "samples".to_owned();
    options.deterministic = true;
    options.image_width = Some(1400);
    // Percent of the whole: narrower frames are less than two points wide here, and most of a
    // picture's bytes.
    options.min_width = 0.1;
    options
}

#[cfg(test)]
mod tests {
    use super::{Zoom, draw, folded, write_folded};
    use crate::cpu::files::{How, count};
    use crate::cpu::groups::Groups;
    use crate::metrics::share::Unit;
    use regex::Regex;

    const LINES: [&str; 4] = [
        "fio;main;raid5_make_request [raid456]_[k] 30",
        "fio;main;io_submit_[k] 10",
        "md0_raid6;kthread_[k];raid5d [raid456]_[k] 50",
        "swapper;do_idle_[k] 900",
    ];

    #[test]
    fn folded_files_say_their_unit_and_zooms_show_the_whole_the_client_and_an_engine_never_idle() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("stacks.folded");
        write_folded(&path, &LINES.map(str::to_owned), "samples").expect("written");
        let (groups, client) = (Groups::shipped().expect("sound"), Regex::new("^fio"));
        let how = How { groups: &groups, client: &client.expect("sound"), keep_stacks: true };
        let taken = count(&[path], how).expect("read");
        assert_eq!(taken.unit, Some(Unit::Samples));
        let counts = taken.counts;
        assert_eq!((counts.total, counts.idle, counts.unread), (990, 900, 0));
        let stacks = counts.stacks.expect("kept");
        let md = groups.all.iter().position(|group| group.name == "md").expect("there");
        assert_eq!(folded(&stacks, Zoom::Whole).len(), 3);
        assert_eq!(folded(&stacks, Zoom::Client), [LINES[1], LINES[0]]);
        assert_eq!(folded(&stacks, Zoom::Group(md)), [LINES[0], LINES[2]]);
        let path = folder.path().join("whole.svg");
        let lines = folded(&stacks, Zoom::Whole);
        assert!(draw(&path, &lines, "whole machine", "99 Hz").expect("drawn"));
        let picture = std::fs::read_to_string(&path).expect("there");
        for part in ["<svg", "raid5_make_request", "whole machine", "99 Hz", "md0_raid6"] {
            assert!(picture.contains(part), "no {part}");
        }
        assert!(!picture.contains("do_idle"));
        assert!(!draw(&folder.path().join("none.svg"), &[], "", "").expect("nothing to draw"));
    }
}
