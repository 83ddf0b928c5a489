//! Claims about reconstruction.

use ashlar_parity::{Code, Locality, StripMask};

use super::claims::LENGTHS;
use super::strips::{Strip, present_mut, slices, slices_mut, stripe, strips};
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
            for lost in (0..1u64 << total).filter(|lost| StripMask(*lost).count() <= m) {
                let survivors = StripMask(StripMask::first(total).0 & !lost);
                reconstruct(
                    subject,
                    &subject.code(k, m),
                    &all,
                    &mut outputs,
                    [survivors, StripMask(lost)],
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
        let survivors = StripMask(StripMask::first(k + m).0 & !lost.0);
        let wanted_count = random.below(33.min(k + m + 1));
        // The lost, a part of them, or anything at all.
        let wanted = match random.below(3) {
            0 => lost,
            1 => StripMask(lost.0 & random.next()),
            _ => mask(random.distinct(k + m, wanted_count)),
        };
        let mut outputs = strips(wanted.count(), bytes, random.coin(), &mut random);
        reconstruct(subject, &subject.code(k, m), &all, &mut outputs, [survivors, wanted])
            .map_err(|what| format!("seed {seed:#x}: {what}"))?;
    }
    Ok(())
}

/// A degraded read: in the pass that reconstructs, some sources are copied, and the others are not.
pub fn degraded_reads_copy_what_survives(subject: &impl Subject) -> Claim {
    let seed = 0xA5_0008;
    let mut random = Seeded(seed);
    for turn in 0..300 {
        let (k, m) = random.shape();
        let bytes = random.pick(&LENGTHS);
        let all = stripe(k, m, bytes, &mut random);
        let lost_count = random.below(m + 1);
        let lost = mask(random.distinct(k + m, lost_count));
        let survivors = StripMask(StripMask::first(k + m).0 & !lost.0);
        let plan = subject
            .plan(&subject.code(k, m), survivors, lost)
            .map_err(|error| format!("seed {seed:#x}: {error}"))?;
        let count = plan.sources().count();
        let aligned = random.coin();
        let mut copies = strips(count, bytes, aligned, &mut random);
        let before = copies.clone();
        let mut outputs = strips(lost.count(), bytes, aligned, &mut random);
        // All, none or some of them.
        let copied: Vec<bool> = (0..count).map(|_| turn % 3 < random.below(3)).collect();
        let sources: Vec<&[u8]> = plan.sources().iter().map(|strip| all[strip].get()).collect();
        let locality = random.pick(&[Locality::Cached, Locality::Streaming]);
        plan.run_copying(
            &sources,
            &mut present_mut(&mut copies, &copied),
            &mut slices_mut(&mut outputs),
            locality,
        )
        .map_err(|error| format!("seed {seed:#x}: {error}"))?;
        let what = format!("seed {seed:#x}: {k}+{m}, lost {lost:x?}, {bytes} bytes, {locality:?}");
        for (strip, output) in lost.iter().zip(&outputs) {
            claim!(output.get() == all[strip].get(), "{what}: strip {strip} is wrong");
            claim!(output.canaries_are_alive(), "{what}: strip {strip} was overrun");
        }
        for (n, copy) in copies.iter().enumerate() {
            let expected = if copied[n] { sources[n] } else { before[n].get() };
            claim!(copy.get() == expected, "{what}: copy {n} is wrong");
            claim!(copy.canaries_are_alive(), "{what}: copy {n} was overrun");
        }
    }
    Ok(())
}

fn mask(strips: Vec<usize>) -> StripMask {
    strips.into_iter().fold(StripMask(0), StripMask::with)
}

/// Runs the plan for `wanted` and compares with the strips of the stripe.
fn reconstruct(
    subject: &impl Subject,
    code: &Code,
    all: &[Strip],
    outputs: &mut [Strip],
    [survivors, wanted]: [StripMask; 2],
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
        *source = all_slices[strip];
    }
    let outputs = &mut outputs[..wanted.count()];
    let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Strip::get_mut).collect();
    plan.run(&sources[..count], &mut slots, Locality::Cached)
        .map_err(|error| format!("{}: {error}", what()))?;
    for (strip, output) in wanted.iter().zip(outputs) {
        claim!(output.get() == all_slices[strip], "{}: strip {strip} is wrong", what());
        claim!(output.canaries_are_alive(), "{}: strip {strip} was overrun", what());
        output.get_mut().fill(0x99);
    }
    Ok(())
}
