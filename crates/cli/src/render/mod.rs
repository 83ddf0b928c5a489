//! How answers look: status is the screen of `ashlar status`, exposure a line of it; table lines
//! columns up, rate prints speeds.

pub mod domains;
pub mod exposure;
pub mod rate;
pub mod status;
pub mod table;
