//! TLS 1.3 with certificates on both sides, by rustls.
//!
//! - `terms`   certificate, key and authority of a listener, read from files
//! - `channel` one connection's records: sealing and opening, and what it holds meanwhile
//!
//! What must stay true: no other version of TLS is spoken; a client without a certificate of the
//! configured authority never gets beyond the TLS handshake; no session is resumed, so that every
//! connection shows its certificate. Not here: NBD, and who must use it.

mod channel;
mod terms;

pub use channel::Channel;
pub use terms::{TlsFileError, TlsFiles, TlsTerms, only_we_change};
