//! What is timed: each verb of the crate, by a kernel or by the ceiling.

use ashlar_parity::{Change, Code, DecodePlan, Kernel, Locality, StripMask};

use crate::ceiling::{Traffic, move_bytes};
use crate::ring::Stripe;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Generate,
    Check,
    Update,
    Decode,
    GenerateCopy,
}

impl Verb {
    pub const ALL: [Verb; 5] =
        [Verb::Generate, Verb::Check, Verb::Update, Verb::Decode, Verb::GenerateCopy];

    pub fn name(self) -> &'static str {
        match self {
            Verb::Generate => "generate",
            Verb::Check => "check",
            Verb::Update => "update 1 strip of",
            Verb::Decode => "decode m data strips of",
            Verb::GenerateCopy => "generate_copy",
        }
    }
}

/// One column of the table.
pub struct Subject {
    verb: Verb,
    /// `None` is the ceiling.
    code: Option<(Code, DecodePlan)>,
}

impl Subject {
    pub fn ceiling(verb: Verb) -> Subject {
        Subject { verb, code: None }
    }

    pub fn kernel(verb: Verb, kernel: Kernel, data: usize, parity: usize) -> Subject {
        let code = Code::new(data, parity, kernel).expect("the table has sound shapes");
        let survivors = StripMask(StripMask::first(data + parity).0 & !StripMask::first(parity).0);
        let plan = DecodePlan::new(&code, survivors, StripMask::first(parity));
        Subject { verb, code: Some((code, plan.expect("m strips are lost"))) }
    }

    /// The bytes that a figure counts for one run.
    pub fn counted_bytes(&self, stripe: &Stripe<'_>) -> usize {
        let strips = if self.verb == Verb::Update { 1 } else { stripe.data.len() };
        strips * stripe.data[0].len()
    }

    pub fn run(&self, stripe: &mut Stripe<'_>, locality: Locality) {
        match &self.code {
            None => run_ceiling(self.verb, stripe, locality),
            Some((code, plan)) => run_kernel(self.verb, code, plan, stripe, locality),
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
    let Stripe { data, parity, copies, rebuilt } = stripe;
    let mut stored = [None; 32];
    for (stored, parity) in stored.iter_mut().zip(parity.iter()) {
        *stored = parity.as_deref();
    }
    let done = match verb {
        Verb::Generate => code.generate(data, parity, locality),
        Verb::GenerateCopy => code.generate_copy(data, copies, parity, locality),
        Verb::Check => code.check(data, &stored[..code.parity_strips()]).map(drop),
        Verb::Update => {
            let change = Change { column: 3, old: data[3], new: &*copies[3] };
            code.update(&[change], parity, locality)
        }
        Verb::Decode => {
            // The first m data strips are lost: what survives is the other data, then parity.
            let mut sources = [&[][..]; 64];
            let survive = data[rebuilt.len()..].iter().copied().chain(stored.into_iter().flatten());
            sources.iter_mut().zip(survive).for_each(|(source, strip)| *source = strip);
            plan.run(&sources[..data.len()], rebuilt, locality)
        }
    };
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
        Verb::Check => {
            for strip in outputs {
                read[reads] = strip;
                reads += 1;
            }
            0
        }
        Verb::Decode => put_all(&mut write, rebuilt.iter_mut().map(|strip| &mut **strip)),
        Verb::GenerateCopy => {
            traffic.copies = data.len();
            put_all(&mut write, copies.iter_mut().map(|strip| &mut **strip).chain(outputs))
        }
        Verb::Generate => put_all(&mut write, outputs),
        Verb::Update => {
            read[0] = data[3];
            read[1] = &*copies[3];
            reads = 2;
            traffic.read_back = true;
            put_all(&mut write, outputs)
        }
    };
    move_bytes(&read[..reads], &mut write[..writes], traffic);
}

fn put_all<'a>(list: &mut [&'a mut [u8]], strips: impl Iterator<Item = &'a mut [u8]>) -> usize {
    list.iter_mut().zip(strips).map(|(slot, strip)| *slot = strip).count()
}
