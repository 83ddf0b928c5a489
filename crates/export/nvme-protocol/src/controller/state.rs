//! A controller's state, and the one function that changes it by an admin command.

use super::{features::Features, identify, logs};
use crate::Status;
use crate::command::{AdminCommand, Connect, InvalidParameter};
use crate::events::{Event, Events};
use crate::identify::{ControllerFacts, NamespaceFacts};
use crate::keep_alive::KeepAlive;
use crate::log::{
    ChangedNamespaces, DiscoveryEntry, Health, ReservationNotice, ReservationNotices,
};
use crate::nqn::Host;
use crate::property::{Properties, PropertyChange};

/// What a controller is made with.
#[derive(Clone, Debug)]
pub struct ControllerTerms {
    /// What it is.
    pub facts: ControllerFacts,
    /// Whose it is.
    pub host: Host,
    /// I/O queues that the host may have.
    pub io_queues_max: u16,
    /// Entries that a queue may have, less one (CAP.MQES).
    pub entries_less_one_max: u16,
    /// KATO of its Connect, in milliseconds.
    pub keep_alive_ms: u32,
}

/// What a controller shows of the world around it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The namespaces, by rising identifiers.
    pub namespaces: &'a [NamespaceFacts],
    /// The controllers of the subsystem, by rising identifiers.
    pub controllers: &'a [u16],
    /// What the discovery log page says.
    pub discovery: &'a [DiscoveryEntry],
    /// GENCTR: rises when that changes.
    pub discovery_generation: u64,
    /// What is known of the subsystem's life.
    pub health: Health,
    /// NSIDs whose reservations survive a restart.
    pub persistent: &'a [u32],
    /// Milliseconds of a clock that does not go back.
    pub now_ms: u64,
}

impl View<'_> {
    pub(super) fn namespace(&self, id: u32) -> Option<&NamespaceFacts> {
        self.namespaces.iter().find(|it| it.id == id)
    }
}

/// What came of an admin command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done: result dwords 0 and 1, and data for the host.
    Done {
        /// Dwords 0 and 1.
        result: u64,
        /// Exactly as long as the command's transfer.
        data: Vec<u8>,
    },
    /// It waits for an event.
    Waits,
    /// This request for an event no longer waits: complete it as aborted, then the Abort with 0.
    AbortedRequest {
        /// CID.
        command: u16,
    },
    /// Give this command of an I/O queue up if it still can be, then answer with 0 in bit 0 if it
    /// was.
    Abort {
        /// SQID.
        queue: u16,
        /// CID.
        command: u16,
    },
    /// Whether reservations of this namespace survive a restart is to be changed; then it is done.
    SetPersistence {
        /// NSID.
        namespace: u32,
        /// Whether they do.
        persists: bool,
    },
}

impl Answer {
    /// Done, and nothing to tell.
    pub const DONE: Answer = Answer::Done { result: 0, data: Vec::new() };

    pub(super) fn result(result: u32) -> Answer {
        Answer::Done { result: u64::from(result), data: Vec::new() }
    }

    pub(super) fn data(data: Vec<u8>) -> Answer {
        Answer::Done { result: 0, data }
    }
}

/// A controller.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(super) terms: ControllerTerms,
    pub(super) properties: Properties,
    pub(super) features: Features,
    pub(super) keep_alive: KeepAlive,
    pub(super) events: Events,
    pub(super) changed: ChangedNamespaces,
    pub(super) notices: ReservationNotices,
}

impl Controller {
    /// A controller that a host just connected to; not enabled yet.
    pub fn new(terms: ControllerTerms, now_ms: u64) -> Controller {
        Controller {
            properties: Properties::new(terms.facts.kind, terms.entries_less_one_max),
            features: Features::default(),
            keep_alive: KeepAlive::new(terms.keep_alive_ms, now_ms),
            events: Events::new(terms.facts.async_events_max),
            changed: ChangedNamespaces::default(),
            notices: ReservationNotices::default(),
            terms,
        }
    }

    /// What it is.
    pub fn facts(&self) -> &ControllerFacts {
        &self.terms.facts
    }

    /// Whose it is.
    pub fn host(&self) -> &Host {
        &self.terms.host
    }

    /// Its properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The keep-alive timer.
    pub fn keep_alive(&mut self) -> &mut KeepAlive {
        &mut self.keep_alive
    }

    /// Everything that was answered before the shutdown is durable.
    pub fn shutdown_is_complete(&mut self) {
        self.properties.shutdown_is_complete();
    }

    /// The controller cannot go on (CFS): its host died, or something inside did.
    pub fn fail(&mut self) {
        self.properties.fail();
    }

    /// Property Set.
    ///
    /// # Errors
    /// The [`Status`] to answer with.
    pub fn set_property(
        &mut self,
        at: u32,
        is_wide: bool,
        value: u64,
    ) -> Result<PropertyChange, Status> {
        let change = self.properties.set(at, is_wide, value)?;
        if change == PropertyChange::Reset {
            self.features = Features::default();
            self.changed.clear();
            self.notices = ReservationNotices::default();
        }
        Ok(change)
    }

    /// Give up the event requests that wait, after a reset: their command identifiers.
    pub fn drop_event_requests(&mut self) -> Vec<u16> {
        self.events.reset()
    }

    /// Carry out a command of the admin queue. `id` is its CID.
    ///
    /// # Errors
    /// The [`Status`] to answer with.
    pub fn execute(
        &mut self,
        id: u16,
        command: &AdminCommand,
        view: &View,
    ) -> Result<Answer, Status> {
        if !self.properties.is_ready() {
            return Err(Status::SEQUENCE_ERROR);
        }
        match command {
            AdminCommand::Identify(identify) => identify::answer(self, identify, view),
            AdminCommand::GetLogPage(get) => logs::answer(self, get, view),
            AdminCommand::GetFeature(get) => self.get_feature(get, view),
            AdminCommand::SetFeature(set) => self.set_feature(set, view),
            AdminCommand::AsyncEventRequest => {
                self.events.request(id)?;
                Ok(Answer::Waits)
            }
            AdminCommand::Abort { queue: 0, command } if self.events.take(*command) => {
                Ok(Answer::AbortedRequest { command: *command })
            }
            // Nothing else waits on the admin queue for long.
            AdminCommand::Abort { queue: 0, .. } => Ok(Answer::result(1)),
            AdminCommand::Abort { queue, command } => {
                Ok(Answer::Abort { queue: *queue, command: *command })
            }
            AdminCommand::KeepAlive => {
                self.keep_alive.saw_traffic();
                Ok(Answer::DONE)
            }
        }
    }

    /// A namespace appeared, disappeared or changed.
    pub fn namespace_changed(&mut self, id: u32) {
        self.changed.add(id);
        self.events.happened(Event::Namespaces);
    }

    /// What the discovery log page says changed.
    pub fn discovery_changed(&mut self) {
        self.events.happened(Event::Discovery);
    }

    /// Something happened to a reservation that concerns this controller's host.
    pub fn reservation_notice(&mut self, notice: ReservationNotice) {
        if !notice.kind.is_masked(self.features.reservation_mask(notice.namespace)) {
            self.notices.add(notice);
            self.events.happened(Event::Reservation);
        }
    }

    /// The next event request to complete, if something happened: its command identifier and its
    /// result.
    pub fn next_event(&mut self) -> Option<(u16, u64)> {
        let wanted = self.features.wanted_events;
        self.events.next(|event| event.bit().is_none_or(|bit| wanted & bit != 0))
    }
}

impl Connect {
    /// Refuse what is wrong with a Connect by itself: its format, and the size of its queue.
    ///
    /// # Errors
    /// The [`Status`] and the result to answer with.
    pub fn check(&self, entries_less_one_max: u16) -> Result<(), (Status, u64)> {
        if self.format != 0 {
            return Err((Status::CONNECT_INCOMPATIBLE_FORMAT, 0));
        }
        if self.entries_less_one == 0 || self.entries_less_one > entries_less_one_max {
            let result = InvalidParameter::ENTRIES.result();
            return Err((Status::CONNECT_INVALID_PARAMETERS, result));
        }
        Ok(())
    }
}
