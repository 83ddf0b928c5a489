//! Members that lost a part of what they held are asked last, and their blocks say so.

use crate::forge::{Array, DATA, SIZE, STRIP, SUMS, block, put};
use ashlar_salvage::{Choices, Doubt, How, Salvage, Trust};

/// What happened to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// Cut short within its data, and made as long as before.
    Cut,
    /// Cut short, and left so.
    Short,
    /// Somebody else has it.
    Given,
    /// Its head was overwritten, marks and all.
    Head,
    /// Its end was overwritten by something.
    End,
}

const HARMS: [Harm; 5] = [Harm::Cut, Harm::Short, Harm::Given, Harm::Head, Harm::End];

/// Members of which stripe 0 was written, all with marks: the bytes of the strips in row 0.
fn members(array: &Array, strips: &[u8]) -> Vec<Vec<u8>> {
    let strip = |(slot, byte): (usize, &u8)| {
        let mut member = array.member(u8::try_from(slot).expect("few"), &[0]);
        put(&mut member, 136 << 10, &array.mark(8, 7));
        for at in (DATA..DATA + STRIP).step_by(4096) {
            put(&mut member, at, &block(*byte));
        }
        if array.has_sums {
            let page = array.sums(u8::try_from(slot).expect("few"), &member, 7);
            put(&mut member, SUMS, &page);
        }
        member
    };
    strips.iter().enumerate().map(strip).collect()
}

fn harm(member: &mut Vec<u8>, harm: Harm) {
    let bytes = member.len();
    match harm {
        Harm::Cut | Harm::Short => {
            member.truncate(DATA);
            member.resize(if harm == Harm::Cut { bytes } else { bytes - 4096 }, 0);
        }
        Harm::Given => put(member, DATA, &[0xE4; 2 * STRIP]),
        Harm::Head => member[..DATA + STRIP].fill(0),
        Harm::End => member[DATA..].fill(0xFF),
    }
}

fn open(images: Vec<Vec<u8>>, given: &[usize]) -> Salvage<Vec<u8>> {
    let signatures = given.iter().map(|image| (*image, 1080)).collect();
    let choices = Choices { signatures, ..Choices::default() };
    Salvage::open(images, &choices).expect("an array")
}

/// The levels: mirror, RAID 5 and RAID 6, with the strips of row 0 by slot and its data.
fn levels() -> [(Array, Vec<u8>, Vec<u8>); 3] {
    let marked = |level, k, m| Array { has_marks: true, ..Array::new(level, k, m, 1) };
    [
        (marked(1, 1, 1), vec![0x41, 0x41], vec![0x41]),
        (marked(5, 2, 1), vec![1, 2, 3], vec![1, 2]),
        (marked(6, 2, 2), vec![5, 1, 2, 3], vec![1, 2]),
    ]
}

#[test]
fn a_member_that_lost_a_part_is_asked_only_where_nobody_else_has_the_block() {
    for (array, strips, data) in levels() {
        let spare = usize::from(array.m);
        for what in HARMS {
            for first in 0..strips.len() {
                let mut images = members(&array, &strips);
                let harmed: Vec<usize> =
                    (first..first + spare).map(|at| at % strips.len()).collect();
                harmed.iter().for_each(|at| harm(&mut images[*at], what));
                let given = if what == Harm::Given { &harmed[..] } else { &[] };
                let salvage = open(images.clone(), given);
                for (strip, byte) in data.iter().enumerate() {
                    let number = u64::try_from(strip * STRIP / 4096).expect("small");
                    let found = salvage.read_block(number).expect("redundant");
                    assert_eq!(found.bytes, block(*byte), "{what:?} {harmed:?} {strip}");
                    assert!(matches!(found.how, How::Direct | How::Reconstructed));
                }
                let counts = |image: usize| salvage.judged()[image].trust() == Trust::Proven;
                assert!((0..strips.len()).all(|it| counts(it) != harmed.contains(&it)));
                // One more is gone: what they have is all there is, and it is proven by nothing.
                images.remove((first + spare) % strips.len());
                let gone = (first + spare) % strips.len();
                let given: Vec<usize> =
                    given.iter().map(|at| at - usize::from(*at > gone)).collect();
                let salvage = open(images, &given);
                let hows: Vec<How> = (0..data.len())
                    .filter_map(|strip| {
                        let number = u64::try_from(strip * STRIP / 4096).expect("small");
                        Some(salvage.read_block(number).ok()?.how)
                    })
                    .collect();
                assert!(hows.contains(&How::Unproven) && !salvage.has_enough(0, Trust::Proven));
                assert!(hows.iter().all(|how| [How::Unproven, How::Direct].contains(how)));
            }
        }
    }
}

#[test]
fn of_members_in_doubt_the_one_that_a_start_takes_is_asked_first() {
    let [_, (array, strips, _), _] = levels();
    let mut images = members(&array, &strips);
    // Copies alone are damaged, and where nothing else is wrong that shows, too.
    put(&mut images[2], SIZE - (128 << 10), &[0xFF; 128 << 10]);
    assert_eq!(open(images.clone(), &[]).read_block(0).map(|it| it.how), Ok(How::Direct));
    harm(&mut images[0], Harm::Cut);
    let found = open(images, &[]).read_block(0).expect("by parity");
    assert_eq!((found.bytes, found.how), (block(1), How::Unproven));
}

#[test]
fn one_copy_at_each_end_or_the_marks_are_enough_to_be_believed() {
    let [_, (array, strips, _), _] = levels();
    let sound = members(&array, &strips);
    for (at, bytes) in [(0, 64 << 10), (0, 128 << 10), (SIZE - (64 << 10), 64 << 10)] {
        let mut images = sound.clone();
        images[0][at..at + bytes].fill(0);
        let salvage = open(images, &[]);
        assert!(salvage.judged().iter().all(|it| it.doubts.is_empty()), "{at} {bytes}");
    }
    // What begins where data of clients lies says nothing.
    let inside = Choices {
        signatures: vec![(0, u64::try_from(DATA).expect("small") + 1080)],
        ..Choices::default()
    };
    let salvage = Salvage::open(sound.clone(), &inside).expect("an array");
    assert!(salvage.judged()[0].doubts.is_empty());
    // Of heads that all are gone nobody knows how far.
    let mut images = sound;
    images.iter_mut().for_each(|image| image[..256 << 10].fill(0));
    let salvage = open(images, &[]);
    assert!(salvage.judged().iter().all(|it| it.doubts == [Doubt::LostHead]));
    assert_eq!(salvage.read_block(0).map(|it| it.how), Ok(How::Unproven));
}

#[test]
fn a_checksum_proves_what_a_member_in_doubt_has_left() {
    let [_, (array, strips, _), _] = levels();
    let array = Array { has_sums: true, policy: 3, ..array };
    let mut images = members(&array, &strips);
    images.remove(2);
    let signed = open(images.clone(), &[0]);
    assert_eq!(signed.judged()[0].doubts, [Doubt::GivenAway(1080)]);
    assert_eq!(signed.read_block(0).map(|it| it.how), Ok(How::Direct));
    // Not if it is something else, and then nobody has it.
    put(&mut images[0], DATA, &[9]);
    assert!(open(images.clone(), &[0]).read_block(0).is_err());
    assert_eq!(open(images, &[0]).read_block(1).map(|it| it.how), Ok(How::Direct));
}
