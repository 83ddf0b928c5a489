//! Members that come back while their array runs: they are taken back by themselves if they merely
//! were not there.
//!
//! What must stay true: a device is taken back if it was missing when its array started, or if it
//! has just appeared. One that was put out because it failed, or by hand, stays out until somebody
//! takes it back. The engine proves each time that a device only missed something. A device that
//! comes and goes is taken back only a few times.

use super::{Ask, Gather};
use crate::arrays::Arrays;
use crate::backend::Serves;
use ashlar_api::v1::member::ReAdd;
use ashlar_device::exclusion_of;
use ashlar_ondisk::assembly::MemberReading;
use uuid::Uuid;

/// How often the device of a slot is taken back by itself while a daemon runs.
const RETURNS_MAX: u32 = 3;

/// A member of a running array that was taken back by itself. Fields: `slot`, `path`.
const MEMBER_RETURNED: &str = "member.returned";

impl Gather {
    /// Take back those of `back` that may be. A line for each.
    pub(super) async fn take_back(
        &self,
        arrays: &Arrays,
        back: Vec<(String, Uuid, MemberReading)>,
        ask: &Ask,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, uuid, reading) in back {
            let Some(slot) = reading.superblock().map(|it| it.slot) else { continue };
            let path = reading.path;
            if ask.is_dry_run || !arrays.is_out(uuid, slot).await {
                continue;
            }
            if let Some(why_not) = self.why_it_stays(uuid, slot.0, is_new(&path, ask)) {
                let line = format!(
                    "{path} of slot {slot} of '{name}' {why_not}; to take it back: ashlar re-add \
                     {name} {path}"
                );
                lines.extend(self.once(uuid, ask, line));
                continue;
            }
            *self.known().returned.entry((uuid, slot.0)).or_default() += 1;
            let call = ReAdd { array: name.clone(), device: path.clone() };
            lines.push(match arrays.serve(call).await {
                Ok(done) => {
                    let fields = vec![("slot", slot.to_string()), ("path", path)];
                    arrays.engine.events().record(MEMBER_RETURNED, &name, fields);
                    done.message
                }
                Err(refusal) => refusal.to_string(),
            });
        }
        lines
    }

    fn why_it_stays(&self, array: Uuid, slot: u16, is_new: bool) -> Option<&'static str> {
        let known = self.known();
        if known.failed.contains(&(array, slot)) {
            return Some("was put out by hand");
        }
        if known.returned.get(&(array, slot)).is_some_and(|times| *times >= RETURNS_MAX) {
            return Some("comes and goes");
        }
        drop(known);
        let was_away = self.remembered.of(array).is_some_and(|own| own.absent.contains(&slot));
        (!was_away && !is_new).then_some("was put out while the array ran")
    }
}

/// Whether the device has just appeared.
fn is_new(path: &str, ask: &Ask) -> bool {
    let own = exclusion_of(path);
    ask.appeared.iter().any(|it| it == path || (own.is_some() && exclusion_of(it) == own))
}
