//! Which backend computes: found once from the CPU, or forced by name.
//!
//! What must stay true: a [`Kernel`] can only be made from a backend value, and a backend value only by
//! its own `detect`, so holding a kernel proves that this CPU can run it. Adding a backend is one
//! variant, one line in each function here, and one file in `backend`.

use std::fmt;

use crate::backend::portable::Portable;
use crate::backend::run;
use crate::error::KernelError;
use crate::pass::Pass;
use crate::reference::Reference;

/// A way to compute parity that this CPU has. All kernels give the same bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Backend);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Backend {
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

    /// The kernels this CPU can run, fastest first; the last two, `portable` and `reference`, always exist.
    pub fn all() -> impl Iterator<Item = Kernel> {
        [Some(Backend::Portable(Portable::detect())), Some(Backend::Reference(Reference))]
            .into_iter()
            .flatten()
            .map(Kernel)
    }

    /// The name to show and to choose by, such as `avx512+gfni`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
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
