//! What the daemon tells the service manager of its unit (sd_notify(3)): that it is ready, how its
//! arrays are, and that it lives.
//!
//! What must stay true: without a service manager nothing happens. The watchdog is fed only after
//! every worker has answered, so a daemon whose workers hang is restarted; users of attached
//! volumes wait meanwhile. Not here: the descriptor store (`keeper`).

use crate::arrays::Arrays;
use crate::backend::Serves;
use ashlar_api::v1::array::{ArrayState, ArrayStatus};
use ashlar_api::v1::status::GetStatus;
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Time between two status lines, unless the watchdog wants more.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The status line names at most this many arrays.
const NAMED_MAX: usize = 4;

/// There is news before the next status line is due.
static NEWS: Notify = Notify::const_new();
/// What it says of its end is not said over.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// What is configured has been started, as far as it can be.
pub fn tell_ready() {
    tell(&[NotifyState::Ready]);
    NEWS.notify_one();
}

/// It ends in order, and says what it waits for in lines of its own.
pub fn tell_stopping() {
    IS_STOPPING.store(true, Ordering::Relaxed);
    let status = "stopping: waits until attached volumes are unmounted and closed";
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Tell how the arrays are, now and again, for ever.
pub async fn keep_telling(arrays: Arrays) {
    let watchdog = sd_notify::watchdog_enabled();
    let every = watchdog.map_or(TELL_EVERY, |limit| TELL_EVERY.min(limit / 3));
    loop {
        // No answer, no sign of life.
        if let Ok(status) = arrays.serve(GetStatus {}).await {
            tell(&[NotifyState::Watchdog]);
            if !IS_STOPPING.load(Ordering::Relaxed) {
                tell(&[NotifyState::Status(&line(&status.arrays))]);
            }
        }
        // Either is a reason to look again.
        let _due = tokio::time::timeout(every, NEWS.notified()).await;
    }
}

fn tell(states: &[NotifyState<'_>]) {
    // Nobody may listen.
    let _unheard = sd_notify::notify(states);
}

/// How the arrays are, in one line: how many in which state, and the names of those that need
/// somebody.
fn line(arrays: &[ArrayStatus]) -> String {
    if arrays.is_empty() {
        return "no arrays".to_owned();
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for array in arrays {
        *counts.entry(array.state.to_string()).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let troubled = arrays
        .iter()
        .filter(|array| !matches!(array.state, ArrayState::Clean | ArrayState::Resyncing));
    let named: Vec<&str> = troubled.take(NAMED_MAX).map(|array| array.name.as_str()).collect();
    let named = match named.is_empty() {
        true => String::new(),
        false => format!(" ({})", named.join(", ")),
    };
    let plural = if arrays.len() == 1 { "array" } else { "arrays" };
    format!("{} {plural}: {}{named}", arrays.len(), counts.join(", "))
}
