//! Disks of a libvirt domain: elements `disk` and the SCSI controllers that some of them hang on.

use super::Disk;
use roxmltree::{Document, Node};

/// The disks of a domain; not its CD-ROM and floppy drives. Text that is no XML describes none.
pub(super) fn disks(text: &str) -> Vec<Disk> {
    let Ok(domain) = Document::parse(text) else { return Vec::new() };
    let named = |name| domain.descendants().filter(move |it| it.has_tag_name(name));
    let controller = named("controller").find(|it| it.attribute("type") == Some("scsi"));
    let is_drive = |it: &Node<'_, '_>| !["cdrom", "floppy"].contains(&device_of(*it));
    named("disk").filter(is_drive).map(|it| disk(it, controller)).collect()
}

fn device_of<'a>(disk: Node<'a, '_>) -> &'a str {
    disk.attribute("device").unwrap_or("disk")
}

/// What a child of an element says under one of these names. Deeper elements are about other
/// things: a backing image has a source of its own.
fn said(element: Node<'_, '_>, child: &str, names: &[&str]) -> Option<String> {
    let child = element.children().find(|it| it.has_tag_name(child))?;
    names.iter().find_map(|name| child.attribute(*name)).map(str::to_owned)
}

fn disk(element: Node<'_, '_>, controller: Option<Node<'_, '_>>) -> Disk {
    let driver = |name| said(element, "driver", &[name]);
    let bus = said(element, "target", &["bus"]).unwrap_or_default();
    let of_controller = |name| match bus.as_str() {
        "scsi" => controller.and_then(|it| said(it, "driver", &[name])),
        _ => None,
    };
    let number = |text: Option<String>| text.and_then(|it| it.parse().ok());
    let cache = driver("cache");
    Disk {
        name: said(element, "target", &["dev"]).unwrap_or_default(),
        source: said(element, "source", &["dev", "file", "name", "volume"]).unwrap_or_default(),
        bus: match (bus.as_str(), device_of(element)) {
            ("virtio", _) => "virtio-blk".to_owned(),
            ("scsi", "lun") => "scsi-block".to_owned(),
            ("scsi", _) => "scsi-hd".to_owned(),
            (bus, _) => bus.to_owned(),
        },
        io: driver("io"),
        direct: match cache.as_deref() {
            Some("none" | "directsync") => Some(true),
            None | Some("default") => None,
            Some(_) => Some(false),
        },
        no_flush: cache.as_deref() == Some("unsafe"),
        iothread: driver("iothread").or_else(|| of_controller("iothread")),
        queues: number(driver("queues")).or_else(|| number(of_controller("queues"))),
        format: driver("type"),
    }
}
