//! Who says what of an array on its members: reads and writes of heartbeat blocks.
//!
//! What must stay true: a heartbeat of a running array waits for no device longer than half an
//! interval. What a slow device answers later counts then.

use super::beats::AskedOf;
use super::{Found, found_in};
use crate::config::Runner;
use crate::control_io::{self, aligned};
use crate::coordinator::holders::devices_in_service;
use crate::local_array::LocalArray;
use ashlar_device::{Command, Device, DeviceFacts};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::format::{HEARTBEAT_BYTES, HEARTBEAT_OFFSET, HEARTBEAT_SLOTS};
use ashlar_ondisk::{Heartbeat, RunnerName};
use ashlar_ring::until;
use ashlar_units::{Nanos, to_u64, to_usize};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Who says what of an array.
pub(super) struct Speaker<'s> {
    pub(super) local: &'s Rc<LocalArray>,
    pub(super) runner: &'s Runner,
    pub(super) array: Uuid,
    pub(super) incarnation: Uuid,
}

impl<'s> Speaker<'s> {
    pub(super) fn new(
        local: &'s Rc<LocalArray>,
        runner: &'s Runner,
        incarnation: Uuid,
    ) -> Speaker<'s> {
        let array = local.coordinator().superblock().array_uuid;
        Speaker { local, runner, array, incarnation }
    }

    pub(super) fn devices(&self) -> Vec<Rc<dyn Device>> {
        let devices = devices_in_service(self.local).into_iter().map(|(_, device)| device);
        let beats = &self.local.coordinator().beats;
        devices.filter(|device| !beats.is_late(device)).collect()
    }

    pub(super) fn now(&self) -> Nanos {
        self.local.worker.handle.now()
    }

    /// How long a heartbeat waits for devices: others listen for it on those that are faster.
    fn patience(&self) -> Nanos {
        self.now().after(self.runner.interval / 2)
    }

    /// What the devices say, as far as they answer soon; of those that answer later, what they said
    /// since the last look.
    pub(super) async fn read(&self) -> Vec<Found> {
        let (beats, devices) = (&self.local.coordinator().beats, self.devices());
        let mut reads = std::mem::take(&mut *beats.reads.borrow_mut());
        let is_there = |it: &Rc<dyn Device>| devices.iter().any(|own| Rc::ptr_eq(own, it));
        reads.retain(|(device, _)| is_there(device));
        let is_read = |it: &Rc<dyn Device>| reads.iter().any(|(own, _)| Rc::ptr_eq(own, it));
        let rest: Vec<_> = devices.iter().filter(|device| !is_read(device)).cloned().collect();
        reads.extend(self.start_reads(&rest));
        let (found, late) = self.ended_reads(reads, self.patience()).await;
        *beats.reads.borrow_mut() = late;
        found.into_iter().map(|(_, found)| found).collect()
    }

    fn start_reads(&self, devices: &[Rc<dyn Device>]) -> AskedOf {
        let bytes = to_usize(HEARTBEAT_BYTES) * HEARTBEAT_SLOTS;
        let start = |device: &Rc<dyn Device>| {
            let read = Command::Read(BufMut::zeroed(bytes));
            let worker = &self.local.worker;
            let pending = control_io::start(worker, device.as_ref(), HEARTBEAT_OFFSET, read);
            (Rc::clone(device), pending)
        };
        devices.iter().map(start).collect()
    }

    /// What those devices say that answer until then, and the reads of the others. One that cannot
    /// be read says nothing.
    async fn ended_reads(
        &self,
        reads: AskedOf,
        end: Nanos,
    ) -> (Vec<(Rc<dyn Device>, Found)>, AskedOf) {
        let (mut found, mut late) = (Vec::new(), Vec::new());
        for (device, mut read) in reads {
            match until(&mut read, self.local.worker.handle.sleep_until(end)).await {
                None => late.push((device, read)),
                Some(outcome) => {
                    let read = outcome.filter(|outcome| outcome.result.is_ok());
                    if let Some(blocks) = read.and_then(|outcome| outcome.buffer) {
                        let beats = found_in(self.array, Some(&blocks), device.facts());
                        found.push((device, beats));
                    }
                }
            }
        }
        (found, late)
    }

    /// What all of these devices say until then, and how many have not answered.
    pub(super) async fn read_all(
        &self,
        devices: &[Rc<dyn Device>],
        end: Nanos,
    ) -> (Vec<(Rc<dyn Device>, Found)>, usize) {
        let (found, late) = self.ended_reads(self.start_reads(devices), end).await;
        (found, late.len())
    }

    /// Write the block of this number to all devices in service. An `interval` of zero: the array
    /// does not run here.
    pub(super) async fn write(&self, sequence: u64, interval: Duration) {
        self.write_to(self.devices(), (sequence, interval), self.patience()).await;
    }

    /// Write it to these: those that have it before `end`, and how many have not answered. Of such
    /// a device nothing more is asked until it has.
    pub(super) async fn write_to(
        &self,
        devices: Vec<Rc<dyn Device>>,
        (sequence, interval): (u64, Duration),
        end: Nanos,
    ) -> (Vec<Rc<dyn Device>>, usize) {
        let (handle, beats) = (&self.local.worker.handle, &self.local.coordinator().beats);
        let began = handle.now();
        let mut writes: AskedOf = Vec::new();
        for device in devices {
            let heartbeat = self.heartbeat(sequence, interval, device.facts());
            let block = aligned(&heartbeat.encode());
            let offset = HEARTBEAT_OFFSET + to_u64(heartbeat.slot()) * HEARTBEAT_BYTES;
            // Nobody watches these: an idle array would look at them for ever. The sweep looks
            // whether one is stuck.
            let write = Command::Write(block);
            let pending = control_io::start(&self.local.worker, device.as_ref(), offset, write);
            writes.push((device, pending));
        }
        let (mut written, mut late) = (Vec::new(), 0);
        for (device, mut write) in writes {
            // A member that fails says so where data goes to it; a heartbeat alone puts nobody out.
            match until(&mut write, handle.sleep_until(end)).await {
                None => {
                    late += 1;
                    beats.is_late_from(began, (device, write));
                }
                Some(Some(outcome)) if outcome.result.is_ok() => {
                    beats.has_landed(began);
                    written.push(device);
                }
                Some(_) => {}
            }
        }
        (written, late)
    }

    fn heartbeat(&self, sequence: u64, interval: Duration, facts: &DeviceFacts) -> Heartbeat {
        let name = RunnerName {
            host: self.runner.host_id.clone(),
            process: self.runner.process,
            opened: super::opened_by(facts),
        };
        Heartbeat {
            array_uuid: self.array,
            incarnation: self.incarnation,
            sequence,
            interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX),
            host_id: name.to_text(),
            boot_id: Uuid::from_bytes(self.runner.boot_id),
        }
    }
}
