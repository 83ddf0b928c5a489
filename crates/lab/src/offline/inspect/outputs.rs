//! Outputs of programs as somebody sent them: nothing that was not asked is said to be absent.

use super::captures::check;
use crate::inspect::server::Server;
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, page};
use crate::source::{Source, bare};
use crate::validity::Outcome;

fn inspected(text: &str) -> Inspection {
    let place = tempfile::tempdir().expect("a folder");
    std::fs::write(place.path().join("sent"), text).expect("written");
    let (capture, unknown) = bare::read(&[place.path().into()]).expect("known");
    assert!(unknown.is_empty(), "{unknown:?}");
    let server = Server { is_partial: true, ..Server::read(&Source::captured(capture)) };
    Inspection::of(server, None, Given::default())
}

/// As the first seed printed it: four of five phys have errors.
fn errors(counts: &[(u64, [u64; 4])]) -> String {
    let phy = |(phy, [invalid, disparity, sync, reset]): &(u64, [u64; 4])| {
        format!(
            "Report phy error log response:\n  Expander change count: 567\n  \
             phy identifier: {phy}\n  invalid dword count: {invalid}\n  \
             running disparity error count: {disparity}\n  \
             loss of dword synchronization count: {sync}\n  phy reset problem count: {reset}\n"
        )
    };
    let line = "for i in `seq 0 64`; do smp_rep_phy_err_log -p $i /dev/bsg/expander-1\\:0 ; done\n";
    line.to_owned() + &counts.iter().map(phy).collect::<String>()
}

#[test]
fn errors_of_phys_are_told_by_kind_with_their_neighbours_and_the_expander_s_own_name() {
    let text = errors(&[
        (0, [0; 4]),
        (52, [168, 172, 5, 0]),
        (53, [6, 6, 0, 0]),
        (54, [267, 270, 4, 0]),
        (55, [127, 131, 5, 0]),
    ]);
    let inspection = inspected(&text);
    let (outcome, found) = check(&inspection, "sas.phy_errors_growing");
    assert_eq!(outcome, Outcome::CannotTell);
    assert_eq!(
        found,
        "4 of 5 phys have counted 568 invalid dwords, 579 disparity errors, 14 losses of \
         synchronization, 0 reset problems since their reset, most phy-1:0:54; they are \
         neighbours: one cable or port; expander-1:0 has seen its topology change 567 times; \
         growth needs two looks"
    );
    let page = page::text(&inspection, false);
    for claim in ["no EDAC driver", "this kernel sets no", "no PCI devices", "no drives found"] {
        assert!(!page.contains(claim), "{claim}: {page}");
    }
    assert_eq!(page.matches("not in what was given").count(), 2, "checks, and drives: {page}");
    let clean = inspected(&errors(&[(0, [0; 4]), (1, [0; 4])]));
    let (outcome, found) = check(&clean, "sas.phy_errors_growing");
    assert_eq!(outcome, Outcome::Pass);
    assert!(found.starts_with("none of 2 phys has counted an error"), "{found}");
}

#[test]
fn a_list_of_disks_is_told_by_host_and_firmware() {
    let row = |at: u64| {
        let host = u64::from(at > 7);
        format!("/dev/sg{at}  {host} 0 {at} 0  0  /dev/sd{at}  TOSHIBA   MG07SCA14TA   0101\n")
    };
    let page = page::text(&inspected(&(0..12).map(row).collect::<String>()), false);
    let wanted = "sg_map: 12 disks, 8 on host 0, 4 on host 1: not balanced; \
                  12 x TOSHIBA MG07SCA14TA 0101.";
    assert!(page.contains(wanted), "{page}");
    let place = tempfile::tempdir().expect("a folder");
    let transcript = "# sg_senddiag /dev/sg30 --pf --raw=04,00,00,01,53\n";
    std::fs::write(place.path().join("sent"), transcript).expect("written");
    assert_eq!(bare::read(&[place.path().into()]).unwrap_err().code, "capture.unknown");
}

#[test]
fn plain_lscpu_tells_sockets_and_cores_and_unknown_ones_are_not_none() {
    let text = "Architecture: x86_64\nCPU(s): 4\nOn-line CPU(s) list: 0-3\nThread(s) per core: 2\n\
                Core(s) per socket: 1\nSocket(s): 2\nModel name: Example\n\
                NUMA node0 CPU(s): 0,2\nNUMA node1 CPU(s): 1,3\n";
    let page = page::text(&inspected(text), false);
    assert!(page.contains("2 x Example: 2 cores, 4 threads, 2 NUMA nodes"), "{page}");
    let unknown = page::text(&inspected("Architecture: x86_64\nCPU(s): 4\n"), false);
    assert!(
        unknown.contains("? x processor unknown: ? cores, ? threads, ? NUMA nodes"),
        "{unknown}"
    );
}
