//! Points of arrays with members out: degraded, and while one is rebuilt.
//!
//! What must stay true: each condition takes one more member out than the one before it.

use super::{Group, Maker, served};
use crate::Refusal;
use crate::plan::file::Array;
use crate::record::ArrayCondition;

impl Maker<'_> {
    /// What the lab does to an array that it makes: one member out, then as many as its parity allows.
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
