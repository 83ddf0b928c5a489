//! The AArch64 backend.
//!
//! What must stay true: it is held to the same claims as the x86-64 backends, under an emulator
//! (`check-neon` in this crate's folder). No AArch64 machine has timed it, so nothing here claims
//! speed.

pub(crate) mod neon;
