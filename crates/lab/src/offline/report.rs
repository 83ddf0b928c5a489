//! What the report says of a made-up run of two engines (`made_up`), in all its forms.

mod made_up;

use crate::record::{ArrayCondition, Measurement, Record};
use crate::report::{findings, page, points, text, waterfall};
use crate::rules;
use crate::store::Run;
use made_up::{
    baseline, invalidate, measurements, resource, round, two_engines, with_everything, workload,
};
use std::path::Path;

/// The page of a run without a directory.
fn html(run: &Run) -> String {
    page::html(run, &points::of(&run.records), Path::new("nowhere")).expect("a page")
}

#[track_caller]
fn has_all(text: &str, wanted: &[&str]) {
    for one in wanted {
        assert!(text.contains(one), "there is no {one}");
    }
}

#[test]
fn rounds_become_points_and_the_headline_tells_gains_and_draws() {
    let run = two_engines();
    let points = points::of(&run.records);
    assert_eq!(points.len(), 6);
    let headline = findings::headline(&points, &[]);
    assert_eq!(
        headline.sentence,
        "ashlar is faster than btrfs in 2 of 3 cases (2.00 times the rate) and not shown to differ \
         in 1."
    );
    let apart = rules::of("arrays.apart").pass("read", "all alike");
    let with = findings::headline(&points, &[Record::Check(apart)]);
    assert_eq!(with.sentence, headline.sentence.clone() + " read: all alike.");
    let cases = findings::cases(&points);
    assert_eq!(cases.len(), 3, "one line each: {cases:?}");
    for (of, wanted) in [("read", "2.00 times ("), ("write", "1.00 times (")] {
        let line = cases.iter().find(|line| line.contains(of)).expect("a case");
        assert!(line.contains("ashlar ") && line.contains(", btrfs "), "{line}");
        assert!(line.contains(wanted), "{line}");
    }
    let limit = headline.limit.expect("a limit");
    assert!(limit.of.contains("4K random reads, 4 x 16, healthy"), "{limit:?}");
    assert!(limit.verdict.sentence.starts_with("1 of 2 cores saturated"), "{limit:?}");
}

#[test]
fn a_chart_has_one_unit_and_an_efficiency_its_spread() {
    let mut run = two_engines();
    // Each load once more with twice the depth, as a sweep.
    let mut deeper = run.records.clone();
    for one in measurements(&mut deeper) {
        one.workload.depth *= 2;
        one.id = format!("{}-deeper", one.id);
        one.workload.name = format!("{}-deeper", one.workload.name);
    }
    run.records.extend(deeper);
    measurements(&mut run.records).for_each(|one| one.stage = "array.sweep".into());
    let points = points::of(&run.records);
    let charts = crate::report::charts::all(&points);
    let units = |question: &str| {
        let chart = charts.iter().find(|it| it.words.question == question).expect(question);
        let has = |unit: &str| chart.rows.iter().any(|row| row.value.ends_with(unit));
        (has("B/s"), has("IOPS"), chart.svg.contains("bytes or I/Os"))
    };
    assert_eq!(units("Does more load bring more bytes?"), (true, false, false));
    assert_eq!(units("Does more load bring more I/Os?"), (false, true, false));
    let swept = text::markdown(&run, &points);
    assert!(swept.contains("not measured"), "a deeper load has no BASELINE");
    let mut spread = points[0].clone();
    let Record::Baseline(baseline) = baseline("", "x", 100.0, ("raw", 100.0, 4)) else { panic!() };
    (spread.samples, spread.baseline) = (vec![80.0, 90.0, 95.0], Some(baseline));
    assert!(text::efficiency(&spread).ends_with("(80 to 95)"), "{}", text::efficiency(&spread));
}

/// RAID 5 and RAID 6 over the same drives, at the same load: a small write costs 4 or 6.
#[test]
fn a_baseline_is_that_of_its_own_array() {
    let writes = workload("rw-4k-j4-q16", "randwrite", 4096);
    let mut run = two_engines();
    run.records.clear();
    for (array, value) in [("raid5", 250e3), ("raid6", 166e3)] {
        let mut record = round("md", &writes, ArrayCondition::Healthy, (0, 100e3));
        if let Record::Measurement(measured) = &mut record {
            (measured.target, measured.stage) = (array.into(), "array.sweep".into());
        }
        run.records.push(baseline(array, &writes.name, value, ("mixed", 1e6, 4)));
        run.records.push(record);
    }
    let points = points::of(&run.records);
    let told: Vec<(&str, String)> =
        points.iter().map(|it| (it.engine.as_str(), text::efficiency(it))).collect();
    let wanted = [("md 1.0 raid5", "40.0 %".to_owned()), ("md 1.0 raid6", "60.2 %".to_owned())];
    assert_eq!(told, wanted);
    let falls = waterfall::falls(&points);
    let ceilings: Vec<f64> = falls.iter().map(|fall| fall.steps[1].rate).collect();
    assert_eq!(ceilings, [250e3, 166e3], "each falls from its own height");
    assert!(falls[1].case.ends_with("md 1.0 raid6"), "{}", falls[1].case);
}

/// A sweep measures one array after the other: the machine may have changed in between.
#[test]
fn rounds_that_were_not_taken_in_turns_are_side_by_side_and_not_compared() {
    let mut run = two_engines();
    measurements(&mut run.records).for_each(|one| one.stage = "array.sweep".into());
    let points = points::of(&run.records);
    assert_eq!(findings::cases(&points), [""; 0]);
    let said = findings::headline(&points, &[]).sentence;
    assert!(said.starts_with("ashlar and btrfs were not measured in turns: no verdict"), "{said}");
    let told = html(&run) + &text::markdown(&run, &points);
    for word in ["btrfs faster", "is faster", "Rounds were taken in turns", "relative CPU"] {
        assert!(!told.contains(word), "{word}");
    }
    has_all(&told, &["Side by side", "101 k IOPS", "50.5 k IOPS"]);
    // With turns beside it, only these are compared, and each stage has a row of its own.
    run.records.extend(two_engines().records);
    let points = points::of(&run.records);
    assert_eq!(findings::cases(&points).len(), 3);
    has_all(&html(&run), &["healthy, rr-4k-j4-q16 (array.sweep)", "(compare)"]);
}

#[test]
fn one_engine_twice_in_turns_is_compared_by_the_names_of_its_arrays() {
    let mut run = two_engines();
    measurements(&mut run.records).for_each(|one| one.engine.name = "md".into());
    let cases = findings::cases(&points::of(&run.records));
    let is_told = |it: &String| it.contains("md 1.0 /dev/ashlar ") && it.contains("/dev/btrfs ");
    assert!(cases.len() == 3 && cases.iter().all(is_told), "{cases:?}");
}

/// Every figure of a side has a finding, or one round of one load, as of a hog beside it.
#[test]
fn what_an_invalid_side_takes_part_in_is_without_a_verdict_and_errors_fail_by_name() {
    let never = "the area was never written";
    let invalid = "not compared: a side is INVALID";
    for (rule, reason, mix, left_out, said, told) in [
        ("L08", never, "r", 3, "too few usable rounds", invalid),
        ("A15", "other programs used 48 % of all cores", "randread", 1, "of 2 cases", invalid),
        (
            "L28",
            "it ended with an error",
            "r",
            3,
            "too few",
            "btrfs fails this: it answered with errors",
        ),
    ] {
        let mut run = two_engines();
        let wanted = if left_out == 1 { 1 } else { usize::MAX };
        let own =
            |it: &&mut Measurement| it.engine.name == "btrfs" && it.workload.mix.contains(mix);
        for one in measurements(&mut run.records).filter(own).take(wanted) {
            one.findings.push(rules::of(rule).finding(reason));
            if rule == "L28" {
                (one.read, one.write) = Default::default();
            }
        }
        let points = points::of(&run.records);
        let headline = findings::headline(&points, &[]);
        assert_eq!(headline.invalid, left_out, "{rule}");
        assert!(headline.sentence.contains(said), "{rule}: {}", headline.sentence);
        let cases = findings::cases(&points);
        assert_eq!(cases.iter().filter(|it| it.ends_with(told)).count(), left_out, "{cases:?}");
        has_all(&html(&run), &[told, reason]);
    }
}

/// Two of six rounds of one of two like sides were throttled: the first, the last, or any.
#[test]
fn throttling_in_some_rounds_never_makes_a_side_slower_or_the_other_faster() {
    for throttled in [[0, 1], [4, 5], [0, 5], [1, 4], [2, 3]] {
        for side in ["ashlar", "btrfs"] {
            let mut run = two_engines();
            for one in measurements(&mut run.records) {
                let is_slow = one.engine.name == side && throttled.contains(&one.round);
                let own = if one.engine.name == "btrfs" { 3 } else { 0 };
                let rate = 100e3 * (1.0 + f64::from((one.round * 7 + own) % 5) * 0.01);
                let rate = if is_slow { rate / 2.0 } else { rate };
                for it in [&mut one.read, &mut one.write].into_iter().filter(|it| it.ios > 0) {
                    (it.iops, it.bytes_per_s) = (rate, rate * 1e3);
                }
            }
            let cases = findings::cases(&points::of(&run.records));
            let is_open = |it: &String| {
                it.ends_with("no difference shown") || it.ends_with("not decided: it drifted")
            };
            assert!(cases.len() == 3 && cases.iter().all(is_open), "{throttled:?}: {cases:?}");
        }
    }
}

#[test]
fn the_page_stands_alone_escapes_what_it_shows_and_says_what_is_missing() {
    let page = html(&two_engines());
    for forbidden in
        [" src=\"http", "http-equiv=\"refresh\"", "src=\"http", "href=\"http", "url(", "@import"]
    {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 1, "the one that unfolds everything on paper");
    assert!(
        page.contains("--name=&#60;x&#62;") || page.contains("--name=&lt;x&gt;"),
        "command lines are escaped"
    );
    let wanted = [
        "; script-src 'sha256-",
        "<script>addEventListener(\"beforeprint\"",
        "cannot tell",
        "not measured",
        "50.5 %",
        "1 x 99 %, 1 x 20 %",
        "line 7 of evidence.jsonl",
        "<svg",
    ];
    has_all(&page, &wanted);
    let verdict = page.find("class=\"verdict\"").expect("a verdict");
    assert!(verdict < page.find("<table").expect("a table"), "the verdict stands first");
}

#[test]
fn the_other_forms_hold_the_same_points() {
    let run = two_engines();
    let points = points::of(&run.records);
    let markdown = text::markdown(&run, &points);
    assert_eq!(markdown.matches("| VALID |").count(), 6, "{markdown}");
    assert!(markdown.contains("| cannot tell | memory.channels_populated |"));
    // Five rounds of 20,000 I/Os: 100 lie beyond p99.9, 1 beyond p99.999.
    assert_eq!(
        (points[0].percentile(0.999), points[0].percentile(0.99999)),
        (Some(1_500_000), None)
    );
    let csv = text::csv(&points);
    assert_eq!(csv.lines().count(), 1 + 36);
    let columns = csv.lines().next().expect("a head").split(',').count();
    assert!(
        csv.lines().all(|line| line.split(',').count() == columns),
        "no field here holds a comma"
    );
}

#[test]
fn what_drives_and_links_carried_becomes_the_use_table_the_limit_and_the_flow_of_the_diagram() {
    use crate::meter::{DriveLoad, LinkLoad, PathLoad};
    use crate::record::ResourceTable;
    let mut run = two_engines();
    let path = PathLoad {
        drives: vec![DriveLoad { name: "sda".into(), bytes_per_s: 2e8, busy: 0.97, queued: 7.5 }],
        links: vec![LinkLoad {
            id: "a>b".into(),
            name: "HBA 3b:00.0 to socket 0 (PCIe 3.0 x4)".into(),
            bytes_per_s: 3.8e9,
            carries: Some(3.94e9),
        }],
    };
    assert_eq!(path.measured().len(), 1);
    measurements(&mut run.records).for_each(|one| one.path = Some(path.clone()));
    let processors = resource("processors", Some("load 0.1 on 2 CPUs"));
    let rows = vec![processors, resource("memory, bandwidth", None)];
    run.records.push(Record::Resources(ResourceTable { rows }));
    let points = points::of(&run.records);
    let limit = findings::headline(&points, &[]).limit.expect("a limit");
    assert!(limit.verdict.sentence.contains("PCIe 3.0 x4"), "{limit:?}");
    let wanted = [
        "memory, bandwidth",
        "<td class=\"empty\">empty</td>",
        "97.0 % busy at most",
        "96.4 % at most",
    ];
    has_all(&html(&run), &wanted);
}

#[test]
fn every_chart_has_its_mark_its_figures_and_its_commands_and_engines_stand_side_by_side() {
    let mut run = two_engines();
    for one in measurements(&mut run.records) {
        one.read.latency_series = vec![(1000, 2e5), (2000, 3e5)];
        one.read.series = vec![(1000, 2e8), (2000, 3e8)];
    }
    let page = html(&run);
    let charts = page.matches("<svg class=\"chart\"").count();
    assert!(charts >= 5, "{charts} charts");
    assert_eq!(page.matches("Figures and commands of this chart").count(), charts);
    let wanted = ["Side by side", "Does latency hold over time?", "lines 7, 7"];
    has_all(&page, &wanted);
}

/// Sentences and cells that each form of the report must have of [`with_everything`].
const EVERYTHING: [&str; 3] = ["35.7 % ±", "client 18.9 %", "memory, bandwidth"];

#[test]
fn accounts_and_resources_are_in_the_page_and_in_markdown() {
    let run = with_everything();
    let points = points::of(&run.records);
    let markdown = text::markdown(&run, &points);
    has_all(&html(&run), &["Whose CPU time is it?", "md (functions of version"]);
    has_all(&html(&run), &EVERYTHING);
    has_all(&markdown, &EVERYTHING);
    let tables = markdown.lines().filter(|line| line.starts_with("| ") || line.starts_with("|-"));
    let mut width = 0;
    for line in tables {
        let cells = line.replace("\\|", "").matches('|').count();
        let is_head = line.starts_with("| workload")
            || line.starts_with("| measurement")
            || line.starts_with("| resource")
            || line.starts_with("| load |")
            || line.starts_with("| outcome |");
        width = if is_head { cells } else { width };
        assert_eq!(cells, width, "a row is as wide as its head: {line}");
    }
}

#[test]
fn the_verb_writes_what_is_asked_beside_the_records_and_refuses_an_empty_run() {
    use crate::report::cli::{Args, run};
    use crate::store::RunDir;
    let place = tempfile::tempdir().expect("a directory");
    let made = with_everything();
    let dir = RunDir::create(&place.path().join("run"), &made.facts).expect("made");
    let csv = place.path().join("first.csv");
    let mut args = Args { run: dir.path().into(), html: None, markdown: None, csv: None };
    let page = dir.path().join("report.html");
    assert_eq!(run(&args, false).expect_err("nothing to report").code, "run.empty");
    assert!(!page.exists());
    made.records.iter().for_each(|record| dir.append(record).expect("written"));
    assert!(dir.read().expect("readable").unread.is_empty());
    run(&args, false).expect("a report");
    assert!(page.exists());
    args.csv = Some(csv);
    run(&args, true).expect("a report");
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect(name);
    assert_eq!(read("first.csv"), text::csv(&points::of(&made.records)));
    let all = ["cpu", "use"].map(|word| read(&format!("first.{word}.csv"))).concat();
    has_all(&all, &EVERYTHING);
    assert!(read("first.use.csv").contains("\"memory, bandwidth\",,,"), "empty cells stay empty");
}

#[test]
fn a_figure_far_above_its_baseline_says_that_something_else_answers() {
    let mut run = two_engines();
    let noted = |run: &Run| {
        points::of(&run.records).iter().any(|it| it.findings.iter().any(|it| it.rule == "F14"))
    };
    assert!(!noted(&run));
    let first = run.records[0].measurement().expect("a measurement");
    let half = first.rate() / 2.0;
    run.records.push(baseline(&first.target, &first.workload.name, half, ("raw", half, 10)));
    assert!(noted(&run));
}

#[test]
fn a_waterfall_falls_from_the_raw_drives_to_the_file_system_and_says_what_each_drive_has_of_it() {
    let mut run = two_engines();
    let reads = workload("rr-4k-j4-q16", "randread", 4096);
    run.records.push(round("ashlar", &reads, ArrayCondition::FileSystem, (0, 75e3)));
    let falls = waterfall::falls(&points::of(&run.records));
    assert_eq!(falls.len(), 1, "writes have no raw run: {falls:?}");
    let told: Vec<(&str, f64, f64)> = falls[0]
        .steps
        .iter()
        .map(|step| (step.name(), step.per_drive(), step.left().unwrap_or(1.0)))
        .collect();
    let whole = [
        ("raw drives", 25e3, 1.0),
        ("RAID ceiling", 20e3, 0.8),
        ("ashlar", 10.1e3, 0.505),
        ("ashlar, file system", 7.5e3, 75.0 / 101.0),
        ("btrfs", 5.05e3, 0.2525),
    ];
    assert_eq!(told.len(), whole.len(), "{told:?}");
    for ((name, each, left), expected) in told.into_iter().zip(whole) {
        let is_near = (each - expected.1).abs() < 1.0 && (left - expected.2).abs() < 1e-9;
        assert!(name == expected.0 && is_near, "{name}: {each} {left}, {expected:?}");
    }
    run.records.push(baseline("", "sw-1m-j4-q16", 1.6e9, ("sw-1m-j1-q8", 2e9, 10)));
    let falls = waterfall::falls(&points::of(&run.records));
    let each: Vec<f64> = falls[1].steps.iter().map(|step| step.per_drive()).collect();
    assert!((each[0] - 200e6).abs() < 1.0 && (each[1] - 200e6).abs() < 1.0, "{each:?}");
    assert!((each[2] - 1.01e9 / 8.0).abs() < 1.0, "writes are on the data drives: {each:?}");
    let page = html(&run);
    assert!(page.contains("What is lost on the way from the raw drives?"));
    assert!(page.contains("101 k IOPS, 10.1 k IOPS a drive, 50.5 % (of 10 drives)"), "the table");
    let raws = run.records.iter_mut().filter_map(|record| match record {
        Record::Baseline(baseline) => baseline.raw.as_mut(),
        _ => None,
    });
    raws.for_each(|raw| raw.stated = Some(2.6e9));
    let falls_of_makers = waterfall::falls(&points::of(&run.records));
    let [datasheet, raw, ..] = falls_of_makers[1].steps.as_slice() else { panic!("two steps") };
    assert_eq!((datasheet.name(), datasheet.per_drive()), ("datasheet", 260e6));
    assert!((raw.left().expect("a share") - 2.0 / 2.6).abs() < 1e-9, "{raw:?}");
    invalidate(&mut run, "ashlar");
    let falls = waterfall::falls(&points::of(&run.records));
    let names: Vec<&str> = falls[0].steps.iter().map(|step| step.name()).collect();
    let wanted = ["datasheet", "raw drives", "RAID ceiling", "btrfs"];
    assert_eq!(names, wanted, "an INVALID figure is no step");
}

/// Names of engines, targets and checks, and the question, once went into the page as they were.
#[test]
fn whatever_a_record_says_is_text_in_markdown() {
    const HTML: &str = "<img src=x onerror=alert(1)>|[a](b)";
    let mut run = with_everything();
    for record in &mut run.records {
        let mut text = serde_json::to_string(record).expect("plain data");
        let words = "ashlar btrfs rr-4k-j4-q16 sw-1m-j4-q16 memory. DMI bandwidth fio";
        words.split(' ').for_each(|word| text = text.replace(word, HTML));
        *record = serde_json::from_str(&text).expect("the same with other words");
    }
    measurements(&mut run.records).for_each(|it| it.findings.push(rules::of("L03").finding(HTML)));
    run.facts.question = HTML.to_owned();
    run.facts.environment.insert(HTML.to_owned(), HTML.to_owned());
    run.facts.left_out.insert(HTML.to_owned(), HTML.to_owned());
    let markdown = text::markdown(&run, &points::of(&run.records));
    assert!(!markdown.contains("<img") && !markdown.contains("|[a]"), "{markdown}");
    assert!(markdown.matches("&lt;img").count() > 20, "{markdown}");
}
