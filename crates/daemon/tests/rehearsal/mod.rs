//! A backend that keeps names only: the control side is tested against it, without an engine.

use ashlar_api::ApiError;
use ashlar_api::v1::Done;
use ashlar_api::v1::array::{
    Appeared, ArrayState, ArrayStatus, Assemble, Create, Created, CriticalStripes, Destroy,
    Exposure, Rename, Replayed, Scan, Share, Stop,
};
use ashlar_api::v1::event::Event;
use ashlar_api::v1::export::{
    Attach, Attached, FuseAttach, FuseAttached, FuseDetach, NbdListen, UblkAttach, UblkAttached,
    UblkDetach, Via,
};
use ashlar_api::v1::growth::{Grow, Grown};
use ashlar_api::v1::job::{JobControl, ScrubStart};
use ashlar_api::v1::member::{Fail, Locate, ReAdd, Replace, Wipe};
use ashlar_api::v1::notify::{NotifyTest, NotifyTested};
use ashlar_api::v1::severity::Severity;
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_api::v1::status::{GetStatus, Status};
use ashlar_api::v1::tuning::SetTuning;
use ashlar_daemon::backend::{Backend, Serves};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
pub struct Rehearsal(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    arrays: Vec<Create>,
    events: Vec<Event>,
    /// Who asked for what, a line each; apart from the events, which are those of arrays here.
    asked: Vec<String>,
}

impl Rehearsal {
    /// Who asked for what, a line each.
    pub fn asked(&self) -> Vec<String> {
        self.0.lock().expect("not poisoned").asked.clone()
    }
}

impl Kept {
    fn record(&mut self, name: &str, array: &str) {
        self.events.push(Event {
            severity: Severity::Info,
            sequence: u64::try_from(self.events.len()).expect("few") + 1,
            unix_ms: 0,
            name: name.to_owned(),
            array: Some(array.to_owned()),
            fields: Default::default(),
        });
    }

    fn position(&self, name: &str) -> Result<usize, ApiError> {
        self.arrays
            .iter()
            .position(|array| array.name == name)
            .ok_or_else(|| ApiError::no_array(name))
    }
}

impl Serves<Create> for Rehearsal {
    async fn serve(&self, call: Create) -> Result<Created, ApiError> {
        let mut kept = self.0.lock().expect("not poisoned");
        kept.record("array.created", &call.name);
        kept.arrays.push(call);
        Ok(Created {
            changed: true,
            message: "made".to_owned(),
            uuid: "u".to_owned(),
            volume_bytes: 1,
            strip_bytes: 65_536,
            notes: Vec::new(),
        })
    }
}

impl Serves<Stop> for Rehearsal {
    async fn serve(&self, call: Stop) -> Result<Done, ApiError> {
        let mut kept = self.0.lock().expect("not poisoned");
        let at = kept.position(&call.array)?;
        kept.arrays.remove(at);
        kept.record("array.stopped", &call.array);
        Ok(Done::changed("stopped"))
    }
}

impl Serves<Fail> for Rehearsal {
    async fn serve(&self, call: Fail) -> Result<Done, ApiError> {
        let kept = self.0.lock().expect("not poisoned");
        let array = &kept.arrays[kept.position(&call.array)?];
        match call.member.parse::<usize>() {
            Ok(slot) if slot < array.devices.len() => Ok(Done::changed("out")),
            _ => Err(ApiError::new("member.unknown", format!("no member '{}'", call.member), "")),
        }
    }
}

impl Serves<GetStatus> for Rehearsal {
    async fn serve(&self, _: GetStatus) -> Result<Status, ApiError> {
        let kept = self.0.lock().expect("not poisoned");
        Ok(Status {
            version: "test".to_owned(),
            uptime_seconds: 0,
            process_id: 1,
            kernel: "none".to_owned(),
            resident_bytes: 1,
            arrays: kept.arrays.iter().map(status_of).collect(),
            spare_pools: Vec::new(),
            exports: Vec::new(),
            workers: Vec::new(),
            pools: Vec::new(),
            memory: Default::default(),
            repeated_events: Vec::new(),
            absent: Vec::new(),
            found: Vec::new(),
            missing: Vec::new(),
            starting: false,
            notify: Vec::new(),
            health_unknown: None,
            history: None,
        })
    }
}

fn status_of(array: &Create) -> ArrayStatus {
    ArrayStatus {
        forced: Vec::new(),
        name: array.name.clone(),
        uuid: "u".to_owned(),
        level: array.level,
        data_strips: 2,
        parity_strips: 2,
        groups: 1,
        is_declustered: false,
        domains: None,
        strip_bytes: 65_536,
        volume_bytes: 1,
        state: ArrayState::Clean,
        taken_over_by: None,
        read_only: None,
        pause: None,
        tolerates: 2,
        policy: "resync".to_owned(),
        checksums: "none".to_owned(),
        replayed: Some(Replayed { put_back: 5, rows_left: 2, ..Replayed::default() }),
        kernel: "none".to_owned(),
        tuning: Default::default(),
        spare_pools: Vec::new(),
        generation: 1,
        intent: Share::default(),
        written_stripes: Share::default(),
        members: Vec::new(),
        jobs: Vec::new(),
        lost_members: Vec::new(),
        exposure: Some(exposure()),
        ended_jobs: Vec::new(),
        last_scrub: None,
        counters: Default::default(),
        read_latency: Default::default(),
        write_latency: Default::default(),
        flush_latency: Default::default(),
        write_stages: Vec::new(),
    }
}

/// Of 8+2 stripes, 7 of which lack two strips.
fn exposure() -> Exposure {
    let left_seconds = Some(42);
    let critical = CriticalStripes { survive: 0, stripes: 7, waiting: 0, left_seconds };
    Exposure { surviving: vec![7, 0, 90], beyond_parity: 3, critical: Some(critical) }
}

/// Calls that the tests only send to see that they arrive at all.
macro_rules! unchanged {
    ($($call:ty),*) => {$(
        impl Serves<$call> for Rehearsal {
            async fn serve(&self, _: $call) -> Result<Done, ApiError> {
                Ok(Done::unchanged("nothing to do"))
            }
        }
    )*};
}

unchanged!(
    Assemble,
    Scan,
    Appeared,
    Replace,
    ReAdd,
    Locate,
    Wipe,
    Destroy,
    Rename,
    SetTuning,
    SpareAdd,
    SpareRemove,
    ScrubStart,
    JobControl,
    NbdListen,
    FuseDetach,
    UblkDetach
);

impl Serves<Grow> for Rehearsal {
    async fn serve(&self, call: Grow) -> Result<Grown, ApiError> {
        Ok(Grown {
            changed: !call.dry_run,
            message: format!("array '{}' grows", call.array),
            members_before: 8,
            members: 10,
            moved_cells: 20,
            cells: 80,
            cell_bytes: 1 << 20,
            volume_bytes_before: 60 << 20,
            volume_bytes: 75 << 20,
            bytes_to_each_new: 10 << 20,
            notes: Vec::new(),
        })
    }
}

impl Serves<UblkAttach> for Rehearsal {
    async fn serve(&self, _: UblkAttach) -> Result<UblkAttached, ApiError> {
        Ok(UblkAttached { changed: true, device: "/dev/ublkb7".to_owned() })
    }
}

impl Serves<Attach> for Rehearsal {
    async fn serve(&self, _: Attach) -> Result<Attached, ApiError> {
        Ok(Attached {
            changed: true,
            via: Via::Ublk,
            reason: "as asked for".to_owned(),
            file: None,
            device: Some("/dev/ublkb7".to_owned()),
            link: None,
            survives: true,
            lacks: None,
            over_ring: false,
            not_over_ring: None,
        })
    }
}

impl Serves<FuseAttach> for Rehearsal {
    async fn serve(&self, call: FuseAttach) -> Result<FuseAttached, ApiError> {
        let file = format!("/volumes/{}", call.array);
        Ok(FuseAttached {
            changed: true,
            file,
            survives: true,
            lacks: None,
            over_ring: false,
            not_over_ring: None,
        })
    }
}

impl Serves<NotifyTest> for Rehearsal {
    async fn serve(&self, _: NotifyTest) -> Result<NotifyTested, ApiError> {
        Ok(NotifyTested::default())
    }
}

impl Backend for Rehearsal {
    fn events_since(&self, after: u64) -> Vec<Event> {
        let kept = self.0.lock().expect("not poisoned");
        kept.events.iter().filter(|event| event.sequence > after).cloned().collect()
    }

    fn all_events(&self) -> Vec<Event> {
        self.events_since(0)
    }

    fn record(&self, name: &'static str, fields: Vec<(&'static str, String)>) {
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut kept = self.0.lock().expect("not poisoned");
        kept.asked.push(format!("{name} {}", fields.join(" ")));
    }
}
