//! Inspecting captured servers: every check passes, fails and cannot tell where it must; the first story's server gives the
//! story's answer; damaged captures are survived.

use ashlar_lab::inspect::diagram::Measured;
use ashlar_lab::inspect::models::Library;
use ashlar_lab::inspect::server::Server;
use ashlar_lab::inspect::topology::{Given, Topology};
use ashlar_lab::inspect::{Inspection, Verdict, page};
use ashlar_lab::metrics::bandwidth::Rate;
use ashlar_lab::redact::redact;
use ashlar_lab::source::speeds::{Across, NodeSpeeds, Rounds, Speeds};
use ashlar_lab::source::tree::{Entry, Tree};
use ashlar_lab::source::{Capture, Source, folder};
use ashlar_lab::validity::Outcome;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const BEFORE: &str = "story-before-repair";
const AFTER: &str = "story-after-repair";
const FLASH: &str = "nvme-24-dual-socket";
const JBOD: &str = "jbod-60-four-hba";
const DESKTOP: &str = "desktop";
const ALL: [&str; 5] = [BEFORE, AFTER, FLASH, JBOD, DESKTOP];

/// One change to a capture.
#[derive(Clone, Debug)]
enum Edit {
    /// A file holds something else.
    Set(String, &'static str),
    /// A path and all below it is not there.
    Drop(String),
    /// Everything with this in its path is not there.
    DropAll(&'static str),
    /// A program is not installed.
    NoTool(&'static str),
    /// The first of these words in a program's output is another one.
    Say(&'static str, &'static str, &'static str),
    /// Memory and processors were tried, with these figures.
    Tried(Tried),
}

/// What two nodes of eight cores did, in each round: memory read and copied in MB/s, steps of one thread and of all in M/s.
#[derive(Clone, Copy, Debug)]
struct Tried {
    read: [u64; 2],
    best: u64,
    copy: [u64; 2],
    one: u64,
    all: [u64; 2],
}

/// What modules of the repaired server let expect: 34.1 GB/s a socket.
const GOOD: Tried = Tried {
    read: [27_000, 26_800],
    best: 27_900,
    copy: [22_000, 22_100],
    one: 410,
    all: [3_100, 3_090],
};

impl Tried {
    fn speeds(self) -> Speeds {
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

fn set(path: &str, value: &'static str) -> Edit {
    Edit::Set(path.to_owned(), value)
}

fn gone(path: &str) -> Edit {
    Edit::Drop(path.to_owned())
}

fn capture(name: &str) -> Capture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let (capture, odd) = folder::read(&folder).expect("a capture");
    assert_eq!(odd, 0, "{name}");
    capture
}

fn edited(name: &str, edits: &[Edit]) -> Capture {
    let mut capture = capture(name);
    for edit in edits {
        match edit {
            Edit::Set(path, value) => {
                capture.tree.insert(path.clone(), Entry::Text((*value).into()))
            }
            Edit::Drop(path) => assert!(capture.tree.remove(path) > 0, "{path} is not in {name}"),
            Edit::DropAll(part) => {
                let paths: Vec<String> = capture
                    .tree
                    .iter()
                    .map(|it| it.0.clone())
                    .filter(|it| it.contains(part))
                    .collect();
                assert!(!paths.is_empty(), "{part} is not in {name}");
                for path in &paths {
                    capture.tree.remove(path);
                }
            }
            Edit::NoTool(tool) => {
                assert!(capture.runs.remove(*tool).is_some(), "{tool} is not in {name}")
            }
            Edit::Tried(tried) => capture.speeds = Some(tried.speeds()),
            Edit::Say(tool, from, to) => {
                let run = capture.runs.get_mut(*tool).expect("a tool");
                assert!(run.stdout.contains(from), "{tool} does not say {from:?}");
                run.stdout = run.stdout.replacen(from, to, 1);
            }
        }
    }
    capture
}

fn server(capture: Capture) -> Server {
    Server::read(&Source::captured(capture))
}

fn inspection(name: &str) -> Inspection {
    Inspection::of(server(capture(name)), None, Given::default())
}

struct Case {
    check: &'static str,
    pass: (&'static str, Vec<Edit>),
    fail: (&'static str, Vec<Edit>),
    cannot_tell: (&'static str, Vec<Edit>),
}

fn queues_but_one() -> Vec<Edit> {
    (1..32).map(|queue| Edit::Drop(format!("/sys/block/nvme0n1/mq/{queue}"))).collect()
}

fn irqs_on_one_cpu() -> Vec<Edit> {
    (80..88).map(|irq| Edit::Set(format!("/proc/irq/{irq}/effective_affinity_list"), "0")).collect()
}

fn six_drives_gone() -> Vec<Edit> {
    ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|it| Edit::Drop(format!("/sys/block/sd{it}")))
        .collect()
}

fn memory_cases() -> Vec<Case> {
    let no_table = || vec![Edit::NoTool("dmidecode-memory")];
    let smt = "/sys/devices/system/cpu/smt";
    vec![
        Case {
            check: "memory.channels_populated",
            pass: (AFTER, vec![]),
            fail: (BEFORE, vec![]),
            cannot_tell: (AFTER, no_table()),
        },
        Case {
            check: "memory.sockets_balanced",
            pass: (AFTER, vec![]),
            fail: (
                AFTER,
                vec![Edit::Say("dmidecode-memory", "Size: 16 GB", "Size: No Module Installed")],
            ),
            cannot_tell: (
                AFTER,
                vec![
                    Edit::Say("dmidecode-memory", "P0_Node0_Channel0_Dimm0", "BANK 0"),
                    Edit::Say("dmidecode-memory", "P1-DIMMA1", "A1"),
                ],
            ),
        },
        Case {
            check: "memory.bandwidth_for_rebuild",
            pass: (AFTER, vec![]),
            fail: (BEFORE, vec![]),
            cannot_tell: (BEFORE, no_table()),
        },
        Case {
            check: "memory.speed_configured",
            pass: (FLASH, vec![]),
            fail: (BEFORE, vec![]),
            cannot_tell: (FLASH, no_table()),
        },
        Case {
            check: "memory.errors",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/sys/devices/system/edac/mc/mc0/ce_count", "3")]),
            cannot_tell: (DESKTOP, vec![]),
        },
        Case {
            check: "cpu.governor",
            pass: (AFTER, vec![]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (AFTER, vec![Edit::DropAll("/cpufreq/")]),
        },
        Case {
            check: "cpu.smt_recorded",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Say("lscpu-p", "\n31,15,1,1", "")]),
            cannot_tell: (AFTER, vec![gone(smt)]),
        },
    ]
}

fn fabric_cases() -> Vec<Case> {
    let node = "/sys/bus/pci/devices/0000:82:00.0/numa_node";
    let other = "/sys/bus/pci/devices/0000:85:00.0/numa_node";
    let phy = "/sys/class/sas_phy/phy-1:0:3";
    vec![
        Case {
            check: "pcie.link_negotiated",
            pass: (AFTER, vec![]),
            fail: (FLASH, vec![]),
            cannot_tell: (AFTER, vec![Edit::DropAll("_link_"), Edit::NoTool("lspci")]),
        },
        Case {
            check: "numa.drives_balanced",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set(node, "0"), set(other, "0")]),
            cannot_tell: (AFTER, vec![set(node, "-1")]),
        },
        Case {
            check: "controller.drives_balanced",
            pass: (AFTER, vec![]),
            fail: (AFTER, six_drives_gone()),
            cannot_tell: (AFTER, vec![gone("/sys/block")]),
        },
        Case {
            check: "controller.oversubscribed",
            pass: (AFTER, vec![]),
            fail: (JBOD, vec![]),
            cannot_tell: (DESKTOP, vec![]),
        },
        Case {
            check: "sas.link_negotiated",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Set(format!("{phy}/negotiated_linkrate"), "6.0 Gbit")]),
            cannot_tell: (AFTER, vec![Edit::DropAll("linkrate")]),
        },
        Case {
            check: "sas.phy_errors_growing",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Set(format!("{phy}/invalid_dword_count"), "900")]),
            cannot_tell: (
                AFTER,
                vec![
                    Edit::DropAll("_count"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-0:0"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-1:0"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-2:0"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-3:0"),
                ],
            ),
        },
        Case {
            check: "queues.count",
            pass: (FLASH, vec![]),
            fail: (FLASH, queues_but_one()),
            cannot_tell: (FLASH, vec![Edit::DropAll("/mq/")]),
        },
        Case {
            check: "irq.spread",
            pass: (AFTER, vec![]),
            fail: (AFTER, irqs_on_one_cpu()),
            cannot_tell: (AFTER, vec![gone("/proc/irq")]),
        },
    ]
}

fn drive_cases() -> Vec<Case> {
    let second = "  phy  52:S:attached:[500605b0deadbeef:00  i(SSP+STP+SMP)]  12 Gbps\n  phy  48";
    vec![
        Case {
            check: "drive.health",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Say("smartctl-sdc", "true", "false")]),
            cannot_tell: (AFTER, vec![Edit::NoTool("smartctl-sdc")]),
        },
        Case {
            check: "dual_port.second_host",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Say("smp_discover-expander-1:0", "  phy  48", second)]),
            cannot_tell: (AFTER, vec![Edit::NoTool("smp_discover-expander-1:0")]),
        },
        Case {
            check: "drive.partition_aligned",
            pass: (DESKTOP, vec![set("/sys/block/sda/sda1/start", "2048")]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (DESKTOP, vec![gone("/sys/block/sda/queue/physical_block_size")]),
        },
        Case {
            check: "drive.sector_size",
            pass: (AFTER, vec![]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sda/queue/logical_block_size")]),
        },
        Case {
            check: "drive.firmware_uniform",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/sys/block/sdb/device/rev", "0102")]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sdb/device/rev")]),
        },
        Case {
            check: "drive.figures_uniform",
            pass: (AFTER, vec![]),
            fail: (
                AFTER,
                vec![
                    set("/sys/block/sda/device/model", "KXG60ZNV1T02"),
                    set("/sys/block/sda/size", "2000409264"),
                    set("/sys/block/sdb/device/model", "KXG60ZNV256G"),
                    set("/sys/block/sdb/size", "500118192"),
                ],
            ),
            cannot_tell: (FLASH, vec![]),
        },
        Case {
            check: "cache.volatile_write",
            pass: (AFTER, vec![]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sda/queue/write_cache")]),
        },
    ]
}

fn software_cases() -> Vec<Case> {
    let scheduler = "/sys/block/nvme0n1/queue/scheduler";
    let resync = "md0 : active raid6 sda[0]\n      [=>...]  resync =  8.4% (41/488) finish=7.2min speed=1K/sec";
    vec![
        Case {
            check: "background.activity",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/proc/mdstat", resync)]),
            cannot_tell: (AFTER, vec![gone("/proc/mdstat")]),
        },
        Case {
            check: "limits.aio_max_nr",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/proc/sys/fs/aio-max-nr", "1024")]),
            cannot_tell: (AFTER, vec![gone("/proc/sys/fs/aio-max-nr")]),
        },
        Case {
            check: "limits.scheduler",
            pass: (FLASH, vec![]),
            fail: (FLASH, vec![set(scheduler, "[mq-deadline] none")]),
            cannot_tell: (FLASH, vec![gone(scheduler)]),
        },
        Case {
            check: "limits.request_size",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/sys/block/sda/queue/max_sectors_kb", "128")]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sda/queue/max_sectors_kb")]),
        },
    ]
}

fn speed_cases() -> Vec<Case> {
    let good = || vec![Edit::Tried(GOOD)];
    let tried = |tried: Tried| vec![Edit::Tried(tried)];
    vec![
        Case {
            check: "memory.bandwidth_measured",
            pass: (AFTER, good()),
            fail: (
                AFTER,
                tried(Tried { read: [27_000, 12_000], best: 13_000, copy: [11_000; 2], ..GOOD }),
            ),
            cannot_tell: (AFTER, vec![]),
        },
        Case {
            check: "measured.nodes_alike",
            pass: (AFTER, good()),
            fail: (AFTER, tried(Tried { all: [3_100, 2_500], ..GOOD })),
            cannot_tell: (AFTER, vec![]),
        },
        Case {
            check: "cpu.score_scales",
            pass: (AFTER, good()),
            fail: (AFTER, tried(Tried { all: [3_100, 1_200], ..GOOD })),
            cannot_tell: (AFTER, vec![]),
        },
    ]
}

fn cases() -> Vec<Case> {
    [memory_cases(), speed_cases(), fabric_cases(), drive_cases(), software_cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// How a check comes out; the capture before the load is the unedited one.
fn outcome(check: &str, (name, edits): &(&'static str, Vec<Edit>)) -> (Outcome, String) {
    let before = server(capture(name));
    let inspection = Inspection::of(server(edited(name, edits)), Some(&before), Given::default());
    let found =
        inspection.checks.into_iter().find(|it| it.name == check).expect("a check of this name");
    (found.outcome, found.found)
}

#[test]
fn every_check_passes_fails_and_cannot_tell_where_it_must() {
    for case in cases() {
        for (capture, wanted) in [
            (&case.pass, Outcome::Pass),
            (&case.fail, Outcome::Fail),
            (&case.cannot_tell, Outcome::CannotTell),
        ] {
            let (outcome, found) = outcome(case.check, capture);
            assert_eq!(outcome, wanted, "{} on {capture:?}: {found}", case.check);
        }
    }
}

#[test]
fn no_check_is_without_its_three_captures() {
    let told: BTreeSet<String> = inspection(AFTER).checks.into_iter().map(|it| it.name).collect();
    let mut tried: BTreeSet<String> = cases().iter().map(|it| it.check.to_owned()).collect();
    // Needs two captures that were measured: the test below has its three.
    tried.insert("measured.as_before".to_owned());
    assert_eq!(told, tried);
}

fn check(inspection: &Inspection, name: &str) -> (Outcome, String) {
    let found = inspection.checks.iter().find(|it| it.name == name).expect("a check of this name");
    (found.outcome, found.found.clone())
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
    // Memory that does far less than it could decides about the server; nothing says so without measuring.
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

#[test]
fn a_server_of_which_nothing_is_known_passes_no_check() {
    let nothing = Inspection::of(Server::default(), None, Given::default());
    let passed: Vec<&str> = nothing
        .checks
        .iter()
        .filter(|it| it.outcome == Outcome::Pass)
        .map(|it| it.name.as_str())
        .collect();
    assert!(passed.is_empty(), "{passed:?}");
    assert_eq!(nothing.verdict, Verdict::Undecided);
    assert!(page::headline(&nothing).starts_with("CANNOT SAY"));
}

#[test]
fn the_story_s_server_is_refused_for_its_memory_and_for_nothing_else() {
    let story = inspection(BEFORE);
    assert_eq!(story.verdict, Verdict::NotQualified);
    let failed: Vec<&str> = story
        .checks
        .iter()
        .filter(|it| it.outcome == Outcome::Fail)
        .map(|it| it.name.as_str())
        .collect();
    let wanted =
        ["memory.channels_populated", "memory.bandwidth_for_rebuild", "memory.speed_configured"];
    assert_eq!(failed, wanted);
    // Reading raw drives hides it, as it did in the story; the rebuild shows it.
    assert_eq!(story.read.carried, Rate::mega(15_900));
    assert!(story.read.is_limited_by_drives());
    assert_eq!(story.rebuild.carried, Rate::mega(2 * 17_064 / 4));
    let narrowest: Vec<&str> =
        story.rebuild.narrowest.iter().map(|at| story.topology.links[*at].id.as_str()).collect();
    assert_eq!(narrowest, ["memory of socket 0>", "memory of socket 1>"]);
    assert!(page::text(&story, false).starts_with("NOT QUALIFIED: 2 checks fail"));
}

#[test]
fn four_modules_in_the_right_slots_qualify_it_and_double_the_rebuild() {
    let (story, repaired) = (inspection(BEFORE), {
        let before = server(capture(BEFORE));
        Inspection::of(server(capture(AFTER)), Some(&before), Given::default())
    });
    assert_eq!(repaired.verdict, Verdict::Qualified);
    assert!(repaired.rebuild.is_limited_by_drives());
    let ratio = repaired.rebuild.carried.share_of(story.rebuild.carried);
    assert!((1.8..2.1).contains(&ratio), "{ratio}");
    // What still could be better is a note, with both figures.
    assert!(
        page::text(&repaired, false).contains("4 modules run at 2133 MT/s and are made for 2400")
    );
}

#[test]
fn the_story_s_controllers_have_the_room_that_it_computed() {
    let story = inspection(AFTER);
    let links = &story.topology.links;
    let to_sockets: Vec<_> =
        links.iter().enumerate().filter(|(_, it)| it.standard.starts_with("PCIe")).collect();
    assert_eq!(to_sockets.len(), 4);
    let sum: u64 = to_sockets.iter().filter_map(|(_, it)| it.capacity).map(|it| it.0).sum();
    assert_eq!(Rate(sum), Rate::mega(24_000));
    for (at, link) in to_sockets {
        assert_eq!(link.capacity, Some(Rate::mega(6_000)));
        assert_eq!(story.read.by_link[at], Rate::mega(3_975));
    }
}

#[test]
fn a_half_trained_drive_and_a_thin_uplink_are_named() {
    let flash = inspection(FLASH);
    let text = page::text(&flash, false);
    assert!(
        text.contains(
            "0000:48:00.0: 1 of 24 links below what both ends can: PCIe 4.0 x2 of PCIe 4.0 x4"
        ),
        "{text}"
    );
    let jbod = inspection(JBOD);
    assert_eq!(jbod.read.carried, Rate::mega(4 * 2_400));
    assert_eq!(jbod.read.narrowest.len(), 4);
    assert!(page::text(&jbod, false).contains("expander-0:0 to 01:00.0"));
}

#[test]
fn with_few_drives_the_same_uplinks_are_wide_enough() {
    let given = Given { drive_count: Some(8), ..Given::default() };
    let jbod = Inspection::of(server(capture(JBOD)), None, given);
    assert_eq!(jbod.topology.drive_count, 8);
    assert!(jbod.read.is_limited_by_drives());
    assert_eq!(jbod.read.carried, Rate::mega(8 * 270));
}

#[test]
fn what_the_operator_gives_replaces_what_was_assumed() {
    let given = Given { drive_rate: Some(Rate::mega(100)), ..Given::default() };
    let topology = Topology::of(&server(capture(JBOD)), given);
    assert!(topology.assumptions.is_empty(), "{:?}", topology.assumptions);
    let sockets = Given { inter_socket: Some(Rate::mega(32_000)), ..Given::default() };
    let topology = Topology::of(&server(capture(BEFORE)), sockets);
    assert_eq!(topology.links.iter().filter(|it| it.standard == "between sockets").count(), 2);
}

const OWN_MODELS: &str = "format = 1
name = \"ours\"
version = 2
[[family]]
name = \"EX7\"
model = 'EXAMPLE EX7 .*'
medium = \"flash\"
source = \"its data sheet\"
[[family.capacity]]
gigabytes = 3840
sequential_read = 6000
sequential_write = 3100
random_read = 900000
";

#[test]
fn what_makers_state_is_used_and_who_says_so_is_told() {
    let text = page::text(&inspection(AFTER), false);
    assert!(
        text.contains("60 x TOSHIBA MG07SCA14TA: Toshiba MG07SCA 14 TB 14000 GB: outer edge 265 MB/s, inner edge 145 MB/s")
            && text.contains("library drives 1: measured by a user"),
        "{text}"
    );
    // A model that nobody knows is said, and taken for what its link carries.
    let flash = inspection(FLASH);
    let text = page::text(&flash, false);
    assert!(text.contains("24 x EXAMPLE EX7 3840GB: not in the library of drive models"), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ours.toml");
    std::fs::write(&path, OWN_MODELS).expect("written");
    let models = Library::with(&[&path]).expect("good");
    let given = Given { models: models.clone(), ..Given::default() };
    let known = Inspection::of(server(capture(FLASH)), None, given);
    assert_eq!(known.read.demand, Rate::mega(24 * 6_000));
    assert_ne!(flash.read.demand, known.read.demand);
    assert!(known.topology.assumptions.iter().all(|it| !it.contains("EX7")));
    let text = page::text(&known, false);
    assert!(
        text.contains(
            "EX7 3840 GB: read 6.00 GB/s, written 3.10 GB/s, random reads 900 k IOPS (ours 2 of "
        ),
        "{text}"
    );
    // What the operator says comes first.
    let given = Given { models, drive_rate: Some(Rate::mega(100)), ..Given::default() };
    let said = Inspection::of(server(capture(FLASH)), None, given);
    assert_eq!(said.read.demand, Rate::mega(24 * 100));
}

#[test]
fn a_library_that_cannot_be_read_is_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ours.toml");
    std::fs::write(&path, OWN_MODELS.replace("its data sheet", "")).expect("written");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(FLASH);
    let lab = std::process::Command::new(env!("CARGO_BIN_EXE_ashlar-lab"))
        .args(["inspect", "--from"])
        .arg(fixture)
        .arg("--models")
        .arg(&path)
        .output()
        .expect("the lab");
    let said = String::from_utf8_lossy(&lab.stderr);
    assert_eq!(lab.status.code(), Some(2), "{said}");
    assert!(said.contains("EX7: without a source its figures are worth nothing"), "{said}");
}

#[test]
fn empty_cells_of_the_resource_table_are_seen() {
    let text = page::text(&inspection(BEFORE), false);
    let row = text.lines().find(|it| it.contains("memory, bandwidth")).expect("a row");
    assert_eq!(row.matches("[empty]").count(), 3);
}

#[test]
fn the_diagram_names_every_bandwidth_and_takes_measured_flows() {
    let story = inspection(BEFORE);
    let link =
        story.topology.links.iter().find(|it| it.standard == "SAS 12G x4").expect("an uplink");
    let measured = Measured::from([(link.id.clone(), Rate::mega(3_210))]);
    let svg = story.svg(&measured);
    for text in [
        "Narrowest for a rebuild: memory. 8.53 GB/s of 15.9 GB/s",
        "17.1 GB/s",
        "4.80 GB/s",
        "6.00 GB/s",
        "measured 3.21 GB/s",
    ] {
        assert!(svg.contains(text), "{text} is missing");
    }
    assert!(
        !svg.contains("http://www.w3.org/1999/xhtml")
            && !svg.contains("<script")
            && !svg.contains("url(")
    );
    assert!(!story.svg(&Measured::new()).contains("measured"));
}

#[test]
fn a_redacted_capture_gives_the_same_answers_and_none_of_the_names() {
    for name in ALL {
        let original = capture(name);
        let (redacted, counts) = redact(&original, "a salt");
        let (first, second) = (server(original.clone()), server(redacted.clone()));
        let judge = |server: Server| {
            let inspection = Inspection::of(server, None, Given::default());
            (inspection.checks, inspection.topology, inspection.rebuild)
        };
        assert_eq!(judge(first), judge(second), "{name}");
        let text = |capture: &Capture| {
            let runs = capture.runs.values().map(|run| run.stdout.as_str()).collect::<String>();
            capture.tree.print() + &runs
        };
        let (before, after) = (text(&original), text(&redacted));
        assert!(counts["host names"] > 0 && counts["serial numbers"] > 0, "{name}: {counts:?}");
        for word in before.split(|c: char| !c.is_ascii_alphanumeric()) {
            let is_wwn = word.len() == 16 && word.starts_with('5');
            let is_serial = word.len() == 12
                && word.chars().all(|c| c.is_ascii_hexdigit() && !c.is_lowercase())
                && word.chars().any(|c| c.is_ascii_uppercase());
            assert!(!(is_wwn || is_serial) || !after.contains(word), "{name}: {word} survives");
        }
        assert!(!after.contains("storage.example"), "{name}");
    }
}

#[test]
fn a_capture_of_this_machine_gives_the_same_server() {
    let source = Source::live(Duration::from_secs(30));
    let live = Server::read(&source);
    assert_eq!(server(source.into_capture()), live);
}

/// A small generator, so that a failing seed can be tried again.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }
}

/// Cut, doubled, swapped and overwritten text, always valid UTF-8.
fn damaged(text: &str, chance: &mut Chance) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + lines.len() / 20 {
        let at = chance.below(lines.len());
        let Some(line) = lines.get_mut(at) else { break };
        let place = (0..=line.len())
            .rev()
            .find(|it| *it <= chance.below(line.len() + 1) && line.is_char_boundary(*it));
        let place = place.unwrap_or(0);
        match chance.below(6) {
            0 => line.truncate(place),
            1 => line.insert_str(place, "18446744073709551615"),
            2 => line.insert(place, ['\u{e9}', '-', '[', ':', '/', '\t'][chance.below(6)]),
            3 => line.insert_str(place, "0000:05:00.0/host9/expander-9:9/"),
            4 => drop(lines.remove(at)),
            _ => {
                let other = chance.below(lines.len());
                lines.swap(at, other);
            }
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_captures_are_survived() {
    for name in ALL {
        let original = capture(name);
        for seed in 0..12 {
            let mut chance = Chance(seed);
            let mut capture = original.clone();
            let whole = capture.tree.print();
            (capture.tree, _) = Tree::parse(&damaged(&whole, &mut chance));
            for run in capture.runs.values_mut() {
                run.stdout = damaged(&run.stdout, &mut chance);
            }
            let inspection = Inspection::of(server(capture), None, Given::default());
            assert!(inspection.rebuild.carried <= inspection.rebuild.demand, "{name} seed {seed}");
            assert!(page::text(&inspection, true).len() > 500, "{name} seed {seed}");
            assert!(inspection.svg(&Measured::new()).ends_with("</svg>\n"), "{name} seed {seed}");
        }
    }
}
