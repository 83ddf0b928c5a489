//! Counts stacks: for each engine its share, split by context and by kind of work.
//!
//! A stack belongs to the engine of the frame nearest to its leaf that is an engine's; without one,
//! to the engine whose thread it ran in. The context is where that work ran. An interrupt ends the
//! search: what an interrupt does is not the work of whom it interrupted, but an engine's frames
//! inside an interrupt are the engine's work in softirq context. What must stay true: each stack is
//! counted in one context of one engine at most; idle stacks count as nothing.

use super::groups::{Groups, Work, WorkKind};
use super::script::Frame;
use ahash::RandomState;
use regex::{Regex, RegexSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Most distinct stacks that are kept: a flame graph of more shows nothing.
const STACKS_MAX: usize = 500_000;
const CORES_MAX: usize = 1 << 16;

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

impl Context {
    /// How it is called in tables.
    pub fn title(self) -> &'static str {
        match self {
            Context::Client => "client",
            Context::KernelThread => "kernel thread",
            Context::Kworker => "kworker",
            Context::Softirq => "softirq",
            Context::EngineThread => "engine thread",
        }
    }
}

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

#[derive(Clone, PartialEq, Debug, Default)]
pub struct EngineCounts {
    pub contexts: BTreeMap<Context, u64>,
    /// Of each kind of work; the last one is what no expression matched.
    pub work: Vec<u64>,
    /// On each core, if the samples say where they were taken.
    pub cores: Vec<u64>,
    pub leaves: HashMap<String, u64, RandomState>,
}

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
    pub threads: HashMap<String, u64, RandomState>,
    /// On each core, without idle, if the samples say where they were taken.
    pub cores: Vec<u64>,
    pub engines: Vec<EngineCounts>,
    pub leaves: HashMap<String, u64, RandomState>,
    /// Lines that were not understood, and too long ones.
    pub unread: u64,
    /// Distinct stacks, for flame graphs; `None` if they were not kept.
    pub stacks: Option<Stacks>,
}

/// Distinct stacks: frames from the root on joined by `;`, the thread's name first -> what each is
/// and how often it came.
pub type Stacks = HashMap<String, (Found, u64), RandomState>;

impl EngineCounts {
    pub fn total(&self) -> u64 {
        self.contexts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn of_kind(&self, work: &[Work], kind: WorkKind) -> u64 {
        let kinds = work.iter().map(|work| work.kind).chain([WorkKind::Unsorted]);
        let counts = self.work.iter().zip(kinds).filter(|(_, it)| *it == kind);
        counts.fold(0, |sum, (count, _)| sum.saturating_add(*count))
    }
}

fn add_at(counts: &mut Vec<u64>, at: usize, count: u64) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    add(&mut counts[at], count);
}

fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// Most distinct names that are told apart; hostile input has more.
const NAMES_MAX: usize = 2_000_000;

/// What a frame says by its text alone.
#[derive(Clone, Debug, Default)]
struct FrameFacts {
    text: String,
    /// First group that has the frame.
    group: Option<usize>,
    /// For each group the kind of work it is there.
    work: Box<[Option<usize>]>,
    is_interrupt: bool,
    is_kernel_thread_root: bool,
    is_polling: bool,
}

#[derive(Clone, Debug, Default)]
struct ThreadFacts {
    comm: String,
    is_idle: bool,
    is_client: bool,
    is_kworker: bool,
    /// A worker that io_uring made for its user: it has no user frames and is the client all the
    /// same.
    is_ring_worker: bool,
    is_polling: bool,
    kernel_of: Option<usize>,
    thread_of: Option<usize>,
    samples: u64,
}

/// Counts stacks against groups.
#[derive(Debug)]
pub struct Tally<'a> {
    groups: &'a Groups,
    client: &'a Regex,
    marks: Marks,
    frames: Names<FrameFacts>,
    threads: Names<ThreadFacts>,
    /// Distinct stacks: number of the thread, then of the frames -> what it is, how often it came.
    kept: HashMap<Box<[usize]>, (Found, u64), RandomState>,
    leaves: Vec<u64>,
    engine_leaves: Vec<HashMap<usize, u64, RandomState>>,
    counts: Counts,
}

/// Texts by number, and what each says.
#[derive(Debug, Default)]
struct Names<T> {
    ids: HashMap<Box<[u8]>, usize, RandomState>,
    all: Vec<T>,
}

impl<T> Names<T> {
    fn number(&mut self, text: &[u8], facts: impl FnOnce(&str) -> T) -> usize {
        let text = match self.ids.get(text) {
            Some(id) => return *id,
            None if self.all.len() < NAMES_MAX => text,
            None => b"(others)",
        };
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        self.ids.insert(text.into(), self.all.len());
        self.all.push(facts(&String::from_utf8_lossy(text)));
        self.all.len() - 1
    }
}

/// Frames that say in which surroundings the others ran.
#[derive(Debug)]
struct Marks {
    interrupt: RegexSet,
    kernel_thread: RegexSet,
    polling: RegexSet,
}

/// Frames at which an interrupt or a softirq begins, on x86 and arm.
const INTERRUPTS: [&str; 3] = [
    "^(asm_)?(sysvec_|common_interrupt)|^(handle_softirqs|__do_softirq|do_softirq|call_softirq)|\
     ^(__)?irq_exit",
    "^(el[01]h?_(64_|t_64_)?irq|gic_handle_irq|call_on_irq_stack)|^(ret_from_intr|do_IRQ|\
     handle_irq|run_ksoftirqd)",
    "^(smp_)?apic_timer_interrupt",
];
/// Roots of kernel threads.
const KERNEL_THREADS: [&str; 1] =
    ["^(kthread|ret_from_fork(_asm)?|kernel_thread_helper|worker_thread)$"];
/// Completion polling in the kernel.
const POLLING: [&str; 1] =
    ["^(blk_mq_poll|bio_poll|blk_hctx_poll|iocb_bio_iopoll|nvme_poll|io_do_iopoll|io_sq_thread)$"];

impl<'a> Tally<'a> {
    /// An empty tally. `client` matches thread names; `keep_stacks` for flame graphs.
    pub fn new(groups: &'a Groups, client: &'a Regex, keep_stacks: bool) -> Tally<'a> {
        // Constant expressions; the tests read them all.
        let set = |patterns: &[&str]| RegexSet::new(patterns).unwrap_or_else(|_| RegexSet::empty());
        let marks = Marks {
            interrupt: set(&INTERRUPTS),
            kernel_thread: set(&KERNEL_THREADS),
            polling: set(&POLLING),
        };
        let engines = groups.all.iter().map(|group| EngineCounts {
            work: vec![0; group.work.len() + 1],
            ..EngineCounts::default()
        });
        let counts = Counts {
            engines: engines.collect(),
            stacks: keep_stacks.then(Stacks::default),
            ..Counts::default()
        };
        Tally {
            groups,
            client,
            marks,
            frames: Names::default(),
            threads: Names::default(),
            kept: HashMap::default(),
            leaves: Vec::new(),
            engine_leaves: vec![HashMap::default(); groups.all.len()],
            counts,
        }
    }

    /// Count a line of a folded file: `comm;frame;frame N`.
    pub fn folded(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return;
        }
        let end = line.iter().rposition(|byte| *byte == b' ');
        let parts = end.map(|at| (line[..at].trim_ascii_end(), &line[at + 1..]));
        let Some((stack, count)) = parts.and_then(|(stack, count)| Some((stack, number(count)?)))
        else {
            self.counts.unread += 1;
            return;
        };
        let mut frames = stack.split(|byte| *byte == b';');
        let thread = self.thread(frames.next().unwrap_or_default());
        // bcc's profile puts a frame `-` between user and kernel.
        let frames = frames.filter(|it| !it.is_empty() && *it != b"-");
        let ids: Vec<usize> = frames.map(|frame| self.frame(frame)).collect();
        self.count(thread, None, &ids, count);
    }

    /// Count one sample: the thread's name, the core, frames from the root on.
    pub fn sample(&mut self, comm: &str, cpu: Option<u32>, frames: &mut dyn Iterator<Item = &str>) {
        let comm: String =
            comm.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }).collect();
        let thread = self.thread(comm.as_bytes());
        let ids: Vec<usize> = frames.map(|frame| self.frame(frame.as_bytes())).collect();
        self.count(thread, cpu, &ids, 1);
    }

    pub fn unread(&mut self, lines: u64) {
        self.counts.unread += lines;
    }

    /// What was counted, with names instead of numbers.
    pub fn finish(mut self) -> Counts {
        self.stacks();
        let name = |id: usize| self.frames.all[id].text.clone();
        let leaves = self.leaves.iter().enumerate().filter(|(_, count)| **count > 0);
        self.counts.leaves = leaves.map(|(id, count)| (name(id), *count)).collect();
        for (engine, leaves) in self.counts.engines.iter_mut().zip(&self.engine_leaves) {
            engine.leaves = leaves.iter().map(|(id, count)| (name(*id), *count)).collect();
        }
        for thread in self.threads.all.iter().filter(|it| it.samples > 0) {
            add(self.counts.threads.entry(thread.comm.clone()).or_default(), thread.samples);
        }
        self.counts
    }

    fn count(&mut self, thread: usize, cpu: Option<u32>, ids: &[usize], count: u64) {
        let found = self.find(thread, ids);
        add(&mut self.counts.total, count);
        if found.is_idle {
            return add(&mut self.counts.idle, count);
        }
        let core = cpu.and_then(|core| usize::try_from(core).ok()).filter(|core| *core < CORES_MAX);
        add(&mut self.threads.all[thread].samples, count);
        if let Some(core) = core {
            add_at(&mut self.counts.cores, core, count);
        }
        let leaf = ids.last().copied();
        if let Some(leaf) = leaf {
            add_at(&mut self.leaves, leaf, count);
        }
        if found.is_client {
            add(&mut self.counts.client, count);
        }
        if found.is_polling {
            add(&mut self.counts.polling, count);
        }
        if let Some((group, context, work)) = found.engine {
            let engine = &mut self.counts.engines[group];
            add(engine.contexts.entry(context).or_default(), count);
            let last = engine.work.len() - 1;
            add_at(&mut engine.work, work.unwrap_or(last), count);
            if let Some(core) = core {
                add_at(&mut engine.cores, core, count);
            }
            if let Some(leaf) = leaf {
                add(self.engine_leaves[group].entry(leaf).or_default(), count);
            }
        }
        self.keep(thread, ids, found, count);
    }

    fn keep(&mut self, thread: usize, ids: &[usize], found: Found, count: u64) {
        if self.counts.stacks.is_none() {
            return;
        }
        // By numbers: most samples are of a stack that came before, and its text is only wanted
        // once.
        let key = [&[thread], ids].concat();
        if let Some((_, sum)) = self.kept.get_mut(key.as_slice()) {
            add(sum, count);
        } else if self.kept.len() < STACKS_MAX {
            self.kept.insert(key.into(), (found, count));
        }
    }

    /// The stacks that were kept, by their text.
    fn stacks(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        let Some(stacks) = &mut self.counts.stacks else { return };
        for (key, (found, count)) in kept {
            let mut text = self.threads.all[key[0]].comm.clone();
            key[1..].iter().for_each(|id| text += &format!(";{}", self.frames.all[*id].text));
            add(&mut stacks.entry(text).or_insert((found, 0)).1, count);
        }
    }

    /// What a stack is. Frames from the root on.
    fn find(&self, thread: usize, ids: &[usize]) -> Found {
        let thread = &self.threads.all[thread];
        let (mut group, mut in_interrupt, mut is_polling) = (None, false, thread.is_polling);
        let mut is_kernel_thread = false;
        for id in ids.iter().rev() {
            let frame = &self.frames.all[*id];
            is_polling |= frame.is_polling;
            is_kernel_thread |= frame.is_kernel_thread_root;
            if frame.is_interrupt {
                in_interrupt = true;
                break;
            }
            if group.is_none() {
                group = frame.group;
            }
        }
        if thread.is_idle && !in_interrupt {
            return Found { is_idle: true, ..Found::default() };
        }
        if group.is_none() && !in_interrupt {
            group = thread.kernel_of.or(thread.thread_of);
        }
        let context = match thread {
            _ if in_interrupt => Context::Softirq,
            it if it.is_kworker => Context::Kworker,
            it if it.kernel_of.is_some() => Context::KernelThread,
            it if it.thread_of.is_some() => Context::EngineThread,
            it if is_kernel_thread && !it.is_ring_worker && !it.is_client => Context::KernelThread,
            _ => Context::Client,
        };
        let engine = group.map(|group| (group, context, self.work(group, ids)));
        Found { is_idle: false, is_client: thread.is_client, is_polling, engine }
    }

    /// The kind of work nearest to the leaf, up to where an interrupt begins.
    fn work(&self, group: usize, ids: &[usize]) -> Option<usize> {
        let frames = ids.iter().rev().map(|id| &self.frames.all[*id]);
        frames.take_while(|frame| !frame.is_interrupt).find_map(|frame| frame.work[group])
    }

    fn frame(&mut self, text: &[u8]) -> usize {
        let (groups, marks) = (&self.groups.all, &self.marks);
        self.frames.number(text, |text| {
            let frame = Frame::parse(text);
            FrameFacts {
                text: text.to_owned(),
                group: groups.iter().position(|group| group.has_frame(frame)),
                work: groups.iter().map(|group| group.work_of(frame)).collect(),
                is_interrupt: marks.interrupt.is_match(frame.symbol),
                is_kernel_thread_root: marks.kernel_thread.is_match(frame.symbol),
                is_polling: marks.polling.is_match(frame.symbol),
            }
        })
    }

    fn thread(&mut self, comm: &[u8]) -> usize {
        let (groups, client) = (&self.groups.all, self.client);
        self.threads.number(comm, |name| {
            // `stackcollapse-perf.pl --pid` writes `fio-1234`, with --tid `fio-1234/1235`.
            let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '/' || c == '?');
            let bare =
                bare.strip_suffix('-').filter(|it| !it.is_empty() && bare.len() < name.len());
            let is = |test: &dyn Fn(&str) -> bool| test(name) || bare.is_some_and(test);
            ThreadFacts {
                is_idle: name.starts_with("swapper"),
                is_client: is(&|it| client.is_match(it)),
                is_kworker: name.starts_with("kworker/"),
                is_ring_worker: name.starts_with("iou-"),
                is_polling: name.starts_with("iou-sqp"),
                kernel_of: groups.iter().position(|group| is(&|it| group.has_kernel_thread(it))),
                thread_of: groups.iter().position(|group| is(&|it| group.has_thread(it))),
                samples: 0,
                comm: name.to_owned(),
            }
        })
    }
}

/// A count: digits only. Some programs write `12.0`; the fraction is nothing we count.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_once('.').map_or(text, |(whole, _)| whole).parse().ok()
}

#[cfg(test)]
mod tests {
    //! What belongs to whom: stacks as perf shows them for md, ZFS, btrfs, SPDK and Ashlar.

    use super::{Counts, Tally};
    use crate::cpu::groups::Groups;
    use regex::Regex;

    /// Counts of folded lines, and the groups they were counted against.
    fn tally(lines: &[&str]) -> (Counts, Groups) {
        let groups = Groups::shipped().expect("sound");
        let client = Regex::new("^fio").expect("sound");
        let mut tally = Tally::new(&groups, &client, true);
        lines.iter().for_each(|line| tally.folded(line.as_bytes()));
        (tally.finish(), groups)
    }

    /// Engine, context and kind of work of one stack.
    fn one(line: &str) -> Option<String> {
        let (counts, groups) = tally(&[line]);
        let (engine, group) =
            counts.engines.iter().zip(&groups.all).find(|(it, _)| it.total() > 0)?;
        let context = engine.contexts.keys().next().expect("one").title();
        let work = engine.work.iter().position(|count| *count > 0).expect("one");
        let work = group.work.get(work).map_or("not told apart", |work| work.name.as_str());
        Some(format!("{}, {context}, {work}", group.name))
    }

    #[test]
    fn every_stack_is_the_engine_s_whose_work_it_is_wherever_it_ran() {
        let lines = include_str!("../../tests/golden/whose.txt").lines();
        let lines = lines.filter_map(|line| line.split_once(" | "));
        let told: Vec<(&str, &str)> = lines.collect();
        assert!(told.len() > 20, "{told:?}");
        for (whose, stack) in told {
            let found = one(&format!("{stack} 1"));
            assert_eq!(found.as_deref().unwrap_or("nobody"), whose, "{stack}");
        }
    }

    #[test]
    fn idle_polling_and_what_is_no_stack_are_counted_apart() {
        let idle = ["swapper;do_idle_[k];default_idle_[k] 70", "swapper/3;x 5", "fio;main 20"];
        let (counts, _) = tally(&idle);
        assert_eq!((counts.total, counts.idle, counts.client), (95, 75, 20));
        let polling = ["fio;io_uring_enter;iocb_bio_iopoll_[k];bio_poll_[k] 7", "fio;x 1"];
        assert_eq!(
            tally(&[&polling[..], &["iou-sqp-12;io_sq_thread_[k] 3"]].concat()).0.polling,
            10
        );
        // Delimiters of bcc, thread numbers, counts with a fraction.
        let odd = ["fio-77/78;main;-;raid5_make_request_[k] 4", "", "# note", "no count", "x;y -3"];
        let (counts, _) = tally(&[&odd[..], &["a b;c 2.0"]].concat());
        assert_eq!((counts.total, counts.client, counts.unread), (6, 4, 2));
    }
}
