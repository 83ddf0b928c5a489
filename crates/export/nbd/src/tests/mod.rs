//! Tests of the pure code: what a client may send, byte by byte.
//!
//! - `wire`: request and reply headers
//! - `negotiate`: the handshake, honest and hostile
//! - `admit`: which requests are let in

mod admit;
mod negotiate;
mod wire;
