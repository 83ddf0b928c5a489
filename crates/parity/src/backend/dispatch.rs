//! Which loop a pass runs: one for its verb, its shape and its locality, and another for what whole
//! blocks leave over.
//!
//! What must stay true: every loop named here is compiled for every backend, which is most of the
//! time that this crate takes to compile; so there is one only for what is worth it, and none has a
//! second body for the last bytes. Those are done row by row, which reads the sources once for each
//! row: strips that are a multiple of 256 bytes long have none.

use super::generic::{Action, BLOCK_BYTES, Check, Generate, GenerateCopy, Update};
use super::lanes::Lanes;
use crate::pass::{Pass, Shape, Verb};

/// Runs `pass` with the instructions that `lanes` proves; true when a check found a difference.
///
/// # Safety
/// The contract of [`Pass`].
pub(crate) unsafe fn run<L: Lanes>(lanes: L, pass: &Pass<'_>) -> bool {
    let mut differs = false;
    for (enter, part) in parts::<L>(pass) {
        // SAFETY: the caller guarantees the contract of `Pass` for all of it, each part is some
        // rows of some of it, and `enter` was chosen for the shape of that and its length.
        differs |= unsafe { enter(lanes, &part) };
    }
    differs
}

/// Whole blocks of all rows at once; then what they leave over, less than one, row by row.
fn parts<'a, L: Lanes>(pass: &'a Pass<'a>) -> impl Iterator<Item = (Enter<L>, Pass<'a>)> {
    let whole = if has_loop(pass) { pass.bytes - pass.bytes % BLOCK_BYTES } else { 0 };
    let blocks = (whole > 0).then(|| (loop_for::<L>(pass), Pass { bytes: whole, ..*pass }));
    let rows = if whole < pass.bytes { pass.outputs.len() } else { 0 };
    let (start, bytes) = (pass.start + whole, pass.bytes - whole);
    let row = move |row| only_row::<L>(Pass { start, bytes, ..*pass }, row);
    blocks.into_iter().chain((0..rows).map(row))
}

/// Every loop is compiled for every backend, so there is one only for what is worth it. Nobody
/// regenerates P and Q and copies some strips of the stripe in the same call, or hardly.
fn has_loop(pass: &Pass<'_>) -> bool {
    let copies = pass.verb == Verb::GenerateCopy;
    !(copies && matches!(pass.shape, Shape::PqAnd(_)) && copies_some(pass))
}

fn copies_some(pass: &Pass<'_>) -> bool {
    pass.companions.iter().any(|copy| copy.is_null())
}

/// The loop over whole blocks for the verb, the shape and the locality of `pass`.
fn loop_for<L: Lanes>(pass: &Pass<'_>) -> Enter<L> {
    let parity = matches!(pass.shape, Shape::Xor | Shape::PqAnd(_));
    match (pass.verb, pass.streaming) {
        (Verb::Generate, false) => shape::<L, Generate<false>>(pass.shape),
        (Verb::Generate, true) => shape::<L, Generate<true>>(pass.shape),
        (Verb::GenerateCopy, streaming) => copying::<L>(pass, streaming),
        (Verb::Update, true) if parity => parity_shape::<L, Update<true>>(pass.shape),
        (Verb::Update, _) => shape::<L, Update<false>>(pass.shape),
        (Verb::Check, true) if parity => parity_shape::<L, Check<true>>(pass.shape),
        (Verb::Check, _) => shape::<L, Check<false>>(pass.shape),
    }
}

/// The function for a pass that copies: all its sources, or only some.
fn copying<L: Lanes>(pass: &Pass<'_>, streaming: bool) -> Enter<L> {
    match (pass.shape, streaming) {
        (Shape::Any(_), false) => any_shape::<L, GenerateCopy<false, false, false>>(pass.shape),
        (Shape::Any(_), true) => any_shape::<L, GenerateCopy<true, true, false>>(pass.shape),
        (Shape::Xor, false) if copies_some(pass) => {
            L::enter::<GenerateCopy<false, false, false>, true, false, 0>
        }
        (Shape::Xor, true) if copies_some(pass) => {
            L::enter::<GenerateCopy<true, true, false>, true, false, 0>
        }
        (_, false) => parity_shape::<L, GenerateCopy<false, false, true>>(pass.shape),
        (_, true) if pass.outputs_stay => {
            parity_shape::<L, GenerateCopy<true, false, true>>(pass.shape)
        }
        (_, true) => parity_shape::<L, GenerateCopy<true, true, true>>(pass.shape),
    }
}

/// One row of `pass`, past no cache. A row of ones is a row of any coefficients.
fn only_row<'a, L: Lanes>(pass: Pass<'a>, row: usize) -> (Enter<L>, Pass<'a>) {
    // The first row copies for all.
    let copied = pass.verb == Verb::GenerateCopy && row > 0;
    let verb = if copied { Verb::Generate } else { pass.verb };
    let enter: Enter<L> = match verb {
        Verb::Generate => L::enter::<Generate<false>, false, false, 1>,
        Verb::GenerateCopy => L::enter::<GenerateCopy<false, false, false>, false, false, 1>,
        Verb::Update => L::enter::<Update<false>, false, false, 1>,
        Verb::Check => L::enter::<Check<false>, false, false, 1>,
    };
    let (outputs, rows) = (&pass.outputs[row..=row], &pass.rows[row..=row]);
    (enter, Pass { verb, shape: Shape::Any(1), streaming: false, outputs, rows, ..pass })
}

/// [`Lanes::enter`], compiled for one verb and one shape.
type Enter<L> = unsafe fn(L, &Pass<'_>) -> bool;

/// The function for passes of `shape` whose verb is `A`.
fn shape<L: Lanes, A: Action>(shape: Shape) -> Enter<L> {
    match shape {
        Shape::Any(_) => any_shape::<L, A>(shape),
        Shape::Xor | Shape::PqAnd(_) => parity_shape::<L, A>(shape),
    }
}

/// The same for the shapes that parity has.
fn parity_shape<L: Lanes, A: Action>(shape: Shape) -> Enter<L> {
    match shape {
        Shape::Xor => L::enter::<A, true, false, 0>,
        Shape::PqAnd(0) => L::enter::<A, true, true, 0>,
        Shape::PqAnd(1) => L::enter::<A, true, true, 1>,
        Shape::PqAnd(2) => L::enter::<A, true, true, 2>,
        Shape::PqAnd(3) => L::enter::<A, true, true, 3>,
        Shape::PqAnd(4) => L::enter::<A, true, true, 4>,
        Shape::PqAnd(_) | Shape::Any(_) => unreachable!("a pass has at most REST_MAX other rows"),
    }
}

/// The same for rows of any coefficients.
fn any_shape<L: Lanes, A: Action>(shape: Shape) -> Enter<L> {
    match shape {
        Shape::Any(1) => L::enter::<A, false, false, 1>,
        Shape::Any(2) => L::enter::<A, false, false, 2>,
        Shape::Any(3) => L::enter::<A, false, false, 3>,
        Shape::Any(4) => L::enter::<A, false, false, 4>,
        Shape::Xor | Shape::PqAnd(_) | Shape::Any(_) => {
            unreachable!("a pass has at most REST_MAX other rows")
        }
    }
}
