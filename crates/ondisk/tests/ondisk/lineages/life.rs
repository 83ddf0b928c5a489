//! One life: starts, updates and what happens while an array runs, drawn at random.
//!
//! What must stay true: an update is recorded as the engine records it. Nothing is served under it
//! before every member that it lists as in service has it; one that cannot take it is out by the
//! next.

use ashlar_ondisk::assembly::{
    AssemblyRequest, MemberReading, RefusalKind, SlotState, Verdict, assemble, has_only_missed,
};
use ashlar_ondisk::{MemberEntry, MemberEvent, Role, Superblock, Text};
use ashlar_units::MemberIdx;
use uuid::Uuid;

use super::world::{Attached, Disk, Node, Origins, Running, is_active};
use crate::samples::{DEVICE_BYTES, array, incarnation, member_uuid, serial};

/// Devices beyond one for each slot.
const SPARE_DEVICES: usize = 2;

/// How the starts of a life went.
#[derive(Default)]
pub struct Counts {
    pub starts: u64,
    /// Refused because members lived on separately.
    pub halves: u64,
    /// Of these, though one device has all that was served.
    pub needless: u64,
    /// Refused for want of members, though all are there that the newest superblock counts on.
    pub stuck: u64,
}

pub struct World {
    disks: Vec<Disk>,
    origins: Origins,
    running: Option<Running>,
    names: u16,
    random: u64,
    pub counts: Counts,
    story: Vec<String>,
}

impl World {
    /// An array of `data` and `parity` strips on a device each, and devices that carry nothing yet.
    pub fn new((data, parity): (u16, u16), seed: u64) -> World {
        let base = array(data, parity, 1);
        let mut disks = vec![Disk::default(); usize::from(data + parity) + SPARE_DEVICES];
        for slot in 0..data + parity {
            disks[usize::from(slot)].superblock = base.for_member(member_uuid(slot));
        }
        let (counts, story) = (Counts::default(), Vec::new());
        World {
            disks,
            origins: Origins::new(),
            running: None,
            names: 100,
            random: seed,
            counts,
            story,
        }
    }

    /// So many starts and things that happen between them.
    pub fn live(&mut self, steps: usize) {
        for _ in 0..steps {
            self.running = match self.running.take() {
                None => self.start(),
                Some(running) => self.go_on(running),
            };
        }
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let end = u64::try_from(end).expect("small");
        usize::try_from((mixed ^ (mixed >> 31)) % end).expect("small")
    }

    fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    fn name(&mut self) -> u16 {
        self.names += 1;
        self.names
    }

    fn tell(&mut self, what: String) {
        self.story.push(what);
    }

    /// Start with some of the devices.
    fn start(&mut self) -> Option<Running> {
        let all = self.percent(40);
        let written: Vec<usize> =
            (0..self.disks.len()).filter(|at| self.disks[*at].superblock.is_some()).collect();
        let here: Vec<usize> = written.into_iter().filter(|_| all || self.percent(60)).collect();
        let readings: Vec<MemberReading> =
            here.iter().filter_map(|at| self.disks[*at].reading(*at)).collect();
        let verdict = assemble(&readings, &AssemblyRequest::default());
        self.counts.starts += 1;
        if let Some(refusal) = verdict.refusal() {
            self.refused(refusal.kind, &here);
            return None;
        }
        let current = verdict.slots.iter().filter(|slot| slot.state == SlotState::Current);
        let current: Vec<usize> = current.filter_map(|slot| Some(here[slot.reading?])).collect();
        self.tell(format!("start of {here:?}: {current:?} are current"));
        let node = self.disks[*current.first().expect("one is")].node;
        for at in &current {
            assert_eq!(self.disks[*at].node, node, "current members differ: {:#?}", self.story);
        }
        for at in here.iter().filter(|at| self.disks[**at].is_in_sync()) {
            let is_kept = self.origins.came_from(node, self.disks[*at].node);
            assert!(is_kept, "what disk{at} served is taken back: {:#?}", self.story);
        }
        self.record_start(verdict, (&here, node))
    }

    fn refused(&mut self, kind: RefusalKind, here: &[usize]) {
        self.tell(format!("start of {here:?}: {kind:?}"));
        if kind == RefusalKind::TooManyMissing {
            self.counts.stuck += u64::from(self.has_all_in_service(here));
        }
        if kind == RefusalKind::SplitBrain {
            let nodes: Vec<Node> = here.iter().map(|at| self.disks[*at].node).collect();
            let has_all =
                |node: &Node| nodes.iter().all(|other| self.origins.came_from(*node, *other));
            self.counts.needless += u64::from(nodes.iter().any(has_all));
            self.counts.halves += 1;
        }
    }

    /// Whether the device of each member is there that the newest superblock lists as in sync.
    fn has_all_in_service(&self, here: &[usize]) -> bool {
        let own = |at: &usize| self.disks[*at].superblock.as_ref();
        let newest = here.iter().filter_map(own).max_by_key(|own| own.generation);
        let is_here =
            |member: Uuid| here.iter().filter_map(own).any(|own| own.member_uuid == member);
        let mut active = newest.into_iter().flat_map(|newest| &newest.members);
        active.all(|entry| entry.role != Role::Active || is_here(entry.uuid))
    }

    /// All know what the newest knows; then the update of the start, without those that are not
    /// there.
    fn record_start(
        &mut self,
        verdict: Verdict,
        (here, node): (&[usize], Node),
    ) -> Option<Running> {
        let superblock = verdict.newest.expect("it starts");
        let mut attached = Vec::new();
        for slot in &verdict.slots {
            if let (SlotState::Current, Some(holder), Some(at)) =
                (slot.state, slot.holder, slot.reading)
            {
                attached.push((holder.uuid, here[at]));
            }
            if let Some((joining_device, at)) =
                slot.joining_device.and_then(|it| Some((it.entry, it.reading?)))
            {
                attached.push((joining_device.uuid, here[at]));
            }
        }
        let found = superblock.clone();
        let running = Running { superblock, attached, node, found: found.generation };
        let running = self.write(running, found)?;
        let mut next = running.superblock.clone();
        next.generation += 1;
        let is_here = |entry: &MemberEntry| running.device_of(entry.uuid).is_some();
        let in_service = |entry: &&MemberEntry| !matches!(entry.role, Role::Out | Role::Removed);
        let absent: Vec<MemberEntry> =
            next.members.iter().filter(in_service).filter(|it| !is_here(it)).copied().collect();
        for entry in absent {
            lose(&mut next, entry.uuid);
        }
        next.generation -= 1;
        let number = self.name();
        next.begin_start(incarnation(number));
        self.write_and_serve(running, next)
    }

    /// As [`World::write`]; then something may be served under it.
    fn write_and_serve(&mut self, running: Running, next: Superblock) -> Option<Running> {
        let (node, found) = (running.node, running.found);
        let written = self.write_until_cut(running, next);
        let (superblock, attached, is_cut) = written?;
        let mut running = Running { superblock, attached, node, found };
        self.serve(&mut running);
        if is_cut { None } else { Some(running) }
    }

    /// Write an update to all in service. None if a crash cuts it off, or too few are left.
    fn write(&mut self, running: Running, next: Superblock) -> Option<Running> {
        let (node, found) = (running.node, running.found);
        let (superblock, attached, is_cut) = self.write_until_cut(running, next)?;
        (!is_cut).then_some(Running { superblock, attached, node, found })
    }

    /// What is recorded in the end, with whom, and whether a crash follows at once; none if it came
    /// before all had it.
    fn write_until_cut(
        &mut self,
        mut running: Running,
        mut next: Superblock,
    ) -> Option<(Superblock, Attached, bool)> {
        let mut again: Vec<Uuid> = Vec::new();
        loop {
            let is_cut = self.percent(12);
            let fails = self.percent(8);
            let mut failed = Vec::new();
            for (member, at) in &running.attached {
                let still_fails = again.contains(member) && self.percent(60);
                let is_missed = still_fails || (is_cut || fails) && self.percent(50);
                match next.for_member(*member) {
                    Some(own) if !is_missed => self.disks[*at].superblock = Some(own),
                    _ => failed.push(*member),
                }
            }
            let (generation, lack) = (next.generation, failed.len());
            if is_cut {
                self.tell(format!("update {generation} is cut off, {lack} lack it"));
            }
            if failed.is_empty() {
                return Some((next, running.attached, is_cut));
            }
            if is_cut {
                return None;
            }
            next.generation += 1;
            let mut needed = 0;
            for member in &failed {
                let stays = running.is_needed(&next, *member);
                needed += usize::from(stays);
                if !stays {
                    lose(&mut next, *member);
                    running.attached.retain(|(other, _)| other != member);
                }
            }
            self.tell(format!("{lack} fail, {needed} are needed, update {}", next.generation));
            // Perhaps they answer the next time.
            if needed > 0 && self.percent(30) {
                return None;
            }
            again = if needed > 0 { failed } else { Vec::new() };
        }
    }

    /// Something happens to an array that runs.
    fn go_on(&mut self, mut running: Running) -> Option<Running> {
        let mut next = running.superblock.clone();
        next.generation += 1;
        match self.below(12) {
            0..3 => {
                self.serve(&mut running);
                return Some(running);
            }
            3 => {
                self.tell("crash".to_owned());
                return None;
            }
            4 => {
                next.unclean = false;
                self.write(running, next)?;
                self.tell("stopped".to_owned());
                return None;
            }
            5 => self.fail(&mut running, &mut next),
            6..8 => self.replace(&mut running, &mut next),
            8 => self.take_back(&mut running, &mut next),
            9..11 => self.complete(&mut running, &mut next),
            _ => {}
        }
        self.write_and_serve(running, next)
    }

    /// Clients write, and all in service hold it.
    fn serve(&mut self, running: &mut Running) {
        running.node = self.origins.after(running.node);
        for (member, at) in &running.attached {
            let disk = &mut self.disks[*at];
            disk.touched = running.node;
            if is_active(&running.superblock, *member) {
                disk.node = running.node;
            }
        }
        self.tell(format!("served {} under {}", running.node, running.superblock.generation));
    }

    /// A member fails that the others can do without.
    fn fail(&mut self, running: &mut Running, next: &mut Superblock) {
        let (member, at) = running.attached.remove(self.below(running.attached.len()));
        if running.is_enough(next) {
            lose(next, member);
            self.tell(format!("disk{at} fails, update {}", next.generation));
        } else {
            running.attached.push((member, at));
        }
    }

    /// A device that nobody is using begins to take a slot.
    fn replace(&mut self, running: &mut Running, next: &mut Superblock) {
        let is_free = |at: &usize| running.attached.iter().all(|(_, used)| used != at);
        let free: Vec<usize> = (0..self.disks.len()).filter(is_free).collect();
        let slot = MemberIdx::from_at(self.below(usize::from(next.geometry.slots())));
        if free.is_empty() || next.joining_device(slot).is_some() {
            return;
        }
        let at = free[self.below(free.len())];
        let number = self.name();
        let mut role = Role::Rebuilding;
        match next.holder(slot).copied() {
            Some(holder) if holder.role == Role::Active => role = Role::Replacement,
            Some(holder) => next.record(holder.uuid, MemberEvent::Dismissed).expect("it is out"),
            None => {}
        }
        let entry = MemberEntry::new(member_uuid(number), slot, role);
        next.members.push(entry.on_device(DEVICE_BYTES, Text::cut(&serial(number))));
        self.disks[at] = Disk::default();
        running.attached.push((member_uuid(number), at));
        self.tell(format!("disk{at} is {role:?} of slot {slot}, update {}", next.generation));
    }

    /// A member that is out comes back, to be rebuilt.
    fn take_back(&mut self, running: &mut Running, next: &mut Superblock) {
        let is_back = |at: usize| {
            let own = self.disks[at].superblock.as_ref()?;
            let entry = next.member(own.member_uuid)?;
            let is_free = next.joining_device(entry.slot).is_none();
            let is_back = is_free && has_only_missed(own, next, running.found);
            is_back.then_some((own.member_uuid, at))
        };
        let back: Vec<(Uuid, usize)> = (0..self.disks.len()).filter_map(is_back).collect();
        if let Some((member, at)) = back.first().copied() {
            let is_ours = self.origins.came_from(running.node, self.disks[at].touched);
            assert!(is_ours, "disk{at} comes back with something else: {:#?}", self.story);
            next.record(member, MemberEvent::Readded).expect("it is out");
            running.attached.push((member, at));
            self.tell(format!("disk{at} comes back, update {}", next.generation));
        }
    }

    /// A device that was on its way into its slot holds all there is.
    fn complete(&mut self, running: &mut Running, next: &mut Superblock) {
        let joining_device =
            next.members.iter().find(|entry| entry.role.is_joining_device()).copied();
        let Some(joining_device) = joining_device else { return };
        let at = running.device_of(joining_device.uuid).expect("it is in service");
        let replaced = next.holder(joining_device.slot).map(|holder| holder.uuid);
        if let Some(holder) = replaced.filter(|_| joining_device.role == Role::Replacement) {
            next.record(holder, MemberEvent::Dismissed).expect("a holder can be dismissed");
            running.attached.retain(|(member, _)| *member != holder);
        }
        (self.disks[at].node, self.disks[at].touched) = (running.node, running.node);
        next.record(joining_device.uuid, MemberEvent::Completed).expect("it was on its way");
        self.tell(format!("disk{at} is in sync, update {}", next.generation));
    }
}

/// The member is lost; a device that was to replace it is to be rebuilt from the others.
fn lose(next: &mut Superblock, member: Uuid) {
    let entry = *next.member(member).expect("it is listed");
    next.record(member, MemberEvent::Lost).expect("it was in service");
    let replacement =
        next.joining_device(entry.slot).filter(|it| it.role == Role::Replacement).copied();
    if let Some(replacement) = replacement.filter(|_| entry.role == Role::Active) {
        next.record(replacement.uuid, MemberEvent::SourceLost).expect("it is a replacement");
    }
}
