//! How an account looks in a terminal: `templates/cpu.txt`.
//!
//! What must stay true: every share stands with its error; what was not measured is said, not left
//! out.

use super::account::{CpuAccount, GroupAccount, WorkAccount};
use super::groups::WorkKind;
use super::tally::Context;
use crate::metrics::share::{Share, Unit};
use crate::validity::Mark;
use askama::Template;

#[derive(Template)]
#[template(path = "cpu.txt")]
struct Page<'a> {
    account: &'a CpuAccount,
}

pub fn text(account: &CpuAccount) -> String {
    Page { account }.to_string()
}

impl CpuAccount {
    /// What an average over the cores says.
    fn mean_percent(&self) -> f64 {
        self.spread.as_ref().map_or(self.busy.share * 100.0, |it| it.mean_percent)
    }
}

impl GroupAccount {
    fn parts(&self) -> impl Iterator<Item = (&'static str, Share)> {
        let parts = [
            ("useful", self.useful),
            ("overhead", self.overhead),
            ("polling", self.polling),
            ("not told apart", self.unsorted),
        ];
        parts.into_iter().filter(|it| it.1.share > 0.0)
    }

    fn told_apart(&self) -> impl Iterator<Item = (&'static str, &WorkAccount)> {
        self.work.iter().filter_map(|work| match work.kind {
            WorkKind::Useful => Some(("useful", work)),
            WorkKind::Polling => Some(("polling", work)),
            WorkKind::Overhead => Some(("overhead", work)),
            WorkKind::Unsorted => None,
        })
    }
}

fn first<'a>(is_first: &bool, title: &'a str) -> &'a str {
    if *is_first { title } else { "" }
}

fn ns(it: &Option<f64>) -> String {
    it.map_or("not measured".to_owned(), |it| format!("{it:.0} ns"))
}
