//! Reachability marks: named events, counted over a universe and summed over a run.
//!
//! What must stay true: counting changes nothing in a universe. A run in `./check` fails if a mark of [`EXPECTED`] is
//! never reached: then the universes do not go where they are thought to go.

use std::collections::BTreeMap;
use std::fmt;

/// How often each mark was reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    /// Count `name` so many times.
    pub fn add(&mut self, name: &'static str, times: u64) {
        *self.0.entry(name).or_default() += times;
    }

    /// Add all of `other`.
    pub fn merge(&mut self, other: &Marks) {
        for (name, times) in &other.0 {
            self.add(name, *times);
        }
    }

    /// How often `name` was reached.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How many different marks were reached.
    pub fn reached(&self) -> usize {
        self.0.values().filter(|times| **times > 0).count()
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, times) in &self.0 {
            writeln!(f, "  {times:>10}  {name}")?;
        }
        Ok(())
    }
}
