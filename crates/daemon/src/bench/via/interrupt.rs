//! An interrupted measurement: SIGINT and SIGTERM end it in order, so that the daemon, devices and
//! files that it made go before this process does.
//!
//! What must stay true: a second signal ends the process at once.

use super::child::fault;
use ashlar_api::ApiError;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// Set by the first signal.
static IS_ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The exit code of a process that a signal ended: 128 and the number of the signal.
const EXIT_OF_SIGNAL: i32 = 128;

/// From now on signals only ask for the end.
pub(super) fn listen() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let is_asked = Arc::clone(&IS_ASKED);
        flag::register_conditional_shutdown(signal, EXIT_OF_SIGNAL + signal, is_asked)?;
        flag::register(signal, Arc::clone(&IS_ASKED))?;
    }
    Ok(())
}

/// Whether the measurement is to end.
pub(super) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// # Errors
/// If the measurement is to end.
pub(super) fn check() -> Result<(), ApiError> {
    match is_asked() {
        true => Err(fault("the measurement is not complete", "it was interrupted")),
        false => Ok(()),
    }
}
