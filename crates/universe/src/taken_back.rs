//! Members that only an update cut off by a crash put out, read from the devices by the test's own
//! hand.
//!
//! What must stay true: such a member missed nothing that was answered, and an array that cannot do
//! without it takes it back. Whether it can do without is for the engine to say here: the array may
//! start, and then all must be there, or be refused, and then nothing may change.

use crate::drive_slot::{DriveSlots, Rest};
use ashlar_ondisk::{MemberEntry, Role, Superblock};

impl DriveSlots {
    /// Whether a start without these devices may take a member back: it is listed as out, and a
    /// member in service does not know of that.
    pub(crate) fn may_be_taken_back(&self, rest: &Rest, useless: &[usize]) -> bool {
        let newest = &rest.newest;
        let is_here = |at: usize| !useless.contains(&at) && self.all[at].is_sound();
        let of_this_run = |at: usize| {
            let own = rest.own[at].as_ref().filter(|_| is_here(at));
            own.filter(|own| own.incarnation == newest.incarnation)
        };
        let all = || (0..self.all.len()).filter_map(|at| Some((at, of_this_run(at)?)));
        let is_out = |own: &Superblock| {
            newest.member(own.member_uuid).copied().filter(|entry| entry.role == Role::Out)
        };
        let says_active = |own: &Superblock, entry: &MemberEntry| {
            let says = own.member(entry.uuid).is_some_and(|it| it.role == Role::Active);
            says && own.generation < entry.out_since
        };
        let is_witness = |at: usize, own: &Superblock, entry: &MemberEntry| {
            matches!(rest.places[at], Some((_, Role::Active))) && says_active(own, entry)
        };
        all().filter_map(|(_, own)| Some((own, is_out(own)?))).any(|(own, entry)| {
            says_active(own, &entry) && all().any(|(at, other)| is_witness(at, other, &entry))
        })
    }
}
