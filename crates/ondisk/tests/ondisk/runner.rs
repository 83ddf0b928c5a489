//! Who runs an array, as the text of a heartbeat.

use ashlar_ondisk::{ProcessName, RunnerName, Text, tag_of};

fn runner(host: &str, process: ProcessName) -> RunnerName {
    RunnerName { host: host.to_owned(), process: Some(process), opened: 0x1234_abcd }
}

const PROCESS: ProcessName = ProcessName { id: 4711, started: 0x12_3456, namespaces: 0xfeed };

#[test]
fn what_is_said_of_a_runner_is_read_back_and_told() {
    let said = runner("node-7.example", PROCESS);
    let text = said.to_text();
    assert_eq!(text.as_str(), "node-7.example/4711.123456.feed.1234abcd");
    assert_eq!(RunnerName::of(&text), said);
    assert_eq!(said.to_string(), "in process 4711 on host 'node-7.example'");
}

#[test]
fn the_process_is_whole_however_long_the_host_is_called() {
    let most = ProcessName { id: u32::MAX, started: u64::MAX, namespaces: u32::MAX };
    for host in ["x".repeat(64), "\u{e4}".repeat(64), " a/b/c ".to_owned(), "a\nb".to_owned()] {
        let said = RunnerName { opened: u32::MAX, ..runner(&host, most) };
        let read = RunnerName::of(&said.to_text());
        assert_eq!((read.process, read.opened), (said.process, said.opened), "{host:?}");
        assert!(!read.host.is_empty(), "{host:?}");
    }
}

#[test]
fn what_older_programs_say_is_a_host_without_a_process() {
    for text in [
        "node-7/0123456789abcdef0123456789abcdef",
        "node-7.example",
        "",
        "a/1.2.3",
        "a/1.2.3.4.5",
        "a/x.2.3.4",
        "a/-1.2.3.4",
        "a/1.2.3.",
        "a/4294967296.2.3.4",
    ] {
        let read = RunnerName::of(&Text::cut(text));
        assert_eq!((read.host.as_str(), read.process, read.opened), (text, None, 0));
        assert_eq!(read.to_string(), format!("on host '{text}'"));
    }
}

#[test]
fn tags_tell_numbers_apart_and_are_never_zero() {
    let tags = [tag_of([0, 0]), tag_of([0, 1]), tag_of([1, 0]), tag_of([u64::MAX, 1])];
    for (at, tag) in tags.iter().enumerate() {
        assert_ne!(*tag, 0);
        assert!(!tags[..at].contains(tag), "{tags:?}");
    }
}
