//! What is timed: each verb of the crate, by a kernel, by the ceiling or by ISA-L.
//!
//! What must stay true: whoever runs a verb reads and writes the same strips of the stripe.

use ashlar_gf::{PARITY_ROWS, Square};
use ashlar_parity::{Change, Code, DecodePlan, Kernel, Locality, StripMask, Summed};

use crate::ceiling::{Traffic, move_bytes};
use crate::isal::{Isal, Tables};
use crate::ring::Stripe;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Generate,
    Check,
    Update,
    Decode,
    GenerateCopy,
    /// Three data strips in one pass.
    UpdateThree,
    /// A degraded read: the sources that are data strips are copied too.
    DecodeCopy,
    /// With CRC-32C of each 4 KiB.
    SummedCheck,
    SummedCopy,
}

impl Verb {
    pub const ALL: [Verb; 7] = [
        Verb::Generate,
        Verb::Check,
        Verb::Update,
        Verb::UpdateThree,
        Verb::Decode,
        Verb::DecodeCopy,
        Verb::GenerateCopy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verb::Generate => "generate",
            Verb::Check => "check",
            Verb::Update => "update 1 strip of",
            Verb::Decode => "decode m data strips of",
            Verb::UpdateThree => "update 3 strips of",
            Verb::DecodeCopy => "decode m data strips and copy the others of",
            Verb::GenerateCopy => "generate_copy",
            Verb::SummedCheck => "check with sums",
            Verb::SummedCopy => "generate_copy with sums",
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
    Ceiling,
    /// The data strips are read, nothing else.
    Read,
    Kernel(Code, Box<DecodePlan>),
    /// A kernel, each call made twice: the slow kernel that a gate must find.
    Twice(Code, Box<DecodePlan>),
    /// The verb without sums, then the sums of all strips.
    Apart(Code, Box<DecodePlan>),
    /// Only the copies, by the C library's memcpy.
    Copy,
    Isal(&'a Isal, Tables),
}

impl<'a> Subject<'a> {
    pub fn ceiling(verb: Verb) -> Subject<'a> {
        Subject { verb, who: Who::Ceiling }
    }

    pub fn read() -> Subject<'a> {
        Subject { verb: Verb::Generate, who: Who::Read }
    }

    pub fn kernel(verb: Verb, kernel: Kernel, shape: (usize, usize)) -> Subject<'a> {
        let (code, plan) = code_and_plan(kernel, shape);
        Subject { verb, who: Who::Kernel(code, plan) }
    }

    pub fn twice(verb: Verb, kernel: Kernel, shape: (usize, usize)) -> Subject<'a> {
        let (code, plan) = code_and_plan(kernel, shape);
        Subject { verb, who: Who::Twice(code, plan) }
    }

    pub fn apart(verb: Verb, kernel: Kernel, shape: (usize, usize)) -> Subject<'a> {
        let (code, plan) = code_and_plan(kernel, shape);
        Subject { verb, who: Who::Apart(code, plan) }
    }

    pub fn copy() -> Subject<'a> {
        Subject { verb: Verb::GenerateCopy, who: Who::Copy }
    }

    pub fn isal(verb: Verb, isal: &'a Isal, (data, parity): (usize, usize)) -> Subject<'a> {
        let tables = match verb {
            Verb::Decode | Verb::DecodeCopy => decode_tables(isal, data, parity),
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
            Who::Ceiling => run_ceiling(self.verb, stripe, locality),
            Who::Kernel(code, plan) => run_kernel(self.verb, code, plan, stripe, locality),
            Who::Twice(code, plan) => {
                run_kernel(self.verb, code, plan, stripe, locality);
                run_kernel(self.verb, code, plan, stripe, locality);
            }
            Who::Apart(code, plan) => run_apart(self.verb, code, plan, stripe, locality),
            Who::Copy => copy_data(stripe),
            Who::Read => {
                let streaming = locality == Locality::Streaming;
                let traffic = Traffic { streaming, copies: 0, read_back: false };
                move_bytes(&stripe.data, &mut [], traffic);
            }
            Who::Isal(isal, tables) => run_isal(self.verb, isal, tables, stripe),
        }
    }
}

fn code_and_plan(kernel: Kernel, (data, parity): (usize, usize)) -> (Code, Box<DecodePlan>) {
    let code = Code::new(data, parity, kernel).expect("the table has sound shapes");
    let survivors = StripMask(StripMask::first(data + parity).0 & !StripMask::first(parity).0);
    let plan = DecodePlan::new(&code, survivors, StripMask::first(parity));
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

fn copy_data(stripe: &mut Stripe<'_>) {
    for (copy, data) in stripe.copies.iter_mut().zip(&stripe.data) {
        copy.copy_from_slice(data);
    }
}

fn run_isal(verb: Verb, isal: &Isal, tables: &Tables, stripe: &mut Stripe<'_>) {
    if verb == Verb::GenerateCopy {
        copy_data(stripe);
    }
    if verb == Verb::DecodeCopy {
        let survive = &stripe.data[stripe.rebuilt.len()..];
        stripe.copies.iter_mut().zip(survive).for_each(|(copy, data)| copy.copy_from_slice(data));
    }
    let mut outputs: [&mut [u8]; 32] = std::array::from_fn(|_| &mut [][..]);
    match verb {
        Verb::Generate | Verb::GenerateCopy => {
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
        Verb::Decode | Verb::DecodeCopy => {
            let mut rebuilt = std::mem::take(&mut stripe.rebuilt);
            let sources = survivors(stripe, rebuilt.len());
            isal.encode(tables, &sources[..stripe.data.len()], &mut rebuilt);
            stripe.rebuilt = rebuilt;
        }
        Verb::SummedCheck | Verb::SummedCopy => panic!("ISA-L has no such thing in one call"),
    }
}

/// Parity first, then the sums, as two calls would.
fn run_apart(
    verb: Verb,
    code: &Code,
    plan: &DecodePlan,
    stripe: &mut Stripe<'_>,
    locality: Locality,
) {
    let plain = if verb == Verb::SummedCheck { Verb::Check } else { Verb::GenerateCopy };
    run_kernel(plain, code, plan, stripe, locality);
    let mut any = 0;
    let parity = stripe.parity.iter().flatten().map(|strip| &**strip);
    for strip in stripe.data.iter().copied().chain(parity) {
        any ^= strip.chunks(4096).fold(0, |any, row| any ^ crc_fast::crc32_iscsi(row));
    }
    std::hint::black_box(any);
}

/// Sums of the largest stripe that is timed with them.
const SUMS_MAX: usize = 32 * 64;

fn run_kernel(
    verb: Verb,
    code: &Code,
    plan: &DecodePlan,
    stripe: &mut Stripe<'_>,
    locality: Locality,
) {
    if matches!(verb, Verb::Decode | Verb::DecodeCopy) {
        return run_plan(verb, plan, stripe, locality);
    }
    let Stripe { data, parity, copies, .. } = stripe;
    let mut stored = [None; 32];
    for (stored, parity) in stored.iter_mut().zip(parity.iter()) {
        *stored = parity.as_deref();
    }
    let done = match verb {
        Verb::Generate => code.generate(data, parity, locality),
        Verb::GenerateCopy => code.generate_copy(data, copies, parity, locality),
        Verb::Check => code.check_from(data, &stored[..code.parity_strips()], locality).map(drop),
        Verb::Update | Verb::UpdateThree => {
            let changes =
                CHANGED.map(|column| Change { column, old: data[column], new: &*copies[column] });
            let count = if verb == Verb::Update { 1 } else { changes.len() };
            code.update(&changes[..count], parity, locality)
        }
        Verb::SummedCheck => {
            let mut sums = [0; SUMS_MAX];
            let sums = &mut sums[..code.strips() * data[0].len().div_ceil(4096)];
            let verdict = code.check_summed(data, &stored[..code.parity_strips()], sums, locality);
            std::hint::black_box(sums);
            verdict.map(drop)
        }
        Verb::SummedCopy => {
            let mut sums = [0; SUMS_MAX];
            let sums = &mut sums[..code.strips() * data[0].len().div_ceil(4096)];
            let done = code.generate_copy_summed(data, Summed { copies, parity, sums }, locality);
            std::hint::black_box(&sums);
            done
        }
        Verb::Decode | Verb::DecodeCopy => Ok(()),
    };
    done.expect("the table has sound calls");
}

fn run_plan(verb: Verb, plan: &DecodePlan, stripe: &mut Stripe<'_>, locality: Locality) {
    let mut rebuilt = std::mem::take(&mut stripe.rebuilt);
    let mut copies = std::mem::take(&mut stripe.copies);
    let (count, copied) = (stripe.data.len(), stripe.data.len() - rebuilt.len());
    let sources = survivors(stripe, rebuilt.len());
    let done = if verb == Verb::DecodeCopy {
        let mut places: [Option<&mut [u8]>; 64] = [const { None }; 64];
        for (place, copy) in places.iter_mut().zip(&mut copies[..copied]) {
            *place = Some(copy);
        }
        plan.run_copying(&sources[..count], &mut places[..count], &mut rebuilt, locality)
    } else {
        plan.run(&sources[..count], &mut rebuilt, locality)
    };
    stripe.rebuilt = rebuilt;
    stripe.copies = copies;
    done.expect("the table has sound calls");
}

fn run_ceiling(verb: Verb, stripe: &mut Stripe<'_>, locality: Locality) {
    let Stripe { data, parity, copies, rebuilt } = stripe;
    let streaming = locality == Locality::Streaming;
    let mut read = [&[][..]; 64];
    let mut write: [&mut [u8]; 64] = std::array::from_fn(|_| &mut [][..]);
    let mut reads = data.len();
    read[..reads].copy_from_slice(data);
    let mut traffic = Traffic { streaming, copies: 0, read_back: false };
    let outputs = parity.iter_mut().flatten().map(|strip| &mut **strip);
    let writes = match verb {
        Verb::Check | Verb::SummedCheck => {
            for strip in outputs {
                read[reads] = strip;
                reads += 1;
            }
            0
        }
        Verb::Decode => put_all(&mut write, rebuilt.iter_mut().map(|strip| &mut **strip)),
        Verb::DecodeCopy => {
            traffic.copies = data.len() - rebuilt.len();
            let copied = copies.iter_mut().take(traffic.copies).map(|strip| &mut **strip);
            put_all(&mut write, copied.chain(rebuilt.iter_mut().map(|strip| &mut **strip)))
        }
        Verb::GenerateCopy | Verb::SummedCopy => {
            traffic.copies = data.len();
            put_all(&mut write, copies.iter_mut().map(|strip| &mut **strip).chain(outputs))
        }
        Verb::Generate => put_all(&mut write, outputs),
        Verb::Update | Verb::UpdateThree => {
            let columns = if verb == Verb::Update { &CHANGED[..1] } else { &CHANGED };
            reads = 2 * columns.len();
            for (pair, &column) in read.chunks_mut(2).zip(columns) {
                pair[0] = data[column];
                pair[1] = &*copies[column];
            }
            traffic.read_back = true;
            put_all(&mut write, outputs)
        }
    };
    move_bytes(&read[..reads], &mut write[..writes], traffic);
}

fn put_all<'a>(list: &mut [&'a mut [u8]], strips: impl Iterator<Item = &'a mut [u8]>) -> usize {
    list.iter_mut().zip(strips).map(|(slot, strip)| *slot = strip).count()
}
