//! What an array of spinning drives does over its whole width, from the measured zones of its
//! drives: makers quote the fast outer cylinders, and so does a figure that was taken
//! there.
//!
//! What must stay true: at each place the slowest drive counts, because a stripe waits for it;
//! without zones of every drive nothing is expected.

use super::file::Array;
use super::stripes::Stripes;
use crate::metrics::zones;
use crate::record::{ArrayCondition, Check, Measurement, RateUnit};
use crate::rules;
use crate::units;
use crate::validity::Mark;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Drives whose inner edge does at least this part of the outer one have no zones to speak of.
const FLAT: f64 = 0.95;
/// A figure this far above the mean of the whole width is one of the fast part.
const OF_THE_FAST_PART: f64 = 1.05;

/// A check for each array whose drives all have zones.
pub fn checks<'a>(
    arrays: &[Array],
    drives: &[PathBuf],
    known: impl Iterator<Item = &'a Measurement>,
) -> Vec<Check> {
    let usable = |it: &&Measurement| Mark::of(&it.findings) != Mark::Invalid;
    let known: Vec<&Measurement> = known.filter(usable).collect();
    let told = arrays.iter().filter(|array| array.has_its_drives(arrays));
    told.filter_map(|array| check(array, drives, &known)).collect()
}

/// Rates of the slowest drive at each place, `(percent of the width, bytes a second)`; None unless
/// all drives have the same places.
fn slowest(drives: &[PathBuf], known: &[&Measurement]) -> Option<Vec<(f64, f64)>> {
    let mut places: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for one in known.iter().filter(|it| it.stage == "zone" && it.round == 0) {
        let place = one.workload.name.strip_prefix("zone-").and_then(|it| it.parse().ok());
        let is_own = drives.iter().any(|drive| drive.display().to_string() == one.target);
        if let Some(place) = place.filter(|_| is_own) {
            places.entry(place).or_default().push(one.bytes_per_s());
        }
    }
    let is_whole = !drives.is_empty() && places.values().all(|rates| rates.len() == drives.len());
    let least = |rates: &Vec<f64>| rates.iter().copied().fold(f64::INFINITY, f64::min);
    let curve: Vec<(f64, f64)> =
        places.iter().map(|(place, rates)| (f64::from(*place), least(rates))).collect();
    (is_whole && curve.len() > 2).then_some(curve)
}

fn check(array: &Array, drives: &[PathBuf], known: &[&Measurement]) -> Option<Check> {
    let members = if array.is_made() { array.members.as_slice() } else { drives };
    let data = Stripes::of(array, drives)?.data_drives()?;
    let curve = slowest(members, known)?;
    let of_data = |rate: f64| rate * data;
    let (outer, inner) = (of_data(curve.first()?.1), of_data(curve.last()?.1));
    let mean = of_data(zones::mean(&curve)?);
    let rate = units::bytes_per_s;
    let [outside, inside, over_all] = [outer, inner, mean].map(rate);
    let expected = format!(
        "{data} data drives x the slowest at each place: \
         {outside} outside, {inside} inside, {over_all} over the whole width"
    );
    let name = array.name();
    let best = known
        .iter()
        .filter(|it| it.target == name && it.condition == ArrayCondition::Healthy)
        .filter(|it| {
            !it.workload.mix.starts_with("rand") && it.workload.unit() == RateUnit::BytesPerS
        })
        .map(|it| (it.bytes_per_s(), it.workload.name.as_str()))
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let rule = rules::of("array.over_width");
    Some(match best {
        _ if inner >= outer * FLAT => rule.pass(name, format!("{expected}: as fast everywhere")),
        None => rule.pass(name, expected).but("array.sweep with a large sequential load"),
        Some((best, load)) => {
            let share = units::percent(best / mean);
            let found = format!("{expected}; {} of {load} is {share} of that", rate(best));
            match best > mean * OF_THE_FAST_PART {
                true => rule.pass(name, format!("{found}: it is of the fast part")).but(
                    "expect the mean of a backup, a scrub or a rebuild; \
                     measure at offset=50% and 90%, too",
                ),
                false => rule.pass(name, found),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::checks;
    use crate::plan::file::Plan;
    use crate::record::{ArrayCondition, Check, Measurement};

    /// Sequential reads of 1 MiB of `target` at so many bytes a second.
    fn read(target: &str, rate: f64) -> Measurement {
        let mut one = crate::record::sample();
        one.findings.clear();
        (one.round, one.workload.mix, one.workload.block_bytes) = (0, "read".into(), 1 << 20);
        (one.read.bytes_per_s, one.write.bytes_per_s) = (rate, 0.0);
        target.clone_into(&mut one.target);
        one
    }

    /// The story's drives: 265 MB/s outside, 145 inside; one of ten is 20 MB/s slower everywhere.
    fn told(places: usize, array: f64) -> Vec<Check> {
        let drives: Vec<String> = (0..10).map(|at| format!("\"/dev/d{at}\"")).collect();
        let plan = format!(
            "question = \"x\"\ndrives = [{}]\n[[arrays]]\npath = \"/dev/md0\"\ndata_members = 8\n\
             [[stages]]\nkind = \"zone\"\n",
            drives.join(", ")
        );
        let plan = Plan::parse(&plan).expect("a plan");
        let mut known = Vec::new();
        for (at, drive) in plan.drives.iter().enumerate() {
            for place in [0_u32, 50, 99].into_iter().take(places) {
                let edge = if at == 3 { 245.0 } else { 265.0 };
                let rate = (edge - f64::from(place) * 120.0 / 99.0) * 1e6;
                let mut one = read(&drive.display().to_string(), rate);
                (one.stage, one.condition) = ("zone".into(), ArrayCondition::Raw);
                one.workload.name = format!("zone-{place:02}");
                known.push(one);
            }
        }
        known.push(Measurement { condition: ArrayCondition::Healthy, ..read("/dev/md0", array) });
        checks(&plan.arrays, &plan.drives, known.iter())
    }

    #[test]
    fn an_array_is_expected_to_be_as_fast_as_its_slowest_drive_over_the_whole_width() {
        let checks = told(3, 1.9e9);
        assert_eq!(checks.len(), 1);
        let found = &checks[0].found;
        for part in ["1.96 GB/s outside", "1.00 GB/s inside", "of the fast part"] {
            assert!(found.contains(part) && checks[0].next.is_some(), "{found}");
        }
        let within = told(3, 1.3e9);
        assert!(!within[0].found.contains("fast part"), "{}", within[0].found);
        // Without zones of every drive nothing is expected.
        assert!(told(2, 1e9).is_empty(), "two places are no curve");
        assert!(told(0, 1e9).is_empty());
    }
}
