//! Claims about finding devices by name.

use std::sync::Arc;

use ashlar_device::{Access, DeviceKind, Opened, Opener, PathOpener, read, write};
use ashlar_iobuf::BufMut;

use crate::world::{pattern, run};

fn open(opener: &PathOpener, path: &str) -> Result<Arc<dyn Opened>, String> {
    opener.open(path, Access::Exclusive).map_err(|refusal| refusal.to_string())
}

fn refusal(opener: &PathOpener, path: &str) -> String {
    open(opener, path).err().unwrap_or_else(|| panic!("{path} was opened"))
}

#[test]
fn names_tell_the_kind_of_device() {
    let opener = PathOpener::new();
    let memory = open(&opener, "mem:a:1MiB").expect("memory");
    assert_eq!((memory.facts().kind, memory.facts().size_bytes), (DeviceKind::Memory, 1 << 20));
    let null = open(&opener, "null:8TiB").expect("nothing");
    assert_eq!((null.facts().kind, null.facts().size_bytes), (DeviceKind::Null, 8 << 40));
    let file = tempfile::NamedTempFile::new().expect("a file for the test");
    file.as_file().set_len(1 << 20).expect("sparse");
    let file = open(&opener, file.path().to_str().expect("a plain name")).expect("a file");
    assert_eq!(file.facts().kind, DeviceKind::File);
}

#[test]
fn memory_keeps_its_bytes_from_opening_to_opening_and_is_held_once() {
    let opener = PathOpener::new();
    run(async |handle, supply| {
        let first = open(&opener, "mem:a:1M").expect("memory");
        assert!(refusal(&opener.clone(), "mem:a:1M").contains("in use"));
        assert!(opener.open("mem:a:1M", Access::ReadOnly).is_ok(), "looking is allowed");
        assert!(refusal(&opener, "mem:a:1M").contains("in use"), "looking does not let go");
        let device = first.attach(&handle);
        write(&*device, &supply, 0, pattern(4096, 1).freeze()).await.expect("written");
        drop((first, device));
        let device = open(&opener, "mem:a:1M").expect("free again").attach(&handle);
        let got = read(&*device, &supply, 0, BufMut::zeroed(4096)).await.expect("read");
        assert_eq!(&got[..], &pattern(4096, 1)[..]);
        let mut peeked = [0; 4096];
        opener.memory("a").expect("it was opened").peek(0, &mut peeked);
        assert_eq!(peeked, pattern(4096, 1)[..]);
        assert!(opener.memory("b").is_none());
    });
}

#[test]
fn names_that_make_no_sense_are_refused_with_an_example() {
    let opener = PathOpener::new();
    assert!(refusal(&opener, "mem:a").contains("mem:a:64MiB"));
    assert!(refusal(&opener, "mem:a:huge").contains("64K"));
    assert!(refusal(&opener, "null:").contains("64K"));
    assert!(refusal(&opener, "null:511").contains("512"));
    let _held = open(&opener, "mem:a:1M").expect("memory");
    assert!(refusal(&opener, "mem:a:2M").contains("1 MiB"));
    assert!(refusal(&opener, "/none/such").contains("no such device or file"));
}

#[test]
fn memory_that_was_made_is_opened_by_name_and_nothing_else_is() {
    let opener = PathOpener::new();
    assert!(refusal(&opener, "memory:a").contains("lost when the process"));
    opener.make_memory("a", 1 << 20).expect("made");
    assert!(opener.make_memory("a", 1 << 20).is_err(), "there is one");
    assert!(opener.make_memory("b", 511).is_err(), "no sector fits");
    let held = open(&opener, "memory:a").expect("it was made");
    assert_eq!((held.facts().kind, held.facts().size_bytes), (DeviceKind::Memory, 1 << 20));
    assert_eq!(held.facts().path, "memory:a");
    assert!(refusal(&opener, "memory:a").contains("in use"));
    assert!(!opener.forget_memory("a"), "somebody has it");
    drop(held);
    assert!(opener.forget_memory("a"));
    assert!(!opener.forget_memory("a"));
    assert!(refusal(&opener, "memory:a").contains("lost when the process"));
}
