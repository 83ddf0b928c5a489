//! What is timed: each verb of the crate, by a kernel, by the ceiling or by ISA-L.
//!
//! What must stay true: whoever runs a verb reads and writes the same strips of the stripe.

use ashlar_gf::{PARITY_ROWS, Square};
use ashlar_parity::{Change, Code, DecodePlan, Kernel, Locality};
use ashlar_units::StripSet;

use crate::ceiling::Loop;
use crate::isal::{Isal, Tables};
use crate::ring::Stripe;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Generate,
    Check,
    Update,
    Decode,
    /// Three data strips in one pass.
    UpdateThree,
}

impl Verb {
    pub const ALL: [Verb; 5] =
        [Verb::Generate, Verb::Check, Verb::Update, Verb::UpdateThree, Verb::Decode];

    pub fn name(self) -> &'static str {
        match self {
            Verb::Generate => "generate",
            Verb::Check => "check",
            Verb::Update => "update 1 strip of",
            Verb::Decode => "decode m data strips of",
            Verb::UpdateThree => "update 3 strips of",
        }
    }
}

/// Columns that an update changes: the first of them, or all.
const CHANGED: [usize; 3] = [3, 1, 5];

/// One column of the table.
pub struct Subject<'a> {
    verb: Verb,
    who: Who<'a>,
}

enum Who<'a> {
    Ceiling(Loop),
    /// Sources are read, nothing else.
    Read(Loop),
    Kernel(Code, Box<DecodePlan>),
    /// A kernel, each call made twice: the slow kernel that a gate must find.
    Twice(Code, Box<DecodePlan>),
    Isal(&'a Isal, Tables),
}

impl<'a> Subject<'a> {
    pub fn ceiling(verb: Verb, how: Loop) -> Subject<'a> {
        Subject { verb, who: Who::Ceiling(how) }
    }

    pub fn read(verb: Verb, how: Loop) -> Subject<'a> {
        Subject { verb, who: Who::Read(how) }
    }

    pub fn kernel(verb: Verb, kernel: Kernel, shape: (usize, usize)) -> Subject<'a> {
        let (code, plan) = code_and_plan(kernel, shape);
        Subject { verb, who: Who::Kernel(code, plan) }
    }

    pub fn twice(verb: Verb, kernel: Kernel, shape: (usize, usize)) -> Subject<'a> {
        let (code, plan) = code_and_plan(kernel, shape);
        Subject { verb, who: Who::Twice(code, plan) }
    }

    pub fn isal(verb: Verb, isal: &'a Isal, (data, parity): (usize, usize)) -> Subject<'a> {
        let tables = match verb {
            Verb::Decode => decode_tables(isal, data, parity),
            _ => Tables::of_code(isal, data, parity),
        };
        Subject { verb, who: Who::Isal(isal, tables) }
    }

    /// The bytes that a figure counts for one run.
    pub fn counted_bytes(&self, stripe: &Stripe<'_>) -> usize {
        let strips = match self.verb {
            Verb::Update => 1,
            Verb::UpdateThree => CHANGED.len(),
            _ => stripe.data.len(),
        };
        strips * stripe.data[0].len()
    }

    pub fn run(&self, stripe: &mut Stripe<'_>, locality: Locality) {
        match &self.who {
            Who::Ceiling(how) => run_ceiling(self.verb, *how, true, stripe),
            Who::Read(how) => run_ceiling(self.verb, *how, false, stripe),
            Who::Kernel(code, plan) => run_kernel(self.verb, code, plan, stripe, locality),
            Who::Twice(code, plan) => {
                run_kernel(self.verb, code, plan, stripe, locality);
                run_kernel(self.verb, code, plan, stripe, locality);
            }
            Who::Isal(isal, tables) => run_isal(self.verb, isal, tables, stripe),
        }
    }
}

fn code_and_plan(kernel: Kernel, (data, parity): (usize, usize)) -> (Code, Box<DecodePlan>) {
    let code = Code::new(data, parity, kernel).expect("the table has sound shapes");
    let survivors = StripSet::range(parity, data + parity);
    let plan = DecodePlan::new(&code, survivors, StripSet::first(parity));
    (code, Box::new(plan.expect("m strips are lost")))
}

/// The first `parity` data strips from the others and the parity, for ISA-L.
fn decode_tables(isal: &Isal, data: usize, parity: usize) -> Tables {
    let cell = |survivor: usize, column: usize| {
        if survivor < data {
            u8::from(survivor == column)
        } else {
            PARITY_ROWS[survivor - data][column]
        }
    };
    let mut matrix = Square::identity(data);
    for source in 0..data {
        for column in 0..data {
            matrix.set(source, column, cell(source + parity, column));
        }
    }
    let inverse = matrix.invert().expect("any k strips determine the others");
    let row = |lost| (0..data).map(|source| inverse.get(lost, source)).collect::<Vec<u8>>();
    let rows: Vec<Vec<u8>> = (0..parity).map(row).collect();
    Tables::new(isal, &rows.iter().map(|row| &row[..]).collect::<Vec<_>>())
}

/// What survives when the first strips are lost: the other data strips, then parity.
fn survivors<'s>(stripe: &'s Stripe<'_>, lost: usize) -> [&'s [u8]; 64] {
    let mut sources = [&[][..]; 64];
    let parity = stripe.parity.iter().flatten().map(|strip| &**strip);
    let survive = stripe.data[lost..].iter().copied().chain(parity);
    sources.iter_mut().zip(survive).for_each(|(source, strip)| *source = strip);
    sources
}

fn run_isal(verb: Verb, isal: &Isal, tables: &Tables, stripe: &mut Stripe<'_>) {
    let mut outputs: [&mut [u8]; 32] = std::array::from_fn(|_| &mut [][..]);
    match verb {
        Verb::Generate => {
            let parity = stripe.parity.iter_mut().flatten().map(|strip| &mut **strip);
            let count = put_all(&mut outputs, parity);
            match &mut outputs[..count] {
                [p] => isal.xor_gen(&stripe.data, p),
                [p, q] => isal.pq_gen(&stripe.data, [p, q]),
                outputs => isal.encode(tables, &stripe.data, outputs),
            }
        }
        Verb::Check => {
            let [Some(p), Some(q)] = &stripe.parity[..] else { panic!("ISA-L checks P and Q") };
            assert!(isal.pq_check(&stripe.data, [p, q]), "stripes to check are consistent");
        }
        Verb::Update | Verb::UpdateThree => {
            let columns = if verb == Verb::Update { &CHANGED[..1] } else { &CHANGED };
            let parity = stripe.parity.iter_mut().flatten().map(|strip| &mut **strip);
            let count = put_all(&mut outputs, parity);
            for &column in columns {
                let delta = &mut *stripe.rebuilt[0];
                isal.xor_gen(&[stripe.data[column], &*stripe.copies[column]], delta);
                isal.update(tables, column, delta, &mut outputs[..count]);
            }
        }
        Verb::Decode => {
            let mut rebuilt = std::mem::take(&mut stripe.rebuilt);
            let sources = survivors(stripe, rebuilt.len());
            isal.encode(tables, &sources[..stripe.data.len()], &mut rebuilt);
            stripe.rebuilt = rebuilt;
        }
    }
}

fn run_kernel(
    verb: Verb,
    code: &Code,
    plan: &DecodePlan,
    stripe: &mut Stripe<'_>,
    locality: Locality,
) {
    if verb == Verb::Decode {
        return run_plan(plan, stripe, locality);
    }
    let Stripe { data, parity, copies, .. } = stripe;
    let mut stored = [None; 32];
    for (stored, parity) in stored.iter_mut().zip(parity.iter()) {
        *stored = parity.as_deref();
    }
    let done = match verb {
        Verb::Generate => code.generate(data, parity, locality),
        Verb::Check => code.check_from(data, &stored[..code.parity_strips()], locality).map(drop),
        Verb::Update | Verb::UpdateThree => {
            let changes =
                CHANGED.map(|column| Change { column, old: data[column], new: &*copies[column] });
            let count = if verb == Verb::Update { 1 } else { changes.len() };
            code.update(&changes[..count], parity, locality)
        }
        Verb::Decode => Ok(()),
    };
    done.expect("the table has sound calls");
}

fn run_plan(plan: &DecodePlan, stripe: &mut Stripe<'_>, locality: Locality) {
    let mut rebuilt = std::mem::take(&mut stripe.rebuilt);
    let sources = survivors(stripe, rebuilt.len());
    let done = plan.run(&sources[..stripe.data.len()], &mut rebuilt, locality);
    stripe.rebuilt = rebuilt;
    done.expect("the table has sound calls");
}

/// Loads what `verb` loads, and stores what it stores if `stores`.
fn run_ceiling(verb: Verb, how: Loop, stores: bool, stripe: &mut Stripe<'_>) {
    let Stripe { data, parity, copies, rebuilt } = stripe;
    let mut read = [&[][..]; 32];
    let mut write: [&mut [u8]; 16] = std::array::from_fn(|_| &mut [][..]);
    let mut reads = data.len();
    read[..reads].copy_from_slice(data);
    let outputs = parity.iter_mut().flatten().map(|strip| &mut **strip);
    let writes = match verb {
        Verb::Check => {
            for strip in outputs {
                read[reads] = strip;
                reads += 1;
            }
            0
        }
        Verb::Decode => put_all(&mut write, rebuilt.iter_mut().map(|strip| &mut **strip)),
        Verb::Generate => put_all(&mut write, outputs),
        Verb::Update | Verb::UpdateThree => {
            let columns = if verb == Verb::Update { &CHANGED[..1] } else { &CHANGED };
            reads = 2 * columns.len();
            for (pair, &column) in read.chunks_mut(2).zip(columns) {
                pair[0] = data[column];
                pair[1] = &*copies[column];
            }
            put_all(&mut write, outputs)
        }
    };
    let writes = if stores { writes } else { 0 };
    let read_back = matches!(verb, Verb::Update | Verb::UpdateThree);
    how.run(&read[..reads], &mut write[..writes], read_back);
}

fn put_all<'a>(list: &mut [&'a mut [u8]], strips: impl Iterator<Item = &'a mut [u8]>) -> usize {
    list.iter_mut().zip(strips).map(|(slot, strip)| *slot = strip).count()
}
