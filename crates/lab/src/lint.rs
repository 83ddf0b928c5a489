//! What is wrong with a benchmark before it runs, and with a result after it: rules L01 to L31.
//!
//! - subject: what is looked at: jobs, perhaps a result, and what it is meant to show
//! - machine: what rules need to know about targets and host, and may not be able to know
//! - live: the machine we are on
//! - rules: the rules, in groups
//! - syntax: what fio itself says of the jobs
//! - tools: programs that are no benchmarks of storage
//! - cli: `lab lint`
//!
//! What must stay true: every rule has an example it complains about and one it does not (a test
//! fails otherwise); what a rule could not find out is said and never passed over. Not here:
//! results' arithmetic (metrics).

pub mod cli;
pub mod live;
pub mod machine;
pub mod rules;
pub mod subject;
pub(crate) mod syntax;
#[cfg(test)]
mod tests;
pub mod tools;

use crate::fio::Job;
use crate::rules::Rule;
use crate::validity::{Finding, Severity};
use machine::{HostFacts, Known, Machine, TargetFacts};
use serde::Serialize;
use std::collections::BTreeMap;
use subject::Subject;

/// The rule that keeps data from being destroyed: where it cannot tell, nothing is VALID.
const SAFETY: &str = "L18";

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Remark {
    pub rule: &'static str,
    pub severity: Severity,
    pub job: String,
    /// Line of the job file, from 1; 0 if there is none.
    pub line: usize,
    pub reason: String,
    pub correction: Option<String>,
    /// Whether the rule could not find out what it needed: not an error, and not a pass.
    pub cannot_tell: bool,
}

impl Remark {
    /// As a finding on a measurement.
    pub fn finding(&self) -> Finding {
        Finding {
            rule: self.rule.to_owned(),
            severity: self.severity,
            reason: self.reason.clone(),
            correction: self.correction.clone(),
        }
    }
}

impl Remark {
    /// With a corrected line or a next step.
    fn better(&mut self, correction: impl Into<String>) -> &mut Remark {
        self.correction = Some(correction.into());
        self
    }

    /// With another weight than its rule usually has.
    fn weighs(&mut self, severity: Severity) -> &mut Remark {
        self.severity = severity;
        self
    }
}

struct Case<'a> {
    rule: &'static Rule,
    subject: &'a Subject,
    targets: &'a BTreeMap<String, TargetFacts>,
    host: &'a HostFacts,
    remarks: Vec<Remark>,
}

/// Apply all rules. Each target is looked at once.
pub fn lint(subject: &Subject, machine: &dyn Machine) -> Vec<Remark> {
    let names = subject.jobs.iter().flat_map(subject::targets);
    let targets = names.map(|name| (name.clone(), machine.target(&name))).collect();
    let host = machine.host();
    let mut remarks: Vec<Remark> = Vec::new();
    for (id, look) in rules::LOOKS {
        let rule = crate::rules::of(id);
        let mut case = Case { rule, subject, targets: &targets, host: &host, remarks: Vec::new() };
        look(&mut case);
        // Copies of a job that are reported one by one would all be told the same.
        let first = remarks.len();
        for remark in case.remarks {
            if !remarks[first..].contains(&remark) {
                remarks.push(remark);
            }
        }
    }
    remarks
}

impl<'a> Case<'a> {
    fn jobs(&self) -> &'a [Job] {
        &self.subject.jobs
    }

    fn targets_of(&self, job: &Job) -> Vec<(String, &'a TargetFacts)> {
        let known = |name: String| self.targets.get(&name).map(|facts| (name, facts));
        subject::targets(job).into_iter().filter_map(known).collect()
    }

    fn say(&mut self, job: &Job, key: &str, reason: impl Into<String>) -> &mut Remark {
        let at = self.remarks.len();
        self.remarks.push(Remark {
            rule: &self.rule.id,
            severity: self.rule.weight,
            job: job.name.clone(),
            line: job.line_of(key),
            reason: reason.into(),
            correction: Some(self.rule.next.clone()).filter(|next| !next.is_empty()),
            cannot_tell: false,
        });
        &mut self.remarks[at]
    }

    /// A fact, unless it is not known: then it is said that `what` cannot be told.
    fn known<'k, T>(&mut self, job: &Job, fact: &'k Known<T>, what: &str) -> Option<&'k T> {
        fact.as_ref().map_err(|why| self.cannot_tell(job, what, why)).ok()
    }

    fn cannot_tell(&mut self, job: &Job, what: &str, why: &str) {
        self.remarks.push(Remark {
            rule: &self.rule.id,
            severity: if SAFETY == self.rule.id { Severity::Warning } else { Severity::Info },
            job: job.name.clone(),
            line: job.line,
            reason: format!("cannot tell {what}: {why}"),
            correction: None,
            cannot_tell: true,
        });
    }
}
