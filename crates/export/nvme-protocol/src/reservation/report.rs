//! The answer to Reservation Report: the registrants, their keys, and the holder.
//!
//! What must stay true: hosts have identifiers of 128 bits, so the answer is the extended one, and
//! no other is given. Base 2.0, 7.5 "Reservation Report command".

use super::state::Reservations;
use crate::command::DYNAMIC_CONTROLLER;
use crate::nqn::HostId;

/// A controller of a registered host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportedController {
    /// CNTLID.
    pub id: u16,
    /// Whose it is.
    pub host: HostId,
}

impl Reservations {
    /// The extended data structure. A registrant without a controller stands there with
    /// [`DYNAMIC_CONTROLLER`].
    pub fn report(&self, controllers: &[ReportedController]) -> Vec<u8> {
        let mut entries = Vec::new();
        for registrant in &self.registrants {
            let ids = controllers.iter().filter(|it| it.host == registrant.host).map(|it| it.id);
            let mut ids: Vec<u16> = ids.collect();
            if ids.is_empty() {
                ids.push(DYNAMIC_CONTROLLER);
            }
            for id in ids {
                let mut entry = [0; 64];
                entry[..2].copy_from_slice(&id.to_le_bytes());
                entry[2] = u8::from(self.is_holder(registrant.host));
                entry[8..16].copy_from_slice(&registrant.key.to_le_bytes());
                entry[16..32].copy_from_slice(&registrant.host.0);
                entries.push(entry);
            }
        }
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        let mut report = vec![0; 64];
        report[..4].copy_from_slice(&self.generation.to_le_bytes());
        report[4] = self.kind().map_or(0, |kind| kind.code());
        report[5..7].copy_from_slice(&count.to_le_bytes());
        report[9] = u8::from(self.persists);
        report.extend(entries.iter().take(usize::from(count)).flatten());
        report
    }
}
