//! What stacks came to: counts for each engine by context and kind of work, and the distinct stacks
//! with their counts.

use crate::cpu::groups::WorkKind;
use ahash::RandomState;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Most distinct stacks that are kept: a flame graph of more shows nothing.
pub(super) const STACKS_MAX: usize = 500_000;
/// Most cores.
pub(super) const CORES_MAX: usize = 1 << 16;

/// Where an engine's work ran.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// On the CPU time of a user process that is not the engine's: fio, an application.
    Client,
    /// In a kernel thread of the engine, or in another kernel thread.
    KernelThread,
    Kworker,
    /// In an interrupt or a softirq, on whoever's CPU time that was.
    Softirq,
    /// In a user-space thread of the engine.
    EngineThread,
}

/// How contexts are called in tables, in the order of [`Context`].
pub const CONTEXTS: [(Context, &str); 5] = [
    (Context::Client, "client"),
    (Context::KernelThread, "kernel thread"),
    (Context::Kworker, "kworker"),
    (Context::Softirq, "softirq"),
    (Context::EngineThread, "engine thread"),
];

/// What one stack was found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    pub is_idle: bool,
    /// Ran in a thread that the client pattern names.
    pub is_client: bool,
    /// Polled for completions in the kernel.
    pub is_polling: bool,
    /// Engine: number of its group, context, and number of its kind of work, if one matched.
    pub engine: Option<(usize, Context, Option<usize>)>,
}

/// Counts of one engine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EngineCounts {
    pub contexts: BTreeMap<Context, u64>,
    /// Of each kind of work; the last one is what no expression matched.
    pub work: Vec<u64>,
    /// On each core, if the samples say where they were taken.
    pub cores: Vec<u64>,
    pub leaves: HashMap<String, u64, RandomState>,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Sum of all counts, idle ones too.
    pub total: u64,
    /// Sum of the counts of idle stacks.
    pub idle: u64,
    /// Of threads that the client pattern names.
    pub client: u64,
    /// Of stacks that poll: completion polling and SQPOLL threads.
    pub polling: u64,
    /// By thread name, without idle.
    pub threads: BTreeMap<String, u64>,
    /// On each core, without idle, if the samples say where they were taken.
    pub cores: Vec<u64>,
    pub engines: Vec<EngineCounts>,
    /// Leaf frames of everything but idle.
    pub leaves: HashMap<String, u64, RandomState>,
    /// Lines that were not understood, and too long ones.
    pub unread: u64,
    /// Distinct stacks, for flame graphs; `None` if they were not kept.
    pub stacks: Option<Stacks>,
}

/// Distinct stacks: frames from the root on joined by `;`, the thread's name first.
#[derive(Debug, Default)]
pub struct Stacks {
    /// What each stack is and how often it came.
    pub counts: HashMap<String, (Found, u64), RandomState>,
}

impl EngineCounts {
    pub fn total(&self) -> u64 {
        self.contexts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts of work of one kind.
    pub fn of_kind(&self, work: &[(String, WorkKind)], kind: WorkKind) -> u64 {
        let kinds = work.iter().map(|(_, kind)| *kind).chain([WorkKind::Unsorted]);
        let counts =
            self.work.iter().zip(kinds).filter(|(_, it)| *it == kind).map(|(count, _)| *count);
        counts.fold(0, u64::saturating_add)
    }
}

pub(super) fn add_at(counts: &mut Vec<u64>, at: usize, count: u64) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] = counts[at].saturating_add(count);
}
