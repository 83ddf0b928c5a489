//! Testing the tests: subjects that are wrong on purpose, in one coefficient or one byte, and must
//! be caught by the claims that guard against just that.

use ashlar_gf::{PARITY_ROWS, mul};
use ashlar_parity::{Change, Code, CodeError, DecodePlan, Kernel, Locality, Verdict};
use ashlar_units::StripSet;

use crate::runner::{Subject, claims, decode_claims};

/// What a [`Broken`] kernel gets wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Q's coefficient of data strip 2 is off by one when generating.
    GenerateCoefficient,
    /// The same when updating.
    UpdateCoefficient,
    /// The last byte of P is not written.
    LastByte,
    /// The last parity strip is never compared.
    BlindCheck,
    /// Plans have the coefficients of another code.
    PlanForOtherCode,
}

struct Broken(Flaw);

impl Broken {
    /// What adding 1 to the coefficient of column 2 in Q changes.
    fn spoil(parity: &mut [Option<&mut [u8]>], delta: impl Iterator<Item = u8>) {
        if let Some(Some(q)) = parity.get_mut(1) {
            for (byte, delta) in q.iter_mut().zip(delta) {
                *byte ^= mul(PARITY_ROWS[1][2] ^ 1, delta) ^ mul(PARITY_ROWS[1][2], delta);
            }
        }
    }
}

impl Subject for Broken {
    fn kernel(&self) -> Kernel {
        Kernel::best()
    }

    fn generate(
        &self,
        code: &Code,
        data: &[&[u8]],
        parity: &mut [Option<&mut [u8]>],
        locality: Locality,
    ) -> Result<(), CodeError> {
        let last = parity.first().and_then(|p| p.as_ref()?.last().copied());
        code.generate(data, parity, locality)?;
        match (self.0, data.get(2), last) {
            (Flaw::GenerateCoefficient, Some(strip), _) => {
                Broken::spoil(parity, strip.iter().copied());
            }
            (Flaw::LastByte, _, Some(last)) => {
                if let Some(place) = parity[0].as_mut().and_then(|p| p.last_mut()) {
                    *place = last;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn update(
        &self,
        code: &Code,
        changes: &[Change<'_>],
        parity: &mut [Option<&mut [u8]>],
        locality: Locality,
    ) -> Result<(), CodeError> {
        code.update(changes, parity, locality)?;
        let change = changes.iter().find(|change| change.column == 2);
        if let (Flaw::UpdateCoefficient, Some(change)) = (self.0, change) {
            Broken::spoil(parity, change.old.iter().zip(change.new).map(|(old, new)| old ^ new));
        }
        Ok(())
    }

    fn check(
        &self,
        code: &Code,
        data: &[&[u8]],
        parity: &[Option<&[u8]>],
    ) -> Result<Verdict, CodeError> {
        let mut seen = parity.to_vec();
        if self.0 == Flaw::BlindCheck {
            *seen.last_mut().unwrap() = None;
        }
        code.check(data, &seen)
    }

    fn plan(
        &self,
        code: &Code,
        survivors: StripSet,
        wanted: StripSet,
    ) -> Result<DecodePlan, CodeError> {
        let (k, m) = (code.data_strips(), code.parity_strips());
        if self.0 == Flaw::PlanForOtherCode && k > 1 && survivors.count() == k + m - 1 && m > 1 {
            // The plan for one strip fewer of parity calls strip k data, and reads P as if it were.
            let other = Code::new(k + 1, m - 1, code.kernel())?;
            return DecodePlan::new(&other, survivors, wanted);
        }
        DecodePlan::new(code, survivors, wanted)
    }
}

#[test]
fn a_sound_subject_meets_the_claims_that_catch_the_broken_ones() {
    let sound = Broken(Flaw::None);
    assert_eq!(claims::generate_is_the_definition(&sound), Ok(()));
    assert_eq!(claims::updates_composed_are_generate(&sound), Ok(()));
    assert_eq!(claims::every_flipped_bit_is_found_and_located(&sound), Ok(()));
    assert_eq!(decode_claims::every_loss_is_reconstructed(&sound, 6), Ok(()));
}

#[test]
fn a_wrong_coefficient_in_generate_is_caught() {
    let caught = claims::generate_is_the_definition(&Broken(Flaw::GenerateCoefficient));
    assert!(caught.unwrap_err().contains("parity 1 is wrong"));
}

#[test]
fn a_wrong_coefficient_in_update_is_caught() {
    let caught = claims::updates_composed_are_generate(&Broken(Flaw::UpdateCoefficient));
    assert!(caught.unwrap_err().contains("parity 1 is wrong"));
}

#[test]
fn a_last_byte_that_is_not_written_is_caught() {
    let caught = claims::generate_is_the_definition(&Broken(Flaw::LastByte));
    assert!(caught.unwrap_err().contains("parity 0 is wrong"));
}

#[test]
fn a_check_that_skips_a_parity_is_caught() {
    let caught = claims::every_flipped_bit_is_found_and_located(&Broken(Flaw::BlindCheck));
    assert!(caught.is_err());
}

#[test]
fn a_plan_with_other_coefficients_is_caught() {
    let caught = decode_claims::every_loss_is_reconstructed(&Broken(Flaw::PlanForOtherCode), 6);
    assert!(caught.is_err());
}
