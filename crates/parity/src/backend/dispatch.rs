//! Which loop a pass runs: one for its verb, its shape and its locality, and another for what whole
//! blocks leave over.
//!
//! What must stay true: every loop named here is compiled for every backend, which is most of the
//! time that this crate takes to compile; so there is one only for what is worth it, and none has a
//! second body for the last bytes. Those are done row by row, which reads the sources once for each
//! row: strips that are a multiple of 256 bytes long have none.

use super::generic::{Action, BLOCK_BYTES, Check, Generate, Update};
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
    let whole = pass.bytes - pass.bytes % BLOCK_BYTES;
    let blocks = (whole > 0).then(|| (loop_for::<L>(pass), Pass { bytes: whole, ..*pass }));
    let rows = if whole < pass.bytes { pass.outputs.len() } else { 0 };
    let (start, bytes) = (pass.start + whole, pass.bytes - whole);
    let row = move |row| only_row::<L>(Pass { start, bytes, ..*pass }, row);
    blocks.into_iter().chain((0..rows).map(row))
}

/// The loop over whole blocks for the verb, the shape and the locality of `pass`.
fn loop_for<L: Lanes>(pass: &Pass<'_>) -> Enter<L> {
    let parity = matches!(pass.shape, Shape::Xor | Shape::PqAnd(_));
    match (pass.verb, pass.streaming) {
        (Verb::Generate, false) => shape::<L, Generate<false>>(pass.shape),
        (Verb::Generate, true) => shape::<L, Generate<true>>(pass.shape),
        (Verb::Update, true) if parity => parity_shape::<L, Update<true>>(pass.shape),
        (Verb::Update, _) => shape::<L, Update<false>>(pass.shape),
        (Verb::Check, true) if parity => parity_shape::<L, Check<true>>(pass.shape),
        (Verb::Check, _) => shape::<L, Check<false>>(pass.shape),
    }
}

/// One row of `pass`, past no cache. A row of ones is a row of any coefficients.
fn only_row<'a, L: Lanes>(pass: Pass<'a>, row: usize) -> (Enter<L>, Pass<'a>) {
    let enter: Enter<L> = match pass.verb {
        Verb::Generate => L::enter::<Generate<false>, false, false, 1>,
        Verb::Update => L::enter::<Update<false>, false, false, 1>,
        Verb::Check => L::enter::<Check<false>, false, false, 1>,
    };
    let (outputs, rows) = (&pass.outputs[row..=row], &pass.rows[row..=row]);
    (enter, Pass { shape: Shape::Any(1), streaming: false, outputs, rows, ..pass })
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
