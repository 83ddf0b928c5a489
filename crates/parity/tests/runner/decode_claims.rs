//! Claims about reconstruction.

use ashlar_parity::{Code, Locality};
use ashlar_units::{StripIdx, StripSet};

use super::strips::{Strip, slices, stripe, strips};
use super::{Claim, Seeded, Subject};
use crate::claim;

/// All patterns of at most m losses of every code up to `strips_max` strips.
pub fn every_loss_is_reconstructed(subject: &impl Subject, strips_max: usize) -> Claim {
    let mut random = Seeded(0xA5_0006);
    for total in 1..=strips_max {
        for m in 0..total {
            let k = total - m;
            let bytes = random.pick(&[64, 100, 192]);
            let all = stripe(k, m, bytes, &mut random);
            let mut outputs = strips(m, bytes, random.coin(), &mut random);
            for lost in (0..1u64 << total).filter(|lost| StripSet(*lost).count() <= m) {
                let survivors = StripSet(StripSet::first(total).0 & !lost);
                reconstruct(
                    subject,
                    &subject.code(k, m),
                    &all,
                    &mut outputs,
                    [survivors, StripSet(lost)],
                )?;
            }
        }
    }
    Ok(())
}

/// Samples of codes up to 64 strips: any survivors that suffice, any strips wanted.
pub fn sampled_losses_of_wide_codes_are_reconstructed(subject: &impl Subject) -> Claim {
    let seed = 0xA5_0007;
    let mut random = Seeded(seed);
    for _ in 0..200 {
        let (k, m) = random.shape();
        let bytes = random.pick(&[1, 64, 130, 4096 + 64]);
        let all = stripe(k, m, bytes, &mut random);
        let lost_count = random.below(m + 1);
        let lost = mask(random.distinct(k + m, lost_count));
        let survivors = StripSet::first(k + m).minus(lost);
        let wanted_count = random.below(33.min(k + m + 1));
        // The lost, a part of them, or anything at all.
        let wanted = match random.below(3) {
            0 => lost,
            1 => StripSet(lost.0 & random.next()),
            _ => mask(random.distinct(k + m, wanted_count)),
        };
        let mut outputs = strips(wanted.count(), bytes, random.coin(), &mut random);
        reconstruct(subject, &subject.code(k, m), &all, &mut outputs, [survivors, wanted])
            .map_err(|what| format!("seed {seed:#x}: {what}"))?;
    }
    Ok(())
}

fn mask(strips: Vec<usize>) -> StripSet {
    strips.into_iter().map(StripIdx::from_at).collect()
}

/// Runs the plan for `wanted` and compares with the strips of the stripe.
fn reconstruct(
    subject: &impl Subject,
    code: &Code,
    all: &[Strip],
    outputs: &mut [Strip],
    [survivors, wanted]: [StripSet; 2],
) -> Claim {
    let what = || format!("{code:?} {survivors:x?} -> {wanted:x?}");
    let plan =
        subject.plan(code, survivors, wanted).map_err(|error| format!("{}: {error}", what()))?;
    claim!(plan.sources().0 & !survivors.0 == 0, "{}: reads a lost strip", what());
    claim!(plan.sources().count() <= code.data_strips(), "{}: reads more than k strips", what());
    let all_slices = slices(all);
    let mut sources = [&[][..]; 64];
    let count = plan.sources().count();
    for (source, strip) in sources.iter_mut().zip(plan.sources().iter()) {
        *source = all_slices[strip.at()];
    }
    let outputs = &mut outputs[..wanted.count()];
    let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Strip::get_mut).collect();
    plan.run(&sources[..count], &mut slots, Locality::Cached)
        .map_err(|error| format!("{}: {error}", what()))?;
    for (strip, output) in wanted.iter().zip(outputs) {
        claim!(output.get() == all_slices[strip.at()], "{}: strip {} is wrong", what(), strip.at());
        claim!(output.canaries_are_alive(), "{}: strip {} was overrun", what(), strip.at());
        output.get_mut().fill(0x99);
    }
    Ok(())
}
