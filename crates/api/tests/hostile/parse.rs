//! Bodies of requests to the control socket, parsed as each of them.
//!
//! What must stay true: no body makes anything here panic, and a request that was understood says
//! the same when it is written and read again. `fuzz/` hands the same function to libFuzzer,
//! `../mutations.rs` to a seed.

use ashlar_api::v1::array::{Assemble, Create, Stop};
use ashlar_api::v1::export::{FuseAttach, FuseDetach, NbdListen};
use ashlar_api::v1::job::{JobControl, ScrubStart};
use ashlar_api::v1::member::{Fail, ReAdd, Replace};
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_api::{ApiError, Call};

fn as_one<C: Call>(body: &[u8]) -> bool {
    let Ok(call) = serde_json::from_slice::<C>(body) else { return false };
    let written = serde_json::to_value(&call).expect("what was read can be written");
    let again: C = serde_json::from_value(written.clone()).expect("what was written can be read");
    let twice = serde_json::to_value(&again).expect("what was read can be written");
    assert_eq!(written, twice, "it says the same");
    true
}

/// How many kinds of requests `body` is.
pub fn body(body: &[u8]) -> usize {
    let _refusal = serde_json::from_slice::<ApiError>(body);
    let kinds = [
        as_one::<Create>,
        as_one::<Assemble>,
        as_one::<Stop>,
        as_one::<Fail>,
        as_one::<Replace>,
        as_one::<ReAdd>,
        as_one::<SpareAdd>,
        as_one::<SpareRemove>,
        as_one::<ScrubStart>,
        as_one::<JobControl>,
        as_one::<NbdListen>,
        as_one::<FuseAttach>,
        as_one::<FuseDetach>,
    ];
    kinds.iter().filter(|is_one| is_one(body)).count()
}
