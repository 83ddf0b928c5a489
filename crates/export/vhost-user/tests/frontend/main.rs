//! Frontends against the real server, over sockets and shared memory.
//!
//! - `client`    a frontend and its guest: messages, rings, requests
//! - `server`    the server of one volume, on a thread of its own
//! - `ordinary`  what frontends and drivers do
//! - `growth`    a volume that grows under its frontend
//! - `hostile`   what they do not do
//! - `replay`    a server that is gone, and its successor

mod client;
mod growth;
mod hostile;
mod ordinary;
mod replay;
mod server;
