//! Profiles: fio job files into which targets, depth, jobs and time are filled.
//!
//! - reach: what a profile may not say
//!
//! What must stay true: what a profile says wins, except for target, depth, jobs and time, which
//! are the plan's; a profile that names a target, or makes fio touch anything else, is refused.

mod reach;

pub(super) use reach::check_engine;

use super::file::Plan;
use crate::fio::{Job, JobFile, Section, Setting, escaped};
use crate::record::Workload;
use crate::{AtPath, Refusal};
use std::path::Path;

/// The profiles that ship.
const BUILT_IN: [(&str, &str); 14] = [
    ("buffered-1m", include_str!("../../profiles/buffered-1m.fio")),
    ("burst-1m", include_str!("../../profiles/burst-1m.fio")),
    ("full-stripe", include_str!("../../profiles/full-stripe.fio")),
    ("mixed-4k", include_str!("../../profiles/mixed-4k.fio")),
    ("mixed-4k-half", include_str!("../../profiles/mixed-4k-half.fio")),
    ("rr-4k", include_str!("../../profiles/rr-4k.fio")),
    ("rw-4k", include_str!("../../profiles/rw-4k.fio")),
    ("seq-read-1m", include_str!("../../profiles/seq-read-1m.fio")),
    ("seq-read-64k", include_str!("../../profiles/seq-read-64k.fio")),
    ("seq-write-64k", include_str!("../../profiles/seq-write-64k.fio")),
    ("seq-write-1m", include_str!("../../profiles/seq-write-1m.fio")),
    ("stripe-read", include_str!("../../profiles/stripe-read.fio")),
    ("sync-4k", include_str!("../../profiles/sync-4k.fio")),
    ("unaligned", include_str!("../../profiles/unaligned.fio")),
];

#[derive(Clone, Debug)]
pub struct Profile {
    pub name: String,
    file: JobFile,
}

#[derive(Clone, Debug)]
pub struct Fill<'a> {
    /// Targets, each with the job name that stands for it.
    pub targets: Vec<(String, &'a Path)>,
    pub ioengine: &'a str,
    pub depth: u32,
    pub jobs: u32,
    /// Seconds measured; `None` for work that ends by itself.
    pub runtime_s: Option<u64>,
    /// Whether the plan says that time: then it wins over the profile's.
    pub is_given: bool,
    /// Seconds before that.
    pub ramp_s: u64,
    pub stripe_data_bytes: Option<u64>,
    pub more: Vec<Setting>,
}

impl Profile {
    /// The profile called `name`: one of the plan's own, or one that ships. `folder` is where the
    /// plan lies.
    pub fn named(name: &str, plan: &Plan, folder: &Path) -> Result<Profile, Refusal> {
        let text = match (plan.profiles.get(name), BUILT_IN.iter().find(|(own, _)| *own == name)) {
            (Some(path), _) => {
                let path = folder.join(path);
                std::fs::read_to_string(&path).at(&path, "the plan names it as a profile")?
            }
            (None, Some((_, text))) => (*text).to_owned(),
            (None, None) => {
                let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                let said = format!("there is no profile '{name}'");
                let hint = format!(
                    "give its job file under [profiles], or use one of {}",
                    known.join(", ")
                );
                return Err(Refusal::cannot_run("plan.no_profile", said).hint(hint));
            }
        };
        let file = JobFile::parse(&text)?;
        reach::check(name, &file)?;
        Ok(Profile { name: name.to_owned(), file })
    }

    /// A profile that the lab makes up itself.
    pub(super) fn of(name: &str, file: JobFile) -> Profile {
        Profile { name: name.to_owned(), file }
    }

    pub fn filled(&self, fill: &Fill<'_>) -> Result<JobFile, Refusal> {
        let mut sections = vec![Section::new("global", defaults(fill))];
        let mut inherited = Vec::new();
        for section in &self.file.sections {
            if section.is_global() {
                let global = self.substituted(section, "global", fill)?;
                inherited.push(global.clone());
                sections.push(global);
                continue;
            }
            for (name, path) in &fill.targets {
                let name = format!("{name}.{}", section.name);
                let mut own = self.substituted(section, &name, fill)?;
                // A job with what the profile's global sections above it say.
                let above = inherited.iter().chain([&own]).cloned().collect();
                let job = JobFile { sections: above }.jobs().pop().unwrap_or_default();
                own.settings.extend(of_target(fill, path, &job));
                sections.push(own);
            }
        }
        Ok(JobFile { sections })
    }

    fn substituted(
        &self,
        section: &Section,
        name: &str,
        fill: &Fill<'_>,
    ) -> Result<Section, Refusal> {
        let mut settings = section.settings.clone();
        for value in settings.iter_mut().filter_map(|setting| setting.value.as_mut()) {
            *value = value.replace("${DEPTH}", &fill.depth.to_string());
            if value.contains("${STRIPE_DATA}") {
                let bytes = fill.stripe_data_bytes.ok_or_else(|| {
                    let said = format!("profile {} needs the stripe of the array", self.name);
                    Refusal::cannot_run("plan.no_stripe", said).hint(
                        "give strip and data_members of the array, \
                         and no such profile to raw drives",
                    )
                })?;
                *value = value.replace("${STRIPE_DATA}", &bytes.to_string());
            }
        }
        Ok(Section::new(name, settings))
    }
}

/// What every job has unless its profile says otherwise.
fn defaults(fill: &Fill<'_>) -> Vec<Setting> {
    let mut settings = vec![Setting::new("direct", "1"), Setting::new("ioengine", fill.ioengine)];
    settings.push(Setting::new("randrepeat", "0"));
    // One group for each target, so that each has its own figures.
    let on = ["norandommap", "refill_buffers", "group_reporting", "new_group"];
    settings.extend(on.map(|key| Setting::new(key, "1")));
    if let Some(runtime_s) = fill.runtime_s {
        settings.extend(timed(runtime_s));
        settings.push(Setting::new("ramp_time", fill.ramp_s.to_string()));
    }
    settings
}

fn timed(runtime_s: u64) -> [Setting; 2] {
    [Setting::new("time_based", "1"), Setting::new("runtime", runtime_s.to_string())]
}

fn of_target(fill: &Fill<'_>, path: &Path, job: &Job) -> Vec<Setting> {
    let mut settings = vec![
        Setting::new("filename", escaped(path)),
        Setting::new("iodepth", fill.depth.to_string()),
        Setting::new("numjobs", fill.jobs.to_string()),
    ];
    if fill.jobs > 1 && job.is_sequential() && job.get("offset_increment").is_none() {
        settings.push(Setting::new("offset_increment", format!("{}%", 100 / fill.jobs.min(100))));
    }
    settings.extend(fill.runtime_s.filter(|_| fill.is_given).into_iter().flat_map(timed));
    settings.extend(fill.more.clone());
    settings
}

/// What the first job asks for, under the name of its profile.
pub fn workload(name: &str, job: &Job, depth: u32, jobs: u32) -> Workload {
    let mixed = job.reads() && job.writes();
    let written = job.bytes("rwmixwrite").map(|percent| 100_u64.saturating_sub(percent));
    let read = job.count("rwmixread", written.unwrap_or(50));
    let read_percent = u32::try_from(read).unwrap_or(50);
    Workload {
        name: format!("{name}-j{jobs}-q{depth}"),
        mix: job.mix().to_owned(),
        read_percent: mixed.then_some(read_percent),
        block_bytes: job.block_bytes().first().copied().unwrap_or(4096),
        jobs,
        depth,
    }
}
