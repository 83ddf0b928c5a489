//! What a panic of this process does: docs/adr/0044 says why.
//!
//! What must stay true: a worker that panics ends the process at once, before anything of its is
//! dropped: what an export drops, it answers. So it is as if the process had been killed. The
//! exception is work that only makes, starts or looks at an array, in code that shares nothing with
//! other arrays: that is refused (`EngineState::try_on_worker`). A panic of a command on the
//! control thread ends that command.

use std::panic::{self, PanicHookInfo};

/// Names of the workers' threads begin so.
const WORKER: &str = "ashlar-worker-";

/// Code that works on one array alone. What all arrays of a worker share is not in it: executor and
/// ring, devices, buffers.
const OF_ONE_ARRAY: [&str; 6] = [
    "crates/engine/src/",
    "crates/ondisk/src/",
    "crates/layout/src/",
    "crates/parity/src/",
    "crates/gf/src/",
    "crates/units/src/",
];

/// What of it all arrays of a worker share.
const SHARED: [&str; 4] = ["worker.rs", "worker/pieces.rs", "engine_state.rs", "thread.rs"];

/// From now on, until the process ends.
pub(crate) fn end_the_process() {
    let say = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        say(info);
        let thread = std::thread::current();
        let is_worker = thread.name().is_some_and(|name| name.starts_with(WORKER));
        // A command's task is ended by whoever runs it.
        let is_command = tokio::task::try_id().is_some();
        if (is_worker && !is_refused(info)) || (thread.name() == Some("main") && !is_command) {
            eprintln!(
                "ashlar: this is a bug of ashlar; the process ends now, and nothing that was \
                 answered is lost: start it again, and its arrays start as after a kill; please \
                 report the lines above"
            );
            std::process::abort();
        }
    }));
}

fn is_refused(info: &PanicHookInfo<'_>) -> bool {
    let is_of_one_array = |file: &str| {
        OF_ONE_ARRAY.iter().any(|place| file.starts_with(place))
            && !SHARED.iter().any(|name| file.ends_with(name))
    };
    ashlar_ring::is_contained() && info.location().is_some_and(|it| is_of_one_array(it.file()))
}
