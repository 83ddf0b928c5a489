//! Intel's ISA-L as an oracle: another implementation, from Debian, that must give the same bytes.
//!
//! What must stay true: `xor_gen` is our P, `pq_gen` our P and Q, and `ec_encode_data` with our
//! rows all our parity strips, for every kernel of this CPU. ISA-L knows the field's polynomial on
//! its own, so an error shared by all our backends and the reference would show here. Without the
//! library (Debian's package libisal2) these tests fail and say so.

#[path = "isal/library.rs"]
mod library;

use ashlar_gf::{PARITY_MAX, PARITY_ROWS};
use ashlar_parity::{Change, Code, DecodePlan, Kernel, Locality};
use ashlar_units::StripSet;
use library::{Isal, Tables};

const LENGTHS: [usize; 6] = [64, 128, 192, 320, 1024, 4160];

/// Strips of one length, in a row and aligned to 64 bytes, with bytes that depend on `seed`.
struct Strips {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
    count: usize,
}

impl Strips {
    fn new(count: usize, bytes: usize, seed: u64) -> Strips {
        let mut state = seed;
        let byte = || {
            // A linear congruential generator; its high byte is good enough to be data.
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let mut memory = vec![0; count * bytes + 64];
        let start = memory.as_ptr().align_offset(64);
        memory[start..][..count * bytes].fill_with(byte);
        Strips { memory, start, bytes, count }
    }

    fn read(&self) -> Vec<&[u8]> {
        self.memory[self.start..].chunks_exact(self.bytes).take(self.count).collect()
    }

    fn write(&mut self) -> Vec<&mut [u8]> {
        self.memory[self.start..].chunks_exact_mut(self.bytes).take(self.count).collect()
    }
}

fn isal() -> Isal {
    Isal::load().unwrap_or_else(|what| panic!("{what}"))
}

/// ISA-L as it chooses for this CPU, and held to each instruction set that we have kernels for.
fn every_isal() -> Vec<Isal> {
    let like = Kernel::all().filter_map(|kernel| Isal::load_like(kernel).ok());
    [isal()].into_iter().chain(like).collect()
}

/// Parity by our kernel.
fn ours(kernel: Kernel, data: &Strips, parity: usize) -> Strips {
    let mut out = Strips::new(parity, data.bytes, 0);
    let code = Code::new(data.read().len(), parity, kernel).unwrap();
    let mut strips: Vec<Option<&mut [u8]>> = out.write().into_iter().map(Some).collect();
    code.generate(&data.read(), &mut strips, Locality::Cached).unwrap();
    out
}

/// All shapes up to 24 data strips, and some wide ones.
fn columns() -> impl Iterator<Item = usize> {
    (2..=24).chain([31, 32, 33, 47, 58])
}

#[test]
fn xor_gen_gives_our_p() {
    let isal = isal();
    for k in columns() {
        for bytes in LENGTHS {
            let data = Strips::new(k, bytes, 1);
            let mut theirs = Strips::new(1, bytes, 2);
            isal.xor_gen(&data.read(), theirs.write().remove(0));
            for kernel in Kernel::all() {
                let ours = ours(kernel, &data, 1);
                assert_eq!(ours.read(), theirs.read(), "{kernel}: {k}+1, {bytes} bytes");
            }
        }
    }
}

#[test]
fn pq_gen_gives_our_p_and_q_and_pq_check_accepts_them() {
    let isal = isal();
    for k in columns() {
        for bytes in LENGTHS {
            let data = Strips::new(k, bytes, 3);
            let mut theirs = Strips::new(2, bytes, 4);
            let [p, q] = theirs.write().try_into().unwrap();
            isal.pq_gen(&data.read(), [p, q]);
            for kernel in Kernel::all() {
                let mut ours = ours(kernel, &data, 2);
                assert_eq!(ours.read(), theirs.read(), "{kernel}: {k}+2, {bytes} bytes");
                let [p, q] = ours.read().try_into().unwrap();
                assert!(isal.pq_check(&data.read(), [p, q]), "{kernel}: {k}+2, {bytes} bytes");
                ours.write()[1][bytes / 2] ^= 1;
                let [p, q] = ours.read().try_into().unwrap();
                assert!(!isal.pq_check(&data.read(), [p, q]), "{kernel}: a wrong bit was accepted");
            }
        }
    }
}

#[test]
fn ec_encode_data_with_our_rows_gives_our_parity() {
    let isal = isal();
    for k in columns().chain([1]) {
        for m in (1..=6).chain([9, 17, PARITY_MAX]).filter(|m| k + m <= 64) {
            let bytes = LENGTHS[(k + m) % LENGTHS.len()];
            let data = Strips::new(k, bytes, 5);
            let mut theirs = Strips::new(m, bytes, 6);
            isal.encode(&Tables::of_code(&isal, k, m), &data.read(), &mut theirs.write());
            for kernel in Kernel::all() {
                let ours = ours(kernel, &data, m);
                assert_eq!(ours.read(), theirs.read(), "{kernel}: {k}+{m}, {bytes} bytes");
            }
        }
    }
}

#[test]
fn ec_encode_data_update_gives_our_update() {
    let isal = isal();
    for (k, m) in [(2, 1), (4, 2), (8, 2), (8, 3), (5, 6), (16, 4), (40, 20)] {
        for column in 0..k {
            let [old, new] = [7, 8].map(|seed| Strips::new(1, 1024, seed));
            let mut delta = Strips::new(1, 1024, 7);
            delta.write()[0].iter_mut().zip(new.read()[0]).for_each(|(delta, new)| *delta ^= new);
            let mut theirs = Strips::new(m, 1024, 9);
            let tables = Tables::of_code(&isal, k, m);
            isal.update(&tables, column, delta.read()[0], &mut theirs.write());
            for kernel in Kernel::all() {
                let mut ours = Strips::new(m, 1024, 9);
                let mut parity: Vec<Option<&mut [u8]>> =
                    ours.write().into_iter().map(Some).collect();
                let change = Change { column, old: old.read()[0], new: new.read()[0] };
                let code = Code::new(k, m, kernel).unwrap();
                code.update(&[change], &mut parity, Locality::Cached).unwrap();
                assert_eq!(ours.read(), theirs.read(), "{kernel}: {k}+{m} column {column}");
            }
        }
    }
}

/// What ISA-L encodes, our plans reconstruct.
#[test]
fn our_plans_reconstruct_what_isal_encoded() {
    let isal = isal();
    for (k, m) in [(4, 2), (8, 3), (10, 4), (20, 6), (30, 12)] {
        let data = Strips::new(k, 1024, 10);
        let mut parity = Strips::new(m, 1024, 11);
        isal.encode(&Tables::of_code(&isal, k, m), &data.read(), &mut parity.write());
        let all: Vec<&[u8]> = data.read().into_iter().chain(parity.read()).collect();
        let lost = StripSet::first(m);
        for kernel in Kernel::all() {
            let code = Code::new(k, m, kernel).unwrap();
            let survivors = StripSet::first(k + m).minus(lost);
            let plan = DecodePlan::new(&code, survivors, lost).unwrap();
            let sources: Vec<&[u8]> = plan.sources().iter().map(|strip| all[strip.at()]).collect();
            let mut rebuilt = Strips::new(m, 1024, 12);
            plan.run(&sources, &mut rebuilt.write(), Locality::Cached).unwrap();
            assert_eq!(rebuilt.read(), all[..m], "{kernel}: {k}+{m}");
        }
    }
}

/// The peers of the benchmark for older CPUs do the same work: their code is another.
#[test]
fn each_instruction_set_of_isal_gives_the_same_bytes() {
    let all = every_isal();
    assert!(all.len() > 1 || !cfg!(target_arch = "x86_64"), "no code for one instruction set");
    let data = Strips::new(8, 4160, 15);
    for m in 1..=6 {
        let ours = ours(Kernel::best(), &data, m);
        for isal in &all {
            let mut theirs = Strips::new(m, 4160, 16);
            match &mut theirs.write()[..] {
                [p] => isal.xor_gen(&data.read(), p),
                [p, q] => isal.pq_gen(&data.read(), [p, q]),
                all => isal.encode(&Tables::of_code(isal, 8, m), &data.read(), all),
            }
            assert_eq!(ours.read(), theirs.read(), "8+{m}");
            let tables = Tables::of_code(isal, 8, m);
            for (column, strip) in data.read().into_iter().enumerate() {
                isal.update(&tables, column, strip, &mut theirs.write());
            }
            let is_zero = theirs.read().concat().iter().all(|&byte| byte == 0);
            assert!(is_zero, "8+{m}: taking out all data leaves nothing");
        }
    }
}

/// A table with one wrong coefficient does not give our bytes: the comparison can fail.
#[test]
fn one_wrong_coefficient_is_seen() {
    let isal = isal();
    let mut row = PARITY_ROWS[2][..8].to_vec();
    row[5] ^= 1;
    let rows = [&PARITY_ROWS[0][..8], &PARITY_ROWS[1][..8], &row];
    let data = Strips::new(8, 1024, 13);
    let mut theirs = Strips::new(3, 1024, 14);
    isal.encode(&Tables::new(&isal, &rows), &data.read(), &mut theirs.write());
    let ours = ours(Kernel::best(), &data, 3);
    assert_eq!(ours.read()[..2], theirs.read()[..2]);
    assert_ne!(ours.read()[2], theirs.read()[2]);
}
