//! Adapters against recorded transcripts: the commands, their order, and that nothing is left
//! behind.

use crate::adapter::commands::Commands;
use crate::adapter::recorded::Recorded;
use crate::adapter::{Engine, Wanted, ashlar::Ashlar, btrfs::Btrfs, by_name, mdadm::Mdadm};
use std::path::PathBuf;

fn wanted(level: &str) -> Wanted {
    Wanted {
        members: ["/dev/loop1", "/dev/loop2", "/dev/loop3", "/dev/loop4"].map(str::to_owned).into(),
        level: level.into(),
        strip_bytes: 65_536,
        place: "/run/lab".into(),
    }
}

const MDADM: &str = include_str!("../../tests/data/transcripts/mdadm-life.txt");

/// Seed 000: three times the rate with 64 threads instead of few.
#[test]
fn an_engine_is_set_as_its_user_wants_and_says_so() {
    let transcript = MDADM.replace("echo 8 >", "echo 64 >").replace("cnt\n8\n", "cnt\n64\n");
    let transcript = format!("{transcript}$ uname -r\n6.1.0\n");
    let commands = Recorded::parse(&transcript);
    let mut engine = by_name("mdadm:group_thread_cnt=64").expect("an engine");
    engine.create(&commands, &wanted("raid6")).expect("made");
    assert!(engine.is_busy(&commands).expect("asked"));
    assert!(!engine.is_busy(&commands).expect("asked"));
    engine.take_out(&commands, &[1]).expect("out");
    engine.destroy(&commands).expect("gone");
    let label = engine.identity(&commands).expect("there").label();
    assert!(label.ends_with("(group_thread_cnt 64, stripe_cache_size 4096)"), "{label}");
    for name in ["zfs:stripes=9", "btrfs:raid=6", "mdadm:group_thread_cnt=8/64"] {
        let refusal = by_name(name).err().expect(name);
        assert!(["engine.setting", "engine.unknown"].contains(&refusal.code.as_str()), "{refusal}");
    }
}

#[test]
fn a_tunable_that_the_kernel_does_not_take_is_said() {
    let head: Vec<&str> = MDADM.lines().take(6).collect();
    let transcript =
        format!("{}\n$ cat /sys/block/md127/md/group_thread_cnt\n0\n", head.join("\n"));
    let commands = Recorded::parse(&transcript);
    let refusal = Mdadm::default().create(&commands, &wanted("raid6")).expect_err("refused");
    assert_eq!(refusal.code, "tunable.ignored");
}

#[test]
fn what_failed_halfway_is_taken_away_all_the_same() {
    let commands =
        Recorded::parse(include_str!("../../tests/data/transcripts/mdadm-busy-member.txt"));
    let mut engine = Mdadm::default();
    let refusal = engine.create(&commands, &wanted("raid6")).expect_err("refused");
    assert!(refusal.to_string().contains("Device or resource busy"), "{refusal}");
    let first = engine.destroy(&commands).expect_err("one step failed");
    assert!(first.to_string().contains("Unrecognised md component"), "{first}");
    assert_eq!(commands.left(), 0, "the steps after it were made");
}

#[test]
fn btrfs_members_are_lost_while_it_is_unmounted_and_it_comes_back_degraded() {
    let commands = Recorded::parse(include_str!("../../tests/data/transcripts/btrfs-life.txt"));
    let mut engine = Btrfs::default();
    engine.create(&commands, &wanted("raid6")).expect("made");
    engine.take_out(&commands, &[0]).expect("out");
    engine.take_out(&commands, &[2]).expect("out, and the first one is not what is mounted");
    engine.destroy(&commands).expect("gone");
    assert_eq!(commands.left(), 0);
}

#[test]
fn an_array_of_ashlar_is_named_destroyed_only_what_was_given_and_stopped() {
    let commands = Recorded::parse(include_str!("../../tests/data/transcripts/ashlar-life.txt"));
    let mut engine = Ashlar::with_program("ashlar", "log");
    let served = engine.create(&commands, &wanted("raid6")).expect("made");
    assert_eq!(served, PathBuf::from("/run/lab/files/load"));
    engine.take_out(&commands, &[3]).expect("out");
    engine.destroy(&commands).expect("gone");
    assert_eq!(commands.left(), 0);
}

#[test]
fn an_engine_that_is_not_known_is_refused_with_the_names_that_are() {
    let refusal = by_name("hardware").err().expect("refused");
    assert!(refusal.to_string().contains("say ashlar"), "{refusal}");
    assert_eq!(refusal.exit_code(), 2);
}

#[test]
fn a_btrfs_member_is_replaced_by_its_number_and_the_replacement_is_waited_for() {
    let transcript = include_str!("../../tests/data/transcripts/btrfs-replace.txt");
    let (commands, mut engine) = (Recorded::parse(transcript), Btrfs::default());
    engine.create(&commands, &wanted("raid6")).expect("made");
    engine.put_in(&commands, 1).expect("in");
    assert!(
        engine.is_busy(&commands).expect("asked") && !engine.is_busy(&commands).expect("asked")
    );
    assert_eq!(commands.left(), 0);
}

/// As often as the recording looked at it: whether it was ever seen busy.
fn was_busy(engine: &dyn Engine, commands: &Recorded) -> bool {
    let looks = |command: &String| command == "cat /proc/mdstat";
    let mut was_busy = false;
    while commands.coming().as_ref().is_some_and(looks) {
        was_busy |= engine.is_busy(commands).expect("asked");
    }
    was_busy
}

/// What `lab run` did with an engine in the guest (crates/lab/engine-guest): made, degraded as far
/// as `out`, made anew if more than one member was out, one member out and rebuilt, taken away.
/// Whether the rebuild was seen.
fn recorded_life(
    engine: &mut dyn Engine,
    level: &str,
    (members, out): (usize, &[usize]),
    transcript: &str,
) -> bool {
    let commands = Recorded::parse(transcript);
    let members = (0..members).map(|at| format!("/dev/ram{at}")).collect();
    let wanted = Wanted { members, ..wanted(level) };
    let make = |engine: &mut dyn Engine| {
        engine.create(&commands, &wanted).expect("made");
        let kernel = engine.identity(&commands).expect("there").kernel;
        assert!(kernel.starts_with("6.1.0-"), "{kernel}");
        // An older recording has none of it.
        let configuration = engine.configuration();
        if commands.coming() == Some(configuration.join(" ")) {
            commands.planned(&configuration, "").expect("asked");
        }
        was_busy(engine, &commands);
    };
    make(engine);
    for member in out {
        engine.take_out(&commands, &[*member]).expect("out");
        assert!(!was_busy(engine, &commands), "nothing to rebuild onto");
    }
    if out.len() > 1 {
        engine.destroy(&commands).expect("gone");
        make(engine);
        engine.take_out(&commands, &[0]).expect("out");
        was_busy(engine, &commands);
    }
    engine.put_in(&commands, 0).expect("in");
    let is_rebuilt = was_busy(engine, &commands);
    engine.destroy(&commands).expect("gone");
    assert_eq!(commands.left(), 0);
    is_rebuilt
}

#[test]
fn a_real_md_is_driven_by_the_same_commands_and_its_rebuild_is_seen() {
    let transcript = include_str!("../../tests/data/mdadm-guest.txt");
    assert!(recorded_life(&mut Mdadm::default(), "raid6", (4, &[0, 3]), transcript));
}
