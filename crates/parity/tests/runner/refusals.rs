//! Calls that are wrong are refused with the right error, before anything is written; and the facts
//! about codes, kernels and plans that callers rely on.

use ashlar_parity::{Change, Code, CodeError, DecodePlan, Kernel, KernelError, Locality};
use ashlar_units::StripSet;

fn code(k: usize, m: usize) -> Code {
    Code::new(k, m, Kernel::best()).unwrap()
}

#[test]
fn codes_beyond_the_limits_are_refused() {
    let kernel = Kernel::best();
    assert_eq!(Code::new(0, 2, kernel), Err(CodeError::NoDataStrips));
    for (data, parity) in [(63, 2), (65, 0), (1, 33), (33, 32), (usize::MAX, 1), (1, usize::MAX)] {
        assert_eq!(Code::new(data, parity, kernel), Err(CodeError::TooManyStrips { data, parity }));
    }
    for (data, parity) in [(64, 0), (32, 32), (1, 32), (62, 2), (1, 0)] {
        assert!(Code::new(data, parity, kernel).is_ok());
    }
}

#[test]
fn a_wrong_number_of_strips_is_refused() {
    let strip = [0u8; 64];
    let mut out = [[7u8; 64]; 2];
    let [a, b] = &mut out;
    let wrong = |expected, given| Err(CodeError::WrongCount { expected, given });
    let code = code(2, 2);
    let two = [&strip[..], &strip[..]];
    let mut parity = [Some(&mut a[..]), Some(&mut b[..])];
    assert_eq!(code.generate(&two[..1], &mut parity, Locality::Cached), wrong(2, 1));
    assert_eq!(code.generate(&two, &mut parity[..1], Locality::Cached), wrong(2, 1));
    assert_eq!(code.update(&[], &mut parity[..1], Locality::Cached), wrong(2, 1));
    assert_eq!(code.check(&two, &[None]).map(|_| ()), wrong(2, 1));
    assert_eq!(out, [[7; 64]; 2]);
}

#[test]
fn strips_of_different_length_are_refused() {
    let (long, short) = ([0u8; 128], [0u8; 64]);
    let mut out = [7u8; 128];
    let refused = Err(CodeError::WrongLength { expected: 128, given: 64 });
    let code = code(2, 1);
    let data = [&long[..], &short[..]];
    assert_eq!(code.generate(&data, &mut [Some(&mut out[..])], Locality::Cached), refused);
    let data = [&long[..], &long[..]];
    assert_eq!(code.generate(&data, &mut [Some(&mut out[..64])], Locality::Cached), refused);
    let change = Change { column: 0, old: &long, new: &short };
    assert_eq!(code.update(&[change], &mut [Some(&mut out[..])], Locality::Cached), refused);
    assert_eq!(code.check(&data, &[Some(&short)]).map(|_| ()), refused);
    let plan = DecodePlan::new(&code, StripSet(0b110), StripSet(0b001)).unwrap();
    let data = [&long[..], &long[..]];
    assert_eq!(plan.run(&data, &mut [&mut out[..64]], Locality::Cached), refused);
    let outputs = &mut [&mut out[..]];
    let refused = Err(CodeError::WrongCount { expected: 2, given: 1 });
    assert_eq!(plan.run(&data[..1], outputs, Locality::Cached), refused);
    assert_eq!(out, [7; 128]);
}

#[test]
fn an_update_of_an_unknown_column_or_of_too_many_is_refused() {
    let strip = [0u8; 64];
    let mut out = [7u8; 64];
    let change = |column| Change { column, old: &strip[..], new: &strip[..] };
    let refused = code(3, 1).update(&[change(3)], &mut [Some(&mut out[..])], Locality::Cached);
    assert_eq!(refused, Err(CodeError::OutOfRange { limit: 3, given: 3 }));
    let many = [change(0); 65];
    let refused = code(3, 1).update(&many, &mut [Some(&mut out[..])], Locality::Cached);
    assert_eq!(refused, Err(CodeError::WrongCount { expected: 64, given: 65 }));
    assert_eq!(out, [7; 64]);
}

#[test]
fn a_column_that_changes_twice_in_one_update_changes_twice() {
    let [old, middle, new] = [[1u8; 100], [2; 100], [5; 100]];
    let mut parity = [[1u8; 100], [2; 100]];
    let [p, q] = &mut parity;
    let changes = [
        Change { column: 1, old: &old, new: &middle },
        Change { column: 1, old: &middle, new: &new },
    ];
    code(3, 2).update(&changes, &mut [Some(p), Some(q)], Locality::Cached).unwrap();
    assert_eq!(parity, [[5; 100], [10; 100]]);
}

#[test]
fn losses_beyond_parity_are_refused() {
    let code = code(4, 2);
    let refused = DecodePlan::new(&code, StripSet(0b00_0111), StripSet(0b00_1000)).unwrap_err();
    assert_eq!(refused, CodeError::TooFewSurvivors { needed: 4, given: 3 });
    let refused = DecodePlan::new(&code, StripSet(0b100_1111), StripSet(0)).unwrap_err();
    assert_eq!(refused, CodeError::OutOfRange { limit: 6, given: 6 });
    let refused = DecodePlan::new(&code, StripSet(0b1111), StripSet(1 << 63)).unwrap_err();
    assert_eq!(refused, CodeError::OutOfRange { limit: 6, given: 63 });
    let wide = Code::new(40, 4, Kernel::best()).unwrap();
    let all = StripSet::first(44);
    let refused = DecodePlan::new(&wide, all, StripSet::first(33)).unwrap_err();
    assert_eq!(refused, CodeError::TooManyWanted { limit: 32, given: 33 });
}

#[test]
fn check_and_locate_refuse_what_they_cannot_map() {
    let long = vec![0u8; 256 * 4096 + 1];
    let limit = 256 * 4096;
    let refused = code(1, 1).check(&[&long], &[None]).unwrap_err();
    assert_eq!(refused, CodeError::TooLong { limit, given: limit + 1 });
    let verdict = code(1, 1).check(&[&long[..limit]], &[Some(&long[1..])]).unwrap();
    assert!(verdict.is_consistent());
    let short = [0u8; 4097];
    let parity = [Some(&short[..]), None];
    assert_eq!(code(1, 2).locate(&[&short], &parity, 1), Ok(None));
    let refused = code(1, 2).locate(&[&short], &parity, 2);
    assert_eq!(refused, Err(CodeError::OutOfRange { limit: 2, given: 2 }));
}

#[test]
fn the_last_row_of_the_longest_strip_is_reported() {
    let data = vec![0u8; 1 << 20];
    let mut parity = data.clone();
    parity[(1 << 20) - 1] = 1;
    let verdict = code(1, 1).check(&[&data], &[Some(&parity)]).unwrap();
    assert_eq!(verdict.rows().iter().collect::<Vec<_>>(), [255]);
    assert!(!verdict.rows().contains(256));
    assert!(verdict.rows_of(99).is_empty());
}

#[test]
fn two_wrong_strips_are_not_blamed_on_one() {
    let clean = [0u8; 512];
    let mut first = clean;
    first[10] = 3;
    let mut second = clean;
    second[400] = 9;
    let parity = [Some(&clean[..]); 3];
    let located = |data: [&[u8]; 4]| code(4, 3).locate(&data, &parity, 0).unwrap();
    assert_eq!(located([&clean, &first, &second, &clean]), None);
    assert_eq!(located([&clean, &first, &clean, &clean]), Some(1));
    assert_eq!(located([&clean; 4]), None);
}

#[test]
fn a_mirror_is_one_data_strip_and_parity_that_copies_it() {
    for kernel in Kernel::all() {
        let code = Code::new(1, 3, kernel).unwrap();
        let data: [u8; 200] = std::array::from_fn(|n| u8::try_from(n).unwrap());
        let mut copies = [[0u8; 200]; 3];
        let mut parity = copies.each_mut().map(|copy| Some(&mut copy[..]));
        code.generate(&[&data], &mut parity, Locality::Cached).unwrap();
        assert_eq!(copies, [data; 3]);
        // Any copy gives any other, and one alone is read.
        let plan = DecodePlan::new(&code, StripSet(0b1100), StripSet(0b0011)).unwrap();
        assert_eq!(plan.sources(), StripSet(0b0100));
        // Three agree against one.
        let mut odd = data;
        odd[77] ^= 1;
        let parity = [Some(&data[..]), Some(&odd), Some(&data)];
        assert_eq!(code.locate(&[&data], &parity, 0), Ok(Some(2)));
    }
}

#[test]
fn a_plan_that_needs_only_p_reads_p_and_not_q() {
    let plan = DecodePlan::new(&code(4, 2), StripSet(0b11_1011), StripSet(0b00_0100)).unwrap();
    assert_eq!(plan.sources(), StripSet(0b01_1011));
    assert_eq!(plan.wanted(), StripSet(0b00_0100));
}

#[test]
fn a_code_without_parity_finds_nothing_wrong() {
    let data = [3u8; 100];
    let code = code(1, 0);
    code.generate(&[&data], &mut [], Locality::Cached).unwrap();
    assert!(code.check(&[&data], &[]).unwrap().is_consistent());
    let plan = DecodePlan::new(&code, StripSet(1), StripSet(0)).unwrap();
    assert_eq!(plan.run(&[], &mut [], Locality::Cached), Ok(()));
}

#[test]
fn kernels_are_found_by_the_names_they_give() {
    let names: Vec<&str> = Kernel::all().map(Kernel::name).collect();
    assert_eq!(names[names.len() - 2..], ["portable", "reference"]);
    assert_eq!(Kernel::best().name(), names[0]);
    for kernel in Kernel::all() {
        assert_eq!(Kernel::by_name(kernel.name()), Ok(kernel));
        assert_eq!(kernel.to_string(), kernel.name());
    }
    assert_eq!(Kernel::by_name("mmx"), Err(KernelError::NotHere));
}
