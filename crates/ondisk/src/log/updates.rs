//! Puts the records of all devices together into updates: which devices have the record of each,
//! and which lack it.
//!
//! What must stay true: records of one update say the same, a holder stores the strip that its
//! record names, and one ring writes a stripe. Anything else is a contradiction that no crash
//! explains. Pure.

use super::record::Record;
use super::scan::{LoggedRecord, MemberLog};
use ashlar_layout::Geometry;
use ashlar_units::{MemberIdx, StripIdx, StripeNo};
use std::collections::BTreeMap;

/// A device in service, and what its log says.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLog<'a> {
    /// Its log tag. Devices without one take no part.
    pub log_tag: u64,
    /// The slot it holds or is on its way into.
    pub slot: MemberIdx,
    /// What was found on it.
    pub log: &'a MemberLog,
    /// The operator takes it although it may lack writes: its log may lack their records.
    pub may_lack: bool,
}

/// Which strip of a stripe each slot stores: the one place where the judgement asks the layout.
#[derive(Clone, Copy)]
pub enum Places<'a> {
    /// That of the geometry, at all times.
    Fixed(&'a Geometry),
    /// Where the strips are now, of an array whose strips may have been elsewhere when a record was
    /// written: on distributed spares. A device that a record names, and that stores another strip
    /// or none by now, counts as a holder. Nothing is written to it.
    Moving(&'a dyn Fn(StripeNo, MemberIdx) -> Option<StripIdx>),
}

impl Places<'_> {
    /// The strip of a stripe that lies on the device.
    pub(super) fn strip_of(&self, device: &DeviceLog<'_>, stripe: StripeNo) -> Option<StripIdx> {
        match self {
            // Records name a stripe by its number alone: an array on disk has one geometry.
            Places::Fixed(geometry) => geometry.strip_on(geometry.stripe(stripe), device.slot),
            Places::Moving(strip_on) => strip_on(stripe, device.slot),
        }
    }
}

/// The logs contradict each other, which no crash explains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the logs contradict each other: {what} (log ring {log_ring}, update {sequence}, stripe \
     {stripe})"
)]
pub struct Contradiction {
    /// What about.
    pub what: &'static str,
    /// The log ring.
    pub log_ring: u16,
    /// The update.
    pub sequence: u64,
    /// The stripe.
    pub stripe: StripeNo,
}

/// An update, and the devices that have its record.
pub(super) struct LoggedUpdate<'a> {
    pub(super) log_ring: u16,
    pub(super) record: &'a Record,
    pub(super) held: Vec<Held<'a>>,
}

/// The record of an update on one device.
pub(super) struct Held<'a> {
    pub(super) device: usize,
    /// The strip the device stores.
    pub(super) strip: StripIdx,
    /// Whether it still does.
    pub(super) is_there: bool,
    pub(super) logged: &'a LoggedRecord,
}

impl LoggedUpdate<'_> {
    /// The devices in service that are named and lack a record that they must have had.
    pub(super) fn lacking(&self, devices: &[DeviceLog<'_>]) -> Vec<usize> {
        let names = |tag: u64| self.record.holders.iter().any(|holder| holder.log_tag == tag);
        let lacks = |at: usize| self.held.iter().all(|held| held.device != at);
        let must_have = |device: &DeviceLog<'_>| device.log_tag != 0 && !device.may_lack;
        let in_service = devices.iter().enumerate().filter(|(_, device)| must_have(device));
        in_service.filter(|(at, device)| names(device.log_tag) && lacks(*at)).map(|d| d.0).collect()
    }
}

/// The updates of each stripe, sequences rising.
///
/// # Errors
/// If records of one update differ, a holder's strip is not the one that lies on its slot, or two
/// log rings speak of one stripe.
pub(super) fn updates_by_stripe<'a>(
    devices: &[DeviceLog<'a>],
    places: Places<'_>,
) -> Result<BTreeMap<StripeNo, Vec<LoggedUpdate<'a>>>, Contradiction> {
    let mut updates: BTreeMap<(u16, u64), LoggedUpdate<'a>> = BTreeMap::new();
    for (at, device) in devices.iter().enumerate().filter(|(_, device)| device.log_tag != 0) {
        for logged in &device.log.records {
            let (log_ring, record) = (logged.log_ring, &logged.record);
            let contradiction = |what| Contradiction {
                what,
                log_ring,
                sequence: record.sequence,
                stripe: record.stripe,
            };
            let own = record.holders.iter().find(|holder| holder.log_tag == device.log_tag);
            let stored = places.strip_of(device, record.stripe);
            let may_move = matches!(places, Places::Moving(_));
            let is_believed = |own: &StripIdx| Some(*own) == stored || may_move;
            let strip = own.map(|own| own.strip).filter(is_believed).ok_or_else(|| {
                contradiction("a holder does not store the strip that its record names")
            })?;
            let is_there = stored == Some(strip);
            let none = || LoggedUpdate { log_ring, record, held: Vec::new() };
            let update = updates.entry((log_ring, record.sequence)).or_insert_with(none);
            if !is_same_update(update.record, record) {
                return Err(contradiction("its records differ"));
            }
            if update.held.iter().all(|held| held.device != at) {
                update.held.push(Held { device: at, strip, is_there, logged });
            }
        }
    }
    let mut stripes: BTreeMap<StripeNo, Vec<LoggedUpdate<'a>>> = BTreeMap::new();
    for ((log_ring, sequence), update) in updates {
        let of_stripe = stripes.entry(update.record.stripe).or_default();
        if of_stripe.first().is_some_and(|first| first.log_ring != log_ring) {
            let what = "two log rings write one stripe";
            return Err(Contradiction { what, log_ring, sequence, stripe: update.record.stripe });
        }
        of_stripe.push(update);
    }
    Ok(stripes)
}

fn is_same_update(one: &Record, two: &Record) -> bool {
    (one.stripe, one.kind, one.rows, &one.holders) == (two.stripe, two.kind, two.rows, &two.holders)
}
