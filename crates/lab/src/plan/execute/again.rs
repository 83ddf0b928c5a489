//! A figure above what the raw drives gave: they may have been measured in a worse moment than the
//! array, so they are measured once more.
//!
//! What must stay true: only raw loads that read are repeated, for the array stands on the same
//! drives; both raw runs are kept; a figure that is still above is INVALID, and one that is not
//! says that the machine drifted.

use super::super::ceilings::RawRuns;
use super::super::file::Kind;
use super::super::points::Point;
use super::super::progress::Progress;
use super::Session;
use super::point::lint_after;
use crate::Refusal;
use crate::fio::run::FioRan;
use crate::lint::Remark;
use crate::metrics::plausible::{CEILING_SLACK, Ceiling};
use crate::record::{ArrayCondition, Measurement};
use crate::rules;
use crate::units;
use crate::validity::{Finding, Mark, Severity};

/// Share by which an upper layer may be above the layer below before it cannot be the drift of a
/// machine.
const DRIFT_BELIEVED: f64 = 1.05;

impl Session<'_> {
    /// What rules say of a result, after the raw drives were given a second chance if it is above
    /// what they did.
    pub(super) fn judged(
        &mut self,
        point: &Point,
        ran: &FioRan,
        progress: &mut Progress,
    ) -> Result<(Vec<Remark>, Option<Finding>), Refusal> {
        let judge = |ceiling: Option<Ceiling>| {
            let remarks = lint_after(point, ran, ceiling.into_iter().collect());
            let breaks = |it: &Remark| it.rule == "L29" && it.severity == Severity::Error;
            (remarks.iter().any(breaks), remarks)
        };
        let Some((ceiling, raw)) = self.ceiling(point) else { return Ok((judge(None).1, None)) };
        let first = ceiling.value;
        let (is_above, remarks) = judge(Some(ceiling));
        if !is_above || point.kind == Kind::Rebuild {
            return Ok((remarks, None));
        }
        let Some(again) = self.raw_again(&raw) else {
            return Ok((remarks, Some(not_repeated(&raw))));
        };
        progress.more(again.expected_s);
        progress.say("above what the raw drives gave: they are measured again");
        self.point(&again, None, progress)?;
        let (is_above, remarks) = judge(self.ceiling(point).map(|it| it.0));
        let second =
            again.ids().into_iter().filter_map(|id| self.known.get(&id)?.bytes_per_s().into());
        let drift = drifted(&raw, [first, second.sum()].map(units::bytes_per_s), is_above);
        Ok((remarks, Some(drift)))
    }

    /// What no figure of `point` can be above, and the raw load that showed it.
    fn ceiling(&self, point: &Point) -> Option<(Ceiling, String)> {
        let array = self.array_of(point).filter(|_| point.is_of_array())?;
        RawRuns::of(array, &self.plan.drives, self.known.values())?.ceiling(&point.workload)
    }

    /// What a figure through a file system gets that is above what the array did at the same load
    /// without one (F14).
    pub(super) fn above_the_array(&self, measured: &Measurement) -> Option<Finding> {
        if measured.condition != ArrayCondition::FileSystem {
            return None;
        }
        let below = self.known.values().filter(|it| {
            it.condition == ArrayCondition::Healthy
                && it.target == measured.target
                && it.workload == measured.workload
                && Mark::of(&it.findings) != Mark::Invalid
        });
        let best = below.map(Measurement::rate).max_by(f64::total_cmp).filter(|it| *it > 0.0)?;
        above_layer_below(measured.rate() / best)
    }

    /// The raw run called `load` once more, as a further round; `None` if it writes or is not in
    /// the plan.
    fn raw_again(&self, load: &str) -> Option<Point> {
        let is_it = |point: &&Point| point.kind == Kind::RawAll && point.workload.name == load;
        let point = self.plan.points().find(is_it).filter(|point| !point.writes())?;
        let series: Vec<String> = point.targets.iter().map(|target| point.series(target)).collect();
        let rounds = self.known.values().filter_map(|measured| {
            let (own, _) = measured.id.rsplit_once('#')?;
            series.iter().any(|series| series == own).then_some(measured.round)
        });
        let planned = self.plan.points().filter(is_it).map(|point| point.round);
        let round = rounds.chain(planned).max().unwrap_or(0).saturating_add(1);
        Some(Point { round, ..point.clone() })
    }
}

fn above_layer_below(share: f64) -> Option<Finding> {
    let severity = match share {
        share if share > DRIFT_BELIEVED => Severity::Error,
        share if share > CEILING_SLACK => Severity::Warning,
        _ => return None,
    };
    let reason = format!(
        "{} of what the array did at the same load without a file system: \
         a cache answers, or the machine drifted",
        units::percent(share)
    );
    let next = "a larger span, direct I/O, more rounds of both";
    Some(rules::of("F14").finding_as(severity, reason).but(next))
}

fn drifted(raw: &str, [was, now]: [String; 2], stays_above: bool) -> Finding {
    let (severity, reason, next) = match stays_above {
        false => (
            Severity::Warning,
            format!(
                "above what the raw run {raw} allowed before ({was}), but not above what it gave \
                 right after ({now}): the machine drifted; both raw runs are kept"
            ),
            "an idle machine, and more rounds of raw.all",
        ),
        true => (
            Severity::Info,
            format!(
                "the raw run {raw} was measured again right after it: {now}, {was} before; \
                 the figure stays above what they allow"
            ),
            "a span beyond every cache",
        ),
    };
    rules::of("F14").finding_as(severity, reason).but(next)
}

fn not_repeated(raw: &str) -> Finding {
    let reason = format!(
        "the raw run {raw} was not measured again, which would have overwritten the array: \
         whether the machine was slower then cannot be told"
    );
    let next = "several rounds of raw.all, on an idle machine";
    rules::of("F14").finding_as(Severity::Info, reason).but(next)
}

#[cfg(test)]
mod tests {
    use super::above_layer_below;
    use crate::validity::Severity;

    /// Seed 004: an upper layer at 63 GB/s on arrays that did 59.5 GB/s is INVALID.
    #[test]
    fn an_upper_layer_above_the_layer_below_is_noted_and_far_above_it_is_invalid() {
        let severity = |share| above_layer_below(share).map(|finding| finding.severity);
        assert_eq!(severity(1.01), None);
        assert_eq!(severity(1.03), Some(Severity::Warning));
        assert_eq!(severity(63.0 / 59.5), Some(Severity::Error));
    }
}
