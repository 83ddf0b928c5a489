//! The whole program from outside: a daemon, its command line, and clients that know nothing of us.
//!
//! - `world`      a daemon of its own with members in a temporary folder
//! - `contents`   what else is done with it
//! - `tools`      foreign programs, and what to do where one is missing
//! - `raw_nbd`    a client that speaks NBD byte by byte
//! - `memory_devices` arrays in memory of the daemon
//! - `many_arrays` arrays that share a pattern of devices
//! - `load`       a client that goes on writing and reading back
//! - `doomed`     a member that vanishes: every request to it fails
//! - `drives`     whole drives get a partition, so that others see that they are taken
//! - `bench_via`  what an export costs
//! - `certificates` authorities and certificates, made anew for each test
//! - `encrypted`  NBD through TLS, who is let in and who is not
//! - `tampered`   the same with bytes changed on the way
//! - `serving`    what a daemon is told at its start
//! - `short`      one round trip in a few seconds
//! - `cycle`      lose members, rebuild, lose the others: every level, both exports
//! - `crash`      the daemon is killed
//! - `early`      clients that connect while an array starts, or a dry run looks at it
//! - `bugs`       a panic, planted in the program
//! - `kept`       the same under users of attached files and of NBD, who see a pause
//! - `over_ring`  the same where requests come over io_uring: users see errors, and no wait
//! - `attached`   volumes in use: what detach, stop and SIGTERM may do
//! - `changed_members` members cut short, and made longer again
//! - `second_paths` the drives of a running array by other paths
//! - `no_room`    thin members on a file system that runs full
//! - `messages`   what operators are told of data that is not what it should be
//! - `older_copies` a member's place is taken by a copy of it from before
//! - `salvage`    the second reader of the format, on what the daemon wrote; `salvage_doubts`:
//!   where members lost a part
//! - `clients`    libnbd, QEMU, fio and file systems
//! - `hostile`    others at the control socket, connections that never get on
//! - `nvme`       hosts of NVMe/TCP, and what they find after a restart; `nvme_queue`: one queue
//! - `vhost`      sockets for virtual machines: who may connect, and what is said of them
//! - `seen`       the page at the metrics listener
//! - `crowds`     somebody opens all the connections that there are
//! - `leftovers`  what replies carry besides data
//! - `stuck_state` the directory for state does not answer
//! - `silent`     a member that does not answer
//! - `life`       jobs by their numbers, tunables while an array runs, lights of bays
//! - `slow`       a member that answers much later than its peers
//! - `suites`     fsx, fio, stress-ng and the scrub of btrfs, through losses and rebuilds
//! - `beside`     what cannot be had beside the arrays, and comes back
//! - `reclaim`    the daemon and who writes to its volume in one memory cgroup
//! - `reasons`    why an array does not run, and what is not remembered
//! - `told`       events on disk, in the journal, by mail; the line for monitoring
//! - `trusted_files` what somebody else may have changed, and names that are not what they look
//!   like
//! - `twins`      one device under two names
//! - `grow`       a pool takes drives under its clients
//! - `erase`      metadata of devices and arrays that nobody needs
//! - `refusals`   everything that must be refused, with its line
//! - `refused_starts` members from which no array starts, or not the whole of it
//!
//! What must stay true: each test has its own daemon and folder, so that they run side by side; a
//! test that cannot run here says so by name on stderr, in a line that begins with `skipped:`.

mod attached;
mod away;
mod bench_via;
mod beside;
#[cfg(debug_assertions)]
mod bugs;
mod by_itself;
mod certificates;
mod changed_members;
mod clients;
mod contents;
mod crash;
mod crowds;
mod cycle;
mod doomed;
mod drives;
mod early;
mod encrypted;
mod erase;
mod grow;
mod hostile;
mod kept;
mod leftovers;
mod life;
mod load;
mod many_arrays;
mod memory_devices;
mod messages;
mod nested;
mod no_room;
mod nvme;
#[path = "../../crates/export/nvme-tcp/tests/target/queue.rs"]
mod nvme_queue;
mod older_copies;
mod over_ring;
mod raw_nbd;
mod reasons;
mod reclaim;
mod refusals;
mod refused_starts;
mod reused;
mod salvage;
mod salvage_doubts;
mod salvage_targets;
mod second_paths;
mod seen;
mod serving;
mod short;
mod silent;
mod slow;
mod stuck_state;
mod suites;
mod tampered;
mod told;
mod tools;
mod trusted_files;
mod twins;
mod vhost;
mod ways_out;
mod world;
