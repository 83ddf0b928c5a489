//! The process behind `ashlar serve`: configuration, the control socket, metrics, exports.
//!
//! In reading order:
//! - [`config`]    what a TOML file may say
//! - [`backend`]   the seam: what the control socket asks, and whoever answers it
//! - [`control`]   the control socket: routes, refusals, the stream of events
//! - [`metrics`]   a status as OpenMetrics text, and the optional listener for it
//!
//! What must stay true: the control side runs on a thread of its own and is never on the path of a
//! request; everything that comes from outside (file, socket) is checked before anything is done.
#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
pub mod control;
pub mod metrics;
