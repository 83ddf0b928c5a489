//! The protocol against its specifications: bytes by hand, and claims about every rule.

mod authentication;
mod commands;
mod controllers;
mod golden;
mod groups;
mod logs;
mod names;
mod pdus;
mod properties;
mod queues;
mod reservations;
mod structures;
mod transfers;

use ashlar_nvme_protocol::controller::{Controller, ControllerTerms, View};
use ashlar_nvme_protocol::identify::{ControllerFacts, ControllerKind, NamespaceFacts};
use ashlar_nvme_protocol::log::Health;
use ashlar_nvme_protocol::nqn::{Host, HostId};

/// A host told apart by one byte.
fn host(number: u8) -> Host {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:host-{number}");
    Host { id: HostId([number; 16]), nqn: nqn.parse().expect("well formed") }
}

fn facts(kind: ControllerKind) -> ControllerFacts {
    ControllerFacts {
        kind,
        id: 7,
        subsystem: "nqn.2024-01.example:array".parse().expect("well formed"),
        serial: "serial".to_owned(),
        model: "a model".to_owned(),
        firmware: "1.0".to_owned(),
        transfer_power_max: 8,
        namespaces_max: 32,
        in_capsule_bytes_max: 8192,
        commands_max: 128,
        async_events_max: 2,
        aborts_max: 4,
    }
}

fn controller(kind: ControllerKind) -> Controller {
    let terms = ControllerTerms {
        facts: facts(kind),
        host: host(1),
        io_queues_max: 4,
        entries_less_one_max: 127,
        keep_alive_ms: 5000,
    };
    Controller::new(terms, 0)
}

fn namespace(id: u32) -> NamespaceFacts {
    NamespaceFacts {
        id,
        nguid: [0xa0; 16],
        uuid: [0xb0; 16],
        blocks: 1 << 20,
        block_power: 9,
        physical_blocks: 8,
        optimal_blocks: 512,
        read_only: false,
    }
}

fn view(namespaces: &[NamespaceFacts]) -> View<'_> {
    View {
        namespaces,
        controllers: &[7, 9],
        discovery: &[],
        discovery_generation: 3,
        health: Health::default(),
        persistent: &[],
        now_ms: 0,
    }
}
