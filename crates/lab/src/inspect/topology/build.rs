//! The graph, made of what a server says about itself: drives, what they hang on, sockets, memory.

use super::super::server::drives::whole;
use super::super::server::{Attachment, Drive, DriveKind, Memory, PciDevice, Server, sas::Lanes};
use super::{Given, Link, Node, Place, Topology};
use crate::metrics::bandwidth::{Rate, sas};
use itertools::Itertools;
use std::collections::BTreeMap;

/// Controllers whose own limit lies below their link's.
const KNOWN_CONTROLLERS: [((u64, u64), u64, &str); 1] =
    [((0x1000, 0x0097), 6_000, "the SAS3008's own limit, as its users state it")];

/// What a spinning drive of today does at its outer edge, MB/s, when nothing is known of the model.
const SPINNING_MEGA: u64 = 270;

impl Topology {
    pub fn of(server: &Server, given: Given) -> Topology {
        let wanted = given.drive_count;
        let mut build = Build { server, given, out: Topology::default() };
        let mut groups: BTreeMap<Vec<String>, Vec<&Drive>> = BTreeMap::new();
        // Namespaces of one drive share its link and its media.
        for drive in whole(&server.drives) {
            groups.entry(key(server, drive[0])).or_default().push(drive[0]);
        }
        let groups: Vec<Vec<&Drive>> = groups.into_values().collect();
        let counts = spread(&groups, wanted);
        for (drives, count) in groups.iter().zip(counts) {
            if count > 0 {
                build.drives(drives, count);
            }
        }
        build.memory();
        build.between_sockets();
        build.out.drive_count =
            build.out.nodes.iter().filter(|it| it.place == Place::Drives).map(|it| it.count).sum();
        build.out
    }
}

struct Build<'a> {
    server: &'a Server,
    given: Given,
    out: Topology,
}

impl Build<'_> {
    fn drives(&mut self, drives: &[&Drive], count: u64) {
        let Some(first) = drives.first() else { return };
        let id = match drives.last() {
            Some(last) if drives.len() > 1 => format!("{}..{}", first.name, last.name),
            _ => first.name.clone(),
        };
        let node = Node {
            title: if first.model.is_empty() { "disk".into() } else { first.model.clone() },
            detail: id.clone(),
            id,
            place: Place::Drives,
            count,
        };
        let at = self.node(node);
        let is_here = |all: &Vec<&Drive>| drives.iter().any(|drive| drive.name == all[0].name);
        let here = whole(&self.server.drives).into_iter().filter(is_here).flatten();
        self.out.drive_names.push((at, here.map(|drive| drive.name.clone()).collect()));
        self.media(first, at, count);
        for way in &first.attachments {
            self.way(first, way, at, count);
        }
    }

    fn media(&mut self, drive: &Drive, at: usize, count: u64) {
        let known = self.given.models.find(drive);
        let why_not = known.as_ref().err().cloned().unwrap_or_default();
        let stated = known.ok().and_then(|entry| Some((entry.read()?, entry.sentence())));
        let (rate, basis) = match (self.given.drive_rate, stated) {
            (Some(rate), _) => (Some(rate), "given by the operator".to_owned()),
            (None, Some((rate, sentence))) => (Some(rate), sentence),
            (None, None) if drive.kind == DriveKind::Virtual => {
                self.assume(format!(
                    "{}: nothing is known of what the host gives this guest's disk; \
                     it takes no part in the flow (--drive-rate)",
                    drive.name
                ));
                (None, "a guest's disk: its host does not say".to_owned())
            }
            (None, None) if drive.is_rotational == Some(true) => {
                self.assume(format!(
                    "{}: taken for {SPINNING_MEGA} MB/s, as spinning drives of today do at the \
                     outer edge (--drive-rate): {why_not}",
                    drive.model
                ));
                (Some(Rate::mega(SPINNING_MEGA)), "assumed for a spinning drive".to_owned())
            }
            (None, None) => {
                let link = self.drive_link(drive, drive.attachments.first());
                self.assume(format!(
                    "{}: taken to be as fast as its own link; \
                     its data sheet may say less (--drive-rate): {why_not}",
                    drive.model
                ));
                (link.1, "as fast as its own link".to_owned())
            }
        };
        let standard = match rate {
            Some(rate) => format!("{count} x {rate}"),
            None => format!("{count} x ?"),
        };
        self.link((None, Some(at)), standard, rate.map(|rate| rate.times(count)), basis);
    }

    /// One drive's own link: its name and what it carries.
    fn drive_link(&self, drive: &Drive, way: Option<&Attachment>) -> (String, Option<Rate>) {
        let Some(way) = way else { return (String::new(), None) };
        if is_own_controller(drive) {
            let device = self.server.pci.get(&way.controller);
            let link = device.and_then(|it| it.negotiated);
            let name = link.map_or("inside the host".to_owned(), |link| link.to_string());
            return (name, device.and_then(PciDevice::rate));
        }
        match way.link {
            Some(link) => (lanes(drive.kind, link), Some(sas(link.mega_bits, link.count))),
            None => ("link unknown".to_owned(), None),
        }
    }

    fn way(&mut self, drive: &Drive, way: &Attachment, from: usize, count: u64) {
        let (name, rate) = self.drive_link(drive, Some(way));
        let standard = if count > 1 { format!("{count} x {name}") } else { name };
        let capacity = rate.map(|rate| rate.times(count));
        let basis = "negotiated";
        if is_own_controller(drive) {
            let to = self.above(&way.controller);
            self.link((Some(from), Some(to)), standard, capacity, basis);
            return;
        }
        let controller = self.controller(&way.controller);
        match &way.expander {
            None => self.link((Some(from), Some(controller)), standard, capacity, basis),
            Some(expander) => {
                let at = self.expander(expander);
                self.link((Some(from), Some(at)), standard, capacity, basis);
                let uplink = way.uplink;
                let name = uplink.map_or("lanes unknown".to_owned(), |it| lanes(drive.kind, it));
                let rate = uplink.map(|it| sas(it.mega_bits, it.count));
                self.link((Some(at), Some(controller)), name, rate, "negotiated lanes");
            }
        }
    }

    fn expander(&mut self, name: &str) -> usize {
        let product = self.server.expanders.iter().find(|it| it.name == name);
        let product = product.and_then(|it| it.product.clone());
        let title = product.unwrap_or_else(|| "SAS expander".to_owned());
        self.one(Place::Expander, name, title, name)
    }

    fn controller(&mut self, address: &str) -> usize {
        if let Some(at) = self.find(address) {
            return at;
        }
        let name = self.server.pci.get(address).map(PciDevice::label).unwrap_or_default();
        let is_ahci = self.server.pci.get(address).is_some_and(|it| it.class >> 8 == 0x0106);
        let title = if is_ahci { "SATA (AHCI)".to_owned() } else { short_name(&name) };
        let detail = address.trim_start_matches("0000:");
        let at = self.one(Place::Controller, address, title, detail);
        let to = self.above(address);
        let device = self.server.pci.get(address);
        let link = device.and_then(|it| it.negotiated);
        let wire = device.and_then(PciDevice::rate);
        let own =
            KNOWN_CONTROLLERS.iter().find(|it| device.is_some_and(|device| device.ids == it.0));
        let standard = link.map_or("inside the chipset".to_owned(), |link| link.to_string());
        match own.map(|own| (Rate::mega(own.1), own.2)) {
            Some((own, why)) if wire.is_none_or(|wire| own < wire) => {
                let basis = match wire {
                    Some(wire) => format!("{why}; the link would carry {wire}"),
                    None => why.to_owned(),
                };
                self.link((Some(at), Some(to)), standard, Some(own), basis);
            }
            Some(_) | None => {
                self.link((Some(at), Some(to)), standard, wire, payload_basis(device))
            }
        }
        at
    }

    /// What a PCI device hangs on: the nearest switch, or its socket.
    fn above(&mut self, address: &str) -> usize {
        let device = self.server.pci.get(address);
        let chain = device.map(|it| it.chain.clone()).unwrap_or_default();
        let socket = self.socket(self.server.socket_of(device.and_then(|it| it.node)));
        let mut above = socket;
        for port in shared(&chain) {
            if let Some(at) = self.find(&port) {
                above = at;
                continue;
            }
            let device = self.server.pci.get(&port);
            let title = device.map_or("PCIe switch".to_owned(), |it| short_name(&it.label()));
            let at = self.one(Place::Switch, &port, title, port.trim_start_matches("0000:"));
            let link = device.and_then(|it| it.negotiated);
            let name = link.map_or("link unknown".to_owned(), |link| link.to_string());
            let rate = device.and_then(PciDevice::rate);
            self.link((Some(at), Some(above)), name, rate, payload_basis(device));
            above = at;
        }
        above
    }

    fn socket(&mut self, socket: Option<u64>) -> usize {
        let id = socket.map_or("socket ?".to_owned(), |id| format!("socket {id}"));
        let detail = self.server.cpu.model.clone().unwrap_or_default();
        if socket.is_none() {
            self.assume("the firmware does not tell which socket some controllers are on");
        }
        self.one(Place::Socket, &id, id.clone(), &short_cpu(&detail))
    }

    fn memory(&mut self) {
        let banks = self.server.memory.as_ref().and_then(Memory::banks);
        let sockets: Vec<u64> = self.server.cpu.sockets().into_iter().collect();
        for (order, socket) in sockets.iter().enumerate() {
            let from = self.socket(Some(*socket));
            let order = u64::try_from(order).unwrap_or(0);
            let bank = banks.as_ref().and_then(|banks| banks.get(&order));
            let (title, detail, rate) = match bank {
                Some(bank) => (
                    match bank.configured {
                        Some(speed) => format!("{}-{speed}", bank.kind),
                        None => bank.kind.clone(),
                    },
                    format!("{} of {} channels", bank.populated, bank.channels),
                    bank.rate(),
                ),
                None => ("memory".to_owned(), "channels not known".to_owned(), None),
            };
            let standard = match bank {
                Some(_) => format!("{title}, {detail}"),
                None => "channels not known".to_owned(),
            };
            let basis = "8 bytes x configured speed x populated channels";
            let id = format!("memory of socket {socket}");
            let at = self.one(Place::Memory, &id, title, &detail);
            self.link((Some(from), Some(at)), "", None, "inside the processor");
            self.link((Some(at), None), standard, rate, basis);
        }
        let memory = self.out.nodes.iter().position(|it| it.place == Place::Memory);
        if let (Some(from), Some(to)) = (self.find("socket ?"), memory) {
            self.link((Some(from), Some(to)), "unknown", None, "the firmware does not say");
        }
    }

    fn between_sockets(&mut self) {
        let at: Vec<usize> = (0..self.out.nodes.len())
            .filter(|at| {
                self.out.nodes[*at].place == Place::Socket && self.out.nodes[*at].id != "socket ?"
            })
            .collect();
        if at.len() < 2 {
            return;
        }
        let pairs = at.iter().flat_map(|from| at.iter().map(move |to| (*from, *to)));
        let pairs: Vec<(usize, usize)> = pairs.filter(|(from, to)| from != to).collect();
        if self.given.inter_socket.is_none() {
            self.assume(
                "the link between sockets does not say what it carries (usual: 40 to 200 GB/s); \
                 no flow is led over it (--inter-socket)",
            );
            return;
        }
        for (from, to) in pairs {
            let (rate, ends) = (self.given.inter_socket, (Some(from), Some(to)));
            self.link(ends, "between sockets", rate, "given by the operator");
        }
    }

    fn find(&self, id: &str) -> Option<usize> {
        self.out.nodes.iter().position(|node| node.id == id)
    }

    fn one(&mut self, place: Place, id: &str, title: String, detail: &str) -> usize {
        let (id, detail) = (id.to_owned(), detail.to_owned());
        self.node(Node { id, place, title, detail, count: 1 })
    }

    fn node(&mut self, node: Node) -> usize {
        self.find(&node.id).unwrap_or_else(|| {
            self.out.nodes.push(node);
            self.out.nodes.len() - 1
        })
    }

    fn link(
        &mut self,
        (from, to): (Option<usize>, Option<usize>),
        standard: impl Into<String>,
        capacity: Option<Rate>,
        basis: impl Into<String>,
    ) {
        let name = |at: Option<usize>| at.map_or("", |at| self.out.nodes[at].id.as_str());
        let id = format!("{}>{}", name(from), name(to));
        if self.out.links.iter().all(|link| link.id != id) {
            let (standard, basis) = (standard.into(), basis.into());
            self.out.links.push(Link { id, from, to, standard, capacity, basis });
        }
    }

    fn assume(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.out.assumptions.contains(&sentence) {
            self.out.assumptions.push(sentence);
        }
    }
}

fn payload_basis(device: Option<&PciDevice>) -> String {
    match device.and_then(|it| it.payload_bytes) {
        Some(bytes) => format!("lanes x rate x coding, packets of {bytes} bytes"),
        None => "lanes x rate x coding, packets of 128 bytes assumed".to_owned(),
    }
}

/// `SAS 12G x4`, `SATA 6G`.
fn lanes(kind: DriveKind, lanes: Lanes) -> String {
    let bus = if kind == DriveKind::Sata { "SATA" } else { "SAS" };
    let rate = if lanes.mega_bits == 22_500 {
        "22.5".to_owned()
    } else {
        (lanes.mega_bits / 1_000).to_string()
    };
    match lanes.count {
        1 => format!("{bus} {rate}G"),
        count => format!("{bus} {rate}G x{count}"),
    }
}

/// The part of a controller's long name that people use: the last word with a digit in it before
/// "PCI" or a bracket.
fn short_name(name: &str) -> String {
    let inside = name.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|it| it.0);
    let head = name.split(" PCI").next().unwrap_or(name);
    let head = head.split(" (rev").next().unwrap_or(head);
    let has_digit = |word: &&str| word.len() > 2 && word.chars().any(|c| c.is_ascii_digit());
    let word = head.split_whitespace().rfind(has_digit);
    inside.or(word).unwrap_or(head).chars().take(24).collect()
}

/// `Xeon E5-2620 v4` of `Intel(R) Xeon(R) CPU E5-2620 v4 @ 2.10GHz`.
fn short_cpu(name: &str) -> String {
    let name = name.split(" @").next().unwrap_or(name);
    let is_filling = |word: &str| ["Intel", "AMD", "CPU", "Processor"].contains(&word);
    let clean = name.replace("(R)", "").replace("(TM)", "");
    clean.split_whitespace().filter(|word| !is_filling(word)).join(" ")
}

/// Drives that look the same from above are one node.
fn key(server: &Server, drive: &Drive) -> Vec<String> {
    let mut key = Vec::new();
    for way in &drive.attachments {
        let is_own = is_own_controller(drive);
        let device = server.pci.get(&way.controller);
        let chain = device.map(|it| it.chain.clone()).unwrap_or_default();
        key.push(if is_own { shared(&chain).join(" ") } else { way.controller.clone() });
        key.push(format!("{:?}", server.socket_of(device.and_then(|it| it.node))));
        key.push(format!("{:?} {:?}", way.expander, way.link));
        key.push(format!("{:?}", if is_own { device.and_then(|it| it.negotiated) } else { None }));
    }
    key.push(drive.model.clone());
    key
}

/// NVMe drives and disks of guests are PCI devices themselves.
fn is_own_controller(drive: &Drive) -> bool {
    matches!(drive.kind, DriveKind::Nvme | DriveKind::Virtual)
}

/// Upstream ports of switches on the way to a device, nearest to the root first. In a chain, every
/// second device stands at the end of a link: root port, (switch's upstream port, its downstream
/// port)*, device.
fn shared(chain: &[String]) -> Vec<String> {
    let inner = chain.len().saturating_sub(2);
    chain
        .iter()
        .skip(1)
        .step_by(2)
        .take(inner.div_ceil(2))
        .filter(|it| chain.last() != Some(*it))
        .cloned()
        .collect()
}

/// How many drives of each group are used: as evenly as the operator would choose them.
fn spread(groups: &[Vec<&Drive>], wanted: Option<u64>) -> Vec<u64> {
    let sizes: Vec<u64> = groups.iter().map(|it| u64::try_from(it.len()).unwrap_or(0)).collect();
    let all: u64 = sizes.iter().sum();
    let mut counts = vec![0; sizes.len()];
    for _ in 0..wanted.unwrap_or(all).min(all) {
        let free = (0..sizes.len()).filter(|at| counts[*at] < sizes[*at]);
        let Some(least) = free.min_by_key(|at| counts[*at]) else { break };
        counts[least] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::shared;

    #[test]
    fn ports_of_switches_are_every_second_of_a_chain_but_the_device() {
        let chain = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(shared(&chain("root device")).is_empty());
        assert!(shared(&chain("inside")).is_empty());
        assert_eq!(shared(&chain("root up down device")), ["up"]);
        assert_eq!(shared(&chain("root up down up2 down2 device")), ["up", "up2"]);
    }
}
