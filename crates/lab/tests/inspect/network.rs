//! Network interfaces: who serves their queues, and what they lost.

use crate::captures::{Edit, FLASH, capture, check, edited, gone, inspection, server, set};
use ashlar_lab::inspect::Inspection;
use ashlar_lab::inspect::topology::Given;
use ashlar_lab::validity::Outcome;

#[test]
fn a_network_of_one_queue_is_spread_by_rps_or_told() {
    let one_queue: Vec<Edit> = (0..2)
        .flat_map(|eth| {
            (1..8).map(move |at| gone(&format!("/sys/class/net/eth{eth}/queues/rx-{at}")))
        })
        .collect();
    let judge = |edits: &[Edit]| {
        let edits = [one_queue.as_slice(), edits].concat();
        let inspection = Inspection::of(server(edited(FLASH, &edits)), None, Given::default());
        check(&inspection, "net.receive_spread")
    };
    let (outcome, found) = judge(&[]);
    assert_eq!(outcome, Outcome::Fail);
    assert_eq!(
        found,
        "1 receive queue of eth0 (12.5 GB/s) and RPS is off: one CPU does all receiving"
    );
    let rps =
        |eth: u8, cpus| Edit::Set(format!("/sys/class/net/eth{eth}/queues/rx-0/rps_cpus"), cpus);
    let (outcome, found) = judge(&[rps(0, "000000ff"), rps(1, "00ff0000")]);
    assert_eq!(outcome, Outcome::Pass);
    assert!(found.contains("eth1: RPS over CPUs 16, 17, 18, 19 and 4 more"), "{found}");
    // A management port is not judged; one that does not say its speed is not passed over.
    let slow = [set("/sys/class/net/eth0/speed", "1000"), set("/sys/class/net/eth1/speed", "1000")];
    assert_eq!(judge(&slow).0, Outcome::NotApplicable);
    let silent = [gone("/sys/class/net/eth0/speed"), set("/sys/class/net/eth1/speed", "1000")];
    assert_eq!(judge(&silent).0, Outcome::CannotTell);
}

#[test]
fn what_a_network_lost_is_judged_by_growth_only() {
    let flash = inspection(FLASH);
    let (outcome, found) = check(&flash, "net.troubles_growing");
    assert_eq!(outcome, Outcome::CannotTell);
    assert!(found.starts_with("48 errors and drops since"), "{found}");
    let before = server(capture(FLASH));
    let worse = edited(FLASH, &[Edit::Say("ethtool-S-eth1", "buffer: 12", "buffer: 31")]);
    let worse = Inspection::of(server(worse), Some(&before), Given::default());
    let (_, found) = check(&worse, "net.troubles_growing");
    assert_eq!(found, "grew between the two captures: eth1 ethtool rx_out_of_buffer by 19");
    let row = worse.resources.iter().find(|it| it.resource == "network eth1").expect("a row");
    assert_eq!(row.errors.as_deref(), Some("43 since it was made, 19 between captures"));
}
