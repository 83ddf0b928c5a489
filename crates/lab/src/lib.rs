//! The lab: qualifies a server, measures any RAID engine honestly, and says what limits it.
//!
//! - adapter: engines behind one interface
//! - cli: the verbs of `ashlar lab`; each verb's flags stand beside the verb
//! - refusal: the one clear line when something cannot be done
//! - validity: VALID, VALID-WITH-NOTES or INVALID, and the rules that say so
//! - rules: all rules and checks in one table: needs, threshold, why, next step
//! - record: what a run writes down, line by line, and what a report is made from
//! - say: standard output
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
//! - offline: tests with recorded and made-up input
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

mod adapter;
mod capture;
pub mod cli;
mod compare;
mod cpu;
mod evidence;
mod fio;
mod guard;
mod hold;
mod host_cpu;
mod inspect;
mod lint;
mod meter;
mod metrics;
#[cfg(test)]
mod offline;
mod order;
mod pen;
mod plan;
mod qualify;
// Tests of the real binary read what it wrote.
#[doc(hidden)]
pub mod record;
mod redact;
mod refusal;
mod report;
mod rules;
mod say;
mod source;
#[doc(hidden)]
pub mod store;
mod trace;
mod units;
#[doc(hidden)]
pub mod validity;
mod verdict;
mod watch;

use refusal::AtPath;
pub use refusal::Refusal;
use say::{say, say_part};
