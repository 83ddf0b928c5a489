//! What a submission queue entry asks for, by the queue it stands on.
//!
//! - `fabrics`: Connect, properties, authentication, Disconnect: on every queue
//! - `admin`: commands of the admin queue
//! - `nvm`: commands of I/O queues
//! - `feature`: what Get and Set Features speak of

mod admin;
mod fabrics;
mod feature;
mod nvm;

pub use admin::{
    AdminCommand, GetFeature, GetLogPage, Identify, SetFeature, opcode as admin_opcode,
};
pub use fabrics::{
    AuthTransfer, CONNECT_DATA_BYTES, Connect, ConnectData, DYNAMIC_CONTROLLER, FABRICS_OPCODE,
    FabricsCommand, InvalidParameter, connect_result,
};
pub use feature::Feature;
pub use nvm::{
    Blocks, DSM_RANGES_MAX, DsmRange, IoCommand, RegisterAction, ReservationAcquire,
    ReservationRegister, ReservationRelease, decode_ranges, opcode as io_opcode,
};
