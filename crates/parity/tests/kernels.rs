//! Every backend against the definition, a few lines each; the claims themselves are in `runner`.
//!
//! A backend that this CPU lacks is named on stderr and its tests claim nothing. On an x86-64
//! machine `check-neon` in this crate's folder runs the NEON ones under an emulator.

mod runner;

use ashlar_parity::Kernel;
use runner::{Claim, alignments, claims, decode_claims};

/// Holds `kernel` to `claim`, if it can run here.
fn hold(name: &str, claim: impl Fn(&Kernel) -> Claim) {
    match Kernel::by_name(name) {
        Ok(kernel) => claim(&kernel).unwrap_or_else(|what| panic!("{name}: {what}")),
        Err(_) => eprintln!("not tested here: kernel {name} needs CPU features this machine lacks"),
    }
}

macro_rules! backend {
    ($module:ident, $name:literal, losses up to $strips_max:literal) => {
        mod $module {
            use super::{alignments, claims, decode_claims, hold};

            #[test]
            fn generate_is_the_definition() {
                hold($name, claims::generate_is_the_definition);
            }

            #[test]
            fn updates_composed_are_generate() {
                hold($name, claims::updates_composed_are_generate);
            }

            #[test]
            fn every_flipped_bit_is_found_and_located() {
                hold($name, claims::every_flipped_bit_is_found_and_located);
            }

            #[test]
            fn check_maps_damage_to_its_rows() {
                hold($name, claims::check_maps_damage_to_its_rows);
            }

            #[test]
            fn every_loss_is_reconstructed() {
                hold($name, |kernel| {
                    decode_claims::every_loss_is_reconstructed(kernel, $strips_max)
                });
            }

            #[test]
            fn sampled_losses_of_wide_codes_are_reconstructed() {
                hold($name, decode_claims::sampled_losses_of_wide_codes_are_reconstructed);
            }

            #[test]
            fn every_alignment_of_every_length_is_right() {
                hold($name, alignments::every_alignment_of_every_length_is_right);
            }
        }
    };
}

backend!(avx512_gfni, "avx512+gfni", losses up to 16);
backend!(avx2_gfni, "avx2+gfni", losses up to 16);
backend!(avx512_bw, "avx512bw", losses up to 16);
backend!(avx2, "avx2", losses up to 16);
backend!(ssse3, "ssse3", losses up to 16);
backend!(neon, "neon", losses up to 16);
backend!(portable, "portable", losses up to 16);
backend!(reference, "reference", losses up to 16);
