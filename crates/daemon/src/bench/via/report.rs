//! What is told of a measurement through an export: medians of the turns, and each turn.
//!
//! What must stay true: CPU time beyond the engine is a difference of two figures of one turn;
//! ratios are of one turn, too, and their medians are told.

use super::child::{ExportLooks, per};
use super::load::Effort;
use super::{BenchResult, Via, ViaSpec};
use serde::Serialize;

/// What was measured through an export.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ViaResult {
    /// The export.
    pub via: &'static str,
    /// How many turns there were.
    pub turns: usize,
    /// The engine alone.
    pub engine: EngineFigures,
    /// The engine and the export.
    pub export: ExportFigures,
    /// Others that serve memory, by the same client.
    pub peers: Vec<PeerFigures>,
}

/// What a client saw.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// Requests a second.
    pub requests_per_second: f64,
    /// Time of a request: half of them took no longer, in microseconds.
    pub us_p50: f64,
    /// Time of a request: 99 of 100 took no longer, in microseconds.
    pub us_p99: f64,
}

/// The engine alone, with the same requests on the same memory.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct EngineFigures {
    /// What its clients saw.
    #[serde(flatten)]
    pub figures: Figures,
    /// CPU time of a request, in nanoseconds.
    pub cpu_ns_per_request: f64,
}

/// The engine behind the export.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ExportFigures {
    /// What the client saw.
    #[serde(flatten)]
    pub figures: Figures,
    /// CPU time of a request on the daemon's threads, in nanoseconds: the engine's is in it.
    pub cpu_ns_per_request: f64,
    /// The same less what the engine alone takes in the same turn.
    pub beyond_engine_ns_per_request: f64,
    /// System calls of the workers' rings for each request.
    pub system_calls_per_request: f64,
    /// Sleeps of workers for each request.
    pub sleeps_per_request: f64,
    /// Wake-ups of workers by other threads for each request.
    pub wake_ups_per_request: f64,
    /// Looks of workers for work before they slept, for each request.
    pub looks_per_request: f64,
    /// Those of them that found some.
    pub looks_of_use_per_request: f64,
    /// CPU time of looks for each request, in nanoseconds: it is part of the daemon's.
    pub look_ns_per_request: f64,
    /// Messages between workers for each request.
    pub hops_per_request: f64,
    /// Operations asked of the kernel for each request.
    pub operations_per_request: f64,
    /// Percent of the stripe writes that needed no reads.
    pub full_stripe_percent: f64,
}

/// A peer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerFigures {
    /// What it is.
    pub name: &'static str,
    /// What the client saw.
    #[serde(flatten)]
    pub figures: Figures,
    /// The export's requests a second over the peer's, in the same turn.
    pub export_over_peer: f64,
    /// That ratio in each turn.
    pub each_turn: Vec<f64>,
}

/// One turn.
pub(super) struct Turn {
    pub(super) engine: EngineFigures,
    pub(super) export: ExportFigures,
    pub(super) others: Vec<(&'static str, Figures)>,
}

/// What a client saw.
pub(super) fn figures(effort: &mut Effort) -> Figures {
    let (us_p50, us_p99) = effort.us_p50_p99();
    Figures { requests_per_second: effort.rate(), us_p50, us_p99 }
}

/// The engine in one turn.
pub(super) fn engine_turn(result: &BenchResult) -> EngineFigures {
    EngineFigures {
        figures: Figures {
            requests_per_second: result.requests_per_second,
            us_p50: result.latency.us_p50,
            us_p99: result.latency.us_p99,
        },
        cpu_ns_per_request: result.cpu_seconds * 1e9 / result.requests.max(1) as f64,
    }
}

/// The export in one turn; what is beyond the engine is not known yet.
pub(super) fn export_turn(effort: &mut Effort, looks: &ExportLooks) -> ExportFigures {
    let requests = effort.requests();
    let stripe_writes = looks.after.stripe_writes.since(&looks.before.stripe_writes);
    ExportFigures {
        figures: figures(effort),
        cpu_ns_per_request: per(looks.cpu_nanos(), requests),
        beyond_engine_ns_per_request: 0.0,
        system_calls_per_request: per(looks.grown(|it| it.system_calls), requests),
        sleeps_per_request: per(looks.grown(|it| it.sleeps), requests),
        wake_ups_per_request: per(looks.grown(|it| it.wake_ups), requests),
        looks_per_request: per(looks.grown(|it| it.looks), requests),
        looks_of_use_per_request: per(looks.grown(|it| it.looks_of_use), requests),
        look_ns_per_request: per(looks.grown(|it| it.look_ns), requests),
        hops_per_request: per(looks.grown(|it| it.hops), requests),
        operations_per_request: per(looks.grown(|it| it.operations), requests),
        full_stripe_percent: stripe_writes.full_percent(),
    }
}

/// Medians of all turns.
pub(super) fn result(spec: &ViaSpec, turns: &[Turn]) -> ViaResult {
    let via: Via = spec.via;
    let of = |figure: fn(&Turn) -> f64| median(turns.iter().map(figure).collect());
    let engine = EngineFigures {
        figures: middle(turns.iter().map(|turn| turn.engine.figures)),
        cpu_ns_per_request: of(|turn| turn.engine.cpu_ns_per_request),
    };
    let export = ExportFigures {
        figures: middle(turns.iter().map(|turn| turn.export.figures)),
        cpu_ns_per_request: of(|turn| turn.export.cpu_ns_per_request),
        beyond_engine_ns_per_request: of(|turn| {
            turn.export.cpu_ns_per_request - turn.engine.cpu_ns_per_request
        }),
        system_calls_per_request: of(|turn| turn.export.system_calls_per_request),
        sleeps_per_request: of(|turn| turn.export.sleeps_per_request),
        wake_ups_per_request: of(|turn| turn.export.wake_ups_per_request),
        looks_per_request: of(|turn| turn.export.looks_per_request),
        looks_of_use_per_request: of(|turn| turn.export.looks_of_use_per_request),
        look_ns_per_request: of(|turn| turn.export.look_ns_per_request),
        hops_per_request: of(|turn| turn.export.hops_per_request),
        operations_per_request: of(|turn| turn.export.operations_per_request),
        full_stripe_percent: of(|turn| turn.export.full_stripe_percent),
    };
    let names = turns.first().map_or(&[][..], |turn| &turn.others);
    let peers = (0..names.len()).map(|at| peer(turns, at));
    ViaResult { via: via.name(), turns: turns.len(), engine, export, peers: peers.collect() }
}

fn peer(turns: &[Turn], at: usize) -> PeerFigures {
    let ratio = |turn: &Turn| {
        let (own, its) = (&turn.export.figures, &turn.others[at].1);
        own.requests_per_second / its.requests_per_second
    };
    let each_turn: Vec<f64> = turns.iter().map(ratio).collect();
    PeerFigures {
        name: turns[0].others[at].0,
        figures: middle(turns.iter().map(|turn| turn.others[at].1)),
        export_over_peer: median(each_turn.clone()),
        each_turn,
    }
}

fn middle(turns: impl Iterator<Item = Figures> + Clone) -> Figures {
    let of = |figure: fn(Figures) -> f64| median(turns.clone().map(figure).collect());
    Figures {
        requests_per_second: of(|it| it.requests_per_second),
        us_p50: of(|it| it.us_p50),
        us_p99: of(|it| it.us_p99),
    }
}

/// The middle one; of an even number the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::{EngineFigures, ExportFigures, Figures, Turn, median, peer};

    #[test]
    fn the_median_is_the_middle_one_or_between_the_two() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_ratio_is_one_of_the_same_turn() {
        let figures = |requests_per_second| Figures { requests_per_second, ..Figures::default() };
        let turn = |own, its| Turn {
            engine: EngineFigures::default(),
            export: ExportFigures { figures: figures(own), ..ExportFigures::default() },
            others: vec![("peer", figures(its))],
        };
        // The second turn had the machine for itself: both were faster.
        let peer = peer(&[turn(10.0, 20.0), turn(100.0, 200.0), turn(12.0, 20.0)], 0);
        assert_eq!((peer.export_over_peer, peer.figures.requests_per_second), (0.5, 20.0));
        assert_eq!(peer.each_turn, [0.5, 0.5, 0.6]);
    }
}
