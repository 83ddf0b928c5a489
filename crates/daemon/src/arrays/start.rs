//! What follows when an array has started: it is remembered if somebody started it by hand, gets
//! the tunables that are remembered, and is attached if that is configured or remembered.
//!
//! What must stay true: an array that has started runs, whatever fails here; that is told. Not
//! here: how it is started.

use super::Arrays;
use crate::backend::Serves;
use crate::exports::Say;
use crate::gather::remembered::{Remembered, RememberedAttach};
use crate::services::Service;
use ashlar_api::v1::array::Assemble;
use ashlar_api::v1::export::{Attach, Attached};
use ashlar_engine::{ArrayStatus, SlotState};
use ashlar_units::MemberIdx;
use std::io;
use uuid::Uuid;

impl Arrays {
    /// The arrays that run.
    pub(crate) async fn running(&self) -> Vec<ArrayStatus> {
        self.status_of_all().await.unwrap_or_default()
    }

    /// The UUID of a running array.
    pub(crate) async fn uuid_of(&self, name: &str) -> Option<Uuid> {
        self.running().await.iter().find(|array| array.name == name).map(|array| array.uuid)
    }

    /// Whether a running array does without this slot, and nothing is on its way into it.
    pub(crate) async fn is_out(&self, array: Uuid, slot: MemberIdx) -> bool {
        let running = self.running().await;
        let own =
            running.iter().find(|it| it.uuid == array).and_then(|it| it.members.get(slot.at()));
        own.is_some_and(|own| own.state == SlotState::Out && own.replacement.is_none())
    }

    /// A slot was filled or taken back.
    pub(super) async fn slot_filled(&self, array: &str, slot: MemberIdx) {
        if let Some(own) = self.running().await.iter().find(|it| it.name == array) {
            self.gather.filled(own.uuid, slot);
            self.gather.note_members(own);
        }
    }

    /// Remember an array that was made or assembled by hand. What to tell if that failed.
    pub(super) async fn remember_made(
        &self,
        array: Uuid,
        name: &str,
        devices: Vec<String>,
    ) -> Option<String> {
        let change = |own: &mut Remembered| {
            (own.start, own.name, own.devices) = (true, name.to_owned(), devices);
        };
        let kept = self.gather.remembered.change(array, change).await;
        kept.err().map(|error| not_remembered(&error))
    }

    /// An array has started as `asked`. What to tell of what followed.
    pub(super) async fn follow_start(
        &self,
        name: &str,
        asked: &Assemble,
        is_in_memory: bool,
    ) -> Vec<String> {
        let mut told = Vec::new();
        let running = self.running().await.into_iter().find(|array| array.name == name);
        let Some(own) = running else { return told };
        let uuid = own.uuid;
        self.gather.started(uuid);
        self.gather.note_forced(uuid, own.beginning);
        if !asked.not_remembered && !is_in_memory {
            told.extend(self.remember_made(uuid, name, asked.devices.clone()).await);
            let change = |own: &mut Remembered| {
                own.read_only = asked.read_only;
                own.spare_pools.clone_from(&asked.spare_pools);
            };
            let kept = self.gather.remembered.change(uuid, change).await;
            told.extend(kept.err().map(|error| not_remembered(&error)));
        }
        // Devices may have other names than when it was remembered.
        self.gather.note_members(&own);
        told.extend(self.tune_as_remembered(uuid, name).await);
        if let Some(call) = self.attachment_of(uuid, name) {
            told.push(match self.attach_as_wanted(call).await {
                Ok(line) => line,
                Err(why) => format!("not attached: {why}"),
            });
        }
        told
    }

    /// # Errors
    /// Why not, in one line; it is tried again.
    async fn attach_as_wanted(&self, call: Attach) -> Result<String, String> {
        let name = call.array.clone();
        match self.serve(call).await {
            Ok(Attached { device, file, .. }) => {
                Ok(format!("attached as {}", device.or(file).unwrap_or_default()))
            }
            Err(refusal) => {
                let service = Service::way_to(&name, attachment(&name));
                self.services.lost(service, refusal.to_string());
                Err(refusal.to_string())
            }
        }
    }

    /// Try attachments again that failed when their arrays started.
    pub(crate) async fn attach_what_is_missing(&self, say: Say<'_>) {
        for own in self.running().await {
            if !self.services.lacks(&attachment(&own.name)) {
                continue;
            }
            match self.attachment_of(own.uuid, &own.name) {
                Some(call) => {
                    let attached = self.attach_as_wanted(call).await;
                    attached.iter().for_each(|line| say(&format!("'{}' is {line}", own.name)));
                }
                None => drop(self.services.forget(&attachment(&own.name))),
            }
        }
    }

    /// How the configuration or somebody by hand wants it attached.
    fn attachment_of(&self, array: Uuid, name: &str) -> Option<Attach> {
        let by_hand = self.gather.remembered.of(array).and_then(|own| own.attach);
        let call = |via, sector_bytes| Attach {
            array: name.to_owned(),
            via,
            sector_bytes,
            not_remembered: true,
        };
        match by_hand {
            Some(RememberedAttach { via, sector_bytes }) => Some(call(Some(via), sector_bytes)),
            None => self.gather.is_attached_by_configuration(name, array).then(|| call(None, None)),
        }
    }
}

/// What an attachment is called where it is missing.
pub(crate) fn attachment(array: &str) -> String {
    format!("the attachment of '{array}'")
}

pub(crate) fn not_remembered(error: &io::Error) -> String {
    format!("this cannot be remembered over a restart of the daemon: {error}")
}
