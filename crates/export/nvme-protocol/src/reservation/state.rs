//! Registrants and the holder of one namespace, and what reservation commands do with them.
//!
//! What must stay true: a holder is a registrant; a reservation whose last holder goes is gone; a
//! refused command has changed nothing; the number of registrants is bounded. A host is known by
//! its 128-bit identifier, whatever its controllers. Keys are never 0: a preempted key of 0 means
//! "all others". Base 2.0, 7.2 to 7.4 and 8.19.

use super::access::{ReservationType, Standing};
use crate::Status;
use crate::command::{
    IoCommand, RegisterAction, ReservationAcquire, ReservationRegister, ReservationRelease,
};
use crate::log::ReservationNoticeKind;
use crate::nqn::HostId;

/// Most registrants of one namespace.
pub const REGISTRANTS_MAX: usize = 64;

/// A host that registered a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrant {
    /// Who.
    pub host: HostId,
    /// By which key others can preempt it.
    pub key: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub kind: ReservationType,
    /// Of the types of all registrants every registrant is a holder, and this one only took it
    /// first.
    pub holder: HostId,
}

/// The state of one namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reservations {
    pub(super) registrants: Vec<Registrant>,
    pub(super) held: Option<Held>,
    /// GEN: rises with every change of registrations.
    pub(super) generation: u32,
    /// PTPLS: everything survives a restart.
    pub(super) persists: bool,
}

/// Whom to tell what: hosts other than the one that sent the command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notified(pub Vec<(HostId, ReservationNoticeKind)>);

/// The two keys of a command's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// CRKEY.
    pub current: u64,
    /// NRKEY or PRKEY.
    pub other: u64,
}

fn key_at(data: &[u8], at: usize) -> Result<u64, Status> {
    let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or(Status::SGL_LENGTH_INVALID)
}

/// The data of Reservation Register: current and new key.
///
/// # Errors
/// [`Status::SGL_LENGTH_INVALID`] if it is shorter than 16 bytes.
pub fn register_keys(data: &[u8]) -> Result<Keys, Status> {
    Ok(Keys { current: key_at(data, 0)?, other: key_at(data, 8)? })
}

/// The data of Reservation Acquire: current key and key to preempt.
///
/// # Errors
/// [`Status::SGL_LENGTH_INVALID`] if it is shorter than 16 bytes.
pub fn acquire_keys(data: &[u8]) -> Result<Keys, Status> {
    register_keys(data)
}

/// The data of Reservation Release: the current key.
///
/// # Errors
/// [`Status::SGL_LENGTH_INVALID`] if it is shorter than 8 bytes.
pub fn release_key(data: &[u8]) -> Result<u64, Status> {
    key_at(data, 0)
}

impl Reservations {
    /// The registrants.
    pub fn registrants(&self) -> &[Registrant] {
        &self.registrants
    }

    /// The type of the reservation that is held, if any is.
    pub fn kind(&self) -> Option<ReservationType> {
        self.held.map(|held| held.kind)
    }

    /// Whether the state survives a restart: then a change of it must be durable before it is
    /// answered.
    pub fn persists(&self) -> bool {
        self.persists
    }

    /// Whether `host` holds the reservation.
    pub fn is_holder(&self, host: HostId) -> bool {
        self.standing(host) == Standing::Holder && self.held.is_some()
    }

    fn standing(&self, host: HostId) -> Standing {
        let is_registrant = self.key_of(host).is_some();
        match self.held {
            Some(held) if held.holder == host => Standing::Holder,
            Some(held) if is_registrant && held.kind.is_of_all_registrants() => Standing::Holder,
            _ if is_registrant => Standing::Registrant,
            _ => Standing::Stranger,
        }
    }

    fn key_of(&self, host: HostId) -> Option<u64> {
        self.registrants.iter().find(|it| it.host == host).map(|it| it.key)
    }

    /// Refuse a command that the reservation keeps `host` from.
    ///
    /// # Errors
    /// [`Status::RESERVATION_CONFLICT`].
    pub fn admit(&self, host: HostId, command: &IoCommand) -> Result<(), Status> {
        let Some(held) = self.held else { return Ok(()) };
        let standing = self.standing(host);
        let is_kept_out = command.is_write() && !held.kind.lets_write(standing)
            || command.is_read() && !held.kind.lets_read(standing);
        if is_kept_out { Err(Status::RESERVATION_CONFLICT) } else { Ok(()) }
    }

    /// Reservation Register.
    ///
    /// # Errors
    /// [`Status::RESERVATION_CONFLICT`] if the key is not the host's; [`Status::INVALID_FIELD`] for
    /// a new key of 0; [`Status::OPERATION_DENIED`] for a host without identifier, or one too many.
    pub fn register(
        &mut self,
        host: HostId,
        command: &ReservationRegister,
        keys: Keys,
    ) -> Result<Notified, Status> {
        if !host.is_set() {
            return Err(Status::OPERATION_DENIED);
        }
        let current = self.key_of(host);
        let is_right = command.ignores_key || current == Some(keys.current);
        let notified = match (command.action, current) {
            (RegisterAction::Register, Some(key)) if key != keys.other => {
                return Err(Status::RESERVATION_CONFLICT);
            }
            (RegisterAction::Register, _) => self.put_key(host, keys.other)?,
            (RegisterAction::Replace, None) if !command.ignores_key => {
                return Err(Status::RESERVATION_CONFLICT);
            }
            (RegisterAction::Replace | RegisterAction::Unregister, Some(_)) if !is_right => {
                return Err(Status::RESERVATION_CONFLICT);
            }
            (RegisterAction::Replace, _) => self.put_key(host, keys.other)?,
            (RegisterAction::Unregister, None) => return Err(Status::RESERVATION_CONFLICT),
            (RegisterAction::Unregister, Some(_)) => self.unregister(host),
        };
        self.generation = self.generation.wrapping_add(1);
        self.persists = command.persists.unwrap_or(self.persists);
        Ok(notified)
    }

    fn put_key(&mut self, host: HostId, key: u64) -> Result<Notified, Status> {
        if key == 0 {
            return Err(Status::INVALID_FIELD);
        }
        let is_full = self.registrants.len() >= REGISTRANTS_MAX;
        match self.registrants.iter_mut().find(|it| it.host == host) {
            Some(registrant) => registrant.key = key,
            None if is_full => return Err(Status::OPERATION_DENIED),
            None => self.registrants.push(Registrant { host, key }),
        }
        Ok(Notified::default())
    }

    /// A registrant goes. If it was the last holder, its reservation goes with it, and others that
    /// had rights by it hear.
    fn unregister(&mut self, host: HostId) -> Notified {
        self.registrants.retain(|it| it.host != host);
        let Some(held) = self.held else { return Notified::default() };
        let goes = match held.kind.is_of_all_registrants() {
            true => self.registrants.is_empty(),
            false => held.holder == host,
        };
        if goes {
            return self.let_go(held, host);
        }
        if held.holder == host {
            // Another of all registrants stands for them.
            self.held = self.registrants.first().map(|it| Held { holder: it.host, ..held });
        }
        Notified::default()
    }

    fn let_go(&mut self, held: Held, by: HostId) -> Notified {
        self.held = None;
        let told = if held.kind.is_shared() { self.others(by) } else { Vec::new() };
        Notified::of(told, ReservationNoticeKind::ReservationReleased)
    }

    fn others(&self, than: HostId) -> Vec<HostId> {
        self.registrants.iter().map(|it| it.host).filter(|host| *host != than).collect()
    }

    /// Reservation Acquire.
    ///
    /// # Errors
    /// [`Status::RESERVATION_CONFLICT`] if the host is no registrant with this key, somebody else
    /// holds, or nobody has the key to preempt; [`Status::INVALID_FIELD`] for a preempted key of 0
    /// where it has no meaning.
    pub fn acquire(
        &mut self,
        host: HostId,
        command: &ReservationAcquire,
        keys: Keys,
    ) -> Result<Notified, Status> {
        if self.key_of(host) != Some(keys.current) {
            return Err(Status::RESERVATION_CONFLICT);
        }
        match *command {
            ReservationAcquire::Acquire(kind) => self.take(host, kind),
            ReservationAcquire::Preempt(kind) | ReservationAcquire::PreemptAndAbort(kind) => {
                self.preempt(host, kind, keys.other)
            }
        }
    }

    fn take(&mut self, host: HostId, kind: ReservationType) -> Result<Notified, Status> {
        match self.held {
            None => self.held = Some(Held { kind, holder: host }),
            Some(held) if held.kind == kind && self.is_holder(host) => {}
            Some(_) => return Err(Status::RESERVATION_CONFLICT),
        }
        Ok(Notified::default())
    }

    fn preempt(
        &mut self,
        host: HostId,
        kind: ReservationType,
        key: u64,
    ) -> Result<Notified, Status> {
        let is_of_all = self.held.is_some_and(|held| held.kind.is_of_all_registrants());
        if key == 0 && !is_of_all {
            return Err(Status::INVALID_FIELD);
        }
        let has_key = |it: &&Registrant| it.key == key;
        if key != 0 && !self.registrants.iter().any(|it| has_key(&it)) {
            return Err(Status::RESERVATION_CONFLICT);
        }
        let takes_over = match self.held {
            None => false,
            Some(_) if is_of_all => key == 0,
            Some(held) => self.key_of(held.holder) == Some(key),
        };
        let goes = |it: &Registrant| it.host != host && (key == 0 || it.key == key);
        let gone: Vec<HostId> =
            self.registrants.iter().filter(|it| goes(it)).map(|it| it.host).collect();
        self.registrants.retain(|it| !goes(it));
        let mut notified = Notified::of(gone, ReservationNoticeKind::RegistrationPreempted);
        if takes_over {
            let was = self.held.replace(Held { kind, holder: host });
            if was.is_some_and(|was| was.kind != kind) {
                let told = self.others(host);
                notified.add(told, ReservationNoticeKind::ReservationPreempted);
            }
        } else if let Some(held) = self.held.filter(|held| self.key_of(held.holder).is_none()) {
            // The one that stood for all registrants went; the host that preempted it is still one
            // of them.
            self.held = Some(Held { holder: host, ..held });
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notified)
    }

    /// Reservation Release.
    ///
    /// # Errors
    /// [`Status::RESERVATION_CONFLICT`] if the host is no registrant with this key;
    /// [`Status::INVALID_FIELD`] if another type is held.
    pub fn release(
        &mut self,
        host: HostId,
        command: &ReservationRelease,
        key: u64,
    ) -> Result<Notified, Status> {
        if self.key_of(host) != Some(key) {
            return Err(Status::RESERVATION_CONFLICT);
        }
        match *command {
            ReservationRelease::Release(kind) => match self.held {
                Some(held) if self.is_holder(host) && held.kind != kind => {
                    Err(Status::INVALID_FIELD)
                }
                Some(held) if self.is_holder(host) => Ok(self.let_go(held, host)),
                // A host that holds nothing has nothing to release, and that is no fault.
                _ => Ok(Notified::default()),
            },
            ReservationRelease::Clear => {
                let told = self.others(host);
                self.registrants.clear();
                self.held = None;
                self.generation = self.generation.wrapping_add(1);
                Ok(Notified::of(told, ReservationNoticeKind::ReservationPreempted))
            }
        }
    }

    /// Set Features, Reservation Persistence.
    pub fn set_persists(&mut self, persists: bool) {
        self.persists = persists;
    }
}

impl Notified {
    fn of(hosts: Vec<HostId>, kind: ReservationNoticeKind) -> Notified {
        let mut notified = Notified::default();
        notified.add(hosts, kind);
        notified
    }

    fn add(&mut self, hosts: Vec<HostId>, kind: ReservationNoticeKind) {
        self.0.extend(hosts.into_iter().map(|host| (host, kind)));
    }
}
