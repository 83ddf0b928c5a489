//! Names of hosts and subsystems, and who may connect.

use ashlar_nvme_protocol::nqn::{Admitted, NQN_FIELD_BYTES, Nqn};

#[test]
fn names_come_back_from_their_fields() {
    for text in ["nqn.2014-08.org.nvmexpress.discovery", &format!("nqn.{}", "x".repeat(219))] {
        let nqn: Nqn = text.parse().expect("a name");
        assert_eq!(Nqn::from_field(&nqn.field()), Ok(nqn));
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let long = format!("nqn.{}", "x".repeat(220));
    for text in ["", "iqn.2001-04.com.example", "NQN.2014", "nqn.a b", "nqn.a\u{7}b", &long] {
        assert!(text.parse::<Nqn>().is_err(), "{text:?}");
    }
    let mut field = [0xff; NQN_FIELD_BYTES];
    assert!(Nqn::from_field(&field).is_err(), "not UTF-8, and without an end");
    field[..5].copy_from_slice(b"nqn.\x80");
    field[5..].fill(0);
    assert!(Nqn::from_field(&field).is_err(), "not UTF-8");
    // Nothing of the peer's reaches a terminal as it is.
    let message = Nqn::from_field(&field).expect_err("refused").to_string();
    assert!(message.is_ascii(), "{message:?}");
}

#[test]
fn only_hosts_on_the_list_may_connect() {
    let one: Nqn = "nqn.one".parse().expect("a name");
    let other: Nqn = "nqn.One".parse().expect("a name");
    let list = Admitted::Only(vec![(one.clone(), 1)]);
    assert_eq!((list.terms(&one), list.terms(&other)), (Some(&1), None));
    assert_eq!(Admitted::Anybody(2).terms(&other), Some(&2));
    assert_eq!(Admitted::<u8>::Only(Vec::new()).terms(&one), None);
}
