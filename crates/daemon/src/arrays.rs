//! The engine behind the control interface: one function for each of its calls.
//!
//! - here        arrays: assemble, stop, status, events; `create`
//! - `partitions` whole drives get a partition first
//! - `members`   members and spares; `joining`: new ones
//! - `grow`      more members for a declustered array
//! - `erase`     what nobody needs any more; `left_over`: what an array leaves
//! - `jobs`      background work
//! - `set`       tunables of a running array; `rename`
//! - `start`     what follows when an array has started: remember it, attach it
//!
//! What must stay true: everything that can be checked without touching a device is checked first.
//! The exports are asked for users of an array before it is stopped.

mod create;
mod erase;
mod grow;
mod jobs;
mod joining;
mod left_over;
mod members;
mod partitions;
mod rename;
mod set;
pub(crate) mod start;

use crate::aside::aside;
use crate::backend::{Backend, Serves};
use crate::configured::Configured;
use crate::drives::watch::{Drive, Watch};
use crate::events::Events;
use crate::exports::Exports;
use crate::gather::{Gather, remembered};
use crate::memory_devices::{self, MemoryDevices};
use crate::peer::ControlSeats;
use crate::repeats::Running;
use crate::scrape::ScrapeSeats;
use crate::services::Services;
use crate::{config, convert, look, reclaim};
use ashlar_api::v1::Done;
use ashlar_api::v1::array::{Assemble, Stop};
use ashlar_api::v1::event::Event;
use ashlar_api::v1::notify::{NotifyTest, NotifyTested};
use ashlar_api::v1::status::{AbsentArray, GetStatus, MissingService, Status};
use ashlar_api::{ApiError, codes};
use ashlar_engine::{
    ArrayStatus, ArrayTuning, AssembleSpec, Engine, MemberStatus, SlotState, Stopped, event_names,
};
use ashlar_ondisk::ArrayName;
use ashlar_ondisk::assembly::{ArrayChoice, AssemblyRequest};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// The engine and its exports.
#[derive(Clone)]
pub struct Arrays {
    /// The arrays.
    pub engine: Engine,
    /// The ways to their volumes.
    pub exports: Arc<Exports>,
    /// The memory devices.
    pub memory: Arc<MemoryDevices>,
    /// What is known of arrays that start by themselves.
    pub gather: Arc<Gather>,
    /// The connections of its listeners.
    pub seats: Arc<ListenerSeats>,
    /// When the process began to serve.
    pub started: Instant,
    /// Name of the parity kernel.
    pub kernel: &'static str,
    /// What is configured was started, as far as it can be.
    pub is_ready: watch::Receiver<bool>,
    /// The ways of events out of the process.
    pub events: Arc<Events>,
    /// The arrays of the configuration.
    pub configured: Arc<Configured>,
    /// What is known of the health of drives.
    pub watch: Arc<Watch>,
    /// What is missing beside the arrays.
    pub services: Arc<Services>,
}

/// The connections of the listeners that the control side has.
pub struct ListenerSeats {
    /// Of the control socket.
    pub control: ControlSeats,
    /// Of the metrics listener, if there is one.
    pub metrics: ScrapeSeats,
}

/// The pools of an array in memory: a spare would outlive the rest of it.
fn no_pools() -> Vec<String> {
    vec![memory_devices::NO_POOL.to_owned()]
}

impl Serves<Assemble> for Arrays {
    async fn serve(&self, call: Assemble) -> Result<Done, ApiError> {
        self.start(call, None).await
    }
}

impl Arrays {
    /// Start an array with these tunables, or with those of all arrays.
    ///
    /// # Errors
    /// The refusal; then nothing was written.
    pub async fn start(
        &self,
        mut call: Assemble,
        tuning: Option<ArrayTuning>,
    ) -> Result<Done, ApiError> {
        let request = assembly_request(&call)?;
        call.devices = partitions::inside(call.devices).await;
        self.memory.check(&call.devices)?;
        let is_in_memory = memory_devices::check_kinds(&call.devices, &[])?;
        let (arrays, wanted) = (self.status_of_all().await?, call.clone());
        let running = aside(move || Running::of(&arrays, &wanted)).await;
        if let Some(message) = running.all() {
            return Ok(Done::unchanged(message));
        }
        for pool in &call.spare_pools {
            config::check_pool(pool).map_err(|what| {
                ApiError::new(codes::REQUEST_MALFORMED, what, "choose another name for the pool")
            })?;
        }
        let asked = call.clone();
        let spec = AssembleSpec {
            devices: running.rest.clone(),
            request,
            is_read_only: call.read_only,
            tuning,
            spare_pools: if is_in_memory { no_pools() } else { call.spare_pools },
        };
        if call.dry_run {
            let would = self.engine.would_assemble(spec).await.map_err(convert::refusal);
            let would = would.map_err(|refusal| running.explain(refusal))?;
            return Ok(Done::unchanged(look::told(&would)));
        }
        let before = self.engine.events().since(0).last().map_or(0, |event| event.sequence);
        let started = self.engine.assemble(spec).await.map_err(convert::refusal);
        let name = started.map_err(|refusal| running.explain(refusal))?;
        let mut line = self.how_it_runs(&name, !asked.read_only).await;
        line.push_str(&self.not_had(&name, before));
        for told in self.exports.volume_started(&name).await {
            line.push_str(&format!("; {told}"));
        }
        reclaim::grow_heaps(&self.engine);
        for told in self.follow_start(&name, &asked, is_in_memory).await {
            line.push_str(&format!("; {told}"));
        }
        Ok(Done::changed(line))
    }
}

impl Arrays {
    /// The devices that an array which started after this event had to do without, and why.
    fn not_had(&self, name: &str, after: u64) -> String {
        let events = self.engine.events().since(after).into_iter();
        let own = events.filter(|it| it.name == event_names::DEVICE_NOT_OPENED && it.array == name);
        let reasons = own.flat_map(|event| event.fields).filter(|(field, _)| *field == "reason");
        reasons.map(|(_, reason)| format!("; {reason}")).collect()
    }
}

fn assembly_request(call: &Assemble) -> Result<AssemblyRequest, ApiError> {
    let malformed = |message: String| {
        let hint = "see what the devices say with 'ashlar examine'";
        ApiError::new(codes::REQUEST_MALFORMED, message, hint)
    };
    let uuid = |text: &String| {
        Uuid::parse_str(text)
            .map_err(|_| malformed(format!("'{text}' is not a UUID; nothing was done")))
    };
    let array = match (&call.uuid, &call.name) {
        (Some(text), _) => ArrayChoice::Uuid(uuid(text)?),
        (None, Some(name)) => {
            ArrayChoice::Name(ArrayName::new(name).map_err(|fault| malformed(fault.to_string()))?)
        }
        (None, None) => ArrayChoice::Only,
    };
    Ok(AssemblyRequest {
        array,
        trust: call.trust.as_ref().map(uuid).transpose()?,
        accept_serials: call.accept_serials,
        accept_signatures: call.accept_signatures,
        accept_dirty_degraded: call.accept_dirty_degraded,
        accept_older_members: call.accept_older_members,
        accept_lost_map: call.accept_lost_map,
    })
}

impl Serves<Stop> for Arrays {
    async fn serve(&self, call: Stop) -> Result<Done, ApiError> {
        self.engine.array(&call.array).map_err(convert::refusal)?;
        if !call.force {
            self.refuse_if_paused(&call.array)?;
            self.exports.refuse_if_used(&call.array)?;
        }
        let devices = self.memory_of(&call.array).await;
        let uuid = self.uuid_of(&call.array).await;
        // Its devices are free again, and are not to be taken for new ones.
        uuid.into_iter().for_each(|uuid| self.gather.stopped(uuid));
        let mut told = self.stop(&call.array).await?;
        if !devices.is_empty() {
            told.push_str(&format!(
                "; the daemon keeps its memory until it ends; to start it again: \
                 ashlar assemble {}",
                devices.join(" ")
            ));
        }
        Ok(Done::changed(told))
    }
}

impl Arrays {
    /// The memory devices that a running array has.
    pub async fn memory_of(&self, name: &str) -> Vec<String> {
        let arrays = self.status_of_all().await.unwrap_or_default();
        let own = arrays.into_iter().filter(|array| array.name == name);
        let paths = own.flat_map(|array| array.members).map(|member| member.path);
        paths.filter(|path| memory_devices::is_memory(path)).collect()
    }

    /// Stop an array whoever uses it, and wait until its devices are free. What it says about that.
    pub async fn stop(&self, name: &str) -> Result<String, ApiError> {
        let array = self.engine.array(name).map_err(convert::refusal)?;
        let running = self.running().await;
        let own = running.iter().find(|own| own.name == name);
        let is_mirrored = own.is_some_and(|own| own.geometry.data_strips() == 1);
        let strips = if is_mirrored { "copies equal" } else { "parity match" };
        let uuid = own.map(|own| own.uuid);
        if array.pause().is_some() {
            self.engine.give_up_waiting(name).map_err(convert::refusal)?;
        }
        drop(array);
        self.services.forget(&start::attachment(name));
        let stopped = self.engine.stop(name).await.map_err(convert::refusal);
        // Sessions get errors from now on; they must also let go of the devices.
        self.exports.drop_users_of(name).await;
        let stopped = stopped?;
        if let (Stopped::Clean, Some(uuid)) = (&stopped, uuid) {
            self.gather.remembered.note(uuid, |own| own.forced.clear());
        }
        Ok(match stopped {
            Stopped::Clean => format!("array '{name}' is stopped and clean"),
            Stopped::ReadOnly => {
                format!("array '{name}' is stopped; it was read-only, and the stop wrote nothing")
            }
            Stopped::Unclean => format!(
                "array '{name}' is stopped, not clean: its next start makes {strips} where \
                 writes ended in errors"
            ),
            Stopped::Failed => format!(
                "array '{name}' is stopped, not clean: more members had failed than it can do \
                 without; attach them, and its next start puts right where writes ended in errors"
            ),
            Stopped::TakenOver => {
                format!("array '{name}' is stopped here and runs elsewhere; nothing was written")
            }
        })
    }

    fn refuse_if_paused(&self, name: &str) -> Result<(), ApiError> {
        let array = self.engine.array(name).map_err(convert::refusal)?;
        let Some(pause) = array.pause() else { return Ok(()) };
        let pause = convert::pause(&pause);
        let message = format!("array '{name}' is paused: {pause}; nothing was changed");
        let hint = format!(
            "make room and they go on; to end them with errors: ashlar stop --force {name}"
        );
        Err(ApiError::new("array.paused", message, hint))
    }

    /// One line about an array that has just been started: what is wrong with it must not wait for
    /// `status`.
    async fn how_it_runs(&self, name: &str, is_to_write: bool) -> String {
        let status = self.engine.status().await.ok();
        let arrays = status.iter().flat_map(|status| &status.arrays);
        let found = arrays.into_iter().find(|array| array.name == name);
        let members = found.map_or(&[] as &[MemberStatus], |array| array.members.as_slice());
        let out = members.iter().filter(|member| member.state == SlotState::Out);
        let out: Vec<String> = out.map(|member| format!("slot {}", member.slot)).collect();
        let mut line = format!("array '{name}' is running");
        if !out.is_empty() {
            line.push_str(&format!(", degraded: {} out", out.join(", ")));
        }
        if found.is_some_and(|array| array.state == ashlar_engine::ArrayState::ReadOnly) {
            line.push_str(", read-only");
            if is_to_write && members.iter().any(|member| member.state != SlotState::InSync) {
                line.push_str(
                    ", because it stopped uncleanly and lacks members: blocks that were being \
                     written may be wrong; to write to it, stop it and assemble it with \
                     --accept-dirty-degraded",
                );
            }
        }
        line
    }

    async fn status_of_all(&self) -> Result<Vec<ArrayStatus>, ApiError> {
        Ok(self.engine.status().await.map_err(convert::refusal)?.arrays)
    }
}

impl Arrays {
    /// The drives of all arrays and pools.
    pub async fn drives(&self) -> Vec<Drive> {
        let arrays = self.status_of_all().await.unwrap_or_default();
        let members = arrays.into_iter().flat_map(|array| {
            let name = array.name;
            array.members.into_iter().filter(|it| !it.path.is_empty()).map(move |member| Drive {
                array: name.clone(),
                slot: Some(member.slot.0),
                path: member.path,
                serial: member.serial,
            })
        });
        let spares = self.engine.spares().into_iter().map(|spare| Drive {
            array: String::new(),
            slot: None,
            path: spare.path,
            serial: spare.serial,
        });
        members.chain(spares).collect()
    }
}

/// An array that does not run yet is on its way, perhaps: a start may watch for seconds.
fn name_starts(absent: &mut [AbsentArray], starting: &[(Uuid, String)]) {
    let is_it = |it: &AbsentArray| {
        let called = |(uuid, name): &(Uuid, String)| {
            *name == it.name || uuid.to_string().eq_ignore_ascii_case(&it.name)
        };
        starting.iter().any(called)
    };
    for own in absent.iter_mut().filter(|it| is_it(it)) {
        own.reason = "it is being started; if it may run elsewhere, its heartbeat is watched \
                      first, for 3.5 s or longer"
            .to_owned();
        own.starting = true;
    }
}

impl Serves<GetStatus> for Arrays {
    async fn serve(&self, _: GetStatus) -> Result<Status, ApiError> {
        let status = self.engine.status().await.map_err(convert::refusal)?;
        let memory = self.memory.status(|path| {
            let has = |array: &&ArrayStatus| array.members.iter().any(|it| it.path == path);
            status.arrays.iter().find(has).map(|array| array.name.clone())
        });
        let mut absent = self.configured.absent(&status.arrays);
        absent.extend(self.gather.absent(&status.arrays, &absent));
        let starting = self.engine.being_started();
        name_starts(&mut absent, &starting);
        let mut found = self.gather.found(&status.arrays);
        found.retain(|it| !starting.iter().any(|(uuid, _)| uuid.to_string() == it.uuid));
        let caches = status.arrays.iter().filter_map(convert::checksum_cache);
        let pools = status.pools.iter().flat_map(convert::pool_status).chain(caches);
        let pools = pools.chain(convert::listeners(&self.seats)).collect();
        let exports = self.exports.status_with_devices().await;
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            process_id: std::process::id(),
            kernel: self.kernel.to_owned(),
            resident_bytes: convert::resident_bytes(),
            arrays: status.arrays.into_iter().map(|it| self.array_status(it)).collect(),
            spare_pools: convert::spare_pools(self.engine.spares()),
            exports,
            workers: status.workers.into_iter().map(convert::worker_status).collect(),
            pools,
            memory,
            repeated_events: convert::repeated_events(self.engine.events()),
            absent,
            found,
            missing: self.missing(),
            starting: !*self.is_ready.borrow(),
            notify: self.events.notify_status(),
            health_unknown: None,
            history: Some(self.events.history_status()),
        };
        self.watch.fill(&mut status);
        Ok(status)
    }
}

impl Arrays {
    fn array_status(&self, array: ArrayStatus) -> ashlar_api::v1::array::ArrayStatus {
        let forced = self.gather.remembered.of(array.uuid).map(|own| own.forced);
        let status = convert::array_status(array);
        ashlar_api::v1::array::ArrayStatus { forced: forced.unwrap_or_default(), ..status }
    }

    /// What is missing beside the arrays; what is remembered as it is now.
    fn missing(&self) -> Vec<MissingService> {
        let mut missing = self.services.missing();
        missing.retain(|it| it.name != remembered::UNWRITTEN && it.name != remembered::DAMAGED);
        missing.extend(self.gather.remembered.missing());
        missing
    }
}

impl Serves<NotifyTest> for Arrays {
    async fn serve(&self, _: NotifyTest) -> Result<NotifyTested, ApiError> {
        let events = Arc::clone(&self.events);
        Ok(aside(move || events.test()).await)
    }
}

impl Backend for Arrays {
    async fn ready(&self) {
        // Without a sender the process ends.
        let mut is_ready = self.is_ready.clone();
        drop(is_ready.wait_for(|is_ready| *is_ready).await);
    }

    fn events_since(&self, after: u64) -> Vec<Event> {
        self.engine.events().since(after).into_iter().map(convert::event).collect()
    }

    fn all_events(&self) -> Vec<Event> {
        self.engine.events().all().into_iter().map(convert::event).collect()
    }

    fn record(&self, name: &'static str, fields: Vec<(&'static str, String)>) {
        self.engine.events().record(name, "", fields);
    }
}

#[cfg(test)]
mod tests {
    use super::name_starts;
    use ashlar_api::v1::status::AbsentArray;
    use uuid::Uuid;

    #[test]
    fn an_array_that_is_being_started_is_not_called_missing() {
        let named = |name: &str| AbsentArray {
            name: name.to_owned(),
            devices: Vec::new(),
            reason: "no member of it was found".to_owned(),
            starting: false,
        };
        let (one, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
        let mut absent = ["a", "b", &one.to_string(), &other.to_string()].map(named);
        name_starts(&mut absent, &[(Uuid::from_u128(1), "b".to_owned()), (one, "c".to_owned())]);
        let is_started =
            absent.map(|it| it.starting && it.reason.starts_with("it is being started"));
        assert_eq!(is_started, [false, true, true, false]);
    }
}
