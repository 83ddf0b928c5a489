//! Modules of the test program `engine` once more, on arrays that keep a stripe intent log:
//! `world::policy` and `world::checksums` tell by the name of this program.
//!
//! What must stay true: what is run here is a module of `engine`, too.
#![forbid(unsafe_code)]

#[path = "engine/world/mod.rs"]
mod world;

#[path = "engine/background.rs"]
mod background;
#[path = "engine/begun.rs"]
mod begun;
#[path = "engine/distributed_spares.rs"]
mod distributed_spares;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/first_writes.rs"]
mod first_writes;
#[path = "engine/grown.rs"]
mod grown;
#[path = "engine/growth.rs"]
mod growth;
#[path = "engine/jobs_cut_off.rs"]
mod jobs_cut_off;
#[path = "engine/kept_map.rs"]
mod kept_map;
#[path = "engine/kills.rs"]
mod kills;
#[path = "engine/lost_stripes.rs"]
mod lost_stripes;
#[path = "engine/older_copies.rs"]
mod older_copies;
#[path = "engine/oracle.rs"]
mod oracle;
#[path = "engine/room.rs"]
mod room;
#[path = "engine/scrub.rs"]
mod scrub;
#[path = "engine/silence.rs"]
mod silence;
#[path = "engine/spares.rs"]
mod spares;
