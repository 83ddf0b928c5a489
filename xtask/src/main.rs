//! Checks that clippy cannot do.
fn main() {}
