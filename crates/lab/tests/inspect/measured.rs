//! Memory and processors that were tried, and what becomes of the figures.

use crate::captures::{AFTER, Edit, capture, check, edited, inspection, server};
use ashlar_lab::inspect::Inspection;
use ashlar_lab::inspect::Verdict;
use ashlar_lab::inspect::diagram::Measured;
use ashlar_lab::inspect::page;
use ashlar_lab::inspect::server::Server;
use ashlar_lab::inspect::topology::Given;
use ashlar_lab::metrics::bandwidth::Rate;
use ashlar_lab::source::speeds::Across;
use ashlar_lab::source::speeds::NodeSpeeds;
use ashlar_lab::source::speeds::Rounds;
use ashlar_lab::source::speeds::Speeds;
use ashlar_lab::validity::Outcome;

/// What two nodes of eight cores did, in each round: memory read and copied in MB/s, steps of one
/// thread and of all in M/s.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    pub read: [u64; 2],
    pub best: u64,
    pub copy: [u64; 2],
    pub one: u64,
    pub all: [u64; 2],
}

/// What modules of the repaired server let expect: 34.1 GB/s a socket.
pub const GOOD: Tried = Tried {
    read: [27_000, 26_800],
    best: 27_900,
    copy: [22_000, 22_100],
    one: 410,
    all: [3_100, 3_090],
};

impl Tried {
    pub fn speeds(self) -> Speeds {
        let rounds = |mega: u64, best: u64| {
            Rounds([mega - 300, mega, best, mega, mega - 100].map(Rate::mega).to_vec())
        };
        let node = |node: usize| NodeSpeeds {
            node: u64::try_from(node).expect("small"),
            socket: u64::try_from(node).ok(),
            cpus: (0..8).map(|cpu| cpu + 8 * u64::from(node == 1)).collect(),
            buffer_bytes: 512 << 20,
            cache_bytes: Some(20 << 20),
            read: rounds(self.read[node], self.best.max(self.read[node])),
            copy: rounds(self.copy[node], self.copy[node]),
            score_one: Some(self.one * 1_000_000),
            score_all: Some(self.all[node] * 1_000_000),
        };
        let way =
            |memory_of, read_by, mega| Across { memory_of, read_by, read: rounds(mega, mega) };
        Speeds {
            build: "release".to_owned(),
            nodes: vec![node(0), node(1)],
            together: rounds(self.read[0] + self.read[1], 0),
            across: vec![way(0, 1, 19_000), way(1, 0, 18_500)],
            not_tried: Vec::new(),
        }
    }
}

#[test]
fn a_server_that_was_measured_is_held_against_its_own_earlier_figures() {
    let measured = |tried: Tried| server(edited(AFTER, &[Edit::Tried(tried)]));
    let judge = |now: Tried, before: Option<&Server>| {
        check(&Inspection::of(measured(now), before, Given::default()), "measured.as_before")
    };
    let good = measured(GOOD);
    assert_eq!(judge(GOOD, Some(&good)).0, Outcome::Pass);
    let slower = Tried { read: [20_000, 26_800], ..GOOD };
    let (outcome, found) = judge(slower, Some(&good));
    assert_eq!(outcome, Outcome::Fail);
    assert_eq!(found, "node 0: memory read at 20.0 GB/s, before 27.0 GB/s");
    assert_eq!(judge(Tried { one: 300, ..GOOD }, Some(&good)).0, Outcome::Fail);
    for before in [None, Some(server(capture(AFTER)))] {
        assert_eq!(judge(GOOD, before.as_ref()).0, Outcome::CannotTell, "{before:?}");
    }
    // Scores of another build of the lab are not compared.
    let mut other = measured(Tried { one: 9_000, ..GOOD });
    other.speeds.as_mut().expect("tried").build = "debug".to_owned();
    assert_eq!(judge(GOOD, Some(&other)).0, Outcome::Pass);
}

#[test]
fn memory_that_was_measured_comes_before_what_its_modules_could_do() {
    let inspect = |tried| {
        Inspection::of(server(edited(AFTER, &[Edit::Tried(tried)])), None, Given::default())
    };
    let good = inspect(GOOD);
    let memory: Vec<_> = good.topology.links.iter().filter(|it| it.is_memory()).collect();
    assert_eq!(memory[0].capacity, Some(Rate::mega(27_000)));
    assert_eq!(memory[0].computed, Some(Rate::mega(34_128)));
    // Each direction between the sockets has its own figure.
    let between = good.topology.links.iter().filter(|it| it.standard == "between sockets");
    let between: Vec<(String, Option<Rate>)> =
        between.map(|it| (it.id.clone(), it.capacity)).collect();
    let way = |id: &str, mega| (id.to_owned(), Some(Rate::mega(mega)));
    assert_eq!(between, [way("socket 0>socket 1", 19_000), way("socket 1>socket 0", 18_500)]);
    let text = page::text(&good, false);
    for words in [
        "27.0 measured of 34.1 GB/s : 4 passes",
        "memory read 27.0 GB/s (26.7 GB/s to 27.9 GB/s in 5 rounds), copied 22.0 GB/s",
        "410 M steps/s by one, 3.1 G steps/s by all",
        "From the memory of socket 0 to the cores of socket 1: 19.0 GB/s",
        "? of 53.8 GB/s measured",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let svg = good.svg(&Measured::new());
    for words in ["27.0 GB/s measured", "of 34.1 GB/s computed, 2 of 4 ch."] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    // Memory that does far less than it could decides about the server; nothing says so without
    // measuring.
    let poor = inspect(Tried { read: [12_000, 12_100], best: 12_500, copy: [11_000; 2], ..GOOD });
    assert_eq!(check(&poor, "memory.bandwidth_measured").0, Outcome::Fail);
    let (outcome, found) = check(&poor, "memory.bandwidth_for_rebuild");
    assert_eq!((outcome, found.ends_with("as measured")), (Outcome::Fail, true), "{found}");
    assert_eq!(poor.verdict, Verdict::NotQualified);
    assert!(page::text(&inspection(AFTER), false).contains("not measured (--measure)"));
}

#[test]
fn figures_of_memory_that_cannot_be_judged_pass_nothing() {
    let judge = |tried: Tried, edits: &[Edit]| {
        let edits: Vec<Edit> = [&[Edit::Tried(tried)], edits].concat();
        let inspection = Inspection::of(server(edited(AFTER, &edits)), None, Given::default());
        (check(&inspection, "memory.bandwidth_measured"), inspection)
    };
    // More than the modules can: caches, or wrong tables. The flow does not believe it either.
    let ((outcome, found), inspection) = judge(Tried { read: [27_000, 60_000], ..GOOD }, &[]);
    assert_eq!(outcome, Outcome::CannotTell);
    assert!(found.contains("more than its modules can"), "{found}");
    let memory = inspection.topology.links.iter().rfind(|it| it.is_memory()).expect("memory");
    assert_eq!((memory.capacity, memory.measured), (Some(Rate::mega(34_128)), None));
    // Rounds far apart: something else used memory.
    let ((outcome, found), _) =
        judge(Tried { read: [27_000, 12_000], copy: [11_000; 2], ..GOOD }, &[]);
    assert_eq!(outcome, Outcome::CannotTell);
    assert!(found.contains("the best round had 27.9 GB/s"), "{found}");
    // Nothing to set it against.
    let ((outcome, found), _) = judge(GOOD, &[Edit::NoTool("dmidecode-memory")]);
    assert_eq!(outcome, Outcome::CannotTell);
    assert!(found.contains("socket 0: 27.0 GB/s") && found.contains("dmidecode"), "{found}");
    // Too few threads to ask for more.
    let mut few = edited(
        AFTER,
        &[Edit::Tried(Tried { read: [9_000; 2], best: 9_000, copy: [8_000; 2], ..GOOD })],
    );
    few.speeds.iter_mut().flat_map(|it| &mut it.nodes).for_each(|node| node.cpus.truncate(2));
    let few = Inspection::of(server(few), None, Given::default());
    assert_eq!(check(&few, "memory.bandwidth_measured").0, Outcome::CannotTell);
}

#[test]
fn this_machine_is_measured_on_request_and_a_capture_keeps_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("capture");
    let lab = |args: &[&str]| {
        let lab = std::process::Command::new(env!("CARGO_BIN_EXE_ashlar-lab")).args(args).output();
        let lab = lab.expect("the lab");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&lab.stdout), text(&lab.stderr))
    };
    let place = place.to_str().expect("a name");
    let (_, said) = lab(&["capture", "--measure", "--limit", "5", place]);
    assert!(said.contains("trying memory and processors, about"), "{said}");
    let (json, _) = lab(&["--json", "inspect", "--from", place]);
    let answer: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let node = &answer["server"]["speeds"]["nodes"][0];
    let rounds = |name: &str| node[name].as_array().map_or(0, Vec::len);
    assert!((5..=25).contains(&rounds("read")) && (5..=25).contains(&rounds("copy")), "{node}");
    for part in ["read", "copy"] {
        assert!(node[part].as_array().expect("rounds").iter().all(|it| it.as_u64() > Some(0)));
    }
    assert!(node["score_one"].as_u64() > Some(0) && node["score_all"].as_u64() > Some(0), "{node}");
    let (_, refused) = lab(&["inspect", "--measure", "--from", place]);
    assert!(refused.contains("cannot be used with"), "{refused}");
}
