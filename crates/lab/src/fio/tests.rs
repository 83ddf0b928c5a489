//! Real results of fio 3.33, whole and mutilated.

/// Ends a test where fio is not installed, and says so with its name.
macro_rules! needs_fio {
    () => {
        if std::process::Command::new("fio").arg("--version").output().is_err() {
            eprintln!("left out: {:?}: fio is not installed here", std::thread::current().name());
            return;
        }
    };
}

pub(crate) use needs_fio;

use super::job::JobFile;
use super::measure::figures;
use super::result::FioResult;
use super::run::{FioOrder, run};
use crate::evidence::{Evidence, Interrupt, verify};
use crate::metrics::latency;

const TWO_JOBS: &[u8] = include_bytes!("../../tests/fio/two_jobs.json");
const GLOBAL_SECTION: &[u8] = include_bytes!("../../tests/fio/global_section.json");
const STATUS_INTERVAL: &[u8] = include_bytes!("../../tests/fio/status_interval.json");
const LAT_PERCENTILES: &[u8] = include_bytes!("../../tests/fio/lat_percentiles.json");
const FAILED: &[u8] = include_bytes!("../../tests/fio/failed.json");

#[test]
fn two_jobs_without_group_reporting_are_added_bin_by_bin() {
    let result = FioResult::parse(TWO_JOBS).unwrap();
    assert_eq!((result.version.as_str(), result.jobs.len()), ("fio-3.33", 2));
    assert!(result.global.is_empty() && result.diagnostics.is_empty());
    let all = figures(&result, |_| true);
    assert_eq!(all.read.ios + all.write.ios, 120, "number_ios=60 for each of two jobs");
    assert_eq!(all.read.bytes, all.read.ios * 4096);
    assert_eq!(latency::count(&all.read.latency_bins), all.read.ios);
    let each: Vec<u64> = result.jobs.iter().map(|job| job.read.ios).collect();
    assert_eq!(each.iter().sum::<u64>(), all.read.ios);
    let bins = all.read.latency_bins.iter();
    let sum: f64 = bins.map(|(ns, ios)| latency::to_f64(ns * ios)).sum();
    let mean = sum / latency::to_f64(all.read.ios);
    assert!((mean / all.read.latency_mean_ns - 1.0).abs() < 0.02, "bins and means agree");
}

#[test]
fn a_write_job_is_not_read_from_the_read_section() {
    let result = FioResult::parse(GLOBAL_SECTION).unwrap();
    assert_eq!(result.global["bs"], "128k");
    let all = figures(&result, |_| true);
    assert_eq!((all.read.ios, all.read.bytes_per_s), (0, 0.0));
    assert!(all.write.ios > 0 && all.write.bytes_per_s > 0.0);
    let job = &result.as_jobs()[0];
    assert_eq!((job.bytes("bs"), job.count("iodepth", 1), job.mix()), (Some(131_072), 2, "write"));
}

#[test]
fn of_several_documents_the_last_whole_one_counts() {
    let whole = FioResult::parse(STATUS_INTERVAL).unwrap();
    let first = String::from_utf8_lossy(STATUS_INTERVAL);
    let first = &first[..first.find("\n}\n").unwrap() + 3];
    let early = FioResult::parse(first.as_bytes()).unwrap();
    assert!(whole.timestamp_ms > early.timestamp_ms);
    assert!(whole.jobs[0].read.ios > early.jobs[0].read.ios);
    let total = figures(&FioResult::parse(LAT_PERCENTILES).unwrap(), |_| true);
    let bins = latency::count(&total.write.latency_bins);
    assert_eq!(bins, 16, "of total latency, where there are no others");
}

#[test]
fn garbage_around_the_document_becomes_diagnostics() {
    let noise =
        b"fio: engine nosuch not loadable\nfio: brace { in a message\n{ not json }\n{\"a\": 1}\n";
    let after = b"\nfio: file hash not empty on exit\n";
    let text = [noise, TWO_JOBS, after].concat();
    let result = FioResult::parse(&text).unwrap();
    assert_eq!(result.jobs, FioResult::parse(TWO_JOBS).unwrap().jobs);
    assert_eq!(result.diagnostics.first().unwrap(), "fio: engine nosuch not loadable");
    assert_eq!(result.diagnostics.last().unwrap(), "fio: file hash not empty on exit");
    let real = FioResult::parse(include_bytes!("../../tests/fio/error_before.json")).unwrap();
    assert_ne!(real.jobs[0].error, 0);
    assert_eq!(FioResult::parse(FAILED).unwrap().jobs[0].error, 2, "a failed job keeps its error");
}

#[test]
fn a_cut_anywhere_is_refused_as_truncated_and_nothing_else() {
    let end = TWO_JOBS.iter().rposition(|byte| *byte == b'}').unwrap();
    let begin = TWO_JOBS.iter().position(|byte| *byte == b'{').unwrap();
    for at in (begin + 1..end).step_by(7) {
        let refusal = FioResult::parse(&TWO_JOBS[..at]).unwrap_err();
        assert_eq!(refusal.code, "fio.output_truncated", "cut at byte {at}: {refusal}");
    }
}

#[test]
fn what_is_no_result_is_refused_in_one_line_that_says_so() {
    for (text, code) in [
        (&b""[..], "fio.no_result"),
        (b"fio: bad option\nmore\n", "fio.no_result"),
        (b"{}", "fio.output_not_understood"),
        (b"{\"fio version\": \"fio-2.21\", \"jobs\": []}", "fio.output_not_understood"),
        (b"{\"fio version\": \"fio-3.33\"}", "fio.output_not_understood"),
        (b"{\"fio version\": nan}", "fio.output_not_understood"),
    ] {
        let refusal = FioResult::parse(text).unwrap_err();
        assert_eq!((refusal.code.as_str(), refusal.exit_code()), (code, 2), "{refusal}");
    }
}

#[test]
fn absurd_figures_are_taken_without_a_panic() {
    let text = br#"{"fio version":"fio-3.33","jobs":[{"jobname":"a","error":-1,"usr_cpu":-5,
        "job options":{"bs":7},
        "read":{"io_bytes":99999999999999999999,"total_ios":-3,"iops":1e300,"bw_bytes":"x",
        "clat_ns":{"N":18446744073709551615,"mean":1e308,
        "bins":{"1":18446744073709551615,"2":18446744073709551615,"x":1},
        "percentile":{"99.9":1.5}}}},
        {"read":{"io_bytes":18446744073709551615,"total_ios":18446744073709551615}}, 7]}"#;
    let result = FioResult::parse(text).unwrap();
    let all = figures(&result, |_| true);
    assert_eq!(all.read.latency_bins.len(), 2);
    assert!(latency::count(&all.read.latency_bins) > 0);
    assert_eq!(result.as_jobs()[0].get("bs"), Some("7"));
}

fn tiny_job(dir: &std::path::Path, more: &str) -> FioOrder {
    let target = dir.join("target");
    let text = format!("[tiny]\nfilename={}\nsize=1m\nbs=4k\n{more}", target.display());
    let jobs = JobFile::parse(&text).unwrap();
    FioOrder { jobs, why: "a test".into(), expected_s: 1.0, log_bandwidth: true }
}

#[test]
fn a_run_leaves_its_job_file_and_logs_in_the_evidence() {
    needs_fio!();
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::open(&dir.path().join("run"), Interrupt::default()).unwrap();
    let order =
        tiny_job(dir.path(), "rw=randwrite\ntime_based\nruntime=2\nthinktime=200us\nnumjobs=2\n");
    let ran = run(&evidence, &order).unwrap();
    let files: Vec<&str> = ran.ran.entry.files.iter().map(|kept| kept.file.as_str()).collect();
    assert!(files.iter().any(|file| file.ends_with(".fio")), "{files:?}");
    for kind in ["_bw.", "_clat."] {
        assert_eq!(files.iter().filter(|file| file.contains(kind)).count(), 2, "{files:?}");
    }
    let [read, write] = ran.series.latency();
    assert!(read.is_empty() && write.iter().all(|(_, ns)| *ns > 0.0) && !write.is_empty());
    assert!(ran.result.jobs.iter().all(|job| job.write.ios > 0));
    let [_, write] = ran.series.bandwidth(|_| true);
    assert!(!write.is_empty() && ran.series.unreadable == 0, "{:?}", ran.series);
    let verified = verify(evidence.dir()).unwrap();
    assert_eq!((verified.files, verified.problems.len()), (files.len() + 2, 0), "{verified:?}");
}

#[test]
fn a_job_that_fails_is_one_line_with_fios_reason() {
    needs_fio!();
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::open(&dir.path().join("run"), Interrupt::default()).unwrap();
    let failure = run(&evidence, &tiny_job(dir.path(), "rw=write\nioengine=nosuch\n")).unwrap_err();
    assert_eq!(failure.code, "fio.failed");
    assert!(failure.to_string().contains("nosuch"), "{failure}");
}
