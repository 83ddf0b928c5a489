//! What a profile may not say: what names a target, or makes fio touch anything but the plan's.
//!
//! What must stay true: a job file that passes touches the targets that are filled in, and nothing
//! else; an option or an engine that is not known to be harmless there is refused by name.
//! Source: the options of fio 3.33 and its parser.

use crate::Refusal;
use crate::fio::value::is_among;
use crate::fio::{JobFile, Section, Setting};

/// Options that name what fio reads, writes or runs, or that remove it; and why they may not.
const REFUSED: [(&str, &str); 6] = [
    ("filename directory filename_format unique_filename replay_redirect path", "names a target"),
    ("opendir profile read_iolog", "brings targets of its own"),
    ("merge_blktrace_file write_iolog", "writes a file"),
    (
        "write_bw_log write_lat_log write_iops_log write_hist_log",
        "writes files; the lab keeps logs of its own",
    ),
    ("exec_prerun exec_postrun program", "runs a command"),
    ("unlink unlink_each_loop", "removes the target"),
];

/// Engines of which it is known that they do I/O on `filename` and nothing else.
const ENGINES: &str = "\
    sync psync vsync pvsync pvsync2 libaio io_uring io_uring_cmd posixaio mmap sg null \
    libpmem dev-dax";

/// What fio reads of a line at most: it takes the rest for the next line.
const LINE_MAX: usize = 4000;

/// Whether the profile called `name` may be filled in.
pub(super) fn check(name: &str, file: &JobFile) -> Result<(), Refusal> {
    if file.jobs().is_empty() {
        let said = format!("profile {name} has no job: fio would measure nothing");
        return Err(Refusal::cannot_run("plan.no_job", said).hint("add a [section] for a job"));
    }
    for section in &file.sections {
        for setting in &section.settings {
            if let Some(why) = refused(setting) {
                return Err(not_allowed(name, section, setting, &why));
            }
        }
    }
    Ok(())
}

/// Whether the plan may use this engine.
pub(in crate::plan) fn check_engine(engine: &str) -> Result<(), Refusal> {
    if is_among(ENGINES, engine) {
        return Ok(());
    }
    let said = format!("ioengine '{engine}' {}; nothing was done", unknown_engine());
    Err(Refusal::cannot_run("plan.engine_refused", said).hint("use io_uring, libaio or psync"))
}

fn unknown_engine() -> String {
    format!("may touch more than the plan's targets: known are {ENGINES}")
}

fn refused(setting: &Setting) -> Option<String> {
    let key = setting.key.trim_start_matches('-').to_ascii_lowercase().replace('-', "_");
    let value = setting.value.as_deref().unwrap_or_default();
    let own = REFUSED.iter().find(|(refused, _)| is_among(refused, &key));
    match key.as_str() {
        _ if own.is_some() => own.map(|(_, why)| (*why).to_owned()),
        // fio fills variables into names, too.
        _ if key.contains('$') => Some("is a variable as an option's name".to_owned()),
        _ if key.len() + value.len() > LINE_MAX => Some("is a longer line than fio reads".into()),
        "ioengine" if !is_among(ENGINES, value) => Some(unknown_engine()),
        "mem" | "iomem" if value.contains(':') => Some("makes a file the memory".to_owned()),
        _ => None,
    }
}

fn not_allowed(name: &str, section: &Section, setting: &Setting, why: &str) -> Refusal {
    let key: String = setting.key.chars().take(40).collect();
    let at = format!("profile {name}, line {} in [{}]", setting.line, section.name);
    let said = format!("{at}: {key} {why}; nothing was done");
    let hint = "the plan alone says what is measured: leave that line out";
    Refusal::cannot_run("plan.profile_refused", said).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::{check, check_engine};
    use crate::fio::JobFile;

    fn said(text: &str) -> String {
        check("own", &JobFile::parse(text).unwrap())
            .map_or_else(|refusal| refusal.to_string(), |()| "allowed".to_owned())
    }

    #[test]
    fn what_names_a_target_or_runs_anything_is_refused_in_any_section_and_spelling() {
        let lines = "filename=/dev/sda|filename = /dev/sda|--filename=/dev/sda|-filename=/dev/sda|\
            FILENAME=/dev/sda|filename|${KEY}=/dev/sda|directory=/srv|filename_format=x.$jobnum|\
            filename-format=x|unique_filename=1|opendir=/srv|read_iolog=trace|\
            write_iolog=/dev/sda|write_bw_log=x|merge_blktrace_file=x|replay_redirect=/dev/sda|\
            exec_prerun=rm x|exec_postrun=rm x|profile=act|unlink=1|mem=mmapshared:/dev/sda|\
            iomem=mmap:/srv/x|ioengine=external:/srv/x.so|ioengine=filedelete|ioengine=exec|\
            ioengine=libblkio";
        for line in lines.split('|') {
            let places =
                [format!("[global]\n{line}\n[a]\nrw=read\n"), format!("[a]\nrw=read\n{line}\n")];
            for (text, number) in places.iter().zip([2, 3]) {
                let said = said(text);
                assert!(said.contains(&format!("profile own, line {number} in [")), "{said}");
                assert!(said.contains("nothing was done") && !said.contains('\n'), "{said}");
            }
        }
        let long = format!("[a]\ndescription={}filename=/dev/sda\n", "x".repeat(4083));
        assert!(said(&long).contains("longer line"));
    }

    #[test]
    fn a_load_alone_is_allowed_and_a_profile_without_a_job_is_not() {
        let load = "[global]\nioengine=libaio\nbs=${STRIPE_DATA}\nmem=mmaphuge\n[a]\nrw=randrw\n\
                    iodepth=${DEPTH}\nrwmixread=50\nsize=1g\nnrfiles=1\n";
        assert_eq!(said(load), "allowed");
        assert!(said("[global]\nrw=read\n").contains("no job"));
        assert!(check_engine("io_uring").is_ok() && check_engine("filedelete").is_err());
    }
}
