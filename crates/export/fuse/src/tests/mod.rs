//! Tests without a kernel: the bytes, and reads and writes of any alignment.

mod bytes;
mod io;
