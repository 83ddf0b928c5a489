//! The rules of the lab, in one table: what each needs to know, where its threshold lies, why it
//! matters and what to do next. Lint, inspect, plans, comparisons and reports take them from here.
//!
//! What must stay true: a rule has one id for ever; every id that the code names is in the table
//! (a test looks). Not here: what looks for each (`lint::rules`, `inspect::checks`, `plan`).

use crate::record::Check;
use crate::validity::{Finding, Outcome, Severity};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

const TABLE: &str = include_str!("../rules/rules.toml");

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `L01`, `F14`, `drives.slow_member`.
    pub id: String,
    /// What it is about, half a sentence.
    pub title: String,
    pub weight: Severity,
    /// What it needs to know; without that it cannot tell.
    #[serde(default)]
    pub needs: String,
    /// What is said where it cannot tell, unless the case has words of its own.
    #[serde(default)]
    pub blind: String,
    /// What to do then.
    #[serde(default)]
    pub ask: String,
    /// Its threshold, in the unit that the title or the reason names.
    pub limit: Option<f64>,
    #[serde(default)]
    pub why: String,
    /// The next step, unless the case has one of its own.
    #[serde(default)]
    pub next: String,
    /// Example it complains about: a job file, or a result if it begins with `{`.
    #[serde(default)]
    pub bad: String,
    /// The same, corrected.
    #[serde(default)]
    pub good: String,
}

#[derive(Deserialize)]
struct Table {
    rule: Vec<Rule>,
}

static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| toml::from_str::<Table>(TABLE).map_or_else(|_| Vec::new(), |it| it.rule));

/// A name that is not in the table decides, so that nothing is lost.
static UNKNOWN: LazyLock<Rule> =
    LazyLock::new(|| Rule { id: "unknown".to_owned(), ..Rule::default() });

pub fn all() -> &'static [Rule] {
    &RULES
}

/// The rule called `id`, in capitals or not.
pub fn named(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id.eq_ignore_ascii_case(id))
}

pub fn of(id: &str) -> &'static Rule {
    named(id).unwrap_or(&UNKNOWN)
}

impl Rule {
    /// Its threshold; a rule without one is never met.
    pub fn limit(&self) -> f64 {
        self.limit.unwrap_or(f64::NAN)
    }

    /// What a figure gets that it speaks against.
    pub fn finding(&self, reason: impl Into<String>) -> Finding {
        self.finding_as(self.weight, reason)
    }

    /// The same, where it weighs more or less than usual.
    pub fn finding_as(&self, severity: Severity, reason: impl Into<String>) -> Finding {
        let (rule, reason, correction) = (self.id.clone(), reason.into(), self.next());
        Finding { rule, severity, reason, correction }
    }

    /// How it came out; what failed has its next step.
    pub fn check(
        &self,
        target: impl Into<String>,
        outcome: Outcome,
        found: impl Into<String>,
    ) -> Check {
        let next = self.next().filter(|_| outcome == Outcome::Fail);
        let (name, target, found) = (self.id.clone(), target.into(), found.into());
        Check { name, target, outcome, found, next }
    }

    pub fn pass(&self, target: impl Into<String>, found: impl Into<String>) -> Check {
        self.check(target, Outcome::Pass, found)
    }

    pub fn fail(&self, target: impl Into<String>, found: impl Into<String>) -> Check {
        self.check(target, Outcome::Fail, found)
    }

    /// The same sentence, whether it passes or fails.
    pub fn judge(
        &self,
        passes: bool,
        target: impl Into<String>,
        found: impl Into<String>,
    ) -> Check {
        self.check(target, if passes { Outcome::Pass } else { Outcome::Fail }, found)
    }

    pub fn blind(&self, target: impl Into<String>, why: impl Into<String>) -> Check {
        self.check(target, Outcome::CannotTell, why)
    }

    fn next(&self) -> Option<String> {
        Some(self.next.clone()).filter(|next| !next.is_empty())
    }
}

impl Finding {
    /// With a next step of its own.
    pub fn but(mut self, correction: impl Into<String>) -> Finding {
        self.correction = Some(correction.into());
        self
    }
}

impl Check {
    /// With a next step of its own.
    pub fn but(mut self, next: impl Into<String>) -> Check {
        self.next = Some(next.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, all, named};
    use regex::Regex;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Ids that stand in the code as `rules::of("...")`, as F and a number, and, in what a report
    /// tells of checks, as names with a dot.
    fn named_in(folder: &Path, found: &mut BTreeSet<String>) {
        let ids = Regex::new(r#"rules::of\("(\w[^"]*)"|\b(F\d\d?)\b"#).unwrap();
        let names = Regex::new(r#""([a-z._]+\.[a-z._]*)""#).unwrap();
        for path in std::fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()) {
            if path.is_dir() {
                named_in(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let is_told = path.ends_with("report/findings.rs") || path.ends_with("tables.rs");
            let told = is_told.then(|| names.captures_iter(&text)).into_iter().flatten();
            let all = ids.captures_iter(&text).chain(told);
            let all = all.filter_map(|it| it.get(1).or(it.get(2))).map(|it| it.as_str().to_owned());
            found.extend(all.filter(|id| id != "raw.all"));
        }
    }

    #[test]
    fn every_rule_that_the_code_names_is_in_the_table_once() {
        let read = toml::from_str::<Table>(super::TABLE);
        assert!(read.is_ok(), "{:?}", read.err());
        let ids: BTreeSet<&str> = all().iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids.len(), all().len(), "each once");
        let mut found = BTreeSet::new();
        named_in(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
        assert!(found.len() > 20, "{found:?}");
        let missing: Vec<&String> = found.iter().filter(|id| named(id).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
