//! The NBD server with real clients on the other side, over Unix and TCP sockets, on a volume in
//! memory.
//!
//! - `server`: the server in a thread of its own
//! - `tools`: running other people's clients, never for longer than a limit
//! - `third_party`: nbdinfo, nbdcopy, nbdsh, qemu-img, qemu-io, fio
//! - `hostile`: a client that breaks the rules, byte by byte
//! - `listening`: sockets and who may connect

mod hostile;
mod listening;
mod server;
mod third_party;
mod tools;
