//! The reader on images that are made byte by byte from docs/on-disk-format.md.
//!
//! - `forge`    images of small arrays, built by offset
//! - `golden`   the images that the format is held to
//! - `reading`  data where the page says it lies; damage; members gone
//! - `logged`   what the stripe intent log adds
//! - `judging`  which member is believed
//! - `doubting` members that lost a part of what they held
//! - `hostile`  mutations: no panic, no endless work

mod doubting;
mod forge;
mod golden;
mod hostile;
mod judging;
mod logged;
mod reading;
mod summed;
