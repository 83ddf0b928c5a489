//! Each check with a capture on which it passes, one on which it fails, and one on which it cannot
//! tell.

use super::captures::{
    AFTER, BEFORE, DESKTOP, Edit, FLASH, JBOD, capture, edited, gone, inspection, server, set,
};
use ashlar_lab::inspect::Inspection;
use ashlar_lab::inspect::topology::Given;
use ashlar_lab::validity::Outcome;
use std::collections::BTreeSet;

struct Case {
    check: &'static str,
    pass: (&'static str, Vec<Edit>),
    fail: (&'static str, Vec<Edit>),
    cannot_tell: (&'static str, Vec<Edit>),
}

fn queues_but_one() -> Vec<Edit> {
    (1..32).map(|queue| Edit::Drop(format!("/sys/block/nvme0n1/mq/{queue}"))).collect()
}

fn irqs_on_one_cpu() -> Vec<Edit> {
    (80..88).map(|irq| Edit::Set(format!("/proc/irq/{irq}/effective_affinity_list"), "0")).collect()
}

fn six_drives_gone() -> Vec<Edit> {
    ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|it| Edit::Drop(format!("/sys/block/sd{it}")))
        .collect()
}

fn memory_cases() -> Vec<Case> {
    let no_table = || vec![Edit::NoTool("dmidecode-memory")];
    let smt = "/sys/devices/system/cpu/smt";
    vec![
        Case {
            check: "memory.channels_populated",
            pass: (AFTER, vec![]),
            fail: (BEFORE, vec![]),
            cannot_tell: (AFTER, no_table()),
        },
        Case {
            check: "memory.sockets_balanced",
            pass: (AFTER, vec![]),
            fail: (
                AFTER,
                vec![Edit::Say("dmidecode-memory", "Size: 16 GB", "Size: No Module Installed")],
            ),
            cannot_tell: (
                AFTER,
                vec![
                    Edit::Say("dmidecode-memory", "P0_Node0_Channel0_Dimm0", "BANK 0"),
                    Edit::Say("dmidecode-memory", "P1-DIMMA1", "A1"),
                ],
            ),
        },
        Case {
            check: "memory.bandwidth_for_rebuild",
            pass: (AFTER, vec![]),
            fail: (BEFORE, vec![]),
            cannot_tell: (BEFORE, no_table()),
        },
        Case {
            check: "memory.speed_configured",
            pass: (FLASH, vec![]),
            fail: (BEFORE, vec![]),
            cannot_tell: (FLASH, no_table()),
        },
        Case {
            check: "memory.space",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 60 kB")]),
            cannot_tell: (AFTER, vec![gone("/proc/meminfo")]),
        },
        Case {
            check: "memory.errors",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/sys/devices/system/edac/mc/mc0/ce_count", "3")]),
            cannot_tell: (DESKTOP, vec![]),
        },
        Case {
            check: "cpu.governor",
            pass: (AFTER, vec![]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (AFTER, vec![Edit::DropAll("/cpufreq/")]),
        },
        Case {
            check: "cpu.smt_recorded",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Say("lscpu-p", "\n31,15,1,1", "")]),
            cannot_tell: (AFTER, vec![gone(smt)]),
        },
    ]
}

fn fabric_cases() -> Vec<Case> {
    let node = "/sys/bus/pci/devices/0000:82:00.0/numa_node";
    let other = "/sys/bus/pci/devices/0000:85:00.0/numa_node";
    let phy = "/sys/class/sas_phy/phy-1:0:3";
    vec![
        Case {
            check: "pcie.link_negotiated",
            pass: (AFTER, vec![]),
            fail: (FLASH, vec![]),
            cannot_tell: (AFTER, vec![Edit::DropAll("_link_"), Edit::NoTool("lspci")]),
        },
        Case {
            check: "numa.drives_balanced",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set(node, "0"), set(other, "0")]),
            cannot_tell: (AFTER, vec![set(node, "-1")]),
        },
        Case {
            check: "controller.drives_balanced",
            pass: (AFTER, vec![]),
            fail: (AFTER, six_drives_gone()),
            cannot_tell: (AFTER, vec![gone("/sys/block")]),
        },
        Case {
            check: "controller.oversubscribed",
            pass: (AFTER, vec![]),
            fail: (JBOD, vec![]),
            cannot_tell: (DESKTOP, vec![]),
        },
        Case {
            check: "sas.link_negotiated",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Set(format!("{phy}/negotiated_linkrate"), "6.0 Gbit")]),
            cannot_tell: (AFTER, vec![Edit::DropAll("linkrate")]),
        },
        Case {
            check: "sas.phy_errors_growing",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Set(format!("{phy}/invalid_dword_count"), "900")]),
            cannot_tell: (
                AFTER,
                vec![
                    Edit::DropAll("_count"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-0:0"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-1:0"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-2:0"),
                    Edit::NoTool("smp_rep_phy_err_log-expander-3:0"),
                ],
            ),
        },
        Case {
            check: "queues.count",
            pass: (FLASH, vec![]),
            fail: (FLASH, queues_but_one()),
            cannot_tell: (FLASH, vec![Edit::DropAll("/mq/")]),
        },
        Case {
            check: "irq.spread",
            pass: (AFTER, vec![]),
            fail: (AFTER, irqs_on_one_cpu()),
            cannot_tell: (AFTER, vec![gone("/proc/irq")]),
        },
    ]
}

fn drive_cases() -> Vec<Case> {
    let second = "  phy  52:S:attached:[500605b0deadbeef:00  i(SSP+STP+SMP)]  12 Gbps\n  phy  48";
    vec![
        Case {
            check: "drive.health",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Say("smartctl-sdc", "true", "false")]),
            cannot_tell: (AFTER, vec![Edit::NoTool("smartctl-sdc")]),
        },
        Case {
            check: "dual_port.second_host",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![Edit::Say("smp_discover-expander-1:0", "  phy  48", second)]),
            cannot_tell: (AFTER, vec![Edit::NoTool("smp_discover-expander-1:0")]),
        },
        Case {
            check: "dual_port.width",
            pass: (FLASH, vec![]),
            // The drive that is trained to two lanes.
            fail: (FLASH, vec![Edit::Say("nvme_id_ctrl-nvme7", "\"cmic\": 0", "\"cmic\": 2")]),
            cannot_tell: (FLASH, vec![Edit::NoTool("nvme_id_ctrl-nvme7")]),
        },
        Case {
            check: "drive.partition_aligned",
            pass: (DESKTOP, vec![set("/sys/block/sda/sda1/start", "2048")]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (DESKTOP, vec![gone("/sys/block/sda/queue/physical_block_size")]),
        },
        Case {
            check: "drive.sector_size",
            pass: (AFTER, vec![]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sda/queue/logical_block_size")]),
        },
        Case {
            check: "drive.firmware_uniform",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/sys/block/sdb/device/rev", "0102")]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sdb/device/rev")]),
        },
        Case {
            check: "drive.figures_uniform",
            pass: (AFTER, vec![]),
            fail: (
                AFTER,
                vec![
                    set("/sys/block/sda/device/model", "KXG60ZNV1T02"),
                    set("/sys/block/sda/size", "2000409264"),
                    set("/sys/block/sdb/device/model", "KXG60ZNV256G"),
                    set("/sys/block/sdb/size", "500118192"),
                ],
            ),
            cannot_tell: (FLASH, vec![]),
        },
        Case {
            check: "cache.volatile_write",
            pass: (AFTER, vec![]),
            fail: (DESKTOP, vec![]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sda/queue/write_cache")]),
        },
    ]
}

fn enclosure_cases() -> Vec<Case> {
    let failing = Edit::Say("sg_ses-0:0:60:0", "Swap=0, status: OK", "Swap=0, status: Critical");
    vec![Case {
        check: "enclosure.elements",
        pass: (JBOD, vec![]),
        fail: (JBOD, vec![failing]),
        cannot_tell: (JBOD, vec![Edit::NoTool("sg_ses-0:0:60:0")]),
    }]
}

fn software_cases() -> Vec<Case> {
    let scheduler = "/sys/block/nvme0n1/queue/scheduler";
    let resync = "md0 : active raid6 sda[0]\n      \
                  [=>...]  resync =  8.4% (41/488) finish=7.2min speed=1K/sec";
    vec![
        Case {
            check: "background.activity",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/proc/mdstat", resync)]),
            cannot_tell: (AFTER, vec![gone("/proc/mdstat")]),
        },
        Case {
            check: "limits.aio_max_nr",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/proc/sys/fs/aio-max-nr", "1024")]),
            cannot_tell: (AFTER, vec![gone("/proc/sys/fs/aio-max-nr")]),
        },
        Case {
            check: "limits.scheduler",
            pass: (FLASH, vec![]),
            fail: (FLASH, vec![set(scheduler, "[mq-deadline] none")]),
            cannot_tell: (FLASH, vec![gone(scheduler)]),
        },
        Case {
            check: "limits.request_size",
            pass: (AFTER, vec![]),
            fail: (AFTER, vec![set("/sys/block/sda/queue/max_sectors_kb", "128")]),
            cannot_tell: (AFTER, vec![gone("/sys/block/sda/queue/max_sectors_kb")]),
        },
    ]
}

fn cases() -> Vec<Case> {
    [memory_cases(), fabric_cases(), drive_cases(), enclosure_cases(), software_cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// How a check comes out; the capture before the load is the unedited one.
fn outcome(check: &str, (name, edits): &(&'static str, Vec<Edit>)) -> (Outcome, String) {
    let before = server(capture(name));
    let inspection = Inspection::of(server(edited(name, edits)), Some(&before), Given::default());
    let found =
        inspection.checks.into_iter().find(|it| it.name == check).expect("a check of this name");
    (found.outcome, found.found)
}

#[test]
fn every_check_passes_fails_and_cannot_tell_where_it_must() {
    for case in cases() {
        for (capture, wanted) in [
            (&case.pass, Outcome::Pass),
            (&case.fail, Outcome::Fail),
            (&case.cannot_tell, Outcome::CannotTell),
        ] {
            let (outcome, found) = outcome(case.check, capture);
            assert_eq!(outcome, wanted, "{} on {capture:?}: {found}", case.check);
        }
    }
}

#[test]
fn no_check_is_without_its_three_captures() {
    let told: BTreeSet<String> = inspection(AFTER).checks.into_iter().map(|it| it.name).collect();
    let tried: BTreeSet<String> = cases().iter().map(|it| it.check.to_owned()).collect();
    assert_eq!(told, tried);
}
