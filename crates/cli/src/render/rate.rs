//! Progress and speed of a job in a few words.

use super::moment::span;
use ashlar_api::v1::job::JobStatus;
use ashlar_units::ByteSize;

/// `41 %  612 MiB/s  left 2 h 05 m`, or `41 %  paused`.
pub fn progress(job: &JobStatus) -> String {
    let percent = job.percent();
    if job.paused {
        return format!("{percent} %  paused");
    }
    let speed = ByteSize(job.bytes_per_second);
    let left = job.left_seconds.map_or(String::new(), |left| format!("  left {}", span(left)));
    format!("{percent} %  {speed}/s{left}")
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_048_576), "1,048,576");
    }
}
