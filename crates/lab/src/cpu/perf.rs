//! Sampling the whole machine with `perf record`, switched on and off from here.
//!
//! perf is started with its events off and told over a pipe when to begin and when to end, so that
//! T is the time in which samples were taken and not the time a program took to start. What must
//! stay true: perf is ended whatever happens; a missing perf, a missing right and empty data are
//! one clear line each.

use super::files::{self, How, Taken};
use crate::evidence::process::monotonic;
use crate::{AtPath, Refusal};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

#[derive(Debug)]
pub struct Sampler {
    child: Child,
    control: Option<ChildStdin>,
    ack: BufReader<ChildStdout>,
    complaints: PathBuf,
    began: Option<(f64, u64)>,
}

/// How long sampling took, and what it cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampled {
    pub seconds: f64,
    /// CPU time of perf itself over them, seconds.
    pub own_cpu_s: f64,
}

impl Sampler {
    /// Start perf with its events off; what it records goes to `data`.
    pub fn start(data: &Path, hz: f64) -> Result<Sampler, Refusal> {
        let complaints = data.with_extension("complaints");
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-a", "-g", "-D", "-1", "--control=fd:0,1", "-F"])
            .arg(format!("{hz:.0}"))
            .arg("-o")
            .arg(data)
            .stdin(Stdio::piped());
        let (mut child, ack) = spawned(&mut perf, &complaints)?;
        let mut sampler = Sampler {
            control: child.stdin.take(),
            child,
            ack: BufReader::new(ack),
            complaints,
            began: None,
        };
        // An answer means that the events are open, and so that we may sample.
        sampler.tell("ping")?;
        Ok(sampler)
    }

    pub fn begin(&mut self) -> Result<(), Refusal> {
        self.tell("enable")?;
        self.began = Some((monotonic().as_secs_f64(), self.own_ns()));
        Ok(())
    }

    /// End, and wait until what was sampled is on disk.
    pub fn end(mut self) -> Result<Sampled, Refusal> {
        let now = monotonic().as_secs_f64();
        self.tell("disable")?;
        let (began, own_before) = self.began.unwrap_or((now, 0));
        let own_ns = self.own_ns().saturating_sub(own_before);
        self.tell("stop").ok();
        self.control = None;
        let ended = self.child.wait();
        if !ended.is_ok_and(|status| status.success()) {
            return Err(self.failed());
        }
        Ok(Sampled {
            seconds: now - began,
            own_cpu_s: crate::metrics::latency::to_f64(own_ns) / 1e9,
        })
    }

    fn own_ns(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()));
        let run_ns = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
        run_ns.unwrap_or_default()
    }

    /// Send a command and wait for `ack`. perf writes a NUL after each.
    fn tell(&mut self, command: &str) -> Result<(), Refusal> {
        let sent = self.control.as_mut().map(|control| writeln!(control, "{command}"));
        let mut answer = Vec::new();
        let is_sent = sent.is_some_and(|it| it.is_ok());
        let is_read = is_sent && self.ack.read_until(b'\n', &mut answer).is_ok();
        match is_read && String::from_utf8_lossy(&answer).contains("ack") {
            true => Ok(()),
            false => Err(self.failed()),
        }
    }

    fn failed(&mut self) -> Refusal {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = std::fs::read_to_string(&self.complaints).unwrap_or_default();
        refusal_for(&said)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.control = None;
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_file(&self.complaints);
    }
}

/// A perf that runs, and what it prints; what it complains about goes to a file.
fn spawned(perf: &mut Command, complaints: &Path) -> Result<(Child, ChildStdout), Refusal> {
    let errors =
        File::create(complaints).at(complaints, "choose a directory that you may write to")?;
    let mut child = perf.stdout(Stdio::piped()).stderr(errors).spawn().map_err(|error| {
        let what = format!("perf cannot be started: {error}; nothing was sampled");
        let hint =
            "install it (Debian: linux-perf, Red Hat: perf), or account for a file with --from";
        Refusal::cannot_run("perf.missing", what).hint(hint)
    })?;
    let output = child.stdout.take().ok_or_else(|| {
        Refusal::cannot_run("perf.failed", "perf has no pipes").hint("this is a bug of the lab")
    })?;
    Ok((child, output))
}

fn refusal_for(said: &str) -> Refusal {
    let line =
        said.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("Error:"));
    let line = line.unwrap_or("perf ended without a word");
    let lower = said.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|it| lower.contains(it));
    if says(&["permission", "paranoid", "not permitted", "access to performance"]) {
        let what = "perf may not sample the whole machine; nothing was sampled";
        return Refusal::cannot_run("perf.not_permitted", what)
            .hint("run as root, or lower kernel.perf_event_paranoid to -1");
    }
    if says(&["unknown option", "usage:", "failed to parse"]) {
        let what = format!(
            "this perf cannot be switched on and off from outside ({line}); nothing was sampled"
        );
        return Refusal::cannot_run("perf.too_old", what)
            .hint("use perf 5.10 or newer, or account for a file with --from");
    }
    Refusal::cannot_run("perf.failed", format!("perf: {line}"))
        .hint("what was sampled before is in perf.data, if anything")
}

pub fn read(data: &Path, how: How<'_>) -> Result<Taken, Refusal> {
    let complaints = data.with_extension("script-complaints");
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-inline", "-F", "comm,pid,tid,cpu,time,event,ip,sym,dso", "-i"])
        .arg(data)
        .stdin(Stdio::null());
    let (mut child, output) = spawned(&mut perf, &complaints)?;
    let taken = files::read_script(BufReader::with_capacity(1 << 18, output), how);
    let ended = child.wait();
    let said = std::fs::read_to_string(&complaints).unwrap_or_default();
    let _ = std::fs::remove_file(&complaints);
    let taken = taken.at(data, "perf.data is still there")?;
    if taken.counts.total == 0 {
        let word = match ended.is_ok_and(|status| status.success()) {
            true => "perf recorded no samples".to_owned(),
            false => refusal_for(&said).message,
        };
        let what = format!("{}: {word}; nothing can be said about CPU", data.display());
        return Err(Refusal::cannot_run("perf.no_samples", what)
            .hint("sample for longer, or on a machine that is not idle"));
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::refusal_for;

    #[test]
    fn what_perf_complains_about_becomes_one_clear_line() {
        for (said, code) in [
            ("Error:\nAccess to performance monitoring is limited.\n", "perf.not_permitted"),
            ("  Error: unknown option `control=fd:0,1'\n\n Usage: perf record", "perf.too_old"),
            ("failed to write perf data, error: No space left on device\n", "perf.failed"),
            ("", "perf.failed"),
        ] {
            let refusal = refusal_for(said);
            assert_eq!((refusal.code.as_str(), refusal.exit_code()), (code, 2), "{said}");
            assert_eq!(refusal.to_string().lines().count(), 1);
        }
    }
}
