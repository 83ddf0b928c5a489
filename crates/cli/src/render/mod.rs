//! How answers look: status is the screen of `ashlar status`, table lines columns up, rate and
//! moment print speeds and times.

pub mod moment;
pub mod rate;
pub mod status;
pub mod table;
