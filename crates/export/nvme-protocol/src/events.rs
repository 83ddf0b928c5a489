//! Asynchronous events: requests that wait for something to happen, and things that wait for a
//! request.
//!
//! What must stay true: an event of one kind is told once until its log page was read; requests are
//! bounded; both leave in the order in which they came. Base 2.0, 5.2 "Asynchronous Event Request
//! command".

use crate::Status;
use crate::log::page;
use std::collections::VecDeque;

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A namespace appeared, disappeared or changed: Changed Namespace List.
    Namespaces,
    /// The state of an ANA group changed.
    Ana,
    /// The discovery log page changed.
    Discovery,
    /// A reservation notice waits.
    Reservation,
}

impl Event {
    const ALL: [Event; 4] = [Event::Namespaces, Event::Ana, Event::Discovery, Event::Reservation];

    /// The completion's result: type, information, log page.
    pub fn result(self) -> u64 {
        let (kind, information) = match self {
            Event::Namespaces => (2, 0x00),
            Event::Ana => (2, 0x03),
            Event::Discovery => (2, 0xf0),
            // Of the I/O command set.
            Event::Reservation => (6, 0x00),
        };
        kind | information << 8 | u64::from(self.page()) << 16
    }

    /// The log page that tells more, and whose reading lets the event be told again.
    pub fn page(self) -> u8 {
        match self {
            Event::Namespaces => page::CHANGED_NAMESPACES,
            Event::Ana => page::ANA,
            Event::Discovery => page::DISCOVERY,
            Event::Reservation => page::RESERVATION,
        }
    }

    /// Its bit in Asynchronous Event Configuration; `None` if it is always told.
    pub fn bit(self) -> Option<u32> {
        use crate::identify::notice;
        match self {
            Event::Namespaces => Some(notice::NAMESPACE),
            Event::Ana => Some(notice::ANA),
            Event::Discovery => Some(notice::DISCOVERY),
            Event::Reservation => None,
        }
    }

    fn at(self) -> usize {
        match self {
            Event::Namespaces => 0,
            Event::Ana => 1,
            Event::Discovery => 2,
            Event::Reservation => 3,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Told {
    #[default]
    No,
    Waiting,
    Yes,
}

/// The events of one controller.
#[derive(Clone, Debug)]
pub struct Events {
    requests: VecDeque<u16>,
    requests_max: usize,
    told: [Told; 4],
}

impl Events {
    /// At most `requests_max` requests wait.
    pub fn new(requests_max: u8) -> Events {
        Events {
            requests: VecDeque::new(),
            requests_max: usize::from(requests_max),
            told: [Told::No; 4],
        }
    }

    /// The host asks to be told.
    ///
    /// # Errors
    /// [`Status::ASYNC_EVENT_LIMIT`] if too many requests wait.
    pub fn request(&mut self, command: u16) -> Result<(), Status> {
        if self.requests.len() >= self.requests_max {
            return Err(Status::ASYNC_EVENT_LIMIT);
        }
        self.requests.push_back(command);
        Ok(())
    }

    /// An event happened. It is not noted if the host had the same notice before and has not
    /// looked.
    pub fn happened(&mut self, event: Event) {
        let told = &mut self.told[event.at()];
        if *told == Told::No {
            *told = Told::Waiting;
        }
    }

    /// The next request to complete, with its result. `is_wanted` says whether the host wants to
    /// hear of an event.
    pub fn next(&mut self, is_wanted: impl Fn(Event) -> bool) -> Option<(u16, u64)> {
        let is_due = |event: &Event| self.told[event.at()] == Told::Waiting && is_wanted(*event);
        let event = Event::ALL.into_iter().find(is_due)?;
        let command = self.requests.pop_front()?;
        self.told[event.at()] = Told::Yes;
        Some((command, event.result()))
    }

    /// The host read the log page of an event.
    pub fn page_was_read(&mut self, page: u8) {
        if let Some(event) = Event::ALL.into_iter().find(|event| event.page() == page) {
            self.told[event.at()] = Told::No;
        }
    }

    /// Take the request that is this command, if it waits: it is aborted.
    pub fn take(&mut self, command: u16) -> bool {
        let at = self.requests.iter().position(|waiting| *waiting == command);
        at.and_then(|at| self.requests.remove(at)).is_some()
    }

    /// Give all requests up: the controller was reset.
    pub fn reset(&mut self) -> Vec<u16> {
        self.told = [Told::No; 4];
        self.requests.drain(..).collect()
    }
}
