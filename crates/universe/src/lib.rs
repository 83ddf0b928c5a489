//! One seed, one universe: the real engine on simulated devices, with clients, faults, operators,
//! crashes, and oracles that know what may be found afterwards.
//!
//! What must stay true: a seed decides everything that happens, on every machine; a universe that
//! goes wrong tells its story and the line that repeats it. docs/testing.md tells how to use it,
//! docs/adr/0010 why it is as it is. Not here: what disks do (the `sim` crate); anything that
//! ships.
//!
//! In reading order:
//! - `universe`  a seed from its first moment to its last
//! - `config`    what is drawn for it, and what the contract demands; `menu`  what may happen;
//!   `aim`  what it is about on request
//! - `life`      one life of a host; `director`  its faults and operators; `heal`  how it repairs;
//!   `client`  its clients
//! - `ledger`    the oracle: which writes may be found where; `content`  whose data a unit holds
//! - `drive_slot`  the devices and the budget of losses
//! - `growth`  an array begins to grow, before its first start or while it runs
//! - `spares`  what distributed spares change about the budget
//! - `abuse`  misuse of members between lives, undone afterwards; `taken_back`  whom a start then
//!   may take back
//! - `replay`  the export: what was not answered when the program was killed is sent again
//! - `early`  clients that come while an array starts, or is only looked at
//! - `rehearsal`  dry runs and starts, compared with each other
//! - `two_runners`  one array run by two programs through different paths to its devices
//! - `damaged`  what devices with checksums lie about, and that they are named for it
//! - `hostile`  devices changed by accident or on purpose, and the engine that has to start from
//!   them
//! - `exhaustive`  every crash state of small workloads
//! - `shrink`  a failing universe made smaller
//! - `audit`     what must be true at rest
//! - `stage`     what all of them share
//! - `kept`      memory that outlives a killed program, as the engine asks for it; maps in it that
//!   a start must not believe
//! - `rollback`  all devices as they were at one moment of a life, with and without that map
//! - `changed`   devices that show other serial numbers, have other paths, or grew
//! - `remnants`  what other programs left on devices, or write to members that were given away
//! - `marks`     which rare events were reached
//! - `canary`    faults planted on purpose, for tests of tests
#![forbid(unsafe_code)]

mod abuse;
mod aim;
mod audit;
mod canary;
mod changed;
mod client;
mod config;
mod content;
mod damaged;
mod director;
mod drive_slot;
mod early;
mod exhaustive;
mod growth;
mod heal;
mod hostile;
mod kept;
mod ledger;
mod life;
mod marks;
mod menu;
mod rehearsal;
mod remnants;
mod replay;
mod rollback;
mod shrink;
mod spares;
mod stage;
mod taken_back;
mod two_runners;
mod universe;

pub use aim::Aim;
#[cfg(feature = "canaries")]
pub use canary::{Planted, plant};
pub use config::{Class, Config, Contract, Payload, Profile, Wish};
pub use content::WriteId;
pub use exhaustive::{Case, Covered, Step, cases, exhaust};
pub use hostile::{Outcome, Subject, Tally, subjects, trial, trials};
pub use ledger::{Relaxed, Wrong};
pub use marks::Marks;
pub use menu::{Act, Menu};
pub use shrink::shrink;
pub use universe::{Failure, Limits, Report, run};
