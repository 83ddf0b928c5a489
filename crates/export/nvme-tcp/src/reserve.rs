//! Reservation commands: made aside, because they wait for a file, and answered when nobody who
//! lost rights has a command under way.

use crate::io::OpenNamespace;
use crate::reservations::Change;
use crate::slot::SlotShared;
use ashlar_iobuf::Buf;
use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::command::{Blocks, IoCommand, ReservationAcquire};
use ashlar_nvme_protocol::log;
use ashlar_nvme_protocol::reservation::{Notified, acquire_keys, register_keys, release_key};
use ashlar_ring::mailbox::mailbox;
use ashlar_units::to_usize;
use ashlar_volume::Volume;
use std::sync::Arc;
use std::time::Duration;

/// How often to look whether commands that were under way have ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl<V: Volume> SlotShared<V> {
    /// Carry out a reservation command.
    pub async fn reserve(
        &self,
        namespace: &OpenNamespace<V>,
        command: &IoCommand,
        payload: Option<&[u8]>,
    ) -> Result<Option<Buf>, Status> {
        let data = payload.unwrap_or_default();
        let change = match command {
            IoCommand::ReservationReport { is_extended, bytes } => {
                return self.report(namespace, *is_extended, *bytes);
            }
            IoCommand::ReservationRegister(register) => {
                Change::Register(*register, register_keys(data)?)
            }
            IoCommand::ReservationAcquire(acquire) => {
                Change::Acquire(*acquire, acquire_keys(data)?)
            }
            IoCommand::ReservationRelease(release) => Change::Release(*release, release_key(data)?),
            _ => unreachable!("only these come here"),
        };
        let notified = self.change(namespace, change).await?;
        if is_preemption(command) {
            self.all_passed(namespace).await;
        }
        self.target.notify(namespace.id, &notified);
        Ok(None)
    }

    async fn change(
        &self,
        namespace: &OpenNamespace<V>,
        change: Change,
    ) -> Result<Notified, Status> {
        let (sender, mut receiver) = mailbox(&self.handle);
        let (state, store) = (Arc::clone(&namespace.state), Arc::clone(&self.target.config.store));
        let host = self.host;
        (self.target.config.aside)(Box::new(move || {
            sender.send(state.fence.change(&*store, &state.nguid, host, &change));
        }));
        receiver.receive().await
    }

    /// Wait until hosts that may not write any more have nothing under way. Their commands are with
    /// the volume, and it ends each of them.
    async fn all_passed(&self, namespace: &OpenNamespace<V>) {
        let write = IoCommand::Write { blocks: Blocks { first: 0, count: 1 }, fua: false };
        while namespace.state.fence.is_passed_by_others(&write) {
            self.handle.sleep(LOOK_EVERY).await;
        }
    }

    fn report(
        &self,
        namespace: &OpenNamespace<V>,
        is_extended: bool,
        bytes: u64,
    ) -> Result<Option<Buf>, Status> {
        // Hosts have 128-bit identifiers here, which only the extended answer can tell.
        if !is_extended {
            return Err(Status::INVALID_FIELD);
        }
        let report = namespace.state.fence.report(&self.target.reported_controllers());
        let part = log::cut(&report, 0, to_usize(bytes)).expect("from its start on");
        Ok(Some(Buf::copied(&part)))
    }
}

/// Whether others lose what they have.
fn is_preemption(command: &IoCommand) -> bool {
    matches!(
        command,
        IoCommand::ReservationAcquire(
            ReservationAcquire::Preempt(_) | ReservationAcquire::PreemptAndAbort(_)
        )
    )
}
