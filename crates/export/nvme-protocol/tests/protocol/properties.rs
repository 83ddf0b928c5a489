//! Controller properties: every state against every kind of write.

use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::identify::ControllerKind;
use ashlar_nvme_protocol::keep_alive::KeepAlive;
use ashlar_nvme_protocol::property::{Properties, PropertyChange, offset};

const ENABLE: u64 = 0x0046_0001;
const SHUTDOWN: u64 = 1 << 14;

fn properties() -> Properties {
    Properties::new(ControllerKind::Io, 127)
}

fn set(properties: &mut Properties, value: u64) -> Result<PropertyChange, Status> {
    properties.set(offset::CONFIGURATION, false, value)
}

#[test]
fn the_life_of_a_controller_is_this_table() {
    use PropertyChange as Change;
    let disabled = |_: &mut Properties| {};
    let ready = |it: &mut Properties| assert!(set(it, ENABLE).is_ok());
    let shut = |it: &mut Properties| {
        assert!(set(it, ENABLE).is_ok());
        assert!(set(it, ENABLE | SHUTDOWN).is_ok());
    };
    let gone = |it: &mut Properties| {
        shut(it);
        it.shutdown_is_complete();
    };
    type Reach<'a> = dyn Fn(&mut Properties) + 'a;
    // From a state, a write of CC: what changed, and CSTS then.
    let table: [(&Reach, u64, Change, u32); 16] = [
        (&disabled, 0, Change::None, 0b0000),
        (&disabled, ENABLE, Change::Enabled, 0b0001),
        (&disabled, SHUTDOWN, Change::ShutDown, 0b0101),
        (&disabled, ENABLE | SHUTDOWN, Change::ShutDown, 0b0101),
        (&ready, 0, Change::Reset, 0b0000),
        (&ready, ENABLE, Change::None, 0b0001),
        (&ready, SHUTDOWN, Change::ShutDown, 0b0101),
        (&ready, ENABLE | SHUTDOWN, Change::ShutDown, 0b0101),
        (&shut, 0, Change::Reset, 0b0000),
        (&shut, ENABLE, Change::None, 0b0101),
        (&shut, SHUTDOWN, Change::None, 0b0101),
        (&shut, ENABLE | SHUTDOWN, Change::None, 0b0101),
        (&gone, 0, Change::Reset, 0b0000),
        (&gone, ENABLE, Change::None, 0b1001),
        (&gone, SHUTDOWN, Change::None, 0b1001),
        (&gone, ENABLE | SHUTDOWN, Change::None, 0b1001),
    ];
    for (at, (reach, value, change, status)) in table.into_iter().enumerate() {
        let mut it = properties();
        reach(&mut it);
        assert_eq!(set(&mut it, value), Ok(change), "row {at}");
        assert_eq!(it.get(offset::STATUS, false), Ok(u64::from(status)), "row {at}");
        assert_eq!(it.is_ready(), status == 1, "row {at}");
    }
}

#[test]
fn a_controller_that_failed_is_ready_again_only_after_a_reset() {
    let mut it = properties();
    set(&mut it, ENABLE).expect("enabled");
    it.fail();
    assert!(!it.is_ready());
    assert_eq!(it.status(), 0b0011);
    set(&mut it, 0).expect("reset");
    set(&mut it, ENABLE).expect("enabled");
    assert!(it.is_ready());
}

#[test]
fn configurations_that_are_not_served_are_refused_and_change_nothing() {
    // Sizes of entries, command sets, arbitration.
    for value in [0x0045_0001, 0x0056_0001, 0x0046_0011, 0x0046_0071, 0x0046_0801] {
        let mut it = properties();
        assert_eq!(set(&mut it, value), Err(Status::INVALID_FIELD), "{value:#x}");
        assert_eq!(it, properties());
    }
    for value in [ENABLE, 0x0046_0061, 1] {
        assert!(set(&mut properties(), value).is_ok(), "{value:#x}");
    }
    assert_eq!(set(&mut properties(), 1 << 32), Err(Status::INVALID_FIELD));
}

#[test]
fn properties_have_one_size_and_only_cc_is_written() {
    let it = properties();
    let sizes = [
        (offset::CAPABILITIES, true),
        (offset::VERSION, false),
        (offset::CONFIGURATION, false),
        (offset::STATUS, false),
        (offset::SUBSYSTEM_RESET, false),
        (offset::READY_TIMEOUTS, false),
    ];
    for at in 0..0x200 {
        for is_wide in [false, true] {
            let is_there = sizes.contains(&(at, is_wide));
            assert_eq!(it.get(at, is_wide).is_ok(), is_there, "{at:#x} {is_wide}");
            let is_cc = (at, is_wide) == (offset::CONFIGURATION, false);
            assert_eq!(properties().set(at, is_wide, 0).is_ok(), is_cc, "{at:#x} {is_wide}");
        }
    }
}

#[test]
fn capabilities_say_what_is_served() {
    let capabilities = properties().get(offset::CAPABILITIES, true).expect("CAP");
    assert_eq!(capabilities & 0xffff, 127, "MQES");
    assert_eq!(capabilities >> 16 & 1, 1, "CQR");
    assert_eq!(capabilities >> 32 & 0xf, 0, "DSTRD");
    assert_eq!(capabilities >> 37 & 0xff, 0b100_0001, "CSS");
    assert_eq!(capabilities >> 48 & 0xff, 0, "pages of 4 KiB");
    assert_eq!(properties().get(offset::VERSION, false), Ok(0x0002_0000));
}

#[test]
fn a_host_that_is_heard_within_each_timeout_is_kept() {
    let mut timer = KeepAlive::new(5000, 100);
    assert_eq!(timer.looks_at_ms(), Some(5100));
    for round in 1..50 {
        timer.saw_traffic();
        assert!(!timer.has_expired(100 + round * 5000), "round {round}");
    }
}

#[test]
fn a_host_that_is_silent_is_given_up_within_two_timeouts() {
    for heard_at in [100_u64, 2000, 5099] {
        let mut timer = KeepAlive::new(5000, 100);
        if heard_at > 100 {
            timer.saw_traffic();
        }
        let mut now = 100;
        while !timer.has_expired(now) {
            now = timer.looks_at_ms().expect("it is on");
        }
        assert!(now <= heard_at + 2 * 5000, "heard at {heard_at}, given up at {now}");
    }
}

#[test]
fn a_timeout_of_zero_never_expires_and_others_are_whole_units() {
    let mut timer = KeepAlive::new(0, 0);
    assert_eq!((timer.has_expired(u64::MAX), timer.looks_at_ms()), (false, None));
    assert_eq!(KeepAlive::new(1, 0).timeout_ms(), 100);
    assert_eq!(KeepAlive::new(15_000, 0).timeout_ms(), 15_000);
    let mut longest = KeepAlive::new(u32::MAX, u64::MAX - 5);
    assert!(!longest.has_expired(u64::MAX - 1));
}
