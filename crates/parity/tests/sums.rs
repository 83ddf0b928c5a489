//! Generate and check with checksums: the same bytes and verdicts as without, and the right sums.
//!
//! What must stay true: what is right is CRC-32C bit by bit from its definition here, for every row
//! of every strip, short last rows and absent parity strips included.

use ashlar_parity::{Code, CodeError, Kernel, Locality, ROW_BYTES, Summed};

/// CRC-32C one bit at a time: polynomial 0x1EDC6F41 reflected, inverted before and after.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Strips with bytes that depend on `seed`.
fn strips(count: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| (0..bytes).map(|_| byte()).collect()).collect()
}

fn read(strips: &[Vec<u8>]) -> Vec<&[u8]> {
    strips.iter().map(|strip| &strip[..]).collect()
}

/// Every parity strip, or `None` for those in `out`.
fn write(strips: &mut [Vec<u8>], out: Option<usize>) -> Vec<Option<&mut [u8]>> {
    let present = |(row, strip)| (out != Some(row)).then_some(strip);
    strips.iter_mut().map(|strip| &mut strip[..]).enumerate().map(present).collect()
}

const UNTOUCHED: u32 = 0xA5A5_A5A5;
const LENGTHS: [usize; 6] = [0, 100, ROW_BYTES - 1, ROW_BYTES, ROW_BYTES + 65, 3 * ROW_BYTES];
const SHAPES: [(usize, usize); 6] = [(1, 0), (1, 1), (4, 1), (8, 2), (5, 3), (10, 8)];

/// The sums of `strips`, but for the one of `absent`.
fn expected(strips: &[&[u8]], absent: Option<usize>) -> Vec<u32> {
    let of_strip = |(index, strip): (usize, &&[u8])| -> Vec<u32> {
        let sum = |row| if absent == Some(index) { UNTOUCHED } else { crc32c(row) };
        strip.chunks(ROW_BYTES).map(sum).collect()
    };
    strips.iter().enumerate().flat_map(of_strip).collect()
}

#[test]
fn generate_copy_summed_is_generate_copy_with_the_sums_of_all_strips() {
    for kernel in Kernel::all() {
        for (k, m) in SHAPES {
            for bytes in LENGTHS {
                for (locality, out) in [(Locality::Cached, None), (Locality::Streaming, Some(0))] {
                    let code = Code::new(k, m, kernel).unwrap();
                    let data = strips(k, bytes, 1);
                    let mut parity = strips(m, bytes, 2);
                    let mut plain = parity.clone();
                    let mut copies = strips(k, bytes, 3);
                    let mut sums = vec![UNTOUCHED; (k + m) * bytes.div_ceil(ROW_BYTES)];
                    let summed = Summed {
                        copies: &mut copies
                            .iter_mut()
                            .map(|copy| &mut copy[..])
                            .collect::<Vec<_>>(),
                        parity: &mut write(&mut parity, out),
                        sums: &mut sums,
                    };
                    code.generate_copy_summed(&read(&data), summed, locality).unwrap();
                    code.generate(&read(&data), &mut write(&mut plain, out), locality).unwrap();
                    let what = format!("{kernel}: {k}+{m}, {bytes} bytes, {locality:?}");
                    assert!(copies == data && parity == plain, "{what}: other bytes");
                    let all = [read(&data), read(&parity)].concat();
                    assert_eq!(sums, expected(&all, out.map(|row| k + row)), "{what}");
                }
            }
        }
    }
}

#[test]
fn check_summed_is_check_with_the_sums_of_all_strips() {
    for kernel in Kernel::all() {
        for (k, m) in SHAPES {
            for bytes in LENGTHS {
                let code = Code::new(k, m, kernel).unwrap();
                let data = strips(k, bytes, 4);
                let mut parity = strips(m, bytes, 5);
                code.generate(&read(&data), &mut write(&mut parity, None), Locality::Cached)
                    .unwrap();
                for (damaged, locality) in [
                    (false, Locality::Cached),
                    (true, Locality::Cached),
                    (false, Locality::Streaming),
                    (true, Locality::Streaming),
                ] {
                    let mut data = data.clone();
                    if let (true, Some(byte)) = (damaged, data[k / 2].last_mut()) {
                        *byte ^= 8;
                    }
                    let stored: Vec<Option<&[u8]>> = parity.iter().map(|p| Some(&p[..])).collect();
                    let mut sums = vec![UNTOUCHED; (k + m) * bytes.div_ceil(ROW_BYTES)];
                    let verdict =
                        code.check_summed(&read(&data), &stored, &mut sums, locality).unwrap();
                    let what = format!(
                        "{kernel}: {k}+{m}, {bytes} bytes, damaged {damaged}, {locality:?}"
                    );
                    assert_eq!(verdict, code.check(&read(&data), &stored).unwrap(), "{what}");
                    let from = code.check_from(&read(&data), &stored, locality).unwrap();
                    assert_eq!(verdict, from, "{what}");
                    assert_eq!(verdict.is_consistent(), !damaged || m == 0 || bytes == 0, "{what}");
                    let all = [read(&data), read(&parity)].concat();
                    assert_eq!(sums, expected(&all, None), "{what}");
                }
            }
        }
    }
}

#[test]
fn sums_copies_and_strips_of_the_wrong_number_or_length_are_refused() {
    let code = Code::new(2, 1, Kernel::best()).unwrap();
    let data = strips(2, 5000, 6);
    let call = |copies: usize, copy_bytes: usize, parity_bytes: usize, sums: usize| {
        let mut copies = strips(copies, copy_bytes, 7);
        let mut parity = strips(1, parity_bytes, 8);
        let mut sums = vec![UNTOUCHED; sums];
        let summed = Summed {
            copies: &mut copies.iter_mut().map(|copy| &mut copy[..]).collect::<Vec<_>>(),
            parity: &mut write(&mut parity, None),
            sums: &mut sums,
        };
        let done = code.generate_copy_summed(&read(&data), summed, Locality::Cached);
        assert!(done.is_ok() || sums.iter().all(|&sum| sum == UNTOUCHED), "sums were written");
        done
    };
    assert_eq!(call(2, 5000, 5000, 6), Ok(()));
    let count = |expected, given| Err(CodeError::WrongCount { expected, given });
    let length = |given| Err(CodeError::WrongLength { expected: 5000, given });
    assert_eq!(call(2, 5000, 5000, 3), count(6, 3));
    assert_eq!(call(1, 5000, 5000, 6), count(2, 1));
    assert_eq!(call(2, 4999, 5000, 6), length(4999));
    assert_eq!(call(2, 5000, 4096, 6), length(4096));
    let mut sums = [0; 3];
    let refused = code.check_summed(&read(&data), &[None], &mut sums, Locality::Cached);
    assert_eq!(refused.err(), count(6, 3).err());
}
