//! The lab: qualifies a server, measures any RAID engine honestly, and says what limits it.
//!
//! - adapter: engines behind one interface
//! - cli: the verbs of `ashlar lab`; each verb's flags stand beside the verb
//! - refusal: the one clear line when something cannot be done
//! - validity: VALID, VALID-WITH-NOTES or INVALID, and the rules that say so
//! - rules: all rules and checks in one table: needs, threshold, why, next step
//! - record: what a run writes down, line by line, and what a report is made from
//! - say: standard output
//! - rows: answers in rows
//! - order: lists in the order in which things first came
//! - store: the run directory on disk
//! - evidence: the forensic log: every command the lab starts, with its outputs and their hashes
//! - fio: job files, command lines, results, and running it
//! - source: facts of the live machine or of a capture of one
//! - capture, redact: facts to take away, and to give away
//! - inspect: the server as it is: model, checks, bottleneck diagram, verdict
//! - lint: what is wrong with a benchmark, before it runs and after
//! - guard: nothing is written to a device that carries something, unless its user names it
//! - hold: a drive that another lab measures is refused
//! - host_cpu: CPU time of the machine around a piece of work
//! - meter: what flowed over drives and links around a piece of work
//! - compare: two engines in turns, or two stored runs
//! - plan: a run by plan: stages around fio job files
//! - qualify: the whole cycle, ending with QUALIFIED or what must be changed
//! - metrics: the formulas, without any I/O
//! - watch: what is watched while a run measures
//! - pen: what every picture is drawn with
//! - units: how figures are printed
//! - report: the page, and the same as Markdown and CSV
//! - verdict: the limiting factor, with its evidence and the next experiment
//! - cpu: who uses the CPU, in whose context, for what
//! - trace: what became of I/Os between submission and the device
//!
//! What must stay true: a figure is never printed without its unit, its validity and the evidence
//! it came from; a check that could not be made never passes; nothing is written to a device that
//! the user has not named. Not here: the RAID engine. The lab measures it from outside, as it
//! measures every other one.
#![forbid(unsafe_code)]

pub mod adapter;
pub mod capture;
pub mod cli;
pub mod compare;
pub mod cpu;
pub mod evidence;
pub mod fio;
pub mod guard;
mod hold;
pub mod host_cpu;
pub mod inspect;
pub mod lint;
pub mod meter;
pub mod metrics;
pub mod order;
pub mod pen;
pub mod plan;
pub mod qualify;
pub mod record;
pub mod redact;
pub mod refusal;
pub mod report;
pub mod rows;
pub mod rules;
pub mod say;
pub mod source;
pub mod store;
pub mod trace;
pub mod units;
pub mod validity;
pub mod verdict;
pub mod watch;

pub use refusal::{AtPath, Refusal};
