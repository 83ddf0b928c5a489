//! Starting commands and waiting for them, as two separate steps.
//!
//! A caller starts as many as it likes, one call each, and then waits for them in any order: all
//! run at once. Starting happens in the call, not in the first poll. What must stay true: the
//! starter of a command learns how it ended. A completion that is dropped unfinished (the worker
//! stops) counts as a device that is gone. Not here: what the commands mean (`device`).
//!
//! # Cancellation
//! Dropping a future leaves the command running. Its buffer is dropped when the device is done with
//! it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completions, Pending};

use crate::device::{Command, Device, Outcome};
use crate::fault::Fault;

/// A read in flight: resolves with the filled buffer.
#[must_use = "the read has been started; its buffer and its fault come out here"]
pub struct Reading(Pending<Outcome>);

/// Any other command in flight.
#[must_use = "the command has been started; its fault comes out here"]
pub struct Doing(Pending<Outcome>);

/// A read that failed.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct ReadFailed {
    /// Why.
    pub fault: Fault,
    /// The buffer, content unspecified; empty if the worker stopped before the device answered, or
    /// the device was given up.
    pub buffer: BufMut,
}

/// Starts reading at `offset` until `buffer` is full.
///
/// # Panics
/// If offset or length are not multiples of the device's logical block. The same goes for all
/// below.
pub fn read(
    device: &dyn Device,
    supply: &Completions<Outcome>,
    offset: u64,
    buffer: BufMut,
) -> Reading {
    Reading(start(device, supply, offset, Command::Read(buffer)))
}

/// Starts writing all of `buffer` at `offset`.
pub fn write(
    device: &dyn Device,
    supply: &Completions<Outcome>,
    offset: u64,
    buffer: Buf,
) -> Doing {
    Doing(start(device, supply, offset, Command::Write(buffer)))
}

/// Starts writing all of `buffer` at `offset`, on stable media when done.
pub fn write_durable(
    device: &dyn Device,
    supply: &Completions<Outcome>,
    offset: u64,
    buffer: Buf,
) -> Doing {
    Doing(start(device, supply, offset, Command::WriteDurable(buffer)))
}

/// Starts making durable all that completed before.
pub fn flush(device: &dyn Device, supply: &Completions<Outcome>) -> Doing {
    Doing(start(device, supply, 0, Command::Flush))
}

/// Starts making `bytes` bytes from `offset` on read as zeros.
pub fn write_zeroes(
    device: &dyn Device,
    supply: &Completions<Outcome>,
    offset: u64,
    bytes: u64,
) -> Doing {
    Doing(start(device, supply, offset, Command::WriteZeroes { bytes }))
}

/// Starts telling the device that `bytes` bytes from `offset` on are not needed.
pub fn discard(
    device: &dyn Device,
    supply: &Completions<Outcome>,
    offset: u64,
    bytes: u64,
) -> Doing {
    Doing(start(device, supply, offset, Command::Discard { bytes }))
}

fn start(
    device: &dyn Device,
    supply: &Completions<Outcome>,
    offset: u64,
    command: Command,
) -> Pending<Outcome> {
    let (done, pending) = supply.pair();
    device.submit(offset, command, done);
    pending
}

impl Future for Reading {
    type Output = Result<BufMut, ReadFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = Pin::new(&mut self.0).poll(cx) else { return Poll::Pending };
        let Some(Outcome { result, buffer }) = outcome else {
            return Poll::Ready(Err(ReadFailed { fault: Fault::GONE, buffer: BufMut::zeroed(0) }));
        };
        Poll::Ready(match result {
            Ok(()) => Ok(buffer.expect("a device gives the buffer of a read that went well back")),
            Err(fault) => {
                let buffer = buffer.unwrap_or_else(|| BufMut::zeroed(0));
                Err(ReadFailed { fault, buffer })
            }
        })
    }
}

impl Future for Doing {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = Pin::new(&mut self.0).poll(cx) else { return Poll::Pending };
        Poll::Ready(outcome.map_or(Err(Fault::GONE), |outcome| outcome.result))
    }
}
