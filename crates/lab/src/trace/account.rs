//! What became of I/Os between submission and the device: sizes, splits, merges, alignment.
//!
//! What must stay true: submitted is what came in from above, issued is what went to the driver; an
//! issue is off a boundary if its start or its end is; lost events make the account invalid, never
//! smaller.

use super::event::{Event, Kind};
use crate::rules;
use crate::validity::Finding;
use serde::Serialize;
use std::collections::BTreeMap;

/// I/Os of one station in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Flow {
    pub ios: u64,
    pub bytes: u64,
    /// Size in bytes and how often it came; a list, because JSON has no numbers as keys.
    pub sizes: Vec<(u64, u64)>,
    /// I/Os that begin or end off a multiple of 4096 bytes.
    pub off_4k: u64,
    /// I/Os that begin or end off the strip, if its size was given.
    pub off_strip: Option<u64>,
    /// I/Os that begin or end off the full stripe, if its size was given.
    pub off_stripe: Option<u64>,
}

/// One device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DeviceAccount {
    /// Path, as it was given.
    pub device: String,
    pub submitted_writes: Flow,
    pub submitted_reads: Flow,
    /// Writes that went to the driver.
    pub issued_writes: Flow,
    /// Reads that went to the driver.
    pub issued_reads: Flow,
    pub splits: u64,
    /// Cuts that are off the full stripe, if its size was given.
    pub splits_off_stripe: Option<u64>,
    pub merges: u64,
    pub failed: u64,
    /// What limits an I/O's size: `max_sectors_kb` and the like.
    pub limits: BTreeMap<String, String>,
}

/// All devices.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceAccount {
    pub of: String,
    /// Strip, bytes, if given.
    pub strip_bytes: Option<u64>,
    /// Data of a full stripe, bytes, if given.
    pub stripe_data_bytes: Option<u64>,
    /// The device that was asked for.
    pub device: DeviceAccount,
    /// Its members, if given.
    pub members: Vec<DeviceAccount>,
    /// Member writes and reads for each write that came in, if members were given and there were
    /// writes.
    pub members_per_write: Option<(f64, f64)>,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Which rules have something to say.
    pub findings: Vec<Finding>,
}

/// Counts one device's events.
#[derive(Clone, Debug)]
pub struct DeviceTally {
    number: (u32, u32),
    strip_bytes: Option<u64>,
    stripe_data_bytes: Option<u64>,
    account: DeviceAccount,
    /// Submitted writes, submitted reads, issued writes, issued reads.
    sizes: [BTreeMap<u64, u64>; 4],
}

impl DeviceTally {
    /// Nothing counted yet. Sizes must be above 0.
    pub fn new(
        device: &str,
        number: (u32, u32),
        strip_bytes: Option<u64>,
        stripe_data_bytes: Option<u64>,
    ) -> DeviceTally {
        let zero = |size: Option<u64>| size.map(|_| 0);
        let flow = Flow {
            off_strip: zero(strip_bytes),
            off_stripe: zero(stripe_data_bytes),
            ..Flow::default()
        };
        let account = DeviceAccount {
            device: device.to_owned(),
            submitted_writes: flow.clone(),
            submitted_reads: flow.clone(),
            issued_writes: flow.clone(),
            issued_reads: flow,
            splits_off_stripe: zero(stripe_data_bytes),
            ..DeviceAccount::default()
        };
        DeviceTally { number, strip_bytes, stripe_data_bytes, account, sizes: Default::default() }
    }

    /// Count an event, if it is this device's.
    pub fn add(&mut self, event: &Event) {
        if event.device != self.number {
            return;
        }
        let account = &mut self.account;
        match event.kind {
            Kind::Split => {
                account.splits += 1;
                let cut = event.start().saturating_add(event.bytes());
                if let (Some(bytes), Some(off)) =
                    (self.stripe_data_bytes, &mut account.splits_off_stripe)
                {
                    *off += u64::from(!cut.is_multiple_of(bytes));
                }
            }
            Kind::Merge => account.merges += 1,
            Kind::Complete => account.failed += u64::from(event.is_failed),
            Kind::Queue | Kind::Issue if !event.is_data => {}
            Kind::Queue | Kind::Issue => {
                let (flow, sizes) = match (event.kind, event.is_write) {
                    (Kind::Queue, true) => (&mut account.submitted_writes, 0),
                    (Kind::Queue, false) => (&mut account.submitted_reads, 1),
                    (_, true) => (&mut account.issued_writes, 2),
                    (_, false) => (&mut account.issued_reads, 3),
                };
                let is_off = |bytes: u64| {
                    let end = event.start().saturating_add(event.bytes());
                    !event.start().is_multiple_of(bytes) || !end.is_multiple_of(bytes)
                };
                flow.ios += 1;
                flow.bytes = flow.bytes.saturating_add(event.bytes());
                flow.off_4k += u64::from(is_off(4096));
                for (bytes, off) in [
                    (self.strip_bytes, &mut flow.off_strip),
                    (self.stripe_data_bytes, &mut flow.off_stripe),
                ] {
                    if let (Some(bytes), Some(off)) = (bytes, off) {
                        *off += u64::from(is_off(bytes));
                    }
                }
                *self.sizes[sizes].entry(event.bytes()).or_default() += 1;
            }
        }
    }

    pub fn finish(self, limits: BTreeMap<String, String>) -> DeviceAccount {
        let mut account = self.account;
        let flows = [
            &mut account.submitted_writes,
            &mut account.submitted_reads,
            &mut account.issued_writes,
            &mut account.issued_reads,
        ];
        for (flow, sizes) in flows.into_iter().zip(self.sizes) {
            flow.sizes = sizes.into_iter().collect();
        }
        account.limits = limits;
        account
    }
}

impl TraceAccount {
    pub fn of(
        of: String,
        tallies: (Option<u64>, Option<u64>),
        device: DeviceAccount,
        members: Vec<DeviceAccount>,
        lost: u64,
    ) -> TraceAccount {
        let writes = device.submitted_writes.ios;
        let sum = |flow: fn(&DeviceAccount) -> u64| members.iter().map(flow).sum::<u64>() as f64;
        let members_per_write = (writes > 0 && !members.is_empty()).then(|| {
            (
                sum(|it| it.issued_writes.ios) / writes as f64,
                sum(|it| it.issued_reads.ios) / writes as f64,
            )
        });
        let mut account = TraceAccount {
            of,
            strip_bytes: tallies.0,
            stripe_data_bytes: tallies.1,
            device,
            members,
            members_per_write,
            lost,
            findings: Vec::new(),
        };
        account.findings = findings(&account);
        account
    }
}

fn findings(account: &TraceAccount) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |rule: &str, reason: String| found.push(rules::of(rule).finding(reason));
    let (device, writes) = (&account.device, &account.device.issued_writes);
    if account.lost > 0 {
        say(
            "F77",
            format!(
                "{} events were lost: all counts are too low by an unknown amount",
                account.lost
            ),
        );
    }
    if let Some(off) = writes.off_stripe.filter(|off| *off > 0 && device.splits > 0) {
        say(
            "F78",
            format!(
                "{:.0} % of the writes issued begin or end off the full stripe, \
                 after {} splits of {} writes{}",
                percent(off, writes.ios),
                device.splits,
                device.submitted_writes.ios,
                cause(device)
            ),
        );
    }
    let odd = device.submitted_writes.off_4k;
    if odd > 0 {
        say(
            "F81",
            format!(
                "{odd} of {} writes are not whole blocks of 4096 bytes: \
                 each is a read-modify-write",
                device.submitted_writes.ios
            ),
        );
    }
    found
}

/// Which limit the largest issues are nearest to.
pub(super) fn cause(device: &DeviceAccount) -> String {
    let largest = device.issued_writes.sizes.last().map_or(0, |(bytes, _)| *bytes);
    let limit = |name: &str| device.limits.get(name).and_then(|it| it.parse::<u64>().ok());
    let limits = [
        limit("max_sectors_kb").map(|kib| (kib << 10, format!("max_sectors_kb {kib}"))),
        limit("max_segments")
            .map(|count| (count << 12, format!("max_segments {count} pages of 4 KiB"))),
        limit("chunk_sectors")
            .filter(|it| *it > 0)
            .map(|it| (it << 9, format!("chunk_sectors {it}"))),
    ];
    let nearest = limits.into_iter().flatten().min_by_key(|(bytes, _)| bytes.abs_diff(largest));
    nearest.map_or(String::new(), |(bytes, name)| {
        format!(
            "; the largest is {} KiB, the nearest limit {name} = {} KiB",
            largest >> 10,
            bytes >> 10
        )
    })
}

/// `part` of `whole` in percent; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{DeviceTally, TraceAccount};
    use crate::trace::event::Event;
    use crate::validity::Mark;
    use std::collections::BTreeMap;

    fn account(lines: &[&str], lost: u64) -> TraceAccount {
        let sizes = (Some(64 << 10), Some(256 << 10));
        let mut array = DeviceTally::new("/dev/md0", (9, 0), sizes.0, sizes.1);
        let mut member = DeviceTally::new("/dev/sda", (8, 0), None, None);
        for event in lines.iter().map(|line| Event::parse(line).expect("understood")) {
            array.add(&event);
            member.add(&event);
        }
        let limits = BTreeMap::from([
            ("max_segments".to_owned(), "128".to_owned()),
            ("max_sectors_kb".to_owned(), "1280".to_owned()),
        ]);
        TraceAccount::of(
            "x".into(),
            sizes,
            array.finish(limits),
            vec![member.finish(BTreeMap::new())],
            lost,
        )
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
        let account = account(&WRITE, 0);
        let device = &account.device;
        assert_eq!(
            (device.submitted_writes.ios, device.issued_writes.ios, device.splits),
            (1, 2, 1)
        );
        assert_eq!((device.splits_off_stripe, device.issued_writes.off_stripe), (Some(1), Some(2)));
        assert_eq!(device.issued_writes.sizes, [(1016 * 512, 1), (1032 * 512, 1)]);
        assert_eq!(account.members_per_write, Some((1.0, 1.0)));
        assert_eq!(Mark::of(&account.findings), Mark::ValidWithNotes);
        assert!(account.findings[0].reason.contains("max_segments 128"), "{:?}", account.findings);
    }

    #[test]
    fn lost_events_make_it_invalid() {
        assert_eq!(Mark::of(&account(&WRITE, 3).findings), Mark::Invalid);
    }

    #[test]
    fn writes_that_are_no_whole_blocks_are_counted_as_read_modify_write() {
        let account = account(&["x-1 [0] .. 1.0: block_bio_queue: 9,0 W 1 + 7 [etcd]"], 0);
        assert_eq!(account.device.submitted_writes.off_4k, 1);
        assert_eq!(account.findings[0].rule, "F81");
        assert_eq!(account.members_per_write, Some((0.0, 0.0)));
    }

    #[test]
    fn whole_stripes_are_on_their_boundaries() {
        let account =
            account(&["x-1 [0] .. 1.0: block_rq_issue: 9,0 W 262144 () 512 + 512 [x]"], 0);
        let writes = &account.device.issued_writes;
        assert_eq!((writes.off_4k, writes.off_strip, writes.off_stripe), (0, Some(0), Some(0)));
        assert!(account.findings.is_empty());
    }
}
