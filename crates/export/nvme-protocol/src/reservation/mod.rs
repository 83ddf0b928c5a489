//! Reservations of a namespace: which hosts may read and write it while they share it.
//!
//! - `state`: registrants, holder, and what each command does with them
//! - `access`: what a reservation lets a host do
//! - `report`: the answer to Reservation Report
//! - `bytes`: what survives a restart, as plain bytes
//!
//! Base 2.0, 8.19 "Reservations".

mod access;
mod bytes;
mod report;
mod state;

pub use access::ReservationType;
pub use bytes::{NotReservations, RESERVATION_BYTES_MAX};
pub use report::ReportedController;
pub use state::{
    Keys, Notified, REGISTRANTS_MAX, Registrant, Reservations, acquire_keys, register_keys,
    release_key,
};
