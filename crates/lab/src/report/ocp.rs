//! The report as OCP Test & Validation output: lines of JSON, schema version 2.0.
//!
//! Source: Open Compute Project, "Test and Validation Output Specification". What must stay true: a
//! point whose figures are invalid is FAIL, a run in which nothing was measured is SKIP and
//! NOT_APPLICABLE, never a pass.

use super::points::Point;
use super::text::title;
use crate::record::{RateUnit, Record};
use crate::store::Run;
use crate::validity::{Mark, Outcome};
use serde_json::{Value, json};

/// All lines.
pub fn jsonl(run: &Run, points: &[Point]) -> String {
    let mut lines =
        Lines { out: String::new(), number: 0, time: timestamp(run.facts.began_unix_s) };
    lines.add(json!({"schemaVersion": {"major": 2, "minor": 0}}));
    lines.add(json!({"testRunArtifact": {"testRunStart": {
        "name": title(run), "version": run.facts.lab, "commandLine": "", "parameters": {},
        "dutInfo": {"dutInfoId": "1", "name": "server", "metadata": run.facts.environment,
            "platformInfos": [], "softwareInfos": [], "hardwareInfos": []}}}}));
    for (at, point) in points.iter().enumerate() {
        let step = at.to_string();
        lines.step(
            &step,
            json!({"testStepStart": {"name": format!("{} on {}", point.case(), point.engine)}}),
        );
        for (round, sample) in point.samples.iter().enumerate() {
            let unit = match point.unit() {
                RateUnit::BytesPerS => "B/s",
                RateUnit::Iops => "IOPS",
            };
            let name = format!("rate of round {round}");
            let measured = json!({"name": name, "unit": unit, "value": sample});
            lines.step(&step, json!({"measurement": measured}));
        }
        let (verdict, kind) = match point.mark() {
            Mark::Invalid => ("figure-invalid", "FAIL"),
            Mark::ValidWithNotes => ("figure-valid-with-notes", "PASS"),
            Mark::Valid => ("figure-valid", "PASS"),
        };
        lines.step(&step, json!({"diagnosis": {"verdict": verdict, "type": kind}}));
        lines.step(&step, json!({"testStepEnd": {"status": "COMPLETE"}}));
    }
    let has_checks = checks(&mut lines, run, points.len());
    let is_failed =
        points.iter().any(|point| point.mark() == Mark::Invalid) || has_checks == Some(false);
    let (status, result) = match (points.is_empty() && has_checks.is_none(), is_failed) {
        (true, _) => ("SKIP", "NOT_APPLICABLE"),
        (false, true) => ("COMPLETE", "FAIL"),
        (false, false) => ("COMPLETE", "PASS"),
    };
    lines.add(json!({"testRunArtifact": {"testRunEnd": {"status": status, "result": result}}}));
    lines.out
}

/// The checks as one step; whether none failed, or `None` without checks.
fn checks(lines: &mut Lines, run: &Run, at: usize) -> Option<bool> {
    let step = at.to_string();
    let mut all = None;
    for record in &run.records {
        let Record::Check(check) = record else { continue };
        if all.is_none() {
            lines.step(&step, json!({"testStepStart": {"name": "checks of the server"}}));
        }
        let kind = match check.outcome {
            Outcome::Pass => "PASS",
            Outcome::Fail => "FAIL",
            Outcome::CannotTell | Outcome::NotApplicable => "UNKNOWN",
        };
        all = Some(all.unwrap_or(true) && check.outcome != Outcome::Fail);
        let message = format!("{}: {}", check.target, check.found);
        let told = json!({"verdict": check.name, "type": kind, "message": message});
        lines.step(&step, json!({"diagnosis": told}));
    }
    if all.is_some() {
        lines.step(&step, json!({"testStepEnd": {"status": "COMPLETE"}}));
    }
    all
}

struct Lines {
    out: String,
    number: u64,
    time: String,
}

impl Lines {
    fn add(&mut self, mut artifact: Value) {
        if let Value::Object(fields) = &mut artifact {
            fields.insert("sequenceNumber".to_owned(), json!(self.number));
            fields.insert("timestamp".to_owned(), json!(self.time));
        }
        self.number += 1;
        self.out.push_str(&artifact.to_string());
        self.out.push('\n');
    }

    fn step(&mut self, step: &str, mut artifact: Value) {
        if let Value::Object(fields) = &mut artifact {
            fields.insert("testStepId".to_owned(), json!(step));
        }
        self.add(json!({"testStepArtifact": artifact}));
    }
}

/// RFC 3339 of seconds since 1970, UTC. Source: days-to-civil conversion of the proleptic Gregorian
/// calendar.
pub fn timestamp(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::{jsonl, timestamp};
    use crate::store::Run;

    #[test]
    fn times_are_what_the_calendar_says() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_795_219_199), "2026-11-20T23:59:59Z");
    }

    #[test]
    fn a_run_in_which_nothing_was_measured_does_not_pass() {
        let text = jsonl(&Run::default(), &[]);
        let last = text.lines().last().expect("lines");
        assert!(last.contains("SKIP") && last.contains("NOT_APPLICABLE"), "{last}");
        for (number, line) in text.lines().enumerate() {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(value["sequenceNumber"], number);
        }
    }
}
