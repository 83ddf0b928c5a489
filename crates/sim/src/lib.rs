//! Stub: filled by its first commit.
