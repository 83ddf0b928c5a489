//! What a frontend has said of its device, and the queues that run because of it.
//!
//! What must stay true: a queue runs when the frontend has said all that it needs, and only then;
//! whatever a running queue was started with changes only while it is stopped; where a queue
//! stopped is where it goes on. Not here: messages as bytes (`session`).

use crate::config::{CACHE_MODE_AT, CONFIG_BYTES, QUEUES_MAX, config, feature, offered};
use crate::counters::VhostCounters;
use crate::growth::Growth;
use crate::in_flight::{self, InFlight};
use crate::memory::GuestMemory;
use crate::queue::{Cause, News, QueueStart, Report, Reporter, Told};
use crate::session::{Message, SessionError};
use crate::vring::{RingShape, Vring};
use crate::wire::{self, RingAddresses, RingNumber, ask, protocol};
use ashlar_ring::mailbox::{Receiver, Sender, mailbox};
use ashlar_ring::{Handle, Notifier};
use ashlar_session::SessionLimits;
use ashlar_volume::VolumeFacts;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes;

/// What a message is answered with.
pub(crate) enum Answer {
    /// Nothing, or that it was obeyed, if the frontend wants to hear that.
    Obeyed,
    /// These bytes.
    Content(Vec<u8>),
    /// These bytes and a descriptor.
    WithFile(Vec<u8>, OwnedFd),
}

/// What a device is made of.
pub(crate) struct DeviceSetting {
    /// As of the connection.
    pub(crate) facts: VolumeFacts,
    pub(crate) growth: Rc<Growth>,
    pub(crate) counters: Arc<VhostCounters>,
    pub(crate) limits: SessionLimits,
    pub(crate) notify: Notify,
}

/// Makes what signals an eventfd; an error for what is none. `None`: nobody hears.
pub(crate) type Notify = fn(&OwnedFd) -> io::Result<Option<Notifier>>;

/// One device.
pub(crate) struct Device<P> {
    setting: DeviceSetting,
    /// Hands a queue to a worker.
    place: P,
    features: Option<u64>,
    protocol: u64,
    memory: Option<Arc<GuestMemory>>,
    in_flight: Option<InFlight>,
    /// The driver said that answered writes are durable.
    is_durable: bool,
    is_volatile: Arc<AtomicBool>,
    rings: Vec<RingState>,
    reports: (Sender<Report>, Receiver<Report>),
    /// The first queue that could not go on.
    broken: Option<(u16, Cause)>,
}

/// What is known of one ring.
#[derive(Default)]
struct RingState {
    entries: u16,
    addresses: Option<RingAddresses>,
    base: u16,
    kick: Option<Arc<OwnedFd>>,
    call: Option<OwnedFd>,
    error: Option<Notifier>,
    is_enabled: bool,
    phase: Phase,
}

/// Whether it is served.
#[derive(Default)]
enum Phase {
    #[default]
    Stopped,
    /// A worker was asked to.
    Starting,
    Serving(Sender<Told>),
}

impl<P: Fn(QueueStart)> Device<P> {
    pub(crate) fn new(handle: &Handle, setting: DeviceSetting, place: P) -> Device<P> {
        Device {
            setting,
            place,
            features: None,
            protocol: 0,
            memory: None,
            in_flight: None,
            is_durable: false,
            is_volatile: Arc::new(AtomicBool::new(false)),
            rings: (0..QUEUES_MAX).map(|_| RingState::default()).collect(),
            reports: mailbox(handle),
            broken: None,
        }
    }

    /// Whether the frontend may ask to hear that it was obeyed.
    pub(crate) fn has_replies(&self) -> bool {
        self.protocol & protocol::REPLY_ACK != 0
    }

    /// Do what a message asks, and then run the queues that can run.
    ///
    /// # Errors
    /// The session is to end.
    pub(crate) async fn obey(&mut self, message: Message) -> Result<Answer, SessionError> {
        let answer = self.change(message).await?;
        self.start_ready()?;
        Ok(answer)
    }

    async fn change(&mut self, message: Message) -> Result<Answer, SessionError> {
        let Message { request, content, .. } = &message;
        let unreadable = SessionError::Malformed { request: *request };
        let number = || wire::content::<u64>(content);
        match *request {
            ask::GET_FEATURES => Ok(word(offered(&self.setting.facts))),
            ask::SET_FEATURES => self.set_features(number().ok_or(unreadable)?).await,
            ask::GET_PROTOCOL_FEATURES => Ok(word(protocol::SPOKEN)),
            ask::SET_PROTOCOL_FEATURES => {
                self.protocol = number().ok_or(unreadable)?;
                Ok(Answer::Obeyed)
            }
            ask::GET_QUEUE_COUNT => Ok(word(u64::from(QUEUES_MAX))),
            ask::SET_BACKEND_CHANNEL => self.set_channel(message),
            ask::SET_OWNER => Ok(Answer::Obeyed),
            ask::RESET_OWNER => {
                self.stop_all().await;
                Ok(Answer::Obeyed)
            }
            ask::SET_MEMORY => self.set_memory(message).await,
            ask::GET_CONFIG => self.tell_config(content).ok_or(unreadable),
            ask::SET_CONFIG => self.set_config(content).ok_or(unreadable),
            ask::GET_IN_FLIGHT => {
                let wanted = wire::in_flight_place(content).ok_or(unreadable)?;
                let (file, place) = in_flight::make(wanted.queues, wanted.entries)?;
                let mut bytes = place.as_bytes().to_vec();
                bytes.truncate(content.len());
                Ok(Answer::WithFile(bytes, file))
            }
            ask::SET_IN_FLIGHT => self.set_in_flight(message).await,
            _ => self.change_ring(message).await,
        }
    }

    async fn change_ring(&mut self, message: Message) -> Result<Answer, SessionError> {
        let request = message.request;
        let unreadable = || SessionError::Malformed { request };
        match request {
            ask::SET_RING_KICK | ask::SET_RING_CALL | ask::SET_RING_ERROR => {
                return self.set_event(message).await;
            }
            ask::SET_RING_ADDRESSES => {
                let addresses: RingAddresses =
                    wire::content(&message.content).ok_or_else(unreadable)?;
                let number = self.ring_number(addresses.ring).ok_or_else(unreadable)?;
                self.stop(number).await;
                self.ring(number).addresses = Some(addresses);
                return Ok(Answer::Obeyed);
            }
            ask::SET_RING_ENTRIES
            | ask::SET_RING_BASE
            | ask::GET_RING_BASE
            | ask::SET_RING_ENABLED => {}
            _ => return Err(SessionError::NotSpoken { request }),
        }
        let said: RingNumber = wire::content(&message.content).ok_or_else(unreadable)?;
        let number = self.ring_number(said.ring).ok_or_else(unreadable)?;
        let value = || u16::try_from(said.number).map_err(|_| unreadable());
        self.stop(number).await;
        let ring = self.ring(number);
        match request {
            ask::SET_RING_ENTRIES => ring.entries = value()?,
            ask::SET_RING_BASE => ring.base = value()?,
            ask::SET_RING_ENABLED => ring.is_enabled = said.number == 1,
            _ => {
                ring.kick = None;
                let base = RingNumber { ring: said.ring, number: u32::from(ring.base) };
                return Ok(Answer::Content(base.as_bytes().to_vec()));
            }
        }
        Ok(Answer::Obeyed)
    }

    async fn set_features(&mut self, features: u64) -> Result<Answer, SessionError> {
        if features & !offered(&self.setting.facts) != 0 {
            return Err(SessionError::Malformed { request: ask::SET_FEATURES });
        }
        if self.features != Some(features) {
            self.stop_all().await;
        }
        self.features = Some(features);
        if features & feature::PROTOCOL == 0 {
            self.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
        }
        self.settle_cache();
        Ok(Answer::Obeyed)
    }

    async fn set_memory(&mut self, message: Message) -> Result<Answer, SessionError> {
        let regions = wire::regions(&message.content);
        let regions = regions.ok_or(SessionError::Malformed { request: ask::SET_MEMORY })?;
        let memory = GuestMemory::map(&regions, message.files)?;
        self.stop_all().await;
        self.memory = Some(Arc::new(memory));
        Ok(Answer::Obeyed)
    }

    async fn set_in_flight(&mut self, message: Message) -> Result<Answer, SessionError> {
        let unreadable = || SessionError::Malformed { request: ask::SET_IN_FLIGHT };
        let place = wire::in_flight_place(&message.content).ok_or_else(unreadable)?;
        let [file] = message.files.as_slice() else { return Err(unreadable()) };
        let in_flight = InFlight::map(&place, file)?;
        self.stop_all().await;
        self.is_durable |= in_flight.is_durable();
        in_flight.set_durable(self.is_durable);
        self.in_flight = Some(in_flight);
        self.settle_cache();
        Ok(Answer::Obeyed)
    }

    fn set_channel(&self, mut message: Message) -> Result<Answer, SessionError> {
        let request = message.request;
        if self.protocol & protocol::NOTICES == 0 {
            return Err(SessionError::NotSpoken { request });
        }
        let channel = message.files.pop().ok_or(SessionError::Malformed { request })?;
        self.setting.growth.listen_at(channel);
        Ok(Answer::Obeyed)
    }

    fn tell_config(&self, content: &[u8]) -> Option<Answer> {
        let (head, rest) = wire::config(content)?;
        let offset = usize::try_from(head.offset).ok()?;
        // Before there is memory for it.
        let end = offset.checked_add(rest.len()).filter(|end| *end <= wire::CONTENT_BYTES_MAX)?;
        let size_bytes = self.setting.growth.size_bytes();
        let facts = VolumeFacts { size_bytes, ..self.setting.facts.clone() };
        let mut told = config(&facts, self.is_volatile()).to_vec();
        told.resize(end.max(CONFIG_BYTES), 0);
        let bytes = [head.as_bytes(), &told[offset..end]].concat();
        (bytes.len() <= wire::CONTENT_BYTES_MAX).then_some(Answer::Content(bytes))
    }

    /// The driver says how durable answered writes are; it may say nothing else.
    fn set_config(&mut self, content: &[u8]) -> Option<Answer> {
        let (head, rest) = wire::config(content)?;
        let ([mode], CACHE_MODE_AT) = (rest, head.offset) else { return None };
        self.is_durable = *mode == 0;
        if let Some(in_flight) = &self.in_flight {
            in_flight.set_durable(self.is_durable);
        }
        self.settle_cache();
        Some(Answer::Obeyed)
    }

    /// A driver that cannot flush takes every answered write for durable.
    fn settle_cache(&self) {
        let knows_flushes = feature::FLUSH | feature::CACHE_MODE;
        let is_volatile =
            !self.is_durable && self.features.is_some_and(|it| it & knows_flushes != 0);
        self.is_volatile.store(is_volatile, Ordering::Relaxed);
    }

    fn is_volatile(&self) -> bool {
        self.is_volatile.load(Ordering::Relaxed) || self.features.is_none()
    }

    /// One of the three eventfds of a ring.
    async fn set_event(&mut self, message: Message) -> Result<Answer, SessionError> {
        let Message { request, content, mut files } = message;
        let unreadable = || SessionError::Malformed { request };
        let said: u64 = wire::content(&content).ok_or_else(unreadable)?;
        let number = self.ring_number(u32::try_from(said & wire::RING_MASK).unwrap_or(u32::MAX));
        let number = number.ok_or_else(unreadable)?;
        let file = if said & wire::NO_DESCRIPTOR == 0 { files.pop() } else { None };
        let notifier = file.as_ref().map(self.setting.notify).transpose();
        let notifier = notifier.map_err(SessionError::Event)?.flatten();
        match request {
            ask::SET_RING_KICK => {
                let kick = file.ok_or_else(unreadable)?;
                self.stop(number).await;
                self.ring(number).kick = Some(Arc::new(kick));
            }
            ask::SET_RING_CALL => {
                let ring = self.ring(number);
                ring.call = file;
                match &ring.phase {
                    Phase::Serving(told) => told.send(Told::Call(notifier.map(Box::new))),
                    // It has begun with another one, or will begin with this one.
                    Phase::Starting => self.stop(number).await,
                    Phase::Stopped => {}
                }
            }
            _ => self.ring(number).error = notifier,
        }
        Ok(Answer::Obeyed)
    }

    fn ring(&mut self, number: u16) -> &mut RingState {
        &mut self.rings[usize::from(number)]
    }

    fn ring_number(&self, said: u32) -> Option<u16> {
        u16::try_from(said).ok().filter(|number| *number < QUEUES_MAX)
    }

    /// Start every queue of which all is known.
    fn start_ready(&mut self) -> Result<(), SessionError> {
        let (Some(features), Some(memory)) = (self.features, self.memory.clone()) else {
            return Ok(());
        };
        for number in 0..QUEUES_MAX {
            let ring = &self.rings[usize::from(number)];
            let (Phase::Stopped, true) = (&ring.phase, ring.is_enabled) else { continue };
            let (Some(addresses), Some(kick)) = (ring.addresses, ring.kick.clone()) else {
                continue;
            };
            let shape = RingShape { entries: ring.entries, addresses, features };
            let broken = |fault| SessionError::Broken { queue: number, fault };
            let vring = Vring::new(&memory, &shape).map_err(broken)?;
            let area = self.in_flight.as_ref().map(|it| it.queue(number, shape.entries));
            let call = ring.call.as_ref().map(self.setting.notify).transpose();
            let start = QueueStart {
                number,
                vring,
                area: area.transpose().map_err(broken)?,
                base: ring.base,
                kick,
                call: call.map_err(SessionError::Event)?.flatten().map(Box::new),
                is_volatile: Arc::clone(&self.is_volatile),
                counters: Arc::clone(&self.setting.counters),
                limits: self.setting.limits.clone(),
                reporter: Reporter::new(number, self.reports.0.clone()),
            };
            self.ring(number).phase = Phase::Starting;
            (self.place)(start);
        }
        Ok(())
    }

    /// Stop a queue, and wait until its requests under way are answered.
    async fn stop(&mut self, number: u16) {
        let mut is_told = false;
        loop {
            match &self.ring(number).phase {
                Phase::Stopped => return,
                Phase::Serving(told) if !is_told => {
                    told.send(Told::Stop);
                    is_told = true;
                }
                Phase::Starting | Phase::Serving(_) => {}
            }
            let report = self.reports.1.receive().await;
            self.note(report);
        }
    }

    /// Stop all queues, as above.
    pub(crate) async fn stop_all(&mut self) {
        for ring in &self.rings {
            if let Phase::Serving(told) = &ring.phase {
                told.send(Told::Stop);
            }
        }
        for number in 0..QUEUES_MAX {
            self.stop(number).await;
        }
    }

    /// Wait until a queue cannot go on.
    pub(crate) async fn wait_until_broken(&mut self) -> SessionError {
        loop {
            match self.broken {
                Some((queue, Cause::Guest(fault))) => return SessionError::Broken { queue, fault },
                Some((_, Cause::VolumeStopped)) => return SessionError::VolumeStopped,
                Some((queue, Cause::NotServed)) => return SessionError::NotServed { queue },
                None => {}
            }
            let report = self.reports.1.receive().await;
            self.note(report);
        }
    }

    fn note(&mut self, report: Report) {
        let ring = &mut self.rings[usize::from(report.queue)];
        match report.news {
            News::Began(told) => ring.phase = Phase::Serving(told),
            News::Ended(end) => {
                ring.phase = Phase::Stopped;
                ring.base = end.next.unwrap_or(ring.base);
                let Some(cause) = end.cause else { return };
                self.broken.get_or_insert((report.queue, cause));
                if let Cause::Guest(_) = cause {
                    // Who did that need not hear of it.
                    let _told = ring.error.as_mut().map(Notifier::notify);
                }
            }
        }
    }
}

fn word(number: u64) -> Answer {
    Answer::Content(number.to_ne_bytes().to_vec())
}
