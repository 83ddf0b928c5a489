//! Claims about devices, made through the crate's public face.

mod block;
mod files;
mod memory;
mod open_paths;
mod world;
mod wrappers;
