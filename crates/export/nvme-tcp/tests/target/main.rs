//! The target from outside: hosts of our own that keep the rules, and hosts that do not.

mod controllers;
mod fences;
mod host;
mod hostile;
mod identity;
mod queue;
mod requests;
mod server;
