//! Which backend computes: found once from the CPU, or forced by name.
//!
//! What must stay true: a [`Kernel`] can only be made from a backend value, and a backend value
//! only by its own `detect`, so holding a kernel proves that this CPU can run it. Adding a backend
//! is one variant, one line in each function here, and one file in `backend`.

use std::fmt;

#[cfg(target_arch = "aarch64")]
use crate::backend::aarch64::neon::Neon;
use crate::backend::portable::Portable;
use crate::backend::run;
#[cfg(target_arch = "x86_64")]
use crate::backend::x86_64::{
    avx2::Avx2, avx2_gfni::Avx2Gfni, avx512_bw::Avx512Bw, avx512_gfni::Avx512Gfni, ssse3::Ssse3,
};
use crate::error::KernelError;
use crate::pass::Pass;
use crate::reference::Reference;

/// A way to compute parity that this CPU has. All kernels give the same bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Backend);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Backend {
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni(Avx512Gfni),
    #[cfg(target_arch = "x86_64")]
    Avx2Gfni(Avx2Gfni),
    #[cfg(target_arch = "x86_64")]
    Avx512Bw(Avx512Bw),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Ssse3(Ssse3),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    Portable(Portable),
    Reference(Reference),
}

impl Kernel {
    /// The fastest kernel of this CPU.
    #[must_use]
    pub fn best() -> Kernel {
        Kernel::all().next().unwrap_or(Kernel(Backend::Reference(Reference)))
    }

    /// The kernel called `name`, as [`Kernel::name`] gives it.
    ///
    /// # Errors
    /// [`KernelError::NotHere`] when there is no such kernel or this CPU cannot run it.
    pub fn by_name(name: &str) -> Result<Kernel, KernelError> {
        Kernel::all().find(|kernel| kernel.name() == name).ok_or(KernelError::NotHere)
    }

    /// The kernels this CPU can run, fastest first; the last two, `portable` and `reference`,
    /// always exist.
    pub fn all() -> impl Iterator<Item = Kernel> {
        [
            #[cfg(target_arch = "x86_64")]
            Avx512Gfni::detect().map(Backend::Avx512Gfni),
            #[cfg(target_arch = "x86_64")]
            Avx2Gfni::detect().map(Backend::Avx2Gfni),
            #[cfg(target_arch = "x86_64")]
            Avx512Bw::detect().map(Backend::Avx512Bw),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Backend::Avx2),
            #[cfg(target_arch = "x86_64")]
            Ssse3::detect().map(Backend::Ssse3),
            #[cfg(target_arch = "aarch64")]
            Neon::detect().map(Backend::Neon),
            Some(Backend::Portable(Portable::detect())),
            Some(Backend::Reference(Reference)),
        ]
        .into_iter()
        .flatten()
        .map(Kernel)
    }

    /// The name to show and to choose by, such as `avx512+gfni`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512Gfni(_) => "avx512+gfni",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2Gfni(_) => "avx2+gfni",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512Bw(_) => "avx512bw",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Backend::Ssse3(_) => "ssse3",
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(_) => "neon",
            Backend::Portable(_) => "portable",
            Backend::Reference(_) => "reference",
        }
    }

    /// Runs `pass`; true when its verb is `Check` and some output differs.
    ///
    /// # Safety
    /// The contract of [`Pass`].
    pub(crate) unsafe fn run(self, pass: &Pass<'_>) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Avx512Gfni(lanes) => unsafe { run(lanes, pass) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Avx2Gfni(lanes) => unsafe { run(lanes, pass) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Avx512Bw(lanes) => unsafe { run(lanes, pass) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Avx2(lanes) => unsafe { run(lanes, pass) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Ssse3(lanes) => unsafe { run(lanes, pass) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Neon(lanes) => unsafe { run(lanes, pass) },
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Portable(lanes) => unsafe { run(lanes, pass) },
            // SAFETY: the caller guarantees the contract of `Pass`.
            Backend::Reference(reference) => unsafe { reference.run(pass) },
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
