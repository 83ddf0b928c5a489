//! The control interface of Ashlar, version 1: what one process asks of another, as plain data.
//!
//! - [`call`]: a request type carries its path and the type of its answer
//! - [`error`]: how a refusal looks
//! - [`openapi`]: the interface as a document for other programs
//! - [`v1`]: the requests and answers themselves, one file for each noun
//! - [`words`]: numbers and times for people
//! - `client`: a blocking client over the control socket (feature `client`)
//!
//! What must stay true: the daemon and its clients use these types and no others, so that the two
//! sides cannot drift apart. A request with an unknown field is refused, never obeyed in part.
//! Answers may gain fields. Nothing here knows the engine; the daemon
//! converts. Only the level of an array is `layout`'s own type.
#![forbid(unsafe_code)]

pub mod call;
#[cfg(feature = "client")]
pub mod client;
pub mod error;
pub mod openapi;
pub mod v1;
pub mod words;

pub use call::{Call, Method};
#[cfg(feature = "client")]
pub use client::{Client, ClientError};
pub use error::{ApiError, codes};
