//! The devices of a life and what became of the data on them.
//!
//! What must stay true: each state of the data has one origin, so whether one holds all that
//! another held is a walk.

use ashlar_ondisk::assembly::MemberReading;
use ashlar_ondisk::{Choice, CopyState, Label, Role, Superblock};
use uuid::Uuid;

use crate::samples::DEVICE_BYTES;

/// What a data state came from; the first came from nothing.
pub type Node = usize;

/// A device: what its superblock says, and what data it holds.
#[derive(Clone, Default)]
pub struct Disk {
    pub superblock: Option<Superblock>,
    /// What it had in sync.
    pub node: Node,
    /// What was last written to it, perhaps while it was being rebuilt.
    pub touched: Node,
}

impl Disk {
    /// Whether it says of itself that it holds all that was served.
    pub fn is_in_sync(&self) -> bool {
        let own = self.superblock.as_ref();
        own.is_some_and(|own| is_active(own, own.member_uuid))
    }

    /// As a start finds it; `None` if nothing was ever written to it.
    pub fn reading(&self, at: usize) -> Option<MemberReading> {
        let newest = Some(Label::Member(Box::new(self.superblock.clone()?)));
        let choice = Choice { newest, copies: [CopyState::Ok; 4] };
        Some(MemberReading::new(&format!("disk{at}"), DEVICE_BYTES, "", choice))
    }
}

/// Members in service, each with its device.
pub type Attached = Vec<(Uuid, usize)>;

/// An array that runs: its superblock, and the device of each member in service.
pub struct Running {
    pub superblock: Superblock,
    pub attached: Attached,
    pub node: Node,
    /// The generation that the start found.
    pub found: u64,
}

impl Running {
    /// Whether those attached and in sync under `superblock` are enough.
    pub fn is_enough(&self, superblock: &Superblock) -> bool {
        let in_sync = self.attached.iter().filter(|(member, _)| is_active(superblock, *member));
        in_sync.count() >= usize::from(superblock.geometry.data_strips)
    }

    /// Whether too few would be in sync without `member`.
    pub fn is_needed(&self, superblock: &Superblock, member: Uuid) -> bool {
        let others = self.attached.iter().filter(|(other, _)| *other != member);
        let in_sync = others.filter(|(other, _)| is_active(superblock, *other)).count();
        is_active(superblock, member) && in_sync < usize::from(superblock.geometry.data_strips)
    }

    /// The device of `member`, if it is in service.
    pub fn device_of(&self, member: Uuid) -> Option<usize> {
        self.attached.iter().find(|(other, _)| *other == member).map(|(_, at)| *at)
    }
}

/// The states of the data: each one's origin.
pub struct Origins(Vec<Node>);

impl Origins {
    pub fn new() -> Origins {
        Origins(vec![0])
    }

    /// A state that comes after `node`.
    pub fn after(&mut self, node: Node) -> Node {
        self.0.push(node);
        self.0.len() - 1
    }

    /// Whether all that `earlier` holds is in `later`.
    pub fn came_from(&self, later: Node, earlier: Node) -> bool {
        later == earlier || later != 0 && self.came_from(self.0[later], earlier)
    }
}

pub fn is_active(superblock: &Superblock, member: Uuid) -> bool {
    superblock.member(member).is_some_and(|entry| entry.role == Role::Active)
}
