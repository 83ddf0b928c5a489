//! The six types of reservations, and what each lets a host do.
//!
//! Base 2.0, 8.19.2 "Reservation Types" and the table "Command Behavior in the Presence of a
//! Reservation".

/// RTYPE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive,
    /// Only the holder reads and writes.
    ExclusiveAccess,
    /// Only registrants write.
    WriteExclusiveRegistrantsOnly,
    /// Only registrants read and write.
    ExclusiveAccessRegistrantsOnly,
    /// Only registrants write, and each of them is a holder.
    WriteExclusiveAllRegistrants,
    /// Only registrants read and write, and each of them is a holder.
    ExclusiveAccessAllRegistrants,
}

/// What a host is to a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Holder,
    Registrant,
    Stranger,
}

impl ReservationType {
    /// All six.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// The code on the wire.
    pub fn code(self) -> u8 {
        match self {
            ReservationType::WriteExclusive => 1,
            ReservationType::ExclusiveAccess => 2,
            ReservationType::WriteExclusiveRegistrantsOnly => 3,
            ReservationType::ExclusiveAccessRegistrantsOnly => 4,
            ReservationType::WriteExclusiveAllRegistrants => 5,
            ReservationType::ExclusiveAccessAllRegistrants => 6,
        }
    }

    /// The type of this code.
    pub fn from_code(code: u8) -> Option<ReservationType> {
        ReservationType::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether every registrant is a holder.
    pub fn is_of_all_registrants(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusiveAllRegistrants
                | ReservationType::ExclusiveAccessAllRegistrants
        )
    }

    /// Whether other hosts than the holder have rights that end with the reservation, and so get a
    /// notice of its release.
    pub(super) fn is_shared(self) -> bool {
        !matches!(self, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
    }

    fn excludes_reads(self) -> bool {
        matches!(
            self,
            ReservationType::ExclusiveAccess
                | ReservationType::ExclusiveAccessRegistrantsOnly
                | ReservationType::ExclusiveAccessAllRegistrants
        )
    }

    pub(super) fn lets_write(self, standing: Standing) -> bool {
        match standing {
            Standing::Holder => true,
            Standing::Registrant => self.is_shared(),
            Standing::Stranger => false,
        }
    }

    pub(super) fn lets_read(self, standing: Standing) -> bool {
        !self.excludes_reads() || self.lets_write(standing)
    }
}
