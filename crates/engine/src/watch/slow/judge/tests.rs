//! Tables of periods: each row is a run of the judge, one letter for each member and period.

use super::super::{PERIODS, SlowLimits};
use super::{CommandsKind, Judge, Timed, Turn};
use ashlar_units::MemberIdx;
use std::time::Duration;

/// `.` answers in 1 ms, `s` in 20 ms, `k` in 4 ms, `l` in a little more, `q` in 10 us; `-` is not
/// timed; `x` is as slow as `s` and may not be judged.
fn timed(letter: char, kind: CommandsKind) -> Timed {
    let mean = match letter {
        '-' => None,
        's' | 'x' => Some(Duration::from_millis(20)),
        'k' => Some(Duration::from_millis(4)),
        'l' => Some(Duration::from_micros(4001)),
        'q' => Some(Duration::from_micros(10)),
        _ => Some(Duration::from_millis(1)),
    };
    let means = match kind {
        CommandsKind::Reads => [mean, None],
        CommandsKind::Writes => [None, mean],
    };
    Timed { may_be_judged: letter != 'x', means }
}

/// The judge after these periods, each so many times, and who is slow then: `S`.
fn run(judge: &mut Judge, periods: &[(&str, u32)], code: (usize, usize)) -> Vec<String> {
    run_of(judge, periods, code, CommandsKind::Reads)
}

fn run_of(
    judge: &mut Judge,
    periods: &[(&str, u32)],
    (strips, parity): (usize, usize),
    kind: CommandsKind,
) -> Vec<String> {
    let is_too_many = |member: MemberIdx, is_lost: &dyn Fn(MemberIdx) -> bool| {
        let first = member.at() / strips * strips;
        (first..first + strips).filter(|at| is_lost(MemberIdx::from_at(*at))).count() > parity
    };
    let mut ends = Vec::new();
    for (letters, times) in periods {
        let timed: Vec<Timed> = letters.chars().map(|letter| timed(letter, kind)).collect();
        for _ in 0..*times {
            judge.end_period(&timed, &SlowLimits::default(), is_too_many);
        }
        let letter = |at| if judge.is_any_slow(at) { 'S' } else { '.' };
        ends.push((0..timed.len()).map(letter).collect());
    }
    ends
}

#[test]
fn the_whole_table_is_as_documented() {
    let all = PERIODS;
    let table: Vec<(&str, (usize, usize), &str)> = vec![
        // RAID 6 of six: one, two, three of them.
        ("......", (6, 2), "......"),
        ("s.....", (6, 2), "S....."),
        ("s....s", (6, 2), "S....S"),
        ("sss...", (6, 2), "......"),
        // All of them: the host is slow.
        ("ssssss", (6, 2), "......"),
        // Four times as slow is not more than four times as slow.
        ("k.....", (6, 2), "......"),
        ("l.....", (6, 2), "S....."),
        // Below the floor no client cares.
        (".qqqqq", (6, 2), "......"),
        // Half of the peers must have been timed: two of five are too few, three do.
        ("s---..", (6, 2), "......"),
        ("s--...", (6, 2), "S....."),
        ("-.....", (6, 2), "......"),
        // One that is on its way out of its slot.
        ("x.....", (6, 2), "......"),
        // RAID 5: one.
        ("s...", (4, 1), "S..."),
        ("ss..", (4, 1), "...."),
        // Mirrors: of two, the one; of three, two would be most.
        ("s.", (2, 1), "S."),
        ("ss", (2, 1), ".."),
        ("s..", (3, 2), "S.."),
        ("ss.", (3, 2), "..."),
        // RAID 10: one of a pair, in each of two pairs of three; a whole pair is too many.
        ("s.s...", (2, 1), "S.S..."),
        ("ss....", (2, 1), "......"),
        // RAID 0: one is told, of two nobody.
        ("s...", (4, 0), "S..."),
        ("ss..", (4, 0), "...."),
    ];
    for (letters, code, wanted) in table {
        for kind in CommandsKind::ALL {
            let ends = run_of(&mut Judge::default(), &[(letters, all)], code, kind);
            assert_eq!(ends, [wanted], "{letters} {code:?} {kind}");
        }
    }
}

#[test]
fn it_takes_a_while_to_be_judged_and_as_long_to_be_fine() {
    let code = (6, 2);
    let (slow, fine, nothing) = ("s.....", "......", "-.....");
    let judged = |periods: &[(&str, u32)]| run(&mut Judge::default(), periods, code);
    assert_eq!(judged(&[(slow, PERIODS - 1), (slow, 1)]), ["......", "S....."]);
    assert_eq!(judged(&[(slow, 5), (fine, 1), (slow, 5)]), ["......"; 3], "not in a row");
    assert_eq!(judged(&[(slow, 5), (nothing, 9), (slow, 1)]), ["......", "......", "S....."]);
    let ends = judged(&[(slow, 6), (fine, 5), (slow, 1), (fine, 5), (nothing, 9), (fine, 1)]);
    assert_eq!(ends, ["S.....", "S.....", "S.....", "S.....", "S.....", "......"]);
}

#[test]
fn a_member_stays_slow_when_others_become_so_and_those_are_not_judged() {
    let ends = run(&mut Judge::default(), &[("s.....", 6), ("sss...", 9), ("s.s...", 6)], (6, 2));
    assert_eq!(ends, ["S.....", "S.....", "S.S..."]);
}

#[test]
fn turns_are_told_once_with_the_last_figures() {
    let mut judge = Judge::default();
    let limits = SlowLimits::default();
    let never = |_: MemberIdx, _: &dyn Fn(MemberIdx) -> bool| false;
    let of = |letters: &str| -> Vec<Timed> {
        letters.chars().map(|letter| timed(letter, CommandsKind::Writes)).collect()
    };
    let mut turns = Vec::new();
    for letters in ["s..."; 9].into_iter().chain(["...."; 9]) {
        turns.push(judge.end_period(&of(letters), &limits, never).pop());
    }
    let told: Vec<(usize, Turn)> = turns
        .iter()
        .enumerate()
        .filter_map(|(at, turn)| turn.map(|(member, turn)| (at + member.at(), turn)))
        .collect();
    assert_eq!(told, [(5, Turn::Slow), (14, Turn::Fine)]);
    assert_eq!(judge.figures(MemberIdx(0), &limits), None);
    run_of(&mut judge, &[("s...", 7)], (4, 1), CommandsKind::Writes);
    let figures = judge.figures(MemberIdx(0), &limits).expect("slow");
    assert_eq!(figures.kind, CommandsKind::Writes);
    assert_eq!((figures.own, figures.peers), (Duration::from_millis(20), Duration::from_millis(1)));
    assert_eq!(figures.lasts, Duration::from_secs(35));
    judge.forget(MemberIdx(0));
    assert_eq!(judge.figures(MemberIdx(0), &limits), None);
}
