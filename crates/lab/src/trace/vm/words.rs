//! Disks on QEMU's command line: `-drive`, `-blockdev` and `-device`, each as `key=value,...` or as
//! JSON.

use super::Disk;
use serde_json::Value;
use std::collections::BTreeMap;

/// Options of one word, nested ones with dots: `cache.direct`.
type Options = BTreeMap<String, String>;

/// How long a chain of block nodes is followed.
const CHAIN_MAX: usize = 16;

/// The disks of the guest that it starts.
pub(super) fn disks(text: &str) -> Vec<Disk> {
    let words = words(text);
    let of = |flag: &str| -> Vec<Options> {
        let pairs = words
            .windows(2)
            .filter(|pair| pair[0].trim_start_matches('-') == flag && pair[0].starts_with('-'));
        pairs.map(|pair| options(&pair[1], flag == "device")).collect()
    };
    let (drives, nodes, devices) = (of("drive"), of("blockdev"), of("device"));
    let get = |from: &Options, key: &str| from.get(key).cloned();
    let mut disks = Vec::new();
    for device in &devices {
        let Some(id) = get(device, "drive") else { continue };
        let behind = chain(&id, &drives, &nodes);
        if behind.is_empty() {
            continue;
        }
        let controller = get(device, "bus").and_then(|bus| {
            let id = bus.split('.').next().unwrap_or_default().to_owned();
            devices.iter().find(|it| it.get("id") == Some(&id))
        });
        let own = |keys: [&str; 2]| {
            let from = |it: &Options| keys.iter().find_map(|key| get(it, key));
            from(device).or_else(|| controller.and_then(from))
        };
        let mut disk = of_nodes(&behind);
        disk.name = get(device, "id").unwrap_or(id);
        disk.bus = bus(&get(device, "driver").unwrap_or_default());
        disk.iothread = own(["iothread", "iothread"]);
        disk.queues = own(["num-queues", "num_queues"]).and_then(|it| it.parse().ok());
        disks.push(disk);
    }
    for drive in &drives {
        let by_itself = get(drive, "if").unwrap_or_else(|| "ide".to_owned());
        if by_itself == "none" || !drive.contains_key("file") {
            continue;
        }
        let mut disk = of_nodes(&[drive]);
        disk.name = get(drive, "id").unwrap_or_else(|| disk.source.clone());
        disk.bus = if by_itself == "virtio" { "virtio-blk".to_owned() } else { by_itself };
        disks.push(disk);
    }
    disks
}

/// `virtio-blk-pci`, `virtio-blk-ccw` -> `virtio-blk`.
fn bus(driver: &str) -> String {
    match driver.starts_with("virtio-blk") {
        true => "virtio-blk".to_owned(),
        false => driver.to_owned(),
    }
}

/// The drive, or the chain of block nodes, with this name: the format first, what lies on the host
/// last.
fn chain<'a>(id: &str, drives: &'a [Options], nodes: &'a [Options]) -> Vec<&'a Options> {
    let is = |it: &&Options, key: &str, name: &str| it.get(key).is_some_and(|it| it == name);
    if let Some(drive) = drives.iter().find(|it| is(it, "id", id)) {
        return vec![drive];
    }
    let mut found = Vec::new();
    let mut name = Some(id.to_owned());
    while let Some(node) =
        name.as_ref().and_then(|name| nodes.iter().find(|it| is(it, "node-name", name)))
    {
        found.push(node);
        name = node.get("file").cloned().filter(|_| found.len() < CHAIN_MAX);
    }
    found
}

fn of_nodes(nodes: &[&Options]) -> Disk {
    let first = |keys: &[&str]| {
        nodes.iter().find_map(|node| keys.iter().find_map(|key| node.get(*key).cloned()))
    };
    let last = |keys: &[&str]| {
        nodes.iter().rev().find_map(|node| keys.iter().find_map(|key| node.get(*key).cloned()))
    };
    let is_on = |text: String| text == "on" || text == "true";
    let mode = first(&["cache"]);
    let by_mode = mode.as_deref().map(|mode| ["none", "directsync"].contains(&mode));
    Disk {
        source: last(&["file.filename", "filename", "file"]).unwrap_or_default(),
        io: first(&["aio", "file.aio"]),
        direct: last(&["cache.direct", "file.cache.direct"]).map(is_on).or(by_mode),
        no_flush: last(&["cache.no-flush", "file.cache.no-flush"]).is_some_and(is_on)
            || mode.as_deref() == Some("unsafe"),
        format: first(&["format", "driver"])
            .filter(|it| !["file", "host_device"].contains(&it.as_str())),
        ..Disk::default()
    }
}

/// `key=value,key=value`, in which a comma of a value is doubled; or JSON. The first word of a
/// device stands for its driver.
fn options(word: &str, is_device: bool) -> Options {
    let mut all = Options::new();
    if let Ok(value @ Value::Object(_)) = serde_json::from_str(word) {
        flatten("", &value, &mut all);
        return all;
    }
    let whole = word.replace(",,", "\0");
    for (at, part) in whole.split(',').enumerate() {
        let part = part.replace('\0', ",");
        match part.split_once('=') {
            Some((key, value)) => drop(all.insert(key.to_owned(), value.to_owned())),
            None if at == 0 && is_device => drop(all.insert("driver".to_owned(), part)),
            None => {}
        }
    }
    all
}

fn flatten(before: &str, value: &Value, all: &mut Options) {
    match value {
        Value::Object(inside) => {
            for (key, value) in inside {
                let name = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
                flatten(&name, value, all);
            }
        }
        Value::String(text) => drop(all.insert(before.to_owned(), text.clone())),
        Value::Bool(_) | Value::Number(_) => drop(all.insert(before.to_owned(), value.to_string())),
        Value::Null | Value::Array(_) => {}
    }
}

/// The words of a command line: as the kernel keeps them, or as a shell reads them.
fn words(text: &str) -> Vec<String> {
    if text.contains('\0') {
        return text.split('\0').map(str::to_owned).collect();
    }
    let (mut words, mut word, mut quote, mut letters) =
        (Vec::new(), None::<String>, None, text.chars());
    while let Some(c) = letters.next() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(own)) if c == own => quote = None,
            ('\\', None | Some('"')) => {
                let next = letters.next().filter(|it| *it != '\n');
                word.get_or_insert_default().extend(next);
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
