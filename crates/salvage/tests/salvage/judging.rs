//! Which member is believed: generations, roles, halves, copies.

use crate::forge::{ACTIVE, Array, Entry, OUT, REBUILDING, REPLACEMENT, SIZE, put};
use ashlar_salvage::{Choices, Reading, Refused, Salvage, Standing, sides};

fn images(array: &Array) -> Vec<Vec<u8>> {
    (0..3).map(|member| array.member(member, &[])).collect()
}

fn standings(images: Vec<Vec<u8>>) -> Vec<Standing> {
    let salvage = Salvage::open(images, &Choices::default()).expect("an array");
    salvage.judged().iter().map(|judged| judged.standing).collect()
}

fn refusal(images: Vec<Vec<u8>>) -> Option<Refused> {
    Salvage::open(images, &Choices::default()).err()
}

#[test]
fn the_newest_generation_says_who_is_stale() {
    let old = Array::new(5, 2, 1, 1);
    let mut new = old.clone();
    new.generation = 10;
    new.entries[1] = Entry { role: OUT, out_since: 10, ..new.entries[1] };
    let mut images = images(&new);
    images[1] = old.member(1, &[]);
    assert_eq!(standings(images), [Standing::Current, Standing::Stale(10), Standing::Current]);
}

#[test]
fn an_older_copy_of_a_member_is_no_source() {
    let array = Array { has_marks: true, ..Array::new(5, 2, 1, 1) };
    let marked = |array: &Array, marks: [(u64, u64); 3]| {
        let mut images = images(array);
        for (image, (sequence, flushed)) in images.iter_mut().zip(marks) {
            let place = if sequence % 2 == 0 { 136 << 10 } else { 140 << 10 };
            put(image, place, &array.mark(sequence, flushed));
        }
        standings(images)
    };
    let older = [(9, 8), (7, 6), (9, 8)];
    assert_eq!(marked(&array, older), [Standing::Current, Standing::Older, Standing::Current]);
    assert_eq!(marked(&array, [(9, 8), (8, 5), (12, 8)]), [Standing::Current; 3], "a crash");
    // What no engine says is no mark.
    assert_eq!(marked(&array, [(9, 9), (7, 6), (7, 6)])[1], Standing::Current);
    let unmarked = Array { has_marks: false, ..array };
    assert_eq!(marked(&unmarked, older), [Standing::Current; 3]);
}

#[test]
fn one_generation_behind_is_a_crash_and_two_are_not() {
    let new = Array { generation: 11, ..Array::new(5, 2, 1, 1) };
    for (generation, standing) in [(10, Standing::Current), (9, Standing::Incoherent)] {
        let mut images = images(&new);
        images[0] = Array { generation, ..new.clone() }.member(0, &[]);
        assert_eq!(standings(images), [standing, Standing::Current, Standing::Current]);
    }
}

#[test]
fn a_start_that_crashed_half_way_leaves_two_incarnations_and_one_array() {
    let old = Array::new(5, 2, 1, 1);
    let new = Array { generation: 10, incarnation: 0xA0, previous: 0x90, ..old.clone() };
    let mut images = images(&new);
    images[2] = old.member(2, &[]);
    assert_eq!(standings(images), [Standing::Current; 3]);
}

#[test]
fn split_brain_are_refused_until_one_is_chosen() {
    let one = Array { incarnation: 0xA0, previous: 0x90, ..Array::new(1, 1, 2, 1) };
    for (generation, incarnation) in [(9, 0xB0), (8, 0xB0)] {
        let other = Array { incarnation, generation, ..one.clone() };
        let mut images = images(&one);
        images[1] = other.member(1, &[]);
        let Some(Refused::SplitBrain(halves)) = refusal(images.clone()) else { panic!("taken") };
        assert_eq!(halves, [(0, [0xA0; 16]), (1, [0xB0; 16])]);
        for (believed, good) in [(0xA0, [0, 2].as_slice()), (0xB0, &[1])] {
            let choices = Choices { incarnation: Some([believed; 16]), ..Choices::default() };
            let salvage = Salvage::open(images.clone(), &choices).expect("a half");
            let used = (0..3).filter(|it| salvage.judged()[*it].standing == Standing::Current);
            assert_eq!(used.collect::<Vec<_>>(), good, "{believed:x} {generation}");
        }
    }
    let nobody = Choices { incarnation: Some([0xC0; 16]), ..Choices::default() };
    let opened = Salvage::open(images(&one), &nobody);
    assert_eq!(opened.err(), Some(Refused::NoSuchIncarnation));
}

/// Two halves of one generation and one incarnation: nothing but a member tells them apart.
#[test]
fn sides_that_tie_are_listed_and_one_is_believed_by_a_member_of_it() {
    let out = |slot: usize| {
        let mut array = Array { incarnation: 0xA0, ..Array::new(5, 2, 1, 1) };
        array.entries[slot] = Entry { role: OUT, out_since: 9, ..array.entries[slot] };
        array
    };
    let (one, other) = (out(1), out(2));
    let images = vec![one.member(0, &[]), other.member(1, &[]), one.member(2, &[])];
    let refused = Refused::SplitBrain([(0, [0xA0; 16]), (1, [0xA0; 16])]);
    assert_eq!(refusal(images.clone()), Some(refused));
    let readings: Vec<Reading> = images.iter().map(Reading::of).collect();
    let said: Vec<(Vec<usize>, u64, Vec<u16>)> = sides(&readings)
        .into_iter()
        .map(|side| (side.images, side.generation, side.slots_out))
        .collect();
    assert_eq!(said, [(vec![0, 2], 9, vec![1]), (vec![1], 9, vec![2])]);
    let believing = |images: &Vec<Vec<u8>>, image| {
        let choices = Choices { believed: Some(image), ..Choices::default() };
        let salvage = Salvage::open(images.clone(), &choices)?;
        Ok(salvage.judged().iter().map(|judged| judged.standing).collect::<Vec<_>>())
    };
    use Standing::{Current, OtherSide};
    for image in [0, 2] {
        assert_eq!(believing(&images, image), Ok(vec![Current, OtherSide, Current]));
    }
    assert_eq!(believing(&images, 1), Ok(vec![OtherSide, Current, OtherSide]));
    // An older state, too: nothing newer is read.
    let mut aged = images;
    aged[0] = Array { generation: 11, ..one.clone() }.member(0, &[]);
    assert_eq!(believing(&aged, 2), Ok(vec![OtherSide, OtherSide, Current]));
    aged[1] = vec![0; aged[1].len()];
    let why = "no superblock of an array";
    assert_eq!(believing(&aged, 1), Err(Refused::CannotBeBelieved(1, why)));
}

#[test]
fn a_member_that_went_on_alone_after_it_was_out_is_another_half() {
    let old = Array::new(1, 1, 2, 1);
    let mut new = Array { generation: 12, ..old.clone() };
    new.entries[1] = Entry { role: OUT, out_since: 10, ..new.entries[1] };
    // What was recorded is generation 9 at the latest, under incarnation 0x90 or 0x80.
    for (generation, incarnation, apart) in
        [(9, 0x90, false), (8, 0x80, false), (10, 0x90, true), (9, 0xB0, true)]
    {
        let mut images = images(&new);
        images[1] = Array { generation, incarnation, ..old.clone() }.member(1, &[]);
        let refused = matches!(refusal(images), Some(Refused::SplitBrain(_)));
        assert_eq!(refused, apart, "generation {generation}, incarnation {incarnation:x}");
    }
    // One that was told that it is out went nowhere alone.
    let mut images = images(&new);
    images[1] = Array { generation: 11, ..new }.member(1, &[]);
    assert_eq!(standings(images)[1], Standing::Stale(10));
}

/// The newest has taken it back, and it never heard of that: from what it had it was started alone.
#[test]
fn a_member_that_went_on_alone_is_another_half_though_the_newest_rebuilds_it() {
    let old = Array::new(1, 1, 2, 1);
    let mut new = Array { generation: 13, ..old.clone() };
    new.entries[1] = Entry { role: REBUILDING, out_since: 10, ..new.entries[1] };
    let of_member = |array: Array| {
        let mut images = images(&new);
        images[1] = array.member(1, &[]);
        images
    };
    assert_eq!(standings(of_member(old.clone()))[1], Standing::Incoherent);
    assert_eq!(
        standings(of_member(Array { generation: 12, ..new.clone() }))[1],
        Standing::Until(0)
    );
    let alone = Array { generation: 11, incarnation: 0xB0, ..old };
    assert!(matches!(refusal(of_member(alone)), Some(Refused::SplitBrain(_))));
}

#[test]
fn a_member_in_sync_that_the_newest_never_heard_of_is_another_half() {
    let new = Array { generation: 13, ..Array::new(1, 1, 2, 1) };
    for (role, apart) in [(ACTIVE, true), (REBUILDING, false)] {
        let mut joined = Array { generation: 11, incarnation: 0xB0, ..new.clone() };
        joined.entries[1] = Entry { member: 9, slot: 1, role, out_since: 0 };
        let mut images = images(&new);
        images[1] = joined.member(9, &[]);
        let refused = matches!(refusal(images), Some(Refused::SplitBrain(_)));
        assert_eq!(refused, apart, "role {role}");
    }
}

#[test]
fn a_replacement_stands_in_up_to_its_checkpoint() {
    let mut array = Array::new(5, 2, 1, 1);
    array.entries.push(Entry { member: 9, slot: 1, role: REPLACEMENT, out_since: 0 });
    array.job = Some((2, 9, 4));
    let mut images = images(&array);
    images[1] = array.member(9, &[]);
    assert_eq!(standings(images)[1], Standing::Until(4));
}

#[test]
fn arrays_and_copies_are_not_mixed() {
    let array = Array::new(5, 2, 1, 1);
    let mut mixed = images(&array);
    mixed[2] = Array { uuid: 8, ..array.clone() }.member(2, &[]);
    assert!(matches!(refusal(mixed), Some(Refused::TwoArrays([(0, _), (2, _)]))));
    let mut twice = images(&array);
    twice[2] = twice[0].clone();
    assert_eq!(refusal(twice), Some(Refused::Twice(0, 2)));
    assert_eq!(refusal(Vec::new()), Some(Refused::NoImages));
    let none = Refused::NoSuperblock("no superblock of an array");
    assert_eq!(refusal(vec![vec![0; SIZE]]), Some(none));
}

#[test]
fn one_intact_copy_of_four_is_enough() {
    let array = Array::new(5, 2, 1, 1);
    let copies = [0, 64 << 10, SIZE - (128 << 10), SIZE - (64 << 10)];
    for kept in copies {
        let mut images = images(&array);
        for image in &mut images {
            copies.iter().filter(|at| **at != kept).for_each(|at| put(image, *at, &[0xFF; 512]));
        }
        assert_eq!(standings(images), [Standing::Current; 3]);
    }
}

#[test]
fn of_the_copies_on_one_member_the_newest_counts_and_foreign_ones_are_outvoted() {
    let array = Array::new(5, 2, 1, 1);
    let mut images = images(&array);
    let newer = Array { generation: 10, ..array.clone() };
    put(&mut images[0], SIZE - (128 << 10), &newer.superblock(0));
    // A copy that was left over from another array.
    let other = Array { uuid: 8, generation: 99, ..array };
    put(&mut images[0], 64 << 10, &other.superblock(0));
    let salvage = Salvage::open(images, &Choices::default()).expect("an array");
    assert_eq!(salvage.superblock().generation, 10);
    assert_eq!(salvage.readings()[0].intact_copies(), 1);
    assert!(salvage.judged().iter().all(|judged| judged.standing == Standing::Current));
}

#[test]
fn a_member_without_any_copy_can_be_put_in_by_hand() {
    let array = Array::new(5, 2, 1, 1);
    let mut images = images(&array);
    images[1][..128 << 10].fill(0);
    images[1][SIZE - (128 << 10)..].fill(0);
    let salvage = Salvage::open(images.clone(), &Choices::default()).expect("an array");
    assert_eq!(salvage.missing_slots(), [1]);
    let by_hand = |slot| Choices { by_hand: vec![(1, slot)], ..Choices::default() };
    let salvage = Salvage::open(images.clone(), &by_hand(1)).expect("an array");
    assert_eq!(salvage.missing_slots(), [0; 0]);
    let opened = Salvage::open(images, &by_hand(3));
    assert_eq!(opened.err(), Some(Refused::NoSuchSlot(3)));
}
