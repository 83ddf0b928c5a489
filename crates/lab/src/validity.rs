//! Whether a figure may be believed, and which rules say so.
//!
//! What must stay true: a figure without a verdict is never called valid; the worst rule decides.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How much a rule weighs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; changes nothing.
    Info,
    /// The figure stands, with this beside it.
    Warning,
    /// The figure must not be used.
    #[default]
    Error,
}

/// A rule that had something to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// `L08`, `F14`, or another stable name.
    pub rule: String,
    /// How much it weighs.
    pub severity: Severity,
    /// What is wrong and why it matters, one sentence.
    pub reason: String,
    /// The corrected line or the next step, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
}

/// The mark on a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Mark {
    /// No rule speaks against it.
    #[default]
    #[serde(rename = "VALID")]
    Valid,
    /// It stands, with warnings beside it.
    #[serde(rename = "VALID-WITH-NOTES")]
    ValidWithNotes,
    /// It must not be used.
    #[serde(rename = "INVALID")]
    Invalid,
}

impl Mark {
    /// The mark that `findings` amount to.
    pub fn of(findings: &[Finding]) -> Mark {
        match findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Error) => Mark::Invalid,
            Some(Severity::Warning) => Mark::ValidWithNotes,
            Some(Severity::Info) | None => Mark::Valid,
        }
    }
}

impl Mark {
    /// The mark with the rules behind it, and the reason for the worst.
    pub fn told(findings: &[Finding]) -> String {
        let mark = Mark::of(findings);
        let weighs = findings.iter().filter(|finding| finding.severity > Severity::Info);
        let mut rules: Vec<&str> = weighs.map(|finding| finding.rule.as_str()).collect();
        rules.sort_unstable();
        rules.dedup();
        match findings.iter().find(|finding| finding.severity == Severity::Error) {
            Some(worst) => format!("{mark} ({}: {})", worst.rule, worst.reason),
            None if rules.is_empty() => mark.to_string(),
            None => format!("{mark} ({})", rules.join(", ")),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mark::Valid => "VALID",
            Mark::ValidWithNotes => "VALID-WITH-NOTES",
            Mark::Invalid => "INVALID",
        })
    }
}

/// How a check came out. There is no default: what was not looked at cannot tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Looked at, and as it should be.
    Pass,
    /// Looked at, and wrong.
    Fail,
    /// Could not be looked at: no permission, no tool, no such file.
    CannotTell,
    /// There is nothing of the kind in this machine.
    NotApplicable,
}

#[cfg(test)]
mod tests {
    use super::{Finding, Mark, Severity};

    fn finding(severity: Severity) -> Finding {
        Finding { rule: "L01".into(), severity, reason: String::new(), correction: None }
    }

    #[test]
    fn the_worst_rule_decides() {
        assert_eq!(Mark::of(&[]), Mark::Valid);
        assert_eq!(Mark::of(&[finding(Severity::Info)]), Mark::Valid);
        let both = [finding(Severity::Error), finding(Severity::Warning)];
        assert_eq!(Mark::of(&both[1..]), Mark::ValidWithNotes);
        assert_eq!(Mark::of(&both), Mark::Invalid);
    }
}
