//! The features that Get Features and Set Features know here.
//!
//! Base 2.0, 5.27.1 "Feature Specific Information"; NVM Command Set 1.0, "Feature Specific
//! Information".

/// A feature identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Arbitration: accepted, without effect; a connection is served in its order.
    Arbitration,
    /// Power Management: there is one power state.
    PowerManagement,
    /// Temperature Threshold: accepted, without effect; nothing here has a temperature.
    TemperatureThreshold,
    /// "Error Recovery": limited retry. Errors for blocks that were never written are not served.
    ErrorHandling,
    /// Volatile Write Cache: on; what is durable follows from Flush and FUA alone.
    VolatileWriteCache,
    /// Number of Queues.
    NumberOfQueues,
    /// Write Atomicity Normal: accepted, without effect.
    WriteAtomicity,
    /// Asynchronous Event Configuration: a bit for each kind of event.
    AsyncEventConfiguration,
    /// Keep Alive Timer, in milliseconds.
    KeepAliveTimer,
    /// Host Behavior Support: nothing of it is supported.
    HostBehaviorSupport,
    /// Host Identifier: told by Connect, never set.
    HostIdentifier,
    /// Reservation Notification Mask of a namespace.
    ReservationNotificationMask,
    /// Reservation Persistence of a namespace.
    ReservationPersistence,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 13] = [
        Feature::Arbitration,
        Feature::PowerManagement,
        Feature::TemperatureThreshold,
        Feature::ErrorHandling,
        Feature::VolatileWriteCache,
        Feature::NumberOfQueues,
        Feature::WriteAtomicity,
        Feature::AsyncEventConfiguration,
        Feature::KeepAliveTimer,
        Feature::HostBehaviorSupport,
        Feature::HostIdentifier,
        Feature::ReservationNotificationMask,
        Feature::ReservationPersistence,
    ];

    /// FID.
    pub fn code(self) -> u8 {
        match self {
            Feature::Arbitration => 0x01,
            Feature::PowerManagement => 0x02,
            Feature::TemperatureThreshold => 0x04,
            Feature::ErrorHandling => 0x05,
            Feature::VolatileWriteCache => 0x06,
            Feature::NumberOfQueues => 0x07,
            Feature::WriteAtomicity => 0x0a,
            Feature::AsyncEventConfiguration => 0x0b,
            Feature::KeepAliveTimer => 0x0f,
            Feature::HostBehaviorSupport => 0x16,
            Feature::HostIdentifier => 0x81,
            Feature::ReservationNotificationMask => 0x82,
            Feature::ReservationPersistence => 0x83,
        }
    }

    /// The feature of this FID.
    pub fn from_code(code: u8) -> Option<Feature> {
        Feature::ALL.into_iter().find(|feature| feature.code() == code)
    }

    /// Whether each namespace has its own value.
    pub fn is_per_namespace(self) -> bool {
        matches!(
            self,
            Feature::ErrorHandling
                | Feature::ReservationNotificationMask
                | Feature::ReservationPersistence
        )
    }
}
