//! The engine on simulated devices, in one program: a program for each file would be linked for
//! minutes.
//!
//! What must stay true: everything comes from seeds, and no module changes what another sees. Not
//! here: `logged` and `summed`, which run some of these modules once more on arrays with a log and
//! with checksums.
#![forbid(unsafe_code)]

mod hand_made;
mod world;

mod background;
mod begun;
mod behind;
mod bitmap_pages;
mod corruption;
mod corruption_pages;
mod corruption_power_cut;
mod counters;
mod crashes_in_a_row;
mod discards;
mod distributed_spares;
mod domains;
mod doubt;
mod drives;
mod early_clients;
mod edges;
mod exchanged;
mod exposure;
mod faults;
mod first_writes;
mod governor;
mod grown;
mod grown_images;
mod growth;
mod hundred_million;
mod job_rates;
mod jobs_cut_off;
mod kept_map;
mod kills;
mod limits;
mod log;
mod log_crashes;
mod log_faults;
mod log_parity_only;
mod log_replay;
mod log_shortcuts;
mod log_space;
mod lost_before_replay;
mod lost_map;
mod lost_stripes;
mod older_copies;
mod oracle;
mod ownership;
mod power_cut;
mod reads;
mod rebuild_counts;
mod rebuild_passes;
mod rolled_back;
mod room;
mod scrub;
mod second_reader;
mod silence;
mod slow;
mod spares;
mod streams;
mod successors;
mod swept;
mod together;
mod trims;
