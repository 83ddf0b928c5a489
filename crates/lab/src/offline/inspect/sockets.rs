//! What crosses between sockets.

use super::captures::{AFTER, DESKTOP, capture, check, server};
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, page};
use crate::metrics::bandwidth::Rate;
use crate::validity::Outcome;

/// A link that no flow is led over was called too narrow, beside a flow that the drives limit.
#[test]
fn a_link_over_which_nothing_is_led_is_not_judged_and_the_page_says_what_is_left_out() {
    let given = Given { inter_socket: Some(Rate::mega(1_000)), ..Given::default() };
    let after = Inspection::of(server(capture(AFTER)), None, given.clone());
    let (outcome, found) = check(&after, "controller.oversubscribed");
    assert_eq!(outcome, Outcome::Pass, "{found}");
    let left_out = "Not in this figure: what crosses between the sockets.";
    let text = page::text(&after, false);
    assert!(text.contains(left_out), "{text}");
    let desktop = Inspection::of(server(capture(DESKTOP)), None, given);
    assert!(!page::text(&desktop, false).contains(left_out), "it has one socket");
}
