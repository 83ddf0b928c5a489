//! Claims about devices, made through the crate's public face.

mod block;
mod files;
mod memory;
mod memory_files;
mod open_paths;
mod probe;
mod record;
mod silent;
mod world;
mod wrappers;
mod zombie;
