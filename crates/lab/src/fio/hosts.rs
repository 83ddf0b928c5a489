//! fio on several hosts at once, by its own client/server mode: `fio --server` on each, `fio
//! --client=...` here.
//!
//! What must stay true: every host that was asked has answered, or there is no result; fio's own
//! sum ("All clients") is made again from the hosts' figures and held against them; hosts whose
//! versions or clocks differ are named. Not here: starting `fio --server` on the hosts; it obeys
//! whoever can reach it, so that is their owner's to decide.

use super::result::{FioResult, JobResult, Side};
use crate::Refusal;
use crate::evidence::{Evidence, Order};
use crate::metrics::latency;
use crate::record::{Check, HostFigures};
use crate::units;
use crate::validity::{Finding, Outcome, Severity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Port of `fio --server` unless a host names another.
const PORT: u16 = 8765;
/// How far fio's sum of rates may be from ours: its own is all bytes over the longest run time.
const RATE_TOLERANCE: f64 = 0.05;
/// How far a host's clock may be off, milliseconds: a second of a series must be the same second on
/// all hosts.
const CLOCK_MS_MAX: i64 = 500;
/// What asking a host for its version and its time may take.
const LOOK_LIMIT: Duration = Duration::from_secs(30);
/// A host below this share of the median of all is named.
const SLOW_BELOW: f64 = 0.9;

/// A host that runs `fio --server`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host {
    name: String,
    port: u16,
}

impl Host {
    /// `NAME` or `NAME:PORT`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Host, Refusal> {
        let (name, port) = text.split_once(':').unwrap_or((text, ""));
        let port = if text.contains(':') { port.parse().ok() } else { Some(PORT) };
        // fio takes a comma for its own separator, and a name that begins with a dash for an
        // option.
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
            && !name.starts_with('-');
        match port.filter(|port| *port > 0 && is_name) {
            Some(port) => Ok(Host { name: name.to_owned(), port }),
            None => Err(Refusal::cannot_run(
                "plan.not_understood",
                format!("plan: '{text}' is no host"),
                "say NAME or NAME:PORT, the port that 'fio --server=ip:ADDRESS,PORT' listens on",
            )),
        }
    }

    /// How fio wants it.
    pub fn argument(&self) -> String {
        format!("--client=ip:{},{}", self.name, self.port)
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// The hosts that were asked and have no job in `result`.
pub fn missing<'a>(hosts: &'a [Host], result: &FioResult) -> Vec<&'a Host> {
    let answered = |host: &&Host| {
        !result.jobs.iter().any(|job| job.host.as_deref() == Some(host.to_string().as_str()))
    };
    hosts.iter().filter(answered).collect()
}

/// What each host did in the jobs that `choose` picks.
pub fn figures(result: &FioResult, choose: impl Fn(&JobResult) -> bool) -> Vec<HostFigures> {
    let mut hosts: BTreeMap<&str, Vec<&JobResult>> = BTreeMap::new();
    for job in result.jobs.iter().filter(|job| choose(job)) {
        if let Some(host) = &job.host {
            hosts.entry(host).or_default().push(job);
        }
    }
    let one = |(host, jobs): (&str, Vec<&JobResult>)| {
        let sides = || jobs.iter().flat_map(|job| [&job.read, &job.write]);
        let mut bins = latency::Bins::new();
        sides().for_each(|side| latency::merge(&mut bins, &side.completion.bins));
        HostFigures {
            host: host.to_owned(),
            bytes: sides().map(|side| side.bytes).sum(),
            ios: sides().map(|side| side.ios).sum(),
            bytes_per_s: sides().map(|side| side.bytes_per_s).sum(),
            iops: sides().map(|side| side.iops).sum(),
            latency_mean_ns: latency::mean(&bins).unwrap_or(0.0),
            p99_ns: latency::percentile(&bins, 0.99),
        }
    };
    hosts.into_iter().map(one).collect()
}

/// fio's own sum over all clients against the sum of what the clients said (H01), and a host that
/// lags behind (H02).
pub fn judged(result: &FioResult) -> Vec<Finding> {
    let hosts = figures(result, |_| true);
    let mut findings = Vec::new();
    if let Some(all) = &result.all_clients {
        findings.extend(disagreement(&result.jobs, all));
    } else if hosts.len() > 1 {
        findings.push(finding(
            "H01",
            Severity::Warning,
            "fio printed no sum over all clients: it could not be compared".to_owned(),
        ));
    }
    let mut rates: Vec<f64> = hosts.iter().map(|host| host.bytes_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    for host in
        hosts.iter().filter(|host| hosts.len() > 1 && host.bytes_per_s < median * SLOW_BELOW)
    {
        let share = units::percent(host.bytes_per_s / median);
        let said = format!("host {} did {share} of the median host: the sum hides it", host.host);
        findings.push(finding("H02", Severity::Warning, said));
    }
    findings
}

fn disagreement(jobs: &[JobResult], all: &JobResult) -> Option<Finding> {
    let sum = |of: fn(&Side) -> u64| -> u64 {
        jobs.iter().map(|job| of(&job.read).saturating_add(of(&job.write))).sum()
    };
    let rate: f64 = jobs.iter().map(|job| job.read.bytes_per_s + job.write.bytes_per_s).sum();
    let own = |of: fn(&Side) -> u64| of(&all.read).saturating_add(of(&all.write));
    let own_rate = all.read.bytes_per_s + all.write.bytes_per_s;
    let (ios, bytes) = (sum(|side| side.ios), sum(|side| side.bytes));
    let (own_ios, own_bytes) = (own(|side| side.ios), own(|side| side.bytes));
    if ios != own_ios || bytes != own_bytes {
        let said = format!(
            "fio's sum over all clients has {own_ios} I/Os and {own_bytes} bytes, \
             the clients together {ios} and {bytes}"
        );
        return Some(finding("H01", Severity::Error, said));
    }
    if (rate - own_rate).abs() > own_rate * RATE_TOLERANCE {
        let said = format!(
            "the hosts' rates add up to {}, fio's sum over all clients is {}: \
             they did not run at the same time",
            units::bytes_per_s(rate),
            units::bytes_per_s(own_rate)
        );
        return Some(finding("H01", Severity::Error, said));
    }
    None
}

fn finding(rule: &str, severity: Severity, reason: String) -> Finding {
    Finding { rule: rule.to_owned(), severity, reason, correction: None }
}

/// What a host said of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    host: String,
    version: Option<String>,
    /// How far its clock is ahead of ours at least, milliseconds; negative if it is behind.
    ahead_ms: Option<i64>,
}

/// Ask every host for its fio and its clock, by a job of one I/O on fio's null engine.
///
/// # Errors
/// If a host cannot be reached.
pub fn look(evidence: &Evidence, hosts: &[Host]) -> Result<Vec<Check>, Refusal> {
    let told = hosts.iter().map(|host| ask(evidence, host)).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![versions(&told), clocks(&told)])
}

fn ask(evidence: &Evidence, host: &Host) -> Result<Told, Refusal> {
    let why = format!("version and clock of host {host}");
    let order = Order::new(["fio".to_owned(), host.argument()], &why).limit(LOOK_LIMIT);
    let prepare = |place: &Path| {
        let log = place.display();
        let job = format!(
            "[look]\nioengine=null\nrw=read\nbs=4k\nsize=4k\nlog_unix_epoch=1\nwrite_bw_log={log}\n"
        );
        let path = place.with_extension("fio");
        std::fs::write(&path, job)?;
        Ok(vec![path.to_string_lossy().into_owned()])
    };
    let ran = evidence.run_with(&order, prepare, |place, _| logs_beside(place))?;
    if !ran.entry.exit.is_success() {
        let said = format!("host {host} does not answer ({}): {}", ran.entry.exit, ran.complaint());
        let hint = "start 'fio --server=ip:ADDRESS,PORT' there; nothing was measured";
        return Err(Refusal::cannot_run("host.unreachable", said, hint));
    }
    let log = ran.entry.files.iter().find(|kept| kept.file.contains("_bw."));
    let log = log.map(|kept| ran.read(kept)).transpose()?.unwrap_or_default();
    let stdout = ran.stdout()?;
    let window = (ran.entry.began_unix_s, ran.entry.began_unix_s + ran.entry.duration_s);
    Ok(Told {
        host: host.to_string(),
        version: version(&String::from_utf8_lossy(&stdout)),
        ahead_ms: first_moment_ms(&String::from_utf8_lossy(&log)).map(|at| ahead_ms(at, window)),
    })
}

/// `hostname=a, ..., fio=fio-3.33, flags=1`
fn version(printed: &str) -> Option<String> {
    let line = printed.lines().find(|line| line.starts_with("hostname="))?;
    line.split(", ").find_map(|part| part.strip_prefix("fio=")).map(str::to_owned)
}

/// The first time in a log that counts from 1970, milliseconds.
fn first_moment_ms(log: &str) -> Option<i64> {
    log.lines().next()?.split(',').next()?.trim().parse().ok()
}

/// How far `at_ms` lies outside of the time in which it must have been, if the clocks agree; 0
/// within it.
fn ahead_ms(at_ms: i64, (began_s, ended_s): (f64, f64)) -> i64 {
    let whole = |seconds: f64| format!("{:.0}", seconds * 1e3).parse::<i64>().unwrap_or(0);
    let (began, ended) = (whole(began_s), whole(ended_s));
    if at_ms < began { at_ms - began } else { (at_ms - ended).max(0) }
}

fn versions(told: &[Told]) -> Check {
    let shown: Vec<String> = told
        .iter()
        .map(|host| format!("{} {}", host.host, host.version.as_deref().unwrap_or("does not say")))
        .collect();
    let first = told.first().and_then(|host| host.version.as_ref());
    let outcome = match first {
        _ if told.iter().any(|host| host.version.is_none()) => Outcome::CannotTell,
        Some(first) if told.iter().all(|host| host.version.as_ref() == Some(first)) => {
            Outcome::Pass
        }
        _ => Outcome::Fail,
    };
    let next = (outcome == Outcome::Fail).then(|| {
        "install the same fio on all hosts: defaults and bugs differ between versions".to_owned()
    });
    Check {
        name: "hosts.versions".to_owned(),
        target: hosts_named(told),
        outcome,
        found: shown.join(", "),
        next,
    }
}

fn clocks(told: &[Told]) -> Check {
    let shown: Vec<String> = told
        .iter()
        .map(|host| match host.ahead_ms {
            Some(0) => format!("{} agrees with this machine", host.host),
            Some(ms) => format!(
                "{} is {} ms {}",
                host.host,
                ms.abs(),
                if ms > 0 { "ahead" } else { "behind" }
            ),
            None => format!("{} does not say", host.host),
        })
        .collect();
    let outcome = if told.iter().any(|host| host.ahead_ms.is_none()) {
        Outcome::CannotTell
    } else if told.iter().all(|host| host.ahead_ms.is_some_and(|ms| ms.abs() <= CLOCK_MS_MAX)) {
        Outcome::Pass
    } else {
        Outcome::Fail
    };
    let next = (outcome == Outcome::Fail).then(|| {
        "set the clocks (chrony, ntp): series of different hosts are of different seconds"
            .to_owned()
    });
    Check {
        name: "hosts.clocks".to_owned(),
        target: hosts_named(told),
        outcome,
        found: shown.join(", "),
        next,
    }
}

fn hosts_named(told: &[Told]) -> String {
    format!("{} host{}", told.len(), if told.len() == 1 { "" } else { "s" })
}

fn logs_beside(place: &Path) -> Vec<PathBuf> {
    super::run::written_beside(place)
}

#[cfg(test)]
mod tests {
    use super::{
        Host, Told, ahead_ms, clocks, figures, first_moment_ms, judged, missing, version, versions,
    };
    use crate::fio::FioResult;
    use crate::validity::{Outcome, Severity};

    const TWO: &str = include_str!("../../tests/fio/two_clients.json");

    fn hosts() -> Vec<Host> {
        ["127.0.0.1:8801", "127.0.0.1:8802"].map(|text| Host::parse(text).unwrap()).to_vec()
    }

    #[test]
    fn hosts_are_named_with_or_without_a_port_and_nothing_else_is_a_host() {
        assert_eq!(Host::parse("node-1").unwrap().argument(), "--client=ip:node-1,8765");
        assert_eq!(Host::parse("10.0.0.2:9000").unwrap().argument(), "--client=ip:10.0.0.2,9000");
        for text in ["", ":1", "a:", "a:0", "a:b", "a,b", "-a", "a b", "a:99999", "fe80::1"] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_sum_over_all_clients_is_made_again_and_a_wrong_one_is_an_error() {
        let mut result = FioResult::parse(TWO.as_bytes()).unwrap();
        assert_eq!(result.jobs.len(), 2, "fio's sum is no job");
        assert_eq!(judged(&result), [], "{:?}", judged(&result));
        let all = result.all_clients.as_mut().unwrap();
        all.read.ios += 1;
        let wrong = judged(&result);
        assert_eq!(
            (wrong.len(), wrong[0].rule.as_str(), wrong[0].severity),
            (1, "H01", Severity::Error)
        );
        let all = result.all_clients.as_mut().unwrap();
        all.read.ios -= 1;
        all.read.bytes_per_s *= 0.9;
        let wrong = judged(&result);
        assert!(wrong[0].reason.contains("did not run at the same time"), "{wrong:?}");
        result.all_clients = None;
        assert_eq!(judged(&result)[0].severity, Severity::Warning);
    }

    #[test]
    fn each_host_has_its_own_figures_and_a_slow_one_is_named() {
        let mut result = FioResult::parse(TWO.as_bytes()).unwrap();
        let of = figures(&result, |_| true);
        assert_eq!(
            of.iter().map(|host| host.host.as_str()).collect::<Vec<_>>(),
            ["127.0.0.1:8801", "127.0.0.1:8802"]
        );
        assert_eq!((of[0].ios, of[1].ios), (result.jobs[0].read.ios, result.jobs[1].read.ios));
        assert!(of.iter().all(|host| host.p99_ns.is_some()));
        assert_eq!(missing(&hosts(), &result), Vec::<&Host>::new());
        result.jobs[0].read.bytes_per_s /= 2.0;
        let slow = judged(&result);
        assert!(
            slow.iter().any(|it| it.rule == "H02" && it.reason.contains("127.0.0.1:8801")),
            "{slow:?}"
        );
        result.jobs.remove(1);
        assert_eq!(missing(&hosts(), &result), [&hosts()[1]]);
    }

    #[test]
    fn versions_and_clocks_that_differ_are_said_and_silence_is_no_pass() {
        let said = "hostname=vm, be=0, 64-bit, os=Linux, arch=x86-64, fio=fio-3.33, flags=1\n\
                    <vm> Starting 1 process\n";
        assert_eq!(version(said).as_deref(), Some("fio-3.33"));
        assert_eq!(first_moment_ms("1795343802150, 492012, 0, 4096, 0\n"), Some(1_795_343_802_150));
        assert_eq!(ahead_ms(1500, (1.0, 2.0)), 0);
        assert_eq!((ahead_ms(400, (1.0, 2.0)), ahead_ms(9000, (1.0, 2.0))), (-600, 7000));
        let told = |version: &str, ahead_ms| Told {
            host: "a:1".into(),
            version: Some(version.into()),
            ahead_ms,
        };
        let (one, other) = (told("fio-3.33", Some(0)), told("fio-3.36", Some(-7000)));
        assert_eq!(versions(&[one.clone(), one.clone()]).outcome, Outcome::Pass);
        assert_eq!(versions(&[one.clone(), other.clone()]).outcome, Outcome::Fail);
        assert_eq!(clocks(&[one.clone(), one.clone()]).outcome, Outcome::Pass);
        let apart = clocks(&[one.clone(), other]);
        assert_eq!(apart.outcome, Outcome::Fail);
        assert!(apart.found.contains("7000 ms behind"), "{}", apart.found);
        let silent = Told { version: None, ahead_ms: None, ..one.clone() };
        assert_eq!(versions(&[one.clone(), silent.clone()]).outcome, Outcome::CannotTell);
        assert_eq!(clocks(&[one, silent]).outcome, Outcome::CannotTell);
    }
}
