//! Where libFuzzer begins: inputs of the seeded tests, which get further than bytes by chance, kept
//! as files when `ASHLAR_FUZZ_CORPUS` names a folder. `just fuzz` sees to that.
//!
//! What must stay true: without the variable nothing is written, and the tests do the same with it
//! as without it.

/// Inputs that are kept of each seed.
const KEPT: u64 = 40;

/// Keep input `number` of `seed` for the target of that name, if it is one of the first and
/// somebody asked.
///
/// # Panics
/// If it cannot be written.
pub fn keep(target: &str, (seed, number): (u64, u64), input: &[u8]) {
    let Some(folder) = std::env::var_os("ASHLAR_FUZZ_CORPUS") else { return };
    if number < KEPT {
        let folder = std::path::PathBuf::from(folder).join(target);
        let kept = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join(format!("seed-{seed}-{number}")), input));
        kept.expect("the folder of ASHLAR_FUZZ_CORPUS can be written");
    }
}
