//! `ashlar volumes`: what clients can reach, and where.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::table;
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::v1::status::GetStatus;
use ashlar_units::ByteSize;

/// List the volumes, and where clients reach each: device, path, socket or address.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// One volume, as `--json` prints it.
#[derive(serde::Serialize)]
struct Volume {
    name: String,
    bytes: u64,
    state: String,
    reached_by: Vec<ExportStatus>,
}

pub fn run(_: &Args, reach: &Reach) -> Result<(), Fault> {
    let status = reach.call(&GetStatus {})?;
    let volumes: Vec<Volume> = status
        .arrays
        .iter()
        .map(|array| Volume {
            name: array.name.clone(),
            bytes: array.volume_bytes,
            state: array.state.to_string().to_lowercase(),
            reached_by: status
                .exports
                .iter()
                .filter(|export| export.array.as_ref().is_none_or(|name| *name == array.name))
                .cloned()
                .collect(),
        })
        .collect();
    reach.print(&volumes, |volumes| text(volumes))
}

fn text(volumes: &[Volume]) -> String {
    if volumes.is_empty() {
        return "no array is running".to_owned();
    }
    let mut rows = vec![["volume", "size", "state", "reached by"].map(str::to_owned).to_vec()];
    for volume in volumes {
        let ways: Vec<String> =
            volume.reached_by.iter().map(|export| way(export, &volume.name)).collect();
        let ways = if ways.is_empty() { "nothing yet".to_owned() } else { ways.join("  ") };
        rows.push(vec![
            volume.name.clone(),
            ByteSize(volume.bytes).to_string(),
            volume.state.clone(),
            ways,
        ]);
    }
    table::aligned(&rows)
}

/// An address that a client can be given.
fn way(export: &ExportStatus, volume: &str) -> String {
    match (export.protocol.as_str(), export.address.strip_prefix("unix:")) {
        (nbd @ ("nbd" | "nbds"), Some(path)) => format!("{nbd}+unix:///{volume}?socket={path}"),
        (nbd @ ("nbd" | "nbds"), None) => format!("{nbd}://{}/{volume}", export.address),
        ("vhost-user", Some(path)) => format!("vhost-user:{path}"),
        ("nvme-tcp", _) => format!("nvme-tcp:{}", export.address),
        _ if !export.devices.is_empty() => {
            format!("{} (over {})", export.devices.join("  "), export.address)
        }
        _ => export.address.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::way;
    use ashlar_api::v1::export::ExportStatus;

    #[test]
    fn an_nbd_address_is_a_uri_that_clients_take() {
        let uri = |address: &str| {
            let address = address.to_owned();
            way(
                &ExportStatus {
                    over_ring: false,
                    protocol: "nbd".to_owned(),
                    address,
                    array: None,
                    clients: 0,
                    devices: Vec::new(),
                    requests: 0,
                },
                "t",
            )
        };
        assert_eq!(uri("unix:/run/a.sock"), "nbd+unix:///t?socket=/run/a.sock");
        assert_eq!(uri("127.0.0.1:10809"), "nbd://127.0.0.1:10809/t");
    }
}
