//! The engine and the export are made wrong in one place after the other; universes must find each.
//!
//! Built with the feature `canaries` only: `cargo test --release -p ashlar-universe --features
//! canaries --test canaries`.

use ashlar_engine::Canary;
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_universe::{Aim, Class, Limits, Planted, Wish, plant, run, shrink};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The tests' allocator is that of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Universes in which a canary must have been found, from the first one on.
const SEEDS_MAX: u64 = 4000;
/// Threads that look at canaries side by side.
const THREADS: usize = 2;

/// The universes in which a canary is looked for: those of `./check --full`, or others that go
/// there on purpose, because it was found once in thousands of those.
fn limits_for(planted: Planted) -> Limits {
    let Planted::Engine(canary) = planted else { return Limits::default() };
    let log = Some(ConsistencyPolicy::Log);
    let everything = Some(Class::Everything);
    let logged = Wish { policy: log, class: everything, ..Wish::default() };
    let aimed = |aim| Wish { aim: Some(aim), ..logged };
    let wish = match canary {
        Canary::CheckpointAhead | Canary::RegionsCountedEarly | Canary::ClaimImpatient => {
            aimed(Aim::SlowRebuilds)
        }
        Canary::IdentityMixed => aimed(Aim::Rebuilds),
        Canary::RelaxedWhileDegraded | Canary::DegradedPlanUnsettled => aimed(Aim::Stripes),
        Canary::ReplayNotFlushed => aimed(Aim::Starts),
        Canary::RepairNotLogged => aimed(Aim::Repairs),
        Canary::MapNotSettled => aimed(Aim::Maps),
        Canary::ParityOnlyParityTooSoon | Canary::ParityOnlyBlockNotAsked => aimed(Aim::ParityOnly),
        Canary::ParityOnlyLostLeft => aimed(Aim::ParityOnlySectors),
        Canary::JoiningDeviceNotTold => aimed(Aim::Standstills),
        Canary::SilenceNotWatched => aimed(Aim::Silences),
        Canary::ProvenNotPutBack => Wish { has_checksums: true, ..aimed(Aim::Rot) },
        Canary::KeptMapForgotten
        | Canary::KeptTooLate
        | Canary::KeptNotCarriedOver
        | Canary::KeptNewerBelieved
        | Canary::KeptStaleBelieved => Wish { keeps_map: Some(true), ..Wish::default() },
        Canary::ParityOnlyUnstated
        | Canary::ParityOnlyOverCopies
        | Canary::TornBatchTaken
        | Canary::FirstWriteTooSoon
        | Canary::SpaceReusedUnflushed => logged,
        Canary::SpareCopyMissesWrites
        | Canary::CellFlippedUnrecorded
        | Canary::MovedUnrecorded
        | Canary::MovingCellMissesWrites
        | Canary::DirtyCellsTrusted
        | Canary::SpareCellsTrusted => Wish { declustered: true, ..logged },
        Canary::GrowthLeftOut | Canary::HostedCellsForgotten => {
            Wish { declustered: true, ..aimed(Aim::Growths) }
        }
        Canary::ReadUnverified
        | Canary::GatherUnverified
        | Canary::HealedNotStored
        | Canary::StoredUnproven
        | Canary::AddressLeftOut
        | Canary::SumsNotStored => Wish { has_checksums: true, ..logged },
        _ => Wish::default(),
    };
    Limits { wish, ..Limits::default() }
}

/// A little before the first universe that is known to find the canary, where that is not among the
/// first few: time is saved, and nothing is taken for granted. With other draws it is another one,
/// and the search goes on from here.
fn first_seed(planted: Planted) -> u64 {
    let Planted::Engine(canary) = planted else { return 0 };
    match canary {
        Canary::FuaIgnored => 85,
        Canary::FailedWriteIgnored => 105,
        Canary::ResyncIdle => 60,
        Canary::UnsyncedTrusted => 330,
        Canary::TrimNotStored => 85,
        Canary::DegradedPlanUnsettled => 470,
        Canary::ReplayNotFlushed => 205,
        Canary::FirstWriteTooSoon => 245,
        Canary::ParityOnlyUnstated => 40,
        Canary::ParityOnlyParityTooSoon => 245,
        Canary::ParityOnlyOverCopies => 3_680,
        Canary::ParityOnlyLostLeft => 45,
        Canary::TornBatchTaken => 110,
        Canary::GrowthLeftOut => 255,
        Canary::OlderCopyTrusted => 900,
        Canary::KeptNotCarriedOver => 565,
        Canary::DoubtLeft => 185,
        Canary::MovedUnrecorded => 145,
        Canary::MovingCellMissesWrites => 175,
        Canary::StoredUnproven => 55,
        _ => 0,
    }
}

/// What came of a search.
struct Search {
    canary: Planted,
    /// Where it began, and where the canary was found and what was wrong there.
    from: u64,
    found: Option<(u64, String)>,
    took: Duration,
}

impl Search {
    fn print(&self) {
        let Search { canary, from, took, .. } = self;
        let (seconds, canary) = (took.as_secs_f64(), canary.name());
        match &self.found {
            Some((seed, what)) => {
                let what: String = what.chars().take(90).collect();
                println!("{seconds:>5.1} s, universe {seed:>4}, from {from:>4}  {canary}: {what}");
            }
            None => println!("{seconds:>5.1} s, not found, from {from:>4}  {canary}"),
        }
    }
}

/// What this thread has had of a processor, as the kernel counts it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    let first = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(first.parse().expect("nanoseconds"))
}

/// A universe that goes wrong without the canary as well shows nothing.
fn find(canary: Planted) -> Search {
    let began = processor_time();
    let limits = limits_for(canary);
    // To know how long a search takes that knows nothing.
    let knows_nothing = std::env::var_os("ASHLAR_CANARIES_FROM_ZERO").is_some();
    let from = if knows_nothing { 0 } else { first_seed(canary) };
    let found = (from..from + SEEDS_MAX).find_map(|seed| {
        plant(Some(canary));
        let failure = run(seed, limits).err();
        plant(None);
        let what = failure?.what.lines().next().unwrap_or_default().to_owned();
        run(seed, limits).is_ok().then_some((seed, what))
    });
    Search { canary, from, found, took: processor_time() - began }
}

fn is_staged(canary: Planted) -> bool {
    matches!(canary, Planted::Engine(canary) if Canary::STAGED.contains(&canary))
}

/// The canaries that are looked for: all but those that tests of the engine find
/// (`crates/engine/tests/canaries.rs`), or those that `ASHLAR_CANARIES` names, with commas.
fn wanted() -> Vec<Planted> {
    let named = std::env::var("ASHLAR_CANARIES").ok();
    let is_wanted = |canary: &Planted| {
        let name = canary.name();
        match &named {
            Some(named) => named.split(',').any(|it| it == name),
            None => !is_staged(*canary),
        }
    };
    Planted::all().filter(is_wanted).collect()
}

#[test]
fn every_canary_is_found() {
    let wanted = wanted();
    assert!(!wanted.is_empty(), "no canary is called so");
    // An assertion of the engine that finds a canary is as good as an oracle, and needs no
    // backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    let (next, searches) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(canary) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let search = find(*canary);
                    search.print();
                    searches.lock().expect("no panic while held").push(search);
                }
            });
        }
    });
    drop(std::panic::take_hook());
    let searches = searches.into_inner().expect("no panic while held");
    let missed = searches.iter().filter(|search| search.found.is_none());
    let missed: Vec<Planted> = missed.map(|search| search.canary).collect();
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} universes: {missed:?}");
}

#[test]
fn a_failing_universe_is_made_smaller_and_still_fails() {
    let sizes = |limits: Limits| (limits.lives, limits.acts, limits.clients, limits.requests);
    std::thread::spawn(move || {
        plant(Some(Planted::Engine(Canary::ParityNotStored)));
        let first = (0..SEEDS_MAX).find_map(|seed| run(seed, Limits::default()).err());
        let first = first.expect("it is found");
        let (seed, requests) = (first.config.seed, first.config.requests);
        let least = shrink(first, |_| {});
        let again = run(seed, least.limits).expect_err("what came back fails");
        assert_eq!(again.what, least.what);
        let (lives, acts, clients, left) = sizes(least.limits);
        assert!(left < requests / 2, "{left} of {requests} requests");
        println!(
            "universe {seed} fails with {lives} lives, {acts} acts, {clients} clients, \
             {left} requests"
        );
    })
    .join()
    .expect("no panic");
}
