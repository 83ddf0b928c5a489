//! Layout version 2 from outside: the map against a reference that is written differently, the
//! vectors for a second implementer, evenness as equalities, and every small set of losses.
//!
//! - `reference` the map of docs/on-disk-format.md as slow loops; shares no code with the crate
//! - `vectors`   tests/golden/declustered.txt, made by the crate and checked by the reference
//! - `map`       there and back, and no stripe twice on a member or in a domain
//! - `evenness`  equalities for prime numbers of members, bounds for others
//! - `decoding`  every pair and triple of losses to 24 members
//! - `exposure`  losses that stripes survive, counted strip by strip
//! - `growth`    arrays that grow, at every frontier
//! - `grown_reference` growth as a table in which cells are moved one by one
//! - `grown_vectors` tests/golden/growth.txt, as `vectors`
//! - `refusals`  what is not a layout, and what is said then
//! - `rebuild`   order, reads and exact counts of rebuilds
//! - `pools`     an array as numbers: losses, returns, copy-backs, writes and crashes at random
//! - `scenarios` reported faults of another declustered RAID, replayed
//! - `times`     the model of rebuild times against figures worked out by hand
//! - `sequences` 100,000 random lives of small arrays, and what is found without each rule

mod decoding;
mod domains;
mod evenness;
mod exposure;
mod grown_reference;
mod grown_vectors;
mod growth;
mod map;
mod pools;
mod rebuild;
mod reference;
mod refusals;
mod scenarios;
mod sequences;
mod times;
mod vectors;

use ashlar_layout::declustered::{DECLUSTERED_SEED, DeclusteredParts, GROWTHS_MAX};

/// A layout of `members` members with stripes of `code` data and parity strips, small in the rest.
fn parts(members: usize, code: (usize, usize), spare_columns: usize) -> DeclusteredParts {
    DeclusteredParts {
        data_strips: code.0,
        parity_strips: code.1,
        members,
        domain_members: 1,
        spare_columns,
        cell_rows: 1,
        strip_bytes: 4096,
        rows: 1 << 20,
        seed: DECLUSTERED_SEED,
        growths: [None; GROWTHS_MAX],
    }
}
