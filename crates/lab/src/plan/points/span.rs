//! Loads on the part of a target that was written: `span`.
//!
//! What must stay true: no offset and no size lets a job reach beyond the span, whatever its
//! profile says; shares in percent are of the span, where fio would take those of the device.

use crate::Refusal;
use crate::fio::job::canonical;
use crate::fio::{Job, JobFile, Setting, value};

/// Keep every job of `file` within the first `span` bytes.
pub(super) fn keep_within(file: &mut JobFile, span: u64) -> Result<(), Refusal> {
    let jobs = file.jobs();
    let sections = file.sections.iter_mut().filter(|section| !section.is_global());
    for (section, job) in sections.zip(&jobs) {
        section.settings.extend(within(job, span)?);
    }
    // fio keeps a share beside the bytes that follow it: it takes the share of the device, or ends
    // with a failed assertion.
    for section in &mut file.sections {
        section.settings.retain(|it| !(PLACES.contains(&canonical(&it.key)) && is_share(it)));
    }
    Ok(())
}

/// Settings that say where a job works.
const PLACES: [&str; 3] = ["offset", "offset_increment", "size"];

fn is_share(setting: &Setting) -> bool {
    setting.value.as_deref().and_then(value::percent).is_some()
}

fn within(job: &Job, span: u64) -> Result<Vec<Setting>, Refusal> {
    let unit = job.block_bytes().into_iter().max().unwrap_or(4096).max(1);
    let mut settings = Vec::new();
    let mut place = |key: &str| {
        let share = job.get(key).and_then(value::percent).map(|share| of(span, share, unit));
        settings.extend(share.map(|bytes| Setting::new(key, bytes.to_string())));
        share.or(job.bytes(key)).unwrap_or(0)
    };
    let (offset, step) = (place("offset"), place("offset_increment"));
    let last = step.saturating_mul(job.count("numjobs", 1).saturating_sub(1));
    let left = span.saturating_sub(offset).saturating_sub(last) / unit * unit;
    let share = job.get("size").and_then(value::percent).map(|share| of(span, share, unit));
    let size = share.or(job.bytes("size")).filter(|size| *size > 0).unwrap_or(left).min(left);
    if size == 0 {
        let said = format!(
            "job {} does not fit into the span of {span} bytes that is written: blocks of {unit}, \
             from {offset} on, {} jobs",
            job.name,
            job.count("numjobs", 1)
        );
        return Err(
            Refusal::cannot_run("plan.span_too_small", said).hint("give the array more span")
        );
    }
    settings.push(Setting::new("size", size.to_string()));
    Ok(settings)
}

/// A share of the span, in whole blocks.
fn of(span: u64, percent: f64, unit: u64) -> u64 {
    let bytes = crate::metrics::latency::to_f64(span) / 100.0 * percent.min(100.0);
    crate::units::whole(bytes) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::keep_within;
    use crate::fio::JobFile;

    /// Where each of its jobs begins and ends, at most.
    fn reach(settings: &str) -> (u64, u64) {
        let mut file = JobFile::parse(&format!("[a]\nbs=4k\n{settings}\n")).unwrap();
        keep_within(&mut file, 1 << 20).unwrap();
        assert!(!file.to_string().contains('%'), "{file}");
        let job = &file.jobs()[0];
        let own = |key| job.bytes(key).unwrap_or(0);
        let steps = own("offset_increment") * (job.count("numjobs", 1) - 1);
        (own("size"), own("offset") + steps + own("size"))
    }

    #[test]
    fn no_job_reaches_beyond_the_span() {
        assert_eq!(reach("rw=randread"), (1 << 20, 1 << 20));
        assert_eq!(reach("offset=4k"), ((1 << 20) - 4096, 1 << 20));
        assert_eq!(reach("offset=50%"), (512 << 10, 1 << 20));
        assert_eq!(reach("numjobs=4\noffset_increment=25%"), (256 << 10, 1 << 20));
        assert_eq!(reach("numjobs=3\noffset_increment=64k"), ((1 << 20) - (128 << 10), 1 << 20));
        assert_eq!(reach("size=64k"), (64 << 10, 64 << 10), "the profile's own, if it is less");
        assert_eq!(reach("size=100%"), (1 << 20, 1 << 20), "of the device, to fio");
        assert_eq!(reach("size=1g"), (1 << 20, 1 << 20));
        let mut far = JobFile::parse("[a]\nrw=read\noffset=1m\n").unwrap();
        assert_eq!(keep_within(&mut far, 1 << 20).unwrap_err().code, "plan.span_too_small");
    }
}
