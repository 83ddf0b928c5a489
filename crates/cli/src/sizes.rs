//! How sizes are typed.

/// How sizes are written, below the help of each command that takes some.
macro_rules! sizes {
    () => {
        "Sizes: K, M, G, T and P are powers of 1024 (64K is 65536 bytes), KB, MB, GB, TB and PB \
         powers of 1000."
    };
}
pub(crate) use sizes;
