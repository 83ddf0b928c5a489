//! SIGKILL at random moments: while the array is whole, degraded, loses a member, gets one back,
//! and is rebuilt.
//!
//! What must stay true: after every kill the next daemon is asked for every block that clients
//! wrote. How many kills: `ASHLAR_KILLS`, else 50. A failure prints its seed, which decides what
//! clients send and when the kill comes, but not how threads take turns. Not here: power cuts.

use crate::client::{Client, Fuse, Nbd};
use crate::first_writes::world_with_kept_memory;
use crate::ledger::{BLOCK_BYTES, Ledger, fill, now_ns};
use crate::load::{Place, Random, Shared, run};
use crate::world::World;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// What daemons are told of attached files.
const CONFIG: &str = "fuse.toml";
/// Kills, if the environment does not say.
const KILLS: usize = 50;
/// Blocks that clients write: some twenty stripes at each of two places.
const BLOCKS: usize = 2048;
/// Connections, and threads on the file.
const NBD_CLIENTS: u64 = 6;
const FILE_CLIENTS: u64 = 2;
/// How long clients may take to reach the moment of the kill before something must be wrong.
const PATIENCE: Duration = Duration::from_secs(300);

/// What happens to the array in the life that a kill ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Life {
    /// Nothing: the array is whole.
    Whole,
    /// A member fails under load, shortly before the kill.
    Loses,
    /// A member is out all the time.
    Degraded,
    /// A member comes back, or a new device takes its place, shortly before the kill.
    Returns,
    /// The rebuild that the kill cut off goes on from the start.
    Rebuilds,
}

const LIVES: [Life; 5] = [Life::Whole, Life::Loses, Life::Degraded, Life::Returns, Life::Rebuilds];

/// An array that is killed and what is known of it.
struct Victim {
    world: World,
    ledger: Ledger,
    /// Devices in slot order.
    devices: Vec<String>,
    /// The slot that is out or being rebuilt.
    out: Option<usize>,
    has_fuse: bool,
    replacements: usize,
}

/// What a campaign found.
#[derive(Default)]
struct Found {
    lost: Vec<String>,
    answered: u64,
    /// From the start of the process to the first answered write.
    restarts: Vec<Duration>,
    /// Kills by what the array was going through, and kills that hit a rebuild that was not done.
    lives: BTreeMap<Life, usize>,
    mid_rebuild: usize,
}

impl Victim {
    fn new(level: &str, members: usize, has_fuse: bool) -> Victim {
        // Half of the arrays have a kept map.
        let has_kept_map = members.is_multiple_of(2);
        let mut world =
            if has_kept_map { world_with_kept_memory() } else { World::without_daemon() };
        // Clients on the file are to get errors at the kill, as those of NBD do.
        let folder = world.path("volumes");
        let config = format!("[fuse]\nfolder = \"{}\"\nkeeper_wait_s = 0\n", folder.display());
        std::fs::write(world.path(CONFIG), config).expect("written");
        world.start(&["--config", CONFIG]);
        let arguments = ["--level", level, "--policy", "log", "--strip-size", "16K"];
        let devices = world.create("tank0", members, &arguments);
        let ledger = Ledger::blank(BLOCKS, BLOCKS);
        let victim = Victim { world, ledger, devices, out: None, has_fuse, replacements: 0 };
        victim.fill_first_half();
        victim
    }

    /// Its stripes are in use from now on.
    fn fill_first_half(&self) {
        let mut nbd = self.nbd();
        let place = Place { blocks: BLOCKS, volume_bytes: nbd.volume_bytes };
        let mut bytes = vec![0; BLOCKS / 2 * BLOCK_BYTES];
        let ticket = self.ledger.begin(0, BLOCKS / 2, false);
        for (block, bytes) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            fill(block, ticket.number, bytes);
        }
        nbd.write(place.of(0), &bytes).expect("written");
        nbd.flush().expect("flushed");
        self.ledger.answer(ticket);
    }

    fn nbd(&self) -> Nbd {
        Nbd::open(&self.world.path("nbd.sock"), "tank0").expect("the volume is served")
    }

    fn clients(&self) -> Vec<Box<dyn Client>> {
        let mut clients: Vec<Box<dyn Client>> = Vec::new();
        (0..NBD_CLIENTS).for_each(|_| clients.push(Box::new(self.nbd())));
        if self.has_fuse {
            let path = self.world.ok(&["attach", "--file", "tank0"]).trim().to_owned();
            let open = || File::options().read(true).write(true).open(&path).expect("the file");
            (0..FILE_CLIENTS).for_each(|_| clients.push(Box::new(Fuse(open()))));
        }
        clients
    }

    /// Clients at work; before the kill, what this life has in store.
    fn live(&mut self, life: Life, (seed, number): (u64, u64)) {
        let mut random = Random::new(seed, number);
        let place = Place { blocks: BLOCKS, volume_bytes: self.nbd().volume_bytes };
        let (now, told) = sync_channel(1);
        let happens_in_between = matches!(life, Life::Loses | Life::Returns);
        let clients = self.clients();
        let ledger = std::mem::replace(&mut self.ledger, Ledger::blank(0, 0));
        let shared = Shared {
            ledger: &ledger,
            place,
            done: AtomicU64::new(0),
            blocks_max: 96,
            kill_at: 20 + random.next_below(if happens_in_between { 200 } else { 1500 }),
            now,
            is_killed: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            for (client, stream) in clients.into_iter().zip(1_u64..) {
                let (mut client, shared) = (client, &shared);
                let mut random = Random::new(seed, number * 100 + stream);
                scope.spawn(move || run(client.as_mut(), &mut random, shared));
            }
            if told.recv_timeout(PATIENCE).is_err() {
                self.give_up(&shared);
            }
            match life {
                Life::Loses => self.lose(&mut random),
                Life::Returns => self.give_back(&mut random),
                Life::Whole | Life::Degraded | Life::Rebuilds => {}
            }
            if happens_in_between {
                // A few requests later, that many being a matter of chance too.
                let until = shared.done.load(Ordering::SeqCst) + random.next_below(30);
                while shared.done.load(Ordering::SeqCst) < until {
                    std::thread::yield_now();
                }
            }
            shared.is_killed.store(true, Ordering::SeqCst);
            self.world.kill();
        });
        self.ledger = ledger;
    }

    /// Clients do not get on: say what the daemon has to say, and end it so that the clients end.
    fn give_up(&mut self, shared: &Shared) -> ! {
        let (status, events) = (self.world.run(&["status"]), self.world.run(&["events"]));
        shared.is_killed.store(true, Ordering::SeqCst);
        self.world.kill();
        let text = |output: std::process::Output| {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            String::from_utf8_lossy(&output.stdout).into_owned() + &stderr
        };
        let done = shared.done.load(Ordering::SeqCst);
        panic!(
            "after {done} of {} requests nothing went on:\n{}\n{}",
            shared.kill_at,
            text(status),
            text(events)
        );
    }

    fn lose(&mut self, random: &mut Random) {
        let slot = random.below(self.devices.len());
        self.world.ok(&["fail", "tank0", &slot.to_string()]);
        self.out = Some(slot);
    }

    fn give_back(&mut self, random: &mut Random) {
        let slot = self.out.expect("one is out");
        if random.below(2) == 0 {
            self.world.ok(&["re-add", "tank0", &self.devices[slot]]);
        } else {
            self.replacements += 1;
            let device = format!("new{}", self.replacements);
            self.world.sparse(&device, crate::world::MEMBER_BYTES);
            self.world.ok(&["replace", "tank0", &slot.to_string(), &device]);
            let old = std::mem::replace(&mut self.devices[slot], device);
            std::fs::remove_file(self.world.path(&old)).expect("nobody needs it");
        }
        // So little data is rebuilt in no time. A rebuild that waits is under way when the kill
        // comes, if it had not ended already: then there is nothing to pause.
        if random.below(4) > 0 {
            self.world.run(&["rebuild", "pause", "tank0"]);
        }
    }

    /// The next daemon; how long it took until a write was answered.
    fn start(&mut self) -> Duration {
        let began_ns = now_ns();
        let mut arguments = vec!["--config", CONFIG];
        arguments.extend(self.devices.iter().map(String::as_str));
        self.world.start(&arguments);
        let mut nbd = self.nbd();
        let place = Place { blocks: BLOCKS, volume_bytes: nbd.volume_bytes };
        nbd.write(place.probe(), &[7; BLOCK_BYTES]).expect("answered");
        Duration::from_nanos(now_ns() - began_ns)
    }

    /// Every block holds what it may.
    fn look(&self, found: &mut Found) {
        let mut nbd = self.nbd();
        let place = Place { blocks: BLOCKS, volume_bytes: nbd.volume_bytes };
        let at_once = 128;
        for first in (0..BLOCKS).step_by(at_once) {
            let mut bytes = vec![0; at_once * BLOCK_BYTES];
            nbd.read(place.of(first), &mut bytes).expect("readable");
            for (block, bytes) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                found.lost.extend(self.ledger.settle(block, bytes).err());
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.world.array()["state"] == "clean"
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // The last daemon that was killed left its mount behind, and nobody attaches the volume
        // again.
        let place = self.world.path("volumes/tank0");
        let _none_without_fuse = Command::new("umount").arg("-l").arg(place).output();
    }
}

/// So many kills of an array of that level.
fn campaign(level: &str, members: usize, kills: usize, found: &mut Found) {
    let has_fuse = File::options().write(true).open("/dev/fuse").is_ok();
    if !has_fuse {
        say(&format!("skipped: kills of level {level}: the part over FUSE: no /dev/fuse"));
    }
    let seed = 1 + u64::try_from(members).expect("few");
    let mut victim = Victim::new(level, members, has_fuse);
    for (number, life) in (1_u64..).zip(LIVES.iter().cycle().copied().take(kills)) {
        victim.live(life, (seed, number));
        found.restarts.push(victim.start());
        *found.lives.entry(life).or_default() += 1;
        found.mid_rebuild +=
            usize::from(matches!(life, Life::Returns | Life::Rebuilds) && !victim.is_whole());
        victim.look(found);
        assert!(found.lost.is_empty(), "level {level}, kill {number}, {life:?}: {:?}", found.lost);
        if life == Life::Rebuilds {
            make_whole(&mut victim);
        }
    }
    make_whole(&mut victim);
    let scrubbed = victim.world.ok(&["scrub", "tank0", "--wait"]);
    assert!(scrubbed.contains(" 0 mismatches"), "level {level}: {scrubbed}");
    victim.look(found);
    assert!(found.lost.is_empty(), "level {level}, after the scrub: {:?}", found.lost);
    found.answered += victim.ledger.answered();
}

/// Whoever is out comes back, and is rebuilt to the end.
fn make_whole(victim: &mut Victim) {
    let Some(slot) = victim.out.take() else { return };
    if victim.world.array()["members"][slot]["state"] == "out" {
        victim.world.ok(&["re-add", "tank0", &victim.devices[slot]]);
    }
    // A pause outlives the daemon.
    victim.world.run(&["rebuild", "resume", "tank0"]);
    victim.world.ok(&["rebuild", "wait", "tank0"]);
    assert!(victim.is_whole());
}

/// A line past the test runner, which hides what passing tests print: for results, and for what was
/// not done.
pub fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("stderr is there");
}

#[test]
fn answered_writes_survive_a_killed_daemon() {
    let wanted = std::env::var("ASHLAR_KILLS").map(|count| count.parse().expect("a number"));
    let kills: usize = wanted.unwrap_or(KILLS);
    let mut found = Found::default();
    let levels = [("6", 5), ("5", 4), ("10", 4), ("7.3", 7)];
    for (at, (level, members)) in levels.iter().enumerate() {
        // Shares that add up to all of them.
        let share = kills * (at + 1) / levels.len() - kills * at / levels.len();
        campaign(level, *members, share, &mut found);
    }
    let is_long_enough = kills >= 20;
    assert!(found.mid_rebuild > 0 || !is_long_enough, "no kill hit a rebuild");
    found.restarts.sort();
    let restart = |percent: usize| found.restarts[(kills - 1) * percent / 100].as_millis();
    let line = format!(
        "kills: {kills} ({:?}; {} with a rebuild under way), {} answered writes, 0 lost; \
         start to first answered write: median {} ms, 99 % {} ms, longest {} ms",
        found.lives,
        found.mid_rebuild,
        found.answered,
        restart(50),
        restart(99),
        restart(100),
    );
    say(&line);
}
