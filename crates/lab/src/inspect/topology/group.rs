//! Which drives look the same from above: they are one node of the graph.

use super::super::server::{Drive, DriveKind, Server};

/// Drives that look the same from above are one node.
pub(super) fn key(server: &Server, drive: &Drive) -> Vec<String> {
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
pub(super) fn is_own_controller(drive: &Drive) -> bool {
    matches!(drive.kind, DriveKind::Nvme | DriveKind::Virtual)
}

/// Upstream ports of switches on the way to a device, nearest to the root first. In a chain, every
/// second device stands at the end of a link: root port, (switch's upstream port, its downstream
/// port)*, device.
pub(super) fn shared(chain: &[String]) -> Vec<String> {
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
pub(super) fn spread(groups: &[Vec<&Drive>], wanted: Option<u64>) -> Vec<u64> {
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
