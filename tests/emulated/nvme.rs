//! Volumes over NVMe/TCP to the kernel's host, in Linux 6.12.

use crate::guest::{fsx, kills, run, skipped};
use crate::kernel::install_missing;

#[test]
fn a_killed_daemon_is_a_pause_for_a_file_system_over_nvme_tcp() {
    let test = "a_killed_daemon_is_a_pause_for_a_file_system_over_nvme_tcp";
    let kills = kills().to_string();
    if let Some(said) = run(test, "nvme_killed.sh", &[("KILLS", &kills)]) {
        println!("{said}");
    }
}

/// The group of 8,192 bits takes emulation a minute for each connection: it is left to the vectors.
#[test]
fn the_kernels_host_and_the_daemon_prove_themselves_by_diffie_hellman() {
    let test = "the_kernels_host_and_the_daemon_prove_themselves_by_diffie_hellman";
    let groups = "none ffdhe2048 ffdhe3072 ffdhe4096";
    if let Some(said) = run(test, "nvme_proof.sh", &[("GROUPS_WANTED", groups)]) {
        println!("{said}");
    }
}

#[test]
fn file_systems_over_nvme_tcp_survive_lost_members_and_a_volume_that_comes_back() {
    let test = "file_systems_over_nvme_tcp_survive_lost_members_and_a_volume_that_comes_back";
    if let Some(said) = run(test, "nvme_file_system.sh", &[("FSX", &fsx(test))]) {
        println!("{said}");
    }
}

#[test]
fn nvme_cli_finds_identifies_writes_and_reserves_a_volume() {
    let test = "nvme_cli_finds_identifies_writes_and_reserves_a_volume";
    if let Err(why) = install_missing(&[("nvme", "nvme-cli")]) {
        return skipped(test, &why);
    }
    if let Some(said) = run(test, "nvme_cli.sh", &[]) {
        println!("{said}");
    }
}

#[test]
fn the_kernels_host_sees_its_namespace_grow_and_uses_the_room() {
    let test = "the_kernels_host_sees_its_namespace_grow_and_uses_the_room";
    if let Some(said) = run(test, "nvme_grown.sh", &[]) {
        println!("{said}");
    }
}
