//! What is not a layout, and the one line that says so.

use ashlar_layout::declustered::{Declustered, DeclusteredParts};

use crate::parts;

fn refusal(parts: DeclusteredParts) -> String {
    Declustered::new(parts).expect_err("no layout").to_string()
}

#[test]
fn each_wrong_number_is_refused_with_what_would_do() {
    let good = parts(42, (8, 2), 2);
    assert!(Declustered::new(good).is_ok());
    for (wrong, says) in [
        (DeclusteredParts { data_strips: 0, ..good }, "got 0+2"),
        (DeclusteredParts { parity_strips: 0, ..good }, "got 8+0"),
        (DeclusteredParts { data_strips: 63, ..good }, "at most 64 together, and got 63+2"),
        (DeclusteredParts { parity_strips: 33, ..good }, "1 to 32 parity strips"),
        (DeclusteredParts { members: 1, ..good }, "takes 2 to 256 members and got 1"),
        (DeclusteredParts { members: 257, ..good }, "make several arrays"),
        (DeclusteredParts { domain_members: 0, ..good }, "do not divide into failure domains of 0"),
        (DeclusteredParts { domain_members: 5, ..good }, "give each domain the same number"),
        (DeclusteredParts { spare_columns: 33, ..good }, "need 43 members and there are 42"),
        (DeclusteredParts { domain_members: 6, ..good }, "need 12 failure domains and there are 7"),
        (DeclusteredParts { cell_rows: 0, ..good }, "a cell of 0 strips cannot be"),
        (DeclusteredParts { cell_rows: 4097, ..good }, "it takes 1 to 4,096 strips"),
        (DeclusteredParts { strip_bytes: 2048, ..good }, "a power of two from 4 KiB to 1 MiB"),
        (DeclusteredParts { strip_bytes: 12_288, ..good }, "a strip of"),
        (DeclusteredParts { strip_bytes: 2 << 20, ..good }, "a strip of"),
        (DeclusteredParts { rows: 0, ..good }, "the smallest member has 0 strips"),
        (DeclusteredParts { cell_rows: 2, rows: 1, ..good }, "a slice takes 2; take larger drives"),
        (DeclusteredParts { rows: u64::MAX, ..good }, "an array of more than 4 EiB"),
        (DeclusteredParts { rows: (1 << 50) / 42 + 1, ..good }, "an array of more than 4 EiB"),
    ] {
        let said = refusal(wrong);
        assert!(said.contains(says), "{said}");
        assert!(!said.contains('\n') && !said.contains("  "), "{said}");
    }
}

#[test]
fn numbers_of_a_damaged_superblock_never_overflow() {
    let good = parts(42, (8, 2), 2);
    let far = usize::MAX;
    for wrong in [
        DeclusteredParts { data_strips: far, ..good },
        DeclusteredParts { data_strips: far, parity_strips: far, ..good },
        DeclusteredParts { members: far, ..good },
        DeclusteredParts { domain_members: far, ..good },
        DeclusteredParts { spare_columns: far, ..good },
        DeclusteredParts { cell_rows: u64::MAX, ..good },
        DeclusteredParts { strip_bytes: u64::MAX, ..good },
        DeclusteredParts { strip_bytes: 1 << 63, rows: u64::MAX, ..good },
    ] {
        assert!(!refusal(wrong).is_empty());
    }
}
