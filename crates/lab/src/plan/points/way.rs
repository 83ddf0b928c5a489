//! Points that measure the way to the drives and not their media: link, controller, kernel, and the
//! load generator itself.
//!
//! What must stay true: nothing is written; each load asks the media for as little as possible, and
//! its name says so.

use super::{Maker, Point, Target, numbered, raw};
use crate::fio::{JobFile, Section, Setting};
use crate::plan::profile::{Profile, workload};
use crate::record::ArrayCondition;
use std::path::Path;

/// Large reads of the same megabyte, which a drive's cache answers: what links and controllers
/// carry.
pub const BANDWIDTH: &str = "path-same-1m";
/// Small reads of the same 64 KiB: how many I/Os kernel and controllers carry.
pub const IOPS: &str = "path-same-64k";
/// Large reads all over drives that were purged and not written since: no media work at all.
pub const UNMAPPED: &str = "path-unmapped";
/// I/Os that end in the load generator itself: what it can ask for on this machine.
pub const CLIENT: &str = "path-client";

impl Maker<'_> {
    /// All drives at once, then the load generator alone.
    pub(super) fn paths(&self, drives: &[Target]) -> Vec<Point> {
        let set = |pairs: &[(&str, &str)]| -> Vec<Setting> {
            pairs.iter().map(|(key, value)| Setting::new(key, *value)).collect()
        };
        let same = set(&[("rw", "read"), ("bs", "128k"), ("size", "1m")]);
        let small = set(&[("rw", "randread"), ("bs", "4k"), ("size", "64k")]);
        let unmapped = set(&[("rw", "randread"), ("bs", "1m")]);
        let null = set(&[("ioengine", "null"), ("rw", "randread"), ("bs", "4k"), ("size", "1g")]);
        let mut points = Vec::new();
        for depth in &self.stage.depths {
            points.extend(self.way(drives, BANDWIDTH, &same, *depth));
            points.extend(self.way(drives, IOPS, &small, *depth));
            if self.is_purged {
                points.extend(self.way(drives, UNMAPPED, &unmapped, *depth));
            }
        }
        // Such I/Os end at once: none is ever in flight beside another.
        points.extend(self.way(&[raw(Path::new("/dev/null"))], CLIENT, &null, 1));
        points
    }

    fn way(&self, targets: &[Target], name: &str, settings: &[Setting], depth: u32) -> Vec<Point> {
        let section = Section::new(name, settings.to_vec());
        let profile = Profile::of(name, JobFile { sections: vec![section] });
        let numbered = numbered(targets);
        // Nothing in it needs filling in that could be missing.
        let file = profile.filled(&self.fill_in(&numbered, depth, 1)).unwrap_or_default();
        let first = file.jobs().into_iter().next().unwrap_or_default();
        let work = workload(name, &first, depth, 1);
        self.rounds(targets, ArrayCondition::Raw, &work, &file)
    }
}
