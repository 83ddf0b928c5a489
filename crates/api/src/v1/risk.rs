//! How many losses the stripes of an array with distributed spares survive, in one line.

use super::array::{ArrayStatus, CriticalStripes, Exposure};
use crate::words::{grouped, span};

impl ArrayStatus {
    /// What its stripes survive, and how long the critical ones stay so. Nothing of an array that
    /// lacks nothing, or has no distributed spares.
    pub fn risk(&self) -> Option<String> {
        let exposure = self.exposure.as_ref()?;
        if exposure.is_exposed() {
            return Some(exposure.told());
        }
        let most = exposure.surviving.len().saturating_sub(1);
        let is_whole = self.lost_members.is_empty();
        (!is_whole).then(|| format!("all stripes survive {}", losses(most)))
    }
}

impl Exposure {
    /// Whether some stripes lack strips.
    pub fn is_exposed(&self) -> bool {
        self.critical.is_some() || self.beyond_parity > 0
    }

    fn told(&self) -> String {
        let mut parts = Vec::new();
        if self.beyond_parity > 0 {
            parts.push(format!("{} cannot be read", grouped(self.beyond_parity)));
        }
        for (survive, stripes) in self.surviving.iter().enumerate().filter(|(_, it)| **it > 0) {
            parts.push(format!("{} survive {}", grouped(*stripes), losses(survive)));
        }
        let outlook = self.critical.as_ref().and_then(outlook).unwrap_or_default();
        format!("stripes: {}{outlook}", parts.join(", "))
    }
}

fn losses(count: usize) -> String {
    match count {
        0 => "no more loss".to_owned(),
        1 => "1 more loss".to_owned(),
        count => format!("{count} more losses"),
    }
}

/// When the first ones are safer, or why that is unknown.
fn outlook(critical: &CriticalStripes) -> Option<String> {
    let stands = |what: String| format!("   critical: {what}");
    if critical.waiting > 0 {
        return Some(stands(format!("{} wait for a spare", grouped(critical.waiting))));
    }
    let left = critical.left_seconds?;
    Some(stands(format!("rebuilt in about {}", span(left.max(1)))))
}
