//! The interface between the control socket and the owner of the arrays.
//!
//! What must stay true: a backend answers each call by its request type and in no other way. So a
//! route without an answer, or an answer of the wrong type, does not compile. The daemon puts the
//! engine behind it, tests a few lines.

use crate::control::with;
use ashlar_api::openapi::{Document, OPENAPI_PATH};
use ashlar_api::v1::array::{Appeared, Assemble, Create, Destroy, Rename, Scan, Stop};
use ashlar_api::v1::event::{EVENTS_PATH, Event, FOLLOW_PATH};
use ashlar_api::v1::export::{Attach, FuseAttach, FuseDetach, NbdListen, UblkAttach, UblkDetach};
use ashlar_api::v1::growth::Grow;
use ashlar_api::v1::job::{JobControl, ScrubStart};
use ashlar_api::v1::member::{Fail, Locate, ReAdd, Replace, Wipe};
use ashlar_api::v1::notify::NotifyTest;
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_api::v1::status::{GetStatus, METRICS_PATH};
use ashlar_api::v1::tuning::SetTuning;
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

        /// Puts each call into the document.
        fn describe(document: &mut Document) {
            $(document.call::<$call>();)*
        }

        /// `router` with the route of each call.
        pub(crate) fn with_calls<B: Backend>(router: Router<B>) -> Router<B> {
            $(let router = with::<B, $call>(router);)*
            router
        }
    };
}

/// The control interface as an OpenAPI document.
#[must_use]
pub fn openapi() -> serde_json::Value {
    let mut document = Document::new();
    describe(&mut document);
    document.lines::<Event>(EVENTS_PATH, "The events that the daemon keeps, oldest first");
    document.lines::<Event>(FOLLOW_PATH, "The events that the daemon keeps, and new ones for ever");
    document.plain(METRICS_PATH, "Metrics as OpenMetrics text", "application/openmetrics-text");
    document.plain(OPENAPI_PATH, "This document", "application/json");
    document.finish()
}

answers!(
    Create,
    Assemble,
    Scan,
    Appeared,
    Stop,
    Destroy,
    Rename,
    SetTuning,
    Grow,
    Fail,
    Replace,
    ReAdd,
    Locate,
    Wipe,
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

#[cfg(test)]
mod tests {
    use super::openapi;
    use serde_json::Value;

    /// Every object below `value` that this holds for.
    fn all<'a>(value: &'a Value, holds: &impl Fn(&Value) -> bool, found: &mut Vec<&'a Value>) {
        if holds(value) {
            found.push(value);
        }
        match value {
            Value::Object(fields) => fields.values().for_each(|it| all(it, holds, found)),
            Value::Array(items) => items.iter().for_each(|it| all(it, holds, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        let document = openapi();
        let mut references = Vec::new();
        all(&document, &|it| it.get("$ref").is_some(), &mut references);
        assert!(references.len() > 60, "{}", references.len());
        for reference in references {
            let to = reference["$ref"].as_str().expect("text").trim_start_matches('#');
            assert!(document.pointer(to).is_some(), "{to}");
        }
    }

    #[test]
    fn every_request_allows_its_own_fields_only_and_every_field_says_what_it_is() {
        let document = openapi();
        let (mut requests, mut fields) = (0, 0);
        for (path, methods) in document["paths"].as_object().expect("paths") {
            let request =
                methods.pointer("/post/requestBody/content/application~1json/schema/$ref");
            let Some(to) = request.and_then(Value::as_str) else { continue };
            requests += 1;
            let schema = document.pointer(to.trim_start_matches('#')).expect("a schema");
            assert_eq!(schema["additionalProperties"], false, "{path}");
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                fields += 1;
                let words = field["description"].as_str().unwrap_or_default();
                assert!(words.len() > 5, "{path}: {name} is not described");
            }
        }
        assert!(requests >= 19 && fields > 50, "{requests} requests, {fields} fields");
    }
}
