//! What an instruction set must offer to the generic loops: vectors of bytes, XOR, and
//! multiplication.
//!
//! What must stay true: a value of a type with [`Lanes`] proves that the CPU has the instructions,
//! so arithmetic is safe; only loads and stores, which take pointers, are unsafe. Implementations
//! are `#[inline(always)]` and have no state: they are inlined into [`Lanes::enter`], the one
//! function that carries the target feature.

use super::generic::Action;
use crate::pass::Pass;

pub(crate) trait Lanes: Copy {
    /// A vector of bytes.
    type Vector: Copy;
    /// A coefficient as found in the tables, small enough to keep 64 of them for each row.
    type Prepared: Copy;
    /// A coefficient in registers, ready to multiply with.
    type Factor: Copy;

    /// Bytes in a vector; divides 64.
    const BYTES: usize;
    /// Vector registers, which bound how many sums are worth keeping at once.
    const REGISTERS: usize;
    /// Vectors of one source to handle together for P and Q alone.
    const PARITY_VECTORS: usize = 4;
    /// Whether P and Q of many sources in the cache gain from a prefetch.
    const PREFETCHES_IN_CACHE: bool = false;

    /// Runs the generic loop with the target feature enabled.
    ///
    /// # Safety
    /// The contract of [`Pass`]; its shape is the one the constants name, and its length that of
    /// whole blocks, as `pass_loop` says.
    unsafe fn enter<A: Action, const XOR: bool, const HORNER: bool, const REST: usize>(
        self,
        pass: &Pass<'_>,
    ) -> bool;

    /// # Safety
    /// A vector can be read at `from`, which needs no alignment.
    unsafe fn load(self, from: *const u8) -> Self::Vector;

    /// # Safety
    /// A vector can be written at `to`, which needs no alignment.
    unsafe fn store(self, to: *mut u8, value: Self::Vector);

    /// Stores past the caches where the CPU can.
    ///
    /// # Safety
    /// A vector can be written at `to`, which is aligned to 64.
    unsafe fn stream(self, to: *mut u8, value: Self::Vector) {
        // SAFETY: the caller guarantees more than `store` asks for.
        unsafe { self.store(to, value) }
    }

    /// Hints that the cache line at `from`, which may be any address, is read soon.
    fn prefetch(self, _from: *const u8) {}

    fn zero(self) -> Self::Vector;
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn is_zero(self, value: Self::Vector) -> bool;

    fn xor3(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        self.xor(self.xor(a, b), c)
    }

    fn prepare(self, coefficient: u8) -> Self::Prepared;
    fn factor(self, prepared: Self::Prepared) -> Self::Factor;
    fn mul(self, value: Self::Vector, factor: Self::Factor) -> Self::Vector;

    /// Horner's rule for Q, from the highest column down: `sum` becomes 4 * sum + 2 * a + b. The
    /// sum may be carried in another form between `horner_start` and `horner_finish`.
    fn horner(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    fn horner_start(self, value: Self::Vector) -> Self::Vector {
        value
    }

    fn horner_finish(self, sum: Self::Vector) -> Self::Vector {
        sum
    }
}
