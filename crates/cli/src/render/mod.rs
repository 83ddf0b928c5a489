//! How answers look: status is the screen of `ashlar status`, table lines columns up, rate prints
//! speeds.

pub mod domains;
pub mod rate;
pub mod status;
pub mod table;
