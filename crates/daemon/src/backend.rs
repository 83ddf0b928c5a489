//! The interface between the control socket and the owner of the arrays.
//!
//! What must stay true: a backend answers each call by its request type and in no other way. So a
//! route without an answer, or an answer of the wrong type, does not compile. The daemon puts the
//! engine behind it, tests a few lines.

use crate::control::with;
use ashlar_api::v1::array::{Appeared, Assemble, Create, Scan, Stop};
use ashlar_api::v1::event::Event;
use ashlar_api::v1::export::{Attach, FuseAttach, FuseDetach, NbdListen, UblkAttach, UblkDetach};
use ashlar_api::v1::job::{JobControl, ScrubStart};
use ashlar_api::v1::member::{Fail, ReAdd, Replace};
use ashlar_api::v1::notify::NotifyTest;
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_api::v1::status::GetStatus;
use ashlar_api::{ApiError, Call};
use axum::Router;
use std::future::Future;

/// Answers one kind of call.
pub trait Serves<C: Call> {
    /// Do what is asked.
    ///
    /// # Errors
    /// A refusal; then nothing was changed unless its message says so.
    fn serve(&self, call: C) -> impl Future<Output = Result<C::Answer, ApiError>> + Send;
}

/// Declares what a backend answers, and the routes that lead there: one line a call.
macro_rules! answers {
    ($($call:ty),* $(,)?) => {
        /// Answers all calls.
        pub trait Backend: $(Serves<$call> +)* Clone + Send + Sync + 'static {
            /// Wait until changes may be asked for: what is configured was started, as far as it
            /// can be.
            fn ready(&self) -> impl Future<Output = ()> + Send {
                async {}
            }

            /// The kept events with a sequence above `after`, oldest first.
            fn events_since(&self, after: u64) -> Vec<Event>;

            /// All kept events, with repeated ones that are being counted told as far as they have
            /// come.
            fn all_events(&self) -> Vec<Event>;

            /// Put into the event log that `name` happened, to no array.
            fn record(&self, name: &'static str, fields: Vec<(&'static str, String)>);
        }

        /// `router` with the route of each call.
        pub(crate) fn with_calls<B: Backend>(router: Router<B>) -> Router<B> {
            $(let router = with::<B, $call>(router);)*
            router
        }
    };
}

answers!(
    Create,
    Assemble,
    Scan,
    Appeared,
    Stop,
    Fail,
    Replace,
    ReAdd,
    SpareAdd,
    SpareRemove,
    ScrubStart,
    JobControl,
    NbdListen,
    Attach,
    FuseAttach,
    FuseDetach,
    UblkAttach,
    UblkDetach,
    GetStatus,
    NotifyTest,
);
