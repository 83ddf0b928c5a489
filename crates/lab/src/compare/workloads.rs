//! What both engines are asked to do, as fio jobs.
//!
//! What must stay true: reads touch only what was written before; the jobs of a sequential load
//! work on parts of their own.

use crate::fio::job::{JobFile, Section, Setting};
use crate::record::Workload;
use crate::refusal::Refusal;
use std::path::{Path, PathBuf};

/// Jobs of each load, unless others are asked for.
const JOBS: u32 = 2;

/// Numbers of jobs and depths that are asked for; none stands for those of each load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queues<'a> {
    /// Jobs.
    pub jobs: &'a [u32],
    /// Depth of each job.
    pub depths: &'a [u32],
}

impl Queues<'_> {
    /// A load at each of them.
    fn of(&self, load: &Workload) -> Vec<Workload> {
        let jobs = if self.jobs.is_empty() { &[load.jobs][..] } else { self.jobs };
        let depths = if self.depths.is_empty() { &[load.depth][..] } else { self.depths };
        let all = jobs.iter().flat_map(|jobs| depths.iter().map(move |depth| (*jobs, *depth)));
        all.map(|(jobs, depth)| with_jobs(&load.mix, load.block_bytes, (jobs, depth))).collect()
    }
}

/// The loads, in order. `stripe_bytes` is the data of one stripe.
pub fn all(stripe_bytes: u64) -> Vec<Workload> {
    [
        ("write", stripe_bytes, 8),
        ("read", stripe_bytes, 8),
        ("randread", 4096, 16),
        ("randwrite", 4096, 16),
    ]
    .into_iter()
    .map(|(mix, block_bytes, depth)| workload(mix, block_bytes, depth))
    .collect()
}

/// The loads whose mix is among `mixes`; all of them if there is none.
///
/// # Errors
/// If a mix is not known.
pub fn chosen(
    stripe_bytes: u64,
    mixes: &[String],
    queues: Queues<'_>,
) -> Result<Vec<Workload>, Refusal> {
    let all = all(stripe_bytes);
    let is_known = |mix: &&String| all.iter().any(|workload| workload.mix == **mix);
    if let Some(mix) = mixes.iter().find(|mix| !is_known(mix)) {
        let said = format!("'{mix}' is no load of a comparison; nothing was done");
        return Err(Refusal::cannot_run(
            "load.unknown",
            said,
            "say write, read, randread or randwrite",
        ));
    }
    if queues.jobs.iter().chain(queues.depths).any(|count| !(1..=1024).contains(count)) {
        let said = "jobs and depths are 1 to 1024; nothing was done";
        return Err(Refusal::cannot_run("load.queues", said, "say for example --jobs 1,2,4,8"));
    }
    let is_wanted = |workload: &&Workload| mixes.is_empty() || mixes.contains(&workload.mix);
    Ok(all.iter().filter(is_wanted).flat_map(|load| queues.of(load)).collect())
}

/// One load with its short name: `rr-4k-j2-q16`.
pub fn workload(mix: &str, block_bytes: u64, depth: u32) -> Workload {
    with_jobs(mix, block_bytes, (JOBS, depth))
}

fn with_jobs(mix: &str, block_bytes: u64, (jobs, depth): (u32, u32)) -> Workload {
    let short = match mix {
        "read" => "sr",
        "write" => "sw",
        "randread" => "rr",
        "randwrite" => "rw",
        other => other,
    };
    let block = crate::units::block(block_bytes).to_lowercase();
    Workload {
        name: format!("{short}-{block}-j{jobs}-q{depth}"),
        mix: mix.to_owned(),
        read_percent: None,
        block_bytes,
        jobs,
        depth,
    }
}

/// How long and how far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Extent {
    /// Seconds of each measurement.
    pub seconds: u64,
    /// Bytes of the served file or device that are used.
    pub span_bytes: u64,
}

/// The job file of one load on `target`.
pub fn jobs(workload: &Workload, target: &Path, extent: Extent) -> JobFile {
    let part = extent.span_bytes / u64::from(workload.jobs);
    let is_random = workload.mix.starts_with("rand");
    let mut settings = common(target, &workload.mix, workload.block_bytes, workload.depth);
    settings.extend([
        Setting::new("time_based", "1"),
        Setting::new("runtime", extent.seconds.to_string()),
        Setting::new("numjobs", workload.jobs.to_string()),
        Setting::new("group_reporting", "1"),
        Setting::new("norandommap", "1"),
        Setting::new("randrepeat", "0"),
    ]);
    if is_random {
        settings.push(Setting::new("size", extent.span_bytes.to_string()));
    } else {
        let part = part / workload.block_bytes * workload.block_bytes;
        settings.push(Setting::new("size", part.to_string()));
        settings.push(Setting::new("offset_increment", part.to_string()));
    }
    JobFile { sections: vec![Section::new(&workload.name, settings)] }
}

/// Write the whole span once, so that nothing that was never written is read.
pub fn fill(target: &Path, block_bytes: u64, span_bytes: u64) -> JobFile {
    let mut settings = common(target, "write", block_bytes, 8);
    settings.push(Setting::new("size", span_bytes.to_string()));
    JobFile { sections: vec![Section::new("fill", settings)] }
}

/// The same load on every raw device at once, one job each.
pub fn raw(
    members: &[PathBuf],
    mix: &str,
    (block_bytes, depth): (u64, u32),
    extent: Extent,
) -> JobFile {
    let job = |(at, member): (usize, &PathBuf)| {
        let mut settings = common(member, mix, block_bytes, depth);
        settings.extend([
            Setting::new("time_based", "1"),
            Setting::new("runtime", extent.seconds.to_string()),
            Setting::new("size", extent.span_bytes.to_string()),
            Setting::new("norandommap", "1"),
            Setting::new("randrepeat", "0"),
        ]);
        Section::new(&format!("member{at}"), settings)
    };
    JobFile { sections: members.iter().enumerate().map(job).collect() }
}

fn common(target: &Path, mix: &str, block_bytes: u64, depth: u32) -> Vec<Setting> {
    vec![
        Setting::new("filename", target.display().to_string()),
        Setting::new("ioengine", "io_uring"),
        Setting::new("direct", "1"),
        Setting::new("thread", "1"),
        Setting::new("rw", mix),
        Setting::new("bs", block_bytes.to_string()),
        Setting::new("iodepth", depth.to_string()),
        Setting::new("refill_buffers", "1"),
        Setting::new("end_fsync", "0"),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Extent, Queues, all, chosen, jobs, raw};
    use std::path::{Path, PathBuf};

    const EXTENT: Extent = Extent { seconds: 2, span_bytes: 1 << 30 };

    #[test]
    fn sequential_jobs_work_on_parts_of_their_own_within_the_span() {
        let writes = &all(512 << 10)[0];
        let file = jobs(writes, Path::new("/x"), EXTENT);
        let job = &file.jobs()[0];
        assert_eq!(job.bytes("size"), Some(512 << 20));
        assert_eq!(job.bytes("offset_increment"), Some(512 << 20));
        assert_eq!(writes.name, "sw-512k-j2-q8");
        assert!(job.is_direct());
    }

    #[test]
    fn loads_are_chosen_by_name_and_unknown_ones_refused() {
        let names = |mixes: &[&str]| {
            let mixes: Vec<String> = mixes.iter().map(ToString::to_string).collect();
            chosen(512 << 10, &mixes, Queues::default()).map(|loads| loads.len())
        };
        assert_eq!(names(&[]), Ok(4));
        assert_eq!(names(&["randread", "write"]), Ok(2));
        assert_eq!(names(&["randread", "trim"]).expect_err("refused").code, "load.unknown");
    }

    /// Seed 000's table: 1, 2, 4 and 8 queues, 32 deep.
    #[test]
    fn a_table_of_queues_is_asked_for_in_one_line() {
        let queues = Queues { jobs: &[1, 2, 4, 8], depths: &[32] };
        let loads = chosen(512 << 10, &["write".to_owned()], queues).expect("known");
        let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
        let wanted = ["sw-512k-j1-q32", "sw-512k-j2-q32", "sw-512k-j4-q32", "sw-512k-j8-q32"];
        assert_eq!(names, wanted);
        let file = jobs(&loads[3], Path::new("/x"), EXTENT);
        assert_eq!(file.jobs()[0].bytes("offset_increment"), Some(128 << 20), "an eighth each");
        let none = Queues { jobs: &[0], depths: &[] };
        assert_eq!(chosen(512 << 10, &[], none).expect_err("refused").code, "load.queues");
    }

    #[test]
    fn raw_loads_have_one_job_a_device() {
        let members: Vec<PathBuf> = ["/a", "/b", "/c"].map(PathBuf::from).into();
        let file = raw(&members, "randread", (4096, 4), EXTENT);
        let targets: Vec<_> =
            file.jobs().iter().flat_map(super::super::super::fio::job::Job::filenames).collect();
        assert_eq!(targets, ["/a", "/b", "/c"]);
    }
}
