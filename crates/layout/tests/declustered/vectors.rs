//! The vectors of tests/golden/declustered.txt: made by the crate once, checked by the reference.
//! They never change, since layout is on-disk format.

use std::fmt::Write;

use ashlar_layout::declustered::{Declustered, DeclusteredParts, GROWTHS_MAX, Held, MemberRow};
use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};

use crate::parts;
use crate::reference::{Generator, Holds, Reference};

const VECTORS: &str = include_str!("../golden/declustered.txt");

const HEAD: &str = "\
# Vectors of layout 2 (docs/on-disk-format.md). Each line that begins with 'layout' gives the
# parameters of the lines that follow it:
#   layout K M MEMBERS DOMAIN_MEMBERS SPARE_COLUMNS CELL_ROWS STRIP_BYTES ROWS SEED
#   permutation SLICE: the domain in each column
#   stripe NUMBER: member/row of each strip, data strips first
#   row MEMBER ROW: stripe/strip that it holds, or 'spare COLUMN', or 'unused'
";

fn layouts() -> Vec<DeclusteredParts> {
    let hdd = DeclusteredParts {
        cell_rows: 256,
        strip_bytes: 65_536,
        rows: 305_174_528,
        ..parts(42, (8, 2), 2)
    };
    vec![
        hdd,
        DeclusteredParts { domain_members: 3, ..hdd },
        DeclusteredParts { rows: 5243, cell_rows: 3, ..parts(11, (4, 2), 1) },
        DeclusteredParts { members: 240, spare_columns: 4, ..hdd },
        DeclusteredParts { cell_rows: 16, rows: 999_999, ..parts(256, (61, 3), 3) },
        DeclusteredParts { cell_rows: 5, domain_members: 4, ..parts(60, (6, 3), 2) },
        DeclusteredParts { rows: 77, ..parts(2, (1, 1), 0) },
        DeclusteredParts { cell_rows: 8, ..parts(9, (1, 2), 2) },
    ]
}

fn render(parts: DeclusteredParts, text: &mut String) {
    let map = Declustered::new(parts).expect("a layout");
    let DeclusteredParts { data_strips: k, parity_strips: m, members, domain_members, .. } = parts;
    let DeclusteredParts { spare_columns, cell_rows, strip_bytes, rows, seed, .. } = parts;
    write!(text, "layout {k} {m} {members} {domain_members} {spare_columns} ").unwrap();
    writeln!(text, "{cell_rows} {strip_bytes} {rows} {seed}").unwrap();
    let mut generator = Generator(4711);
    let last = map.slices() - 1;
    for slice in [0, 1, 1_000_000.min(last), last] {
        let members = map.columns_of(slice);
        let domains = members.map(|member| map.domain_of(member).to_string());
        writeln!(text, "permutation {slice}: {}", domains.collect::<Vec<_>>().join(" ")).unwrap();
    }
    let count = map.stripe_count();
    for nth in 0..8 {
        let random = to_u64(generator.below(to_usize(count)));
        let number = [0, 1, count / 2, count - 1].get(nth).copied().unwrap_or(random);
        let seat = map.seat(StripeNo(number));
        let strips = (0..k + m).map(StripIdx::from_at).map(|strip| map.place(seat, strip));
        let places: Vec<String> = strips.map(|at| format!("{}/{}", at.member, at.row)).collect();
        writeln!(text, "stripe {number}: {}", places.join(" ")).unwrap();
    }
    for _ in 0..8 {
        let member = MemberIdx::from_at(generator.below(members));
        let row = to_u64(generator.below(to_usize(rows)));
        let held = match map.held(MemberRow { member, row }) {
            Held::Strip(stripe, strip) => format!("{stripe}/{}", strip.0),
            Held::Spare(column) => format!("spare {column}"),
            Held::Unused => "unused".to_owned(),
        };
        writeln!(text, "row {member} {row}: {held}").unwrap();
    }
}

#[test]
fn the_map_is_the_one_of_the_vectors() {
    let mut text = HEAD.to_owned();
    for parts in layouts() {
        render(parts, &mut text);
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("declustered.txt");
    std::fs::write(&path, &text).expect("the folder for tests can be written to");
    assert!(text == VECTORS, "the map changed; the new one is in {}", path.display());
}

fn numbers(text: &str) -> Vec<u64> {
    let parts = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().unwrap()).collect()
}

/// The layout of such a line.
pub fn read_layout(line: &str) -> DeclusteredParts {
    let numbers = numbers(line);
    let small = |at: usize| usize::try_from(numbers[at]).unwrap();
    DeclusteredParts {
        data_strips: small(0),
        parity_strips: small(1),
        members: small(2),
        domain_members: small(3),
        spare_columns: small(4),
        cell_rows: numbers[5],
        strip_bytes: numbers[6],
        rows: numbers[7],
        seed: numbers[8],
        growths: [None; GROWTHS_MAX],
    }
}

/// What the reference says of a place; `None` behind the last whole slice.
fn looked_up(reference: &Reference, rows: u64, member: u64, row: u64) -> Option<Holds> {
    let slice = row / reference.slice_rows();
    if slice >= rows / reference.slice_rows() {
        return None;
    }
    let in_slice = usize::try_from(row % reference.slice_rows()).unwrap();
    reference.slice(slice)[usize::try_from(member).unwrap()][in_slice]
}

#[test]
fn the_reference_agrees_with_every_vector() {
    let (mut reference, mut rows, mut checked) = (None, 0, 0);
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("layout") {
            let parts = read_layout(line);
            rows = parts.rows;
            reference = Some(Reference::new(parts));
            continue;
        }
        let reference = reference.as_ref().unwrap();
        let (head, tail) = line.split_once(": ").unwrap();
        let (of, values) = (numbers(head), numbers(tail));
        match head.split(' ').next().unwrap() {
            "permutation" => {
                let wanted: Vec<u64> =
                    reference.permutation(of[0]).into_iter().map(to_u64).collect();
                assert_eq!(values, wanted, "{line}");
            }
            "stripe" => {
                let slice = reference.slice(of[0] / reference.slice_stripes());
                assert_eq!(values.len(), 2 * reference.width());
                for (strip, at) in values.chunks_exact(2).enumerate() {
                    let in_slice = usize::try_from(at[1] % reference.slice_rows()).unwrap();
                    let holds = slice[usize::try_from(at[0]).unwrap()][in_slice];
                    assert_eq!(holds, Some(Holds::Strip { stripe: of[0], strip }), "{line}");
                    let wanted = of[0] / reference.slice_stripes();
                    assert_eq!(at[1] / reference.slice_rows(), wanted, "{line}");
                }
            }
            _ => {
                let text = match looked_up(reference, rows, of[0], of[1]) {
                    Some(Holds::Strip { stripe, strip }) => format!("{stripe}/{strip}"),
                    Some(Holds::Spare(column)) => format!("spare {column}"),
                    None => "unused".to_owned(),
                };
                assert_eq!(tail, text, "{line}");
            }
        }
        checked += 1;
    }
    assert_eq!(checked, 8 * 20);
}

/// Published with the design before there was code.
#[test]
fn the_first_permutations_of_42_columns_are_the_published_ones() {
    let map = Declustered::new(layouts()[0]).expect("a layout");
    let first = |slice| map.columns_of(slice).take(8).map(|it| it.0).collect::<Vec<u16>>();
    assert_eq!(first(0), [27, 8, 18, 3, 35, 40, 16, 9]);
    assert_eq!(first(1_000_000), [1, 15, 40, 10, 4, 36, 27, 23]);
}
