//! The line about how many losses the stripes of an array with distributed spares survive.

use ashlar_api::v1::array::ArrayStatus;

/// Nothing of an array that lacks nothing, or has no distributed spares.
pub fn line(array: &ArrayStatus) -> Option<String> {
    array.risk().map(|risk| format!("risk   {risk}"))
}

#[cfg(test)]
mod tests {
    use super::line;
    use crate::render::status::tests::status;
    use ashlar_api::v1::array::LostMember;
    use serde_json::{Value, json};

    fn told(exposure: Value) -> Option<String> {
        let mut status = status(&["in_sync", "out", "in_sync", "in_sync"], "");
        let array = &mut status.arrays[0];
        array.lost_members.push(LostMember {
            slot: 1,
            spare_column: Some(0),
            missing_cells: 1,
            spare_cells: 2,
            in_place_cells: 0,
        });
        array.exposure = serde_json::from_value(exposure).expect("as it is sent");
        line(array)
    }

    #[test]
    fn the_line_says_what_survives_how_much_and_how_long_that_lasts() {
        let critical = json!({"survive": 0, "stripes": 1234, "waiting": 0, "left_seconds": 245});
        let exposure =
            json!({"surviving": [1234, 0, 98766], "beyond_parity": 0, "critical": critical});
        let wanted = "risk   stripes: 1,234 survive no more loss, 98,766 survive 2 more losses   \
                      critical: rebuilt in about 4 m 05 s";
        assert_eq!(told(exposure).as_deref(), Some(wanted));
    }

    #[test]
    fn stripes_that_wait_are_named_and_an_unknown_time_is_not() {
        let exposed = |waiting: u64, beyond: u64| {
            let critical =
                json!({"survive": 1, "stripes": 5, "waiting": waiting, "left_seconds": null});
            told(json!({"surviving": [0, 5, 7], "beyond_parity": beyond, "critical": critical}))
        };
        let stripes = "5 survive 1 more loss, 7 survive 2 more losses";
        assert_eq!(exposed(0, 0), Some(format!("risk   stripes: {stripes}")));
        let waiting = format!("risk   stripes: {stripes}   critical: 3 wait for a spare");
        assert_eq!(exposed(3, 0), Some(waiting));
        assert_eq!(exposed(0, 9), Some(format!("risk   stripes: 9 cannot be read, {stripes}")));
    }

    #[test]
    fn of_an_array_whose_stripes_lack_nothing_that_is_said_while_members_are_lost() {
        let whole = json!({"surviving": [0, 0, 7], "beyond_parity": 0, "critical": null});
        assert_eq!(told(whole).as_deref(), Some("risk   all stripes survive 2 more losses"));
        assert_eq!(told(Value::Null), None);
        assert_eq!(line(&status(&["in_sync"; 4], "").arrays[0]), None);
    }
}
