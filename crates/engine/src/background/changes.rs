//! What background work learns of the coordinator: changes that it notes here, and acts on in tasks
//! of its own.
//!
//! What must stay true: nothing here waits. The coordinator may hold its gate.

use super::{discard, filling, notify, sparing};
use crate::coordinator::state::{Change, Listener};
use crate::local_array::LocalArray;
use std::rc::Rc;

/// Takes note of the changes of an array, as long as there is one.
pub(crate) fn listener(local: &Rc<LocalArray>) -> Listener {
    let local = Rc::downgrade(local);
    Box::new(move |change| {
        if let Some(local) = local.upgrade() {
            learn(&local, change);
        }
    })
}

fn learn(local: &Rc<LocalArray>, change: Change) {
    match change {
        Change::MemberOut(member) => sparing::member_went_out(local, member),
        Change::ReplacementDropped => notify(local.coordinator()),
        Change::ReplacementTookOver { member, copied_below } => {
            filling::replacement_took_over(local, member, copied_below);
        }
        Change::Flushed => discard::give_back_soon(local),
    }
}
