//! The features of a controller, and what it answers to Get and Set Features.
//!
//! What must stay true: a feature that is accepted without effect says so in its documentation
//! ([`Feature`]); the volatile write cache cannot be switched off, because what it stands for is
//! the volume's own. Base 2.0, 5.15 and 5.27.

use super::state::{Answer, Controller, View};
use crate::Status;
use crate::command::{Feature, GetFeature, SetFeature};
use crate::identify::{ALL_NAMESPACES, ControllerKind, notice};
use crate::keep_alive::KeepAlive;
use std::collections::BTreeMap;

/// Current values.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    arbitration: u32,
    temperature: u32,
    error_handling: u32,
    write_atomicity: u32,
    pub wanted_events: u32,
    /// By NSID; only those that are not 0.
    reservation_masks: BTreeMap<u32, u32>,
}

/// Limited retry time, which is accepted; bit 16 would want errors for blocks that were never
/// written.
const RETRY_TIME: u32 = 0xffff;
/// Bits of the Reservation Notification Mask.
const MASK_BITS: u32 = 0b1110;
/// Critical warnings, which are accepted though none ever comes, and the notices that do.
const EVENT_BITS: u32 = 0xff | notice::NAMESPACE | notice::ANA | notice::DISCOVERY | 1 << 9;

impl Features {
    pub(super) fn reservation_mask(&self, namespace: u32) -> u32 {
        self.reservation_masks.get(&namespace).copied().unwrap_or(0)
    }
}

impl Controller {
    fn has_feature(&self, feature: Feature) -> bool {
        let is_common = matches!(
            feature,
            Feature::KeepAliveTimer | Feature::AsyncEventConfiguration | Feature::HostIdentifier
        );
        self.facts().kind == ControllerKind::Io || is_common
    }

    pub(super) fn get_feature(&self, get: &GetFeature, view: &View) -> Result<Answer, Status> {
        let feature = get.feature;
        if !self.has_feature(feature) {
            return Err(Status::INVALID_FIELD);
        }
        match get.select {
            GetFeature::CAPABILITIES => return Ok(Answer::result(capabilities(feature))),
            0 => {}
            // Nothing is saved, so what is saved is what is at the beginning.
            _ => return Ok(self.answer_default(get)),
        }
        let result = match feature {
            Feature::Arbitration => self.features.arbitration,
            Feature::PowerManagement => 0,
            Feature::TemperatureThreshold => self.features.temperature,
            Feature::ErrorHandling => self.features.error_handling,
            Feature::VolatileWriteCache => 1,
            Feature::NumberOfQueues => self.queues(self.terms.io_queues_max),
            Feature::WriteAtomicity => self.features.write_atomicity,
            Feature::AsyncEventConfiguration => self.features.wanted_events,
            Feature::KeepAliveTimer => self.keep_alive.timeout_ms(),
            Feature::HostBehaviorSupport => return Ok(Answer::data(vec![0; 512])),
            Feature::HostIdentifier => return Ok(self.host_id(get)),
            Feature::ReservationNotificationMask => {
                check_namespace(get.namespace, view)?;
                self.features.reservation_mask(get.namespace)
            }
            Feature::ReservationPersistence => {
                check_namespace(get.namespace, view)?;
                u32::from(view.persistent.contains(&get.namespace))
            }
        };
        Ok(Answer::result(result))
    }

    fn answer_default(&self, get: &GetFeature) -> Answer {
        match get.feature {
            Feature::VolatileWriteCache => Answer::result(1),
            Feature::NumberOfQueues => Answer::result(self.queues(self.terms.io_queues_max)),
            Feature::HostIdentifier => self.host_id(get),
            Feature::HostBehaviorSupport => Answer::data(vec![0; 512]),
            _ => Answer::result(0),
        }
    }

    /// Of a 64-bit identifier there is none: over fabrics hosts have 128 bits, and the short form
    /// is not told.
    fn host_id(&self, get: &GetFeature) -> Answer {
        let id = self.host().id.0;
        if get.host_id_bytes() == 16 { Answer::data(id.to_vec()) } else { Answer::data(vec![0; 8]) }
    }

    /// As many submission as completion queues, each less one.
    fn queues(&self, granted: u16) -> u32 {
        let less_one = u32::from(granted.max(1) - 1);
        less_one | less_one << 16
    }

    pub(super) fn set_feature(&mut self, set: &SetFeature, view: &View) -> Result<Answer, Status> {
        if !self.has_feature(set.feature) {
            return Err(Status::INVALID_FIELD);
        }
        let value = set.value;
        match set.feature {
            Feature::Arbitration => self.features.arbitration = value,
            Feature::TemperatureThreshold => self.features.temperature = value,
            Feature::WriteAtomicity => self.features.write_atomicity = value,
            Feature::ErrorHandling if value & !RETRY_TIME == 0 => {
                self.features.error_handling = value;
            }
            Feature::PowerManagement if value & 0x1f == 0 => {}
            Feature::VolatileWriteCache if value & 1 == 1 => {}
            Feature::VolatileWriteCache => return Err(Status::FEATURE_NOT_CHANGEABLE),
            Feature::NumberOfQueues => return self.set_queues(value),
            Feature::AsyncEventConfiguration if value & !EVENT_BITS == 0 => {
                self.features.wanted_events = value;
            }
            Feature::KeepAliveTimer => self.keep_alive = KeepAlive::new(value, view.now_ms),
            Feature::ReservationNotificationMask if value & !MASK_BITS == 0 => {
                return self.set_reservation_mask(set, view);
            }
            Feature::ReservationPersistence => {
                check_namespace(set.namespace, view)?;
                let persists = value & 1 == 1;
                return Ok(Answer::SetPersistence { namespace: set.namespace, persists });
            }
            Feature::ErrorHandling
            | Feature::PowerManagement
            | Feature::AsyncEventConfiguration
            | Feature::ReservationNotificationMask => return Err(Status::INVALID_FIELD),
            Feature::HostBehaviorSupport | Feature::HostIdentifier => {
                return Err(Status::FEATURE_NOT_CHANGEABLE);
            }
        }
        Ok(Answer::DONE)
    }

    fn set_queues(&self, value: u32) -> Result<Answer, Status> {
        let [s0, s1, c0, c1] = value.to_le_bytes();
        let (submission, completion) = (u16::from_le_bytes([s0, s1]), u16::from_le_bytes([c0, c1]));
        if submission == u16::MAX || completion == u16::MAX {
            return Err(Status::INVALID_FIELD);
        }
        let wanted = submission.min(completion) + 1;
        Ok(Answer::result(self.queues(wanted.min(self.terms.io_queues_max))))
    }

    fn set_reservation_mask(&mut self, set: &SetFeature, view: &View) -> Result<Answer, Status> {
        let masks = &mut self.features.reservation_masks;
        if set.namespace == ALL_NAMESPACES {
            *masks = view.namespaces.iter().map(|it| (it.id, set.value)).collect();
        } else {
            check_namespace(set.namespace, view)?;
            masks.retain(|id, _| view.namespace(*id).is_some());
            masks.insert(set.namespace, set.value);
        }
        Ok(Answer::DONE)
    }
}

fn check_namespace(id: u32, view: &View) -> Result<(), Status> {
    view.namespace(id).map(drop).ok_or(Status::INVALID_NAMESPACE)
}

/// What SEL 3 asks for: bit 1 for a value of each namespace, bit 2 for one that can be changed.
/// None can be saved.
fn capabilities(feature: Feature) -> u32 {
    let is_fixed = matches!(feature, Feature::HostIdentifier | Feature::HostBehaviorSupport);
    u32::from(feature.is_per_namespace()) << 1 | u32::from(!is_fixed) << 2
}
