//! BASELINE: what a RAID array could do if the engine cost nothing, from raw runs of the same
//! drives at the same load.
//!
//! What must stay true: a baseline belongs to one workload point (mix, jobs, depth) and says which
//! raw run and which penalty it came from; it is never a datasheet figure and never a single
//! drive's figure times the number of drives.

#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Baseline {
    /// IOPS or bytes a second, as the raw figure was.
    pub value: f64,
    /// The arithmetic, for people to check.
    pub derivation: String,
}

/// Efficiency: an array's rate over its BASELINE, a rate over busy cores, one engine's figure over
/// another's, all of one workload point; what cannot be divided is not given.
pub fn ratio(above: f64, below: f64) -> Option<f64> {
    (below > 0.0 && above.is_finite() && below.is_finite()).then(|| above / below)
}

/// Redundancy that decides what a small write costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    pub data: u32,
    pub parity: u32,
}

impl Code {
    pub fn members(self) -> u32 {
        self.data + self.parity
    }

    /// Member I/Os of a one-block read-modify-write: read and write the data and each parity. RAID
    /// 5: 4, RAID 6: 6.
    pub fn write_penalty(self) -> u32 {
        2 * (1 + self.parity)
    }

    /// Member reads for each one-block random read with `lost` of `drives` out, on average over all
    /// blocks: a read of a lost block needs all data strips' worth of survivors. RAID 5, one out:
    /// 2(n-1)/n; RAID 6, two out: 3(n-2)/n. In groups or declustered, stripes lie over more
    /// drives than they have members.
    pub fn amplification_over(self, drives: u32, lost: u32) -> f64 {
        let (n, f) = (f64::from(drives), f64::from(lost));
        (n - f) / n + f / n * f64::from(self.data)
    }
}

/// Random reads of a healthy array; `raw_iops` is each drive's at its share of the load.
pub fn random_read(raw_iops: &[f64]) -> Baseline {
    let value = raw_iops.iter().sum();
    Baseline { value, derivation: format!("sum of {} drives measured at once", raw_iops.len()) }
}

/// Random one-block writes; `raw_mixed_iops` is what all drives together do at half reads, half
/// writes.
pub fn random_write(code: Code, raw_mixed_iops: f64) -> Baseline {
    let penalty = code.write_penalty();
    Baseline {
        value: raw_mixed_iops / f64::from(penalty),
        derivation: format!(
            "raw total at 50/50 reads and writes, {raw_mixed_iops:.0} IOPS, \
             over {penalty} member I/Os"
        ),
    }
}

/// Random one-block reads of stripes over `drives` with `lost` members out; `raw_sum` is what
/// the drives that are left do together.
pub fn degraded_random_read_over((code, drives): (Code, u32), lost: u32, raw_sum: f64) -> Baseline {
    let amplification = code.amplification_over(drives, lost);
    Baseline {
        value: raw_sum / amplification,
        derivation: format!(
            "raw sum of {} drives, {raw_sum:.0} IOPS, over {amplification:.3} member reads a read",
            drives - lost
        ),
    }
}

/// Sequential full-stripe writes over `drives`: the slowest member sets the pace of a stripe.
/// Bytes a second.
pub fn sequential_write_over((code, drives): (Code, u32), members_bytes_per_s: &[f64]) -> Baseline {
    let slowest = members_bytes_per_s.iter().copied().fold(f64::INFINITY, f64::min);
    let data = f64::from(drives) * f64::from(code.data) / f64::from(code.members());
    let shown = (data * 10.0).round() / 10.0;
    let derivation = format!("{shown} data drives x the slowest of all, {:.1} MB/s", slowest / 1e6);
    Baseline { value: slowest * data, derivation }
}

#[cfg(test)]
mod tests {
    use super::{Code, degraded_random_read_over, random_write, sequential_write_over};

    const RAID5: Code = Code { data: 7, parity: 1 };
    const RAID6: Code = Code { data: 8, parity: 2 };

    #[test]
    fn small_writes_cost_four_and_six_member_ios() {
        let triple = Code { data: 8, parity: 3 };
        assert_eq!([RAID5, RAID6, triple].map(Code::write_penalty), [4, 6, 8]);
        assert!((random_write(RAID6, 600_000.0).value - 100_000.0).abs() < 1e-6);
    }

    /// RAID 60 of two groups 3+2: a lost block costs 3 reads, and 2 of 10 drives are lost.
    #[test]
    fn groups_read_as_many_survivors_as_one_of_their_stripes_has_data() {
        let code = Code { data: 3, parity: 2 };
        assert!((code.amplification_over(10, 2) - (0.8 + 0.2 * 3.0)).abs() < 1e-12);
        for (code, drives, value, said) in
            [(code, 10, 600e6, "6 data"), (RAID6, 42, 3360e6, "33.6")]
        {
            let written = sequential_write_over((code, drives), &vec![100e6; drives as usize]);
            assert!((written.value - value).abs() < 1.0 && written.derivation.starts_with(said));
        }
        // The slowest member sets the pace of full stripes.
        let mut members = vec![500e6; 10];
        members[3] = 200e6;
        assert!((sequential_write_over((RAID6, 10), &members).value - 1.6e9).abs() < 1.0);
    }

    /// Count what a simulated array reads: every block once, with `lost` members out.
    #[test]
    fn degraded_reads_agree_with_a_counted_array() {
        for (code, lost) in [(RAID5, 1), (RAID6, 1), (RAID6, 2)] {
            let n = code.members();
            // With rotation each member holds each role equally often: n stripes, each starting one
            // member on.
            let strips = (0..n).flat_map(|stripe| (0..code.data).map(move |strip| stripe + strip));
            let reads: u32 = strips.map(|at| if at % n < lost { code.data } else { 1 }).sum();
            let counted = f64::from(reads) / f64::from(n * code.data);
            assert!((code.amplification_over(n, lost) - counted).abs() < 1e-12);
        }
        assert!((degraded_random_read_over((RAID6, 10), 2, 2.4e6).value - 1e6).abs() < 1e-3);
    }
}
