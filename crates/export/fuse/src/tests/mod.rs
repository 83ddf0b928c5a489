//! Tests without a kernel: the bytes, the directory, and reads and writes of any alignment.

mod bytes;
mod directory;
mod io;
