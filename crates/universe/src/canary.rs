//! Faults planted on purpose, for universes to find: those of the engine, and one of the export.
//!
//! What must stay true: without the feature `canaries` the question here is a constant `false`.
//! With it, a fault is planted on one thread, so that universes on others are not disturbed.

#[cfg(feature = "canaries")]
use ashlar_engine::{Canary, set_canary};

/// A fault.
#[cfg(feature = "canaries")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// In the engine.
    Engine(Canary),
    /// In the export: what is sent again is carried out once more after its answer.
    ReplayEchoes,
}

#[cfg(feature = "canaries")]
impl Planted {
    /// Every fault.
    pub fn all() -> impl Iterator<Item = Planted> {
        let engine = Canary::ALL.iter().copied().map(Planted::Engine);
        engine.chain([Planted::ReplayEchoes])
    }

    /// Its name on a command line.
    pub fn name(self) -> String {
        match self {
            Planted::Engine(canary) => format!("{canary:?}"),
            Planted::ReplayEchoes => format!("{self:?}"),
        }
    }
}

#[cfg(feature = "canaries")]
thread_local! {
    static ECHOES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Plant a fault on this thread from now on, or none.
#[cfg(feature = "canaries")]
pub fn plant(fault: Option<Planted>) {
    set_canary(match fault {
        Some(Planted::Engine(canary)) => Some(canary),
        Some(Planted::ReplayEchoes) | None => None,
    });
    ECHOES.set(fault == Some(Planted::ReplayEchoes));
}

/// Whether what was sent again is to be carried out once more after its answer.
#[cfg(feature = "canaries")]
pub(crate) fn replay_echoes() -> bool {
    ECHOES.get()
}

/// Whether what was sent again is to be carried out once more after its answer: never.
#[cfg(not(feature = "canaries"))]
pub(crate) const fn replay_echoes() -> bool {
    false
}
