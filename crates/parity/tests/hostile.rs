//! Hostile calls from a seed: thousands of the calls that `hostile/call.rs` makes of a few random
//! bytes.
//!
//! What must stay true: about as many calls are wrong as are right, and both are counted for each
//! verb, so that neither kind can silently go missing. `fuzz/` hands the same function to
//! libFuzzer, and Miri runs this test on the backends that need no intrinsics (`just miri`).

#[path = "hostile/call.rs"]
mod call;

use call::{VERBS, call};

/// Some seconds' worth in a debug build.
const CALLS: usize = if cfg!(miri) { 24 } else { 60_000 };
const INPUT_BYTES: usize = 160;

#[test]
fn hostile_calls_are_refused_or_done_right() {
    let mut state: u64 = 0xA5_0777;
    // splitmix64; its high byte.
    let mut byte = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z.to_be_bytes()[0]
    };
    let mut done = [0; VERBS.len()];
    let mut refused = [0; VERBS.len()];
    for number in 0..CALLS {
        let input: [u8; INPUT_BYTES] = std::array::from_fn(|_| byte());
        // Some inputs end early: what follows is zeros.
        let input = &input[..INPUT_BYTES >> (number % 3)];
        if let Some((verb, was_done)) = call(input) {
            if was_done { done[verb] += 1 } else { refused[verb] += 1 }
        }
    }
    // The few that Miri has time for need not include every kind.
    let fewest = CALLS / 100;
    let enough = done.iter().chain(&refused).all(|&count| count > fewest);
    assert!(cfg!(miri) || enough, "{done:?} {refused:?}");
}

#[test]
fn no_bytes_at_all_are_a_call_that_is_right() {
    assert_eq!(call(&[]), Some((0, true)));
}
