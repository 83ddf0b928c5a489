//! The devices of a start: opened, and what each of them says.
//!
//! What must stay true: nothing is written. A device that cannot be opened is a problem to be told,
//! not the end.

use crate::ends::{EndsRead, ReadEnds};
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::worker::Worker;
use crate::{aside, control_io};
use ashlar_device::{Access, Device, OpenRefusal, Opened};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::assembly::{self, MemberReading};
use ashlar_ondisk::format::{FLUSH_MARKS, copy_slots};
use ashlar_ondisk::{Choice, DrivePage};
use std::rc::Rc;
use std::sync::Arc;

/// A device that was read.
pub(super) struct FoundDevice {
    pub(super) opened: Arc<dyn Opened>,
    /// What it says of the drives of its array.
    pub(super) drive_pages: Vec<DrivePage>,
    /// Its newest flush mark; 0: none.
    pub(super) mark: u64,
    /// Nobody else has written at its ends.
    pub(super) has_only_ours: bool,
}

/// Opens the devices and reads what they say; those that cannot be opened, and why not.
///
/// # Errors
/// If this process lacks what it takes to open one: the array would start without a member that is
/// there.
pub(super) async fn read_devices(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    (devices, is_read_only): (&[String], bool),
) -> Result<(Vec<FoundDevice>, Vec<MemberReading>, Vec<OpenRefusal>), Refusal> {
    let (mut started, mut problems) = (Vec::new(), Vec::new());
    let access = if is_read_only { Access::ReadOnly } else { Access::Exclusive };
    // Devices that somebody has are waited for, all at the same time.
    let open = |path: &String| {
        let (opener, path) = (Arc::clone(&engine_state.config.opener), path.clone());
        aside::begin(&worker.handle, &engine_state.config.aside, move || opener.open(&path, access))
    };
    let opening: Vec<_> = devices.iter().map(open).collect();
    for (path, opening) in devices.iter().zip(opening) {
        let opened = opening.ended().await;
        match opened {
            Err(refusal) if refusal.is_own_want => {
                return Err(Refusal::new(
                    "array.not_started",
                    format!("{refusal}; nothing was written"),
                    "raise the limit (ulimit -n, or LimitNOFILE= of the unit; memory) and start \
                     again: this member may be as good as the others",
                ));
            }
            Err(refusal) => problems.push(refusal),
            // A hundred disks seek at once, or one after the other for seconds.
            Ok(opened) => started.push(Looking::start(worker, path, opened)),
        }
    }
    let mut looked = Vec::new();
    for (looking, ends) in started {
        let ends = ends.finish(worker, looking.device.as_ref()).await;
        looked.push((looking, ends));
    }
    let choices = looked.iter().map(|(_, ends)| &ends.choice);
    let sizes = assembly::recorded_sizes(choices.filter_map(Choice::superblock));
    let (mut found, mut readings) = (Vec::new(), Vec::new());
    for (looking, mut ends) in looked {
        ends.look_before(worker, looking.device.as_ref(), &sizes).await;
        let (one, reading) = looking.judge(worker, ends).await;
        found.push(one);
        readings.push(reading);
    }
    Ok((found, readings, problems))
}

/// A device whose superblock copies are being read.
struct Looking<'p> {
    path: &'p str,
    opened: Arc<dyn Opened>,
    device: Rc<dyn Device>,
}

impl Looking<'_> {
    fn start<'p>(
        worker: &Worker,
        path: &'p str,
        opened: Arc<dyn Opened>,
    ) -> (Looking<'p>, EndsRead) {
        let device = opened.attach(&worker.handle);
        let ends = EndsRead::start(worker, device.as_ref());
        (Looking { path, opened, device }, ends)
    }

    async fn judge(self, worker: &Worker, ends: ReadEnds) -> (FoundDevice, MemberReading) {
        let ReadEnds { head, choice, has_only_ours, fault } = ends;
        let facts = self.opened.facts();
        let marks = match head {
            Some(_) => None,
            // A block beside them cannot be read, perhaps: that alone makes no older copy of it.
            None => read_marks(worker, self.device.as_ref()).await,
        };
        let serial = facts.serial.as_deref().unwrap_or("");
        let reading = MemberReading::new(self.path, facts.size_bytes, serial, choice)
            .with_mark_in(head.as_deref())
            .with_marks(marks.as_deref())
            .after_fault(fault);
        let drive_pages = head.as_deref().map(DrivePage::all_in).unwrap_or_default();
        let mark = reading.mark.map_or(0, |mark| mark.sequence);
        (FoundDevice { opened: self.opened, drive_pages, mark, has_only_ours }, reading)
    }
}

/// The flush marks alone.
async fn read_marks(worker: &Worker, device: &dyn Device) -> Option<BufMut> {
    copy_slots(device.facts().size_bytes)?;
    control_io::read(worker, device, FLUSH_MARKS).await.ok()
}
