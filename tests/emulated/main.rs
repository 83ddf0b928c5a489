//! The whole program in a stock kernel of Debian, under emulation: what the kernel of this machine
//! may lack.
//!
//! - `kernel`  the kernel and its modules, from packages
//! - `guest`   a machine that runs a script in it, with this machine's root below
//! - `ublk`    volumes as block devices by ublk
//! - `nvme`    volumes over NVMe/TCP to the kernel of the guest
//! - `vhost`   volumes of a daemon on this machine as disks of the guest, by vhost-user
//! - `looped`  volumes as loop devices over files of FUSE
//! - `nbd`     volumes over NBD to the kernel of the guest
//! - `faults`  drives that show other serials, or change hands between md and volumes
//! - `numa`    two NUMA nodes with drives on each: workers, memory, interrupts
//! - `whole_blocks` members whose drives report what they write whole
//! - `machine` a machine of its own with Debian, systemd and drives
//! - `reboot`  that machine is switched off and on, and what returns
//! - `pages`   the commands of the documents by task, in that machine
//! - `page`    which commands a page has
//!
//! The scripts lie beside these files; `prelude.sh` is what scripts of guests have in common,
//! `machine.sh` what scripts of machines have. To try one by hand, run its test with `--
//! --nocapture`.
//!
//! What must stay true: a guest never writes to this machine; a test that cannot run here says so
//! by name, in a line that begins with `skipped:`. Emulation tells nothing of speed.

mod faults;
mod guest;
mod kernel;
mod looped;
mod machine;
mod nbd;
mod numa;
mod nvme;
mod page;
mod pages;
mod reboot;
mod ublk;
mod vhost;
mod whole_blocks;
