//! Devices that are there and tell nothing: they cannot be opened or read, or do not answer.
//!
//! What must stay true: such a device is never called no member. It may be one, and nobody knows.

use super::{Gather, Seen};
use crate::aside::aside;
use ashlar_ondisk::assembly::MemberReading;
use std::collections::BTreeMap;
use std::path::Path;

impl Seen {
    /// What the judgement gets.
    pub(super) fn all(&self) -> Vec<MemberReading> {
        self.readings.iter().chain(&self.unread).cloned().collect()
    }
}

impl Gather {
    /// Of these devices, which were looked at, the others told something, or are not there.
    pub(super) async fn note_unread(
        &self,
        looked_at: Vec<String>,
        mut why: BTreeMap<String, String>,
    ) {
        if !why.is_empty() {
            let there = aside(move || {
                why.retain(|path, _| Path::new(path).exists());
                why
            });
            why = there.await;
        }
        let mut known = self.known();
        known.unread.retain(|path, _| !looked_at.contains(path));
        known.unread.extend(why);
    }
}

/// Those of the devices that are meant, with the reason of each; empty if there are none.
pub(super) fn words(
    unread: &BTreeMap<String, String>,
    is_meant: impl Fn(&String) -> bool,
) -> String {
    let meant = unread.iter().filter(|(path, _)| is_meant(path));
    let words: Vec<String> = meant.map(|(path, why)| format!("{path} {why}")).collect();
    words.join(", ")
}

/// The same of devices that may be what an array lacks.
pub(super) fn in_brackets(unread: &[MemberReading]) -> String {
    let words: Vec<String> = unread.iter().filter_map(MemberReading::cannot_be_read).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}
