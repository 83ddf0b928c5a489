//! A call: a request type that knows where it goes and what comes back.
//!
//! What must stay true: the path and the answer's type are written once, at the request. The daemon
//! builds its routes from them and the client its requests.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The HTTP methods in use: a `Get` changes nothing and has no body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Ask.
    Get,
    /// Change something; the body is the request as JSON.
    Post,
}

/// A request of the control interface.
pub trait Call: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// How it is sent.
    const METHOD: Method = Method::Post;
    /// Where it is sent.
    const PATH: &'static str;
    /// What comes back when it went well; otherwise an [`ApiError`](crate::ApiError) does.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}
