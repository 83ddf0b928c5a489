//! Disks of a libvirt domain: elements `disk` and the SCSI controllers that some of them hang on.
//! Only tags and their attributes are looked at.

use super::Disk;
use std::collections::BTreeMap;

/// A tag: its name, and what stands in it.
struct Tag<'a> {
    name: &'a str,
    is_end: bool,
    is_whole: bool,
    attributes: BTreeMap<&'a str, String>,
}

/// A disk while its element is open.
#[derive(Default)]
struct Open {
    disk: Disk,
    device: String,
    bus: String,
}

/// The disks of a domain; not its CD-ROM and floppy drives.
pub(super) fn disks(text: &str) -> Vec<Disk> {
    let (mut disks, mut open) = (Vec::new(), None::<Open>);
    // Queues and thread of each SCSI controller, in order.
    let (mut controllers, mut in_controller) = (Vec::<(Option<u64>, Option<String>)>::new(), false);
    for tag in tags(text) {
        let get = |key: &str| tag.attributes.get(key).cloned();
        match (tag.name, &mut open) {
            ("disk", Some(_)) if tag.is_end => {
                disks
                    .extend(open.take().filter(|it| it.device != "cdrom" && it.device != "floppy"));
            }
            ("disk", None) if !tag.is_end && !tag.is_whole => {
                let device = get("device").unwrap_or_else(|| "disk".to_owned());
                open = Some(Open { device, ..Open::default() });
            }
            ("driver", Some(open)) => attached(&mut open.disk, &tag),
            ("source", Some(open)) => {
                let place = ["dev", "file", "name", "volume"].into_iter().find_map(get);
                open.disk.source = place.unwrap_or_default();
            }
            ("target", Some(open)) => {
                open.disk.name = get("dev").unwrap_or_default();
                open.bus = get("bus").unwrap_or_default();
            }
            ("controller", None) if !tag.is_end => {
                in_controller = get("type").as_deref() == Some("scsi") && !tag.is_whole;
                if get("type").as_deref() == Some("scsi") {
                    controllers.push((None, None));
                }
            }
            ("controller", None) => in_controller = false,
            ("driver", None) if in_controller => {
                if let Some(last) = controllers.last_mut() {
                    *last = (get("queues").and_then(|it| it.parse().ok()), get("iothread"));
                }
            }
            _ => {}
        }
    }
    disks.into_iter().map(|it| finished(it, controllers.first())).collect()
}

/// What a `driver` element says.
fn attached(disk: &mut Disk, tag: &Tag<'_>) {
    let get = |key: &str| tag.attributes.get(key).cloned();
    disk.io = get("io");
    disk.format = get("type");
    disk.iothread = get("iothread");
    disk.queues = get("queues").and_then(|it| it.parse().ok());
    let cache = get("cache");
    disk.no_flush = cache.as_deref() == Some("unsafe");
    disk.direct = match cache.as_deref() {
        Some("none" | "directsync") => Some(true),
        None | Some("default") => None,
        Some(_) => Some(false),
    };
}

fn finished(open: Open, controller: Option<&(Option<u64>, Option<String>)>) -> Disk {
    let mut disk = open.disk;
    disk.bus = match (open.bus.as_str(), open.device.as_str()) {
        ("virtio", _) => "virtio-blk".to_owned(),
        ("scsi", "lun") => "scsi-block".to_owned(),
        ("scsi", _) => "scsi-hd".to_owned(),
        (bus, _) => bus.to_owned(),
    };
    if let Some((queues, thread)) = controller.filter(|_| open.bus == "scsi") {
        disk.queues = disk.queues.or(*queues);
        disk.iothread = disk.iothread.or_else(|| thread.clone());
    }
    disk
}

/// All tags in order, without comments.
fn tags(text: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut rest = text;
    while let Some(from) = rest.find('<') {
        rest = &rest[from..];
        let comment = rest.strip_prefix("<!--");
        let Some(to) = comment.map_or_else(|| rest.find('>'), |_| rest.find("-->")) else { break };
        if comment.is_none() {
            tags.push(tag(&rest[1..to]));
        }
        rest = &rest[to + 1..];
    }
    tags
}

fn tag(inside: &str) -> Tag<'_> {
    let is_end = inside.starts_with('/');
    let is_whole = inside.ends_with('/');
    let inside = inside.trim_matches('/');
    let (name, mut rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
    let mut attributes = BTreeMap::new();
    while let Some((key, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let Some(quote) = after.chars().next().filter(|it| ['\'', '"'].contains(it)) else { break };
        let Some((value, next)) = after[1..].split_once(quote) else { break };
        attributes.insert(key.trim(), unescaped(value));
        rest = next;
    }
    Tag { name, is_end, is_whole, attributes }
}

fn unescaped(value: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(value.to_owned(), |text, (from, to)| text.replace(from, to))
}
