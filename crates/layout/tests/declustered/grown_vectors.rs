//! The vectors of tests/golden/growth.txt: made by the crate once; those of small arrays are
//! checked by the reference, all of them by the second reader. They never change, since layout is
//! on-disk format.

use std::fmt::Write;

use ashlar_layout::declustered::{
    CellMove, Declustered, DeclusteredParts, GrowthAt, GrowthParts, Held, MemberRow,
};
use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};

use crate::grown_reference::table;
use crate::growth::{grown, with_cells};
use crate::parts;
use crate::reference::{Generator, Holds};

const VECTORS: &str = include_str!("../golden/growth.txt");

const HEAD: &str = "\
# Vectors of the growth of layout 2 (docs/on-disk-format.md). Each line that begins with 'layout'
# gives the parameters of the lines that follow it; MEMBERS are those after all growths:
#   layout K M MEMBERS DOMAIN_MEMBERS SPARE_COLUMNS CELL_ROWS STRIP_BYTES ROWS SEED
#   growth MEMBERS_BEFORE MOVED_CELLS
#   stripes COUNT
#   moves CELL: the members that the growth under way moves this cell from and to
#   stripe NUMBER: member/row of each strip, data strips first
#   row MEMBER ROW: stripe/strip that it holds, or 'spare COLUMN', or 'unused'
";

/// Rows of arrays that the reference looks at.
const ROWS_SMALL: u64 = 20_000;

/// At this many parts of 4 of the growth under way.
fn at(growing: DeclusteredParts, part: u64) -> DeclusteredParts {
    let map = Declustered::new(growing).expect("a layout");
    let GrowthAt { end_cells, step_cells, .. } = map.growth().expect("it grows");
    map.moved_to(end_cells * part / 4 / step_cells * step_cells).expect("a frontier").parts()
}

fn growing(layout: DeclusteredParts, before: &[usize], added: usize) -> DeclusteredParts {
    grown(layout, before).grown_by(added).expect("it can grow")
}

fn layouts() -> Vec<DeclusteredParts> {
    let hdd = DeclusteredParts {
        cell_rows: 256,
        strip_bytes: 65_536,
        rows: 305_174_528,
        ..parts(42, (8, 2), 2)
    };
    let small = DeclusteredParts { cell_rows: 3, ..parts(5, (2, 1), 1) };
    let small = with_cells(small, &[2, 1], 1);
    let domains = DeclusteredParts { cell_rows: 2, domain_members: 2, ..parts(8, (2, 1), 0) };
    let domains = with_cells(domains, &[4], 2);
    vec![
        at(growing(hdd, &[], 6), 0),
        at(growing(hdd, &[], 6), 2),
        grown(hdd, &[6]),
        at(growing(hdd, &[6], 6), 3),
        grown(hdd, &[6, 42]),
        grown(DeclusteredParts { domain_members: 3, ..hdd }, &[6]),
        at(growing(small, &[], 2), 1),
        at(growing(small, &[2], 1), 2),
        grown(small, &[2, 1]),
        at(growing(domains, &[], 4), 3),
        grown(domains, &[4]),
    ]
}

fn render(parts: DeclusteredParts, text: &mut String) {
    let map = Declustered::new(parts).expect("a layout");
    let DeclusteredParts { data_strips: k, parity_strips: m, members, domain_members, .. } = parts;
    let DeclusteredParts { spare_columns, cell_rows, strip_bytes, rows, seed, .. } = parts;
    write!(text, "layout {k} {m} {members} {domain_members} {spare_columns} ").unwrap();
    writeln!(text, "{cell_rows} {strip_bytes} {rows} {seed}").unwrap();
    for growth in parts.growths.iter().flatten() {
        writeln!(text, "growth {} {}", growth.members_before, growth.moved_cells).unwrap();
    }
    let count = map.stripe_count();
    writeln!(text, "stripes {count}").unwrap();
    let mut generator = Generator(4712);
    for nth in 0..map.growth().map_or(0, |_| 3) {
        let cell = to_u64(generator.below(to_usize(map.growth().expect("it grows").end_cells)));
        let cell = [0].get(nth).copied().unwrap_or(cell);
        let moves = map.moves(cell..cell + 1).into_iter();
        let moves = moves.map(|CellMove { from, to, .. }| format!("{from}>{to}"));
        writeln!(text, "moves {cell}: {}", moves.collect::<Vec<_>>().join(" ")).unwrap();
    }
    for nth in 0..8 {
        let random = to_u64(generator.below(to_usize(count)));
        let number = [0, count - 1, count / 8 * 7].get(nth).copied().unwrap_or(random);
        let seat = map.seat(StripeNo(number));
        let strips = (0..k + m).map(StripIdx::from_at).map(|strip| map.place(seat, strip));
        let places: Vec<String> = strips.map(|at| format!("{}/{}", at.member, at.row)).collect();
        writeln!(text, "stripe {number}: {}", places.join(" ")).unwrap();
    }
    for nth in 0..8 {
        let member = match nth % 2 {
            0 => generator.below(members),
            _ => members - 1 - generator.below(3),
        };
        let (member, row) = (MemberIdx::from_at(member), to_u64(generator.below(to_usize(rows))));
        let held = match map.held(MemberRow { member, row }) {
            Held::Strip(stripe, strip) => format!("{stripe}/{}", strip.0),
            Held::Spare(column) => format!("spare {column}"),
            Held::Unused => "unused".to_owned(),
        };
        writeln!(text, "row {member} {row}: {held}").unwrap();
    }
}

#[test]
fn the_map_of_grown_pools_is_the_one_of_the_vectors() {
    let mut text = HEAD.to_owned();
    for parts in layouts() {
        render(parts, &mut text);
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("growth.txt");
    std::fs::write(&path, &text).expect("the folder for tests can be written to");
    assert!(text == VECTORS, "the map changed; the new one is in {}", path.display());
}

fn numbers(text: &str) -> Vec<u64> {
    let parts = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().unwrap()).collect()
}

/// The lines of each layout.
fn sections() -> Vec<Vec<&'static str>> {
    let mut sections: Vec<Vec<&str>> = Vec::new();
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("layout") {
            sections.push(Vec::new());
        }
        sections.last_mut().expect("a layout first").push(line);
    }
    sections
}

fn read_layout(lines: &[&str]) -> DeclusteredParts {
    let mut layout = crate::vectors::read_layout(lines[0]);
    let growths = lines.iter().filter(|line| line.starts_with("growth"));
    for (place, line) in layout.growths.iter_mut().zip(growths) {
        let [members_before, moved_cells] = numbers(line)[..] else { panic!("{line}") };
        *place = Some(GrowthParts { members_before: to_usize(members_before), moved_cells });
    }
    layout
}

#[test]
fn the_reference_agrees_with_every_vector_of_small_grown_pools() {
    let mut checked = 0;
    for lines in sections() {
        let layout = read_layout(&lines);
        if layout.rows > ROWS_SMALL {
            continue;
        }
        let table = table(layout);
        for line in &lines[1..] {
            let Some((head, tail)) = line.split_once(": ") else { continue };
            let (of, values) = (numbers(head), numbers(tail));
            match head.split(' ').next().unwrap() {
                "stripe" => {
                    for (strip, at) in values.chunks_exact(2).enumerate() {
                        let holds = table[to_usize(at[0])][to_usize(at[1])];
                        assert_eq!(holds, Some(Holds::Strip { stripe: of[0], strip }), "{line}");
                    }
                }
                "row" => {
                    let text = match table[to_usize(of[0])][to_usize(of[1])] {
                        Some(Holds::Strip { stripe, strip }) => format!("{stripe}/{strip}"),
                        Some(Holds::Spare(column)) => format!("spare {column}"),
                        None => "unused".to_owned(),
                    };
                    assert_eq!(tail, text, "{line}");
                }
                _ => continue,
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 5 * 16);
}
