//! Tunables of a running array.
//!
//! What must stay true: what the configuration would refuse is refused here, too. What is set by
//! hand is remembered unless the caller says otherwise, comes before the configuration, and the
//! answer says how long it holds.

use super::Arrays;
use super::start::not_remembered;
use crate::backend::Serves;
use crate::config::{SlowMember, Tuning};
use crate::convert;
use ashlar_api::v1::Done;
use ashlar_api::v1::tuning::{self, SetTuning};
use ashlar_api::{ApiError, codes};
use ashlar_units::ByteSize;
use serde_json::Value;
use uuid::Uuid;

impl Serves<SetTuning> for Arrays {
    async fn serve(&self, call: SetTuning) -> Result<Done, ApiError> {
        let array = &call.array;
        let before = self.engine.tuning(array).map_err(convert::refusal)?;
        let asked = asked(&call.tuning)?;
        let after = asked.over(before);
        let uuid = self.uuid_of(array).await.ok_or_else(|| ApiError::no_array(array))?;
        self.engine.set_tuning(array, after).await.map_err(convert::refusal)?;
        if call.forget {
            self.remember_tuning(uuid, array, |_| tuning::Tuning::default()).await?;
        }
        if call.forget && call.tuning == tuning::Tuning::default() {
            return Ok(Done::changed(format!(
                "what was set by hand on '{array}' is forgotten; it stays in force until the array \
                 stops"
            )));
        }
        let is_in_memory = !self.memory_of(array).await.is_empty();
        let is_kept = !call.not_remembered && !is_in_memory;
        let is_new =
            is_kept && self.remember_tuning(uuid, array, |own| over(own, &call.tuning)).await?;
        if after == before && !is_new {
            return Ok(Done::unchanged(format!("'{array}' has these tunables already")));
        }
        let how_long = match (is_kept, self.gather.remembered.is_kept()) {
            (false, _) => "until it stops",
            (true, false) => {
                "until the daemon ends; to keep them, write them into [array.tuning] of the \
                 configuration"
            }
            (true, true) => "and remembered; to forget them: ashlar set --forget",
        };
        Ok(Done::changed(format!("tunables of '{array}' are changed {how_long}")))
    }
}

impl Arrays {
    /// Change the tunables that are remembered of an array. Whether they differ from before.
    async fn remember_tuning(
        &self,
        uuid: Uuid,
        name: &str,
        change: impl FnOnce(&tuning::Tuning) -> tuning::Tuning,
    ) -> Result<bool, ApiError> {
        let mut is_new = false;
        let kept = self.gather.remembered.change(uuid, |own| {
            let tuning = change(&own.tuning);
            is_new = own.tuning != tuning;
            (own.name, own.tuning) = (name.to_owned(), tuning);
        });
        kept.await.map(|()| is_new).map_err(|error| {
            let message =
                format!("tunables of '{name}' are changed, and {}", not_remembered(&error));
            ApiError::new("array.not_remembered", message, "make room in the folder for state")
        })
    }

    /// Put the tunables that are remembered of an array into force. What to tell if that failed.
    pub(super) async fn tune_as_remembered(&self, uuid: Uuid, name: &str) -> Option<String> {
        let own = self.gather.remembered.of(uuid)?.tuning;
        if own == tuning::Tuning::default() {
            return None;
        }
        let before = self.engine.tuning(name).ok()?;
        let set = match asked(&own) {
            Ok(asked) => self.engine.set_tuning(name, asked.over(before)).await,
            Err(refusal) => return Some(format!("remembered tunables are left out: {refusal}")),
        };
        set.err().map(|refusal| format!("remembered tunables are left out: {refusal}"))
    }
}

/// `base` with what is said in `changes`.
fn over(base: &tuning::Tuning, changes: &tuning::Tuning) -> tuning::Tuning {
    let fields = |tuning| match serde_json::to_value(tuning) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a struct is an object"),
    };
    let mut all = fields(base);
    all.extend(fields(changes));
    serde_json::from_value(Value::Object(all)).expect("fields of the same struct")
}

/// The same as the configuration would have it.
fn asked(tuning: &tuning::Tuning) -> Result<Tuning, ApiError> {
    let refused = |what: String| {
        let message = format!("{what}; nothing was changed");
        ApiError::new(codes::REQUEST_MALFORMED, message, "docs/tuning.md lists what is possible")
    };
    let slow_member = tuning.slow_member.as_deref().map(|word| {
        SlowMember::of(word)
            .ok_or_else(|| refused("slow_member must be warn, avoid or replace".to_owned()))
    });
    let asked = Tuning {
        read_deadline_ms: tuning.read_deadline_ms,
        silent_flash_ms: tuning.silent_flash_ms,
        silent_rotational_ms: tuning.silent_rotational_ms,
        silent_file_ms: tuning.silent_file_ms,
        slow_member: slow_member.transpose()?,
        slow_times: tuning.slow_times,
        slow_after_s: tuning.slow_after_s,
        merge_wait_us: tuning.merge_wait_us,
        read_errors_max: tuning.read_errors_max,
        job_latency_target_ms: tuning.job_latency_target_ms,
        job_floor: tuning.job_floor.map(ByteSize),
        space_wait_s: tuning.space_wait_s,
        pass_discards: tuning.pass_discards,
        read_rate_max: tuning.read_rate_max.map(ByteSize),
        write_rate_max: tuning.write_rate_max.map(ByteSize),
        read_iops_max: tuning.read_iops_max,
        write_iops_max: tuning.write_iops_max,
        checksum_cache: None,
    };
    asked.check().map_err(refused)?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::{asked, over};
    use ashlar_api::v1::tuning::Tuning;
    use ashlar_engine::{ArrayTuning, SlowReaction};
    use std::time::Duration;

    #[test]
    fn what_is_asked_changes_that_and_nothing_else() {
        let tuning = Tuning {
            read_deadline_ms: Some(7),
            slow_member: Some("avoid".to_owned()),
            ..Tuning::default()
        };
        let base = ArrayTuning::default();
        let after = asked(&tuning).expect("sound").over(base);
        assert_eq!(after.read_deadline, Duration::from_millis(7));
        assert_eq!(after.slow.reaction, SlowReaction::Avoid);
        let (read_deadline, slow) = (base.read_deadline, base.slow);
        assert_eq!(ArrayTuning { read_deadline, slow, ..after }, base);
    }

    #[test]
    fn a_wait_for_space_of_0_is_one_without_end() {
        let base =
            ArrayTuning { no_room_wait_max: Some(Duration::from_secs(9)), ..Default::default() };
        for (asked_s, wanted) in [(None, Some(9)), (Some(0), None), (Some(60), Some(60))] {
            let tuning = Tuning { space_wait_s: asked_s, ..Tuning::default() };
            let after = asked(&tuning).expect("sound").over(base);
            assert_eq!(after.no_room_wait_max, wanted.map(Duration::from_secs), "{asked_s:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_what_was_said_last_of_each() {
        let first =
            Tuning { read_iops_max: Some(500), job_floor: Some(1 << 20), ..Tuning::default() };
        let second = Tuning { read_iops_max: Some(0), ..Tuning::default() };
        let both = over(&first, &second);
        assert_eq!(both, Tuning { read_iops_max: Some(0), ..first });
    }

    #[test]
    fn what_the_configuration_refuses_is_refused() {
        let narrow = Tuning { write_rate_max: Some(4096), ..Tuning::default() };
        let few = Tuning { read_iops_max: Some(99), ..Tuning::default() };
        for (tuning, why) in [(narrow, "at least 1 MiB a second"), (few, "at least 100")] {
            let refusal = asked(&tuning).expect_err(why).to_string();
            assert!(refusal.contains(why) && refusal.contains("0 (no limit)"), "{refusal}");
        }
        let lifted =
            Tuning { write_rate_max: Some(0), read_iops_max: Some(0), ..Tuning::default() };
        asked(&lifted).expect("no limit");
        let zero = Tuning { read_deadline_ms: Some(0), ..Tuning::default() };
        let word = Tuning { slow_member: Some("shout".to_owned()), ..Tuning::default() };
        for (tuning, why) in [(zero, "more than 0"), (word, "warn, avoid or replace")] {
            let refusal = asked(&tuning).expect_err(why).to_string();
            assert!(refusal.contains(why) && refusal.contains("nothing was changed"), "{refusal}");
        }
    }
}
