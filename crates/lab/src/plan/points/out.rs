//! Points of arrays that are not as they usually are: with members out, while one is rebuilt,
//! through a file system.
//!
//! What must stay true: each condition takes one more member out than the one before it.

use super::own::FILL_BYTES_PER_S;
use super::{Group, Maker, Point, served};
use crate::Refusal;
use crate::metrics::latency::to_f64;
use crate::plan::file::Array;
use crate::record::ArrayCondition;

impl Maker<'_> {
    /// What the lab does to an array that it makes: one member out, then as many as its parity
    /// allows.
    fn degraded_made(&self, array: &Array) -> Result<Vec<Group>, Refusal> {
        let most = array.code().map_or(0, |code| code.parity);
        (1..=most)
            .map(|out| {
                let points = self.matrix(&[served(array)], ArrayCondition::Degraded(out))?;
                let out = usize::try_from(out).unwrap_or(0);
                Ok(Group { points, out, ..Group::default() })
            })
            .collect()
    }

    pub(super) fn degraded(&self) -> Result<Vec<Group>, Refusal> {
        let mut groups = Vec::new();
        for array in self.plan.arrays.iter().filter(|array| !array.take_out.is_empty()) {
            for out in 1..=array.take_out.len() {
                let condition = ArrayCondition::Degraded(u32::try_from(out).unwrap_or(u32::MAX));
                let points = self.matrix(&[served(array)], condition)?;
                groups.push(Group {
                    before: array.take_out[..out].to_vec(),
                    points,
                    ..Group::default()
                });
            }
            if let Some(last) = groups.last_mut() {
                last.after = array.restore.clone();
            }
        }
        for array in self.plan.arrays.iter().filter(|array| array.is_made()) {
            groups.extend(self.degraded_made(array)?);
        }
        Ok(groups)
    }

    /// The stage's loads on a file of each array that names a file system.
    pub(super) fn through_file_systems(&self) -> Result<Vec<Group>, Refusal> {
        let mut groups = Vec::new();
        for array in self.plan.arrays.iter().filter(|array| array.file_system.is_some()) {
            let points = self.matrix(&[served(array)], ArrayCondition::FileSystem)?;
            groups.push(self.on_file_system(array, points));
        }
        Ok(groups)
    }

    fn on_file_system(&self, array: &Array, points: Vec<Point>) -> Group {
        let drives = array.code().filter(|_| array.is_made());
        let bytes = match (drives, array.members.first()) {
            (Some(code), Some(member)) => {
                u64::from(code.data).saturating_mul((self.size_of)(member))
            }
            _ => (self.size_of)(&array.path),
        };
        let share = f64::from(array.fill_percent()) / 100.0;
        let before_s = to_f64(bytes) * share / FILL_BYTES_PER_S;
        Group { points, has_file_system: true, before_s, ..Group::default() }
    }

    pub(super) fn rebuilding(&self) -> Result<Vec<Group>, Refusal> {
        let mut groups = Vec::new();
        for array in self.plan.arrays.iter().filter(|array| !array.rebuild.is_empty()) {
            let points = self.matrix(&[served(array)], ArrayCondition::Rebuilding)?;
            groups.push(Group { before: array.rebuild.clone(), points, ..Group::default() });
        }
        for array in self.plan.arrays.iter().filter(|array| array.is_made()) {
            let points = self.matrix(&[served(array)], ArrayCondition::Rebuilding)?;
            groups.push(Group { points, out: 1, is_rebuild: true, ..Group::default() });
        }
        Ok(groups)
    }
}
