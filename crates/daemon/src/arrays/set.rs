//! Tunables of a running array.
//!
//! What must stay true: what the configuration would refuse is refused here, too. A change is in
//! force until the array stops, and the answer says so.

use super::Arrays;
use crate::backend::Serves;
use crate::config::{SlowMember, Tuning};
use crate::convert;
use ashlar_api::v1::Done;
use ashlar_api::v1::tuning::{self, SetTuning};
use ashlar_api::{ApiError, codes};
use ashlar_units::ByteSize;

impl Serves<SetTuning> for Arrays {
    async fn serve(&self, call: SetTuning) -> Result<Done, ApiError> {
        let array = &call.array;
        let before = self.engine.tuning(array).map_err(convert::refusal)?;
        let asked = asked(&call.tuning)?;
        let after = asked.over(before);
        if after == before {
            return Ok(Done::unchanged(format!("'{array}' has these tunables already")));
        }
        self.engine.set_tuning(array, after).await.map_err(convert::refusal)?;
        Ok(Done::changed(format!(
            "tunables of '{array}' are changed until it stops; to keep them, write them into \
             [array.tuning] of the configuration"
        )))
    }
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
        checksum_cache: None,
    };
    asked.check().map_err(refused)?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::asked;
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
    fn what_the_configuration_refuses_is_refused() {
        let zero = Tuning { read_deadline_ms: Some(0), ..Tuning::default() };
        let word = Tuning { slow_member: Some("shout".to_owned()), ..Tuning::default() };
        for (tuning, why) in [(zero, "more than 0"), (word, "warn, avoid or replace")] {
            let refusal = asked(&tuning).expect_err(why).to_string();
            assert!(refusal.contains(why) && refusal.contains("nothing was changed"), "{refusal}");
        }
    }
}
