//! What became of I/Os between submission and the device: sizes, splits, merges, alignment.
//!
//! What must stay true: submitted is what came in from above, issued is what went to the driver; an
//! issue is off a boundary if its start or its end is; lost events make the account invalid, never
//! smaller.

use super::event::{Event, Kind};
use crate::record::pairs;
use crate::rules;
use crate::validity::Finding;
use serde::Serialize;
use std::collections::BTreeMap;

/// I/Os of one station in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Flow {
    pub ios: u64,
    pub bytes: u64,
    /// Size in bytes -> how often it came.
    #[serde(serialize_with = "pairs::serialize")]
    pub sizes: BTreeMap<u64, u64>,
    /// I/Os that begin or end off a multiple of 4096 bytes, of the strip and of the full stripe,
    /// if their sizes were given.
    pub off_4k: u64,
    pub off_strip: Option<u64>,
    pub off_stripe: Option<u64>,
}

/// Sizes of a strip and of a full stripe's data in bytes, if given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Geometry {
    pub strip_bytes: Option<u64>,
    pub stripe_data_bytes: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DeviceAccount {
    /// Path, as it was given.
    pub device: String,
    pub submitted_writes: Flow,
    pub submitted_reads: Flow,
    pub issued_writes: Flow,
    pub issued_reads: Flow,
    pub splits: u64,
    /// Cuts that are off the full stripe, if its size was given.
    pub splits_off_stripe: Option<u64>,
    pub merges: u64,
    pub failed: u64,
    /// What limits an I/O's size: `max_sectors_kb` and the like.
    pub limits: BTreeMap<String, String>,
    #[serde(skip)]
    number: (u32, u32),
    #[serde(skip)]
    geometry: Geometry,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceAccount {
    pub of: String,
    #[serde(flatten)]
    pub geometry: Geometry,
    /// The device that was asked for.
    pub device: DeviceAccount,
    pub members: Vec<DeviceAccount>,
    /// Member writes and reads for each write that came in, if members were given and there were
    /// writes.
    pub members_per_write: Option<(f64, f64)>,
    /// Events that the kernel had no room for.
    pub lost: u64,
    pub findings: Vec<Finding>,
}

impl Flow {
    fn add(&mut self, event: &Event, geometry: Geometry) {
        let (start, bytes) = (event.start(), event.bytes());
        let is_off = |size: u64| {
            !start.is_multiple_of(size) || !start.saturating_add(bytes).is_multiple_of(size)
        };
        self.ios += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.off_4k += u64::from(is_off(4096));
        for (size, off) in [
            (geometry.strip_bytes, &mut self.off_strip),
            (geometry.stripe_data_bytes, &mut self.off_stripe),
        ] {
            *off = size.map(|size| off.unwrap_or(0) + u64::from(is_off(size)));
        }
        *self.sizes.entry(bytes).or_default() += 1;
    }
}

impl DeviceAccount {
    /// Nothing counted yet. Sizes must be above 0.
    pub fn new(device: &str, number: (u32, u32), geometry: Geometry) -> DeviceAccount {
        let zero = |size: Option<u64>| size.map(|_| 0);
        let (off_strip, off_stripe) =
            (zero(geometry.strip_bytes), zero(geometry.stripe_data_bytes));
        let flow = || Flow { off_strip, off_stripe, ..Flow::default() };
        DeviceAccount {
            device: device.to_owned(),
            submitted_writes: flow(),
            submitted_reads: flow(),
            issued_writes: flow(),
            issued_reads: flow(),
            splits_off_stripe: off_stripe,
            number,
            geometry,
            ..DeviceAccount::default()
        }
    }

    pub fn add(&mut self, event: &Event) {
        if event.device != self.number {
            return;
        }
        let flow = match (event.kind, event.is_write) {
            (Kind::Split, _) => {
                let cut = event.start().saturating_add(event.bytes());
                self.splits += 1;
                self.splits_off_stripe = self.geometry.stripe_data_bytes.map(|bytes| {
                    self.splits_off_stripe.unwrap_or(0) + u64::from(!cut.is_multiple_of(bytes))
                });
                return;
            }
            (Kind::Merge, _) => return self.merges += 1,
            (Kind::Complete, _) => return self.failed += u64::from(event.is_failed),
            (Kind::Queue, true) => &mut self.submitted_writes,
            (Kind::Queue, false) => &mut self.submitted_reads,
            (Kind::Issue, true) => &mut self.issued_writes,
            (Kind::Issue, false) => &mut self.issued_reads,
        };
        if event.is_data {
            flow.add(event, self.geometry);
        }
    }
}

impl TraceAccount {
    /// Of `devices`: the one that was asked for, and its members.
    pub fn of(
        of: String,
        geometry: Geometry,
        devices: Vec<DeviceAccount>,
        lost: u64,
    ) -> TraceAccount {
        let mut members = devices.into_iter();
        let device = members.next().unwrap_or_default();
        let members: Vec<DeviceAccount> = members.collect();
        let writes = device.submitted_writes.ios;
        let each = |flow: fn(&DeviceAccount) -> u64| {
            members.iter().map(flow).sum::<u64>() as f64 / writes as f64
        };
        let members_per_write = (writes > 0 && !members.is_empty())
            .then(|| (each(|it| it.issued_writes.ios), each(|it| it.issued_reads.ios)));
        let findings = findings(&device, lost);
        TraceAccount { of, geometry, device, members, members_per_write, lost, findings }
    }
}

fn findings(device: &DeviceAccount, lost: u64) -> Vec<Finding> {
    let (submitted, issued) = (&device.submitted_writes, &device.issued_writes);
    let off = issued.off_stripe.filter(|off| *off > 0 && device.splits > 0);
    let said = [
        ("F77", (lost > 0).then(|| {
            format!("{lost} events were lost: all counts are too low by an unknown amount")
        })),
        ("F78", off.map(|off| {
            format!(
                "{:.0} % of the writes issued begin or end off the full stripe, \
                 after {} splits of {} writes{}",
                percent(off, issued.ios),
                device.splits,
                submitted.ios,
                cause(device)
            )
        })),
        ("F81", (submitted.off_4k > 0).then(|| {
            format!(
                "{} of {} writes are not whole blocks of 4096 bytes: each is a read-modify-write",
                submitted.off_4k, submitted.ios
            )
        })),
    ];
    said.into_iter().filter_map(|(rule, said)| Some(rules::of(rule).finding(said?))).collect()
}

/// Which limit the largest issues are nearest to.
fn cause(device: &DeviceAccount) -> String {
    let largest = device.issued_writes.sizes.keys().last().copied().unwrap_or(0);
    let limit = |name: &str, shift: u32, unit: &str| {
        let count = device.limits.get(name)?.parse::<u64>().ok().filter(|it| *it > 0)?;
        Some((count << shift, format!("{name} {count}{unit}")))
    };
    let limits = [
        limit("max_sectors_kb", 10, ""),
        limit("max_segments", 12, " pages of 4 KiB"),
        limit("chunk_sectors", 9, ""),
    ];
    let nearest = limits.into_iter().flatten().min_by_key(|(bytes, _)| bytes.abs_diff(largest));
    nearest.map_or(String::new(), |(bytes, name)| {
        let (largest, bytes) = (largest >> 10, bytes >> 10);
        format!("; the largest is {largest} KiB, the nearest limit {name} = {bytes} KiB")
    })
}

/// `part` of `whole` in percent; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{DeviceAccount, Geometry, TraceAccount};
    use crate::trace::event::Event;
    use crate::validity::Mark;

    fn account(lines: &[&str], lost: u64) -> TraceAccount {
        let geometry = Geometry { strip_bytes: Some(64 << 10), stripe_data_bytes: Some(256 << 10) };
        let mut array = DeviceAccount::new("/dev/md0", (9, 0), geometry);
        let mut member = DeviceAccount::new("/dev/sda", (8, 0), Geometry::default());
        for event in lines.iter().map(|line| Event::parse(line).expect("understood")) {
            array.add(&event);
            member.add(&event);
        }
        let limits = [("max_segments", "128"), ("max_sectors_kb", "1280")];
        array.limits = limits.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        TraceAccount::of("x".into(), geometry, vec![array, member], lost)
    }

    const WRITE: [&str; 6] = [
        "x-1 [0] .. 1.0: block_bio_queue: 9,0 WS 0 + 2048 [x]",
        "x-1 [0] .. 1.0: block_split: 9,0 WS 0 / 1032 [x]",
        "x-1 [0] .. 1.0: block_rq_issue: 9,0 WS 528384 () 0 + 1032 [x]",
        "x-1 [0] .. 1.0: block_rq_issue: 9,0 WS 520192 () 1032 + 1016 [x]",
        "x-1 [0] .. 1.0: block_rq_issue: 8,0 W 4096 () 0 + 8 [x]",
        "x-1 [0] .. 1.0: block_rq_issue: 8,0 R 4096 () 8 + 8 [x]",
    ];

    #[test]
    fn a_write_split_off_the_stripe_is_shown_with_the_limit_that_did_it() {
        let told = account(&WRITE, 0);
        let (device, issued) = (&told.device, &told.device.issued_writes);
        assert_eq!((device.submitted_writes.ios, issued.ios, device.splits), (1, 2, 1));
        assert_eq!((device.splits_off_stripe, issued.off_stripe), (Some(1), Some(2)));
        assert_eq!(issued.sizes, [(1016 * 512, 1), (1032 * 512, 1)].into());
        assert_eq!(told.members_per_write, Some((1.0, 1.0)));
        assert_eq!(Mark::of(&told.findings), Mark::ValidWithNotes);
        assert!(told.findings[0].reason.contains("max_segments 128"), "{:?}", told.findings);
        assert_eq!(Mark::of(&account(&WRITE, 3).findings), Mark::Invalid, "events were lost");
    }

    #[test]
    fn writes_that_are_no_whole_blocks_are_counted_as_read_modify_write_and_whole_stripes_are_not()
    {
        let odd = account(&["x-1 [0] .. 1.0: block_bio_queue: 9,0 W 1 + 7 [etcd]"], 0);
        assert_eq!((odd.device.submitted_writes.off_4k, &*odd.findings[0].rule), (1, "F81"));
        assert_eq!(odd.members_per_write, Some((0.0, 0.0)));
        let whole = account(&["x-1 [0] .. 1.0: block_rq_issue: 9,0 W 262144 () 512 + 512 [x]"], 0);
        let writes = &whole.device.issued_writes;
        assert_eq!((writes.off_4k, writes.off_strip, writes.off_stripe), (0, Some(0), Some(0)));
        assert!(whole.findings.is_empty());
    }
}
