//! Where NBD may listen.
//!
//! What must stay true: NBD without TLS has neither login nor encryption, so an address that other machines can reach
//! is refused unless clients must speak TLS or the operator says that all of them are trusted; nothing listens anywhere
//! by accident.

use ashlar_api::{ApiError, codes};
use ashlar_nbd::Listen;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Who may connect to a Unix socket: its owner and its group.
const SOCKET_MODE: u32 = 0o660;

/// The place that `address` names. `is_safe_beyond_host` if TLS is demanded there, or its network is trusted.
///
/// # Errors
/// It makes no sense, or is open to a network that nobody said is trusted.
pub fn parse(address: &str, is_safe_beyond_host: bool) -> Result<Listen, ApiError> {
    if let Some(path) = address.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Listen::Unix(PathBuf::from(path), SOCKET_MODE));
    }
    let parsed: SocketAddr = address.parse().map_err(|_| {
        let message = format!("'{address}' is not an address; nothing was changed");
        let hint = "write 127.0.0.1:10809, [::1]:10809 or unix:/run/ashlar/nbd.sock";
        ApiError::new(codes::REQUEST_MALFORMED, message, hint)
    })?;
    if !parsed.ip().to_canonical().is_loopback() && !is_safe_beyond_host {
        let message = format!(
            "NBD at {address} would be clear text without a login for a whole network; nothing was changed"
        );
        let hint = "demand TLS with --nbd-tls FOLDER, in the configuration tls = { folder = \"FOLDER\" }; or take 127.0.0.1 \
                    or unix:PATH; or, if everybody who can reach it may read and destroy every volume, say \
                    --nbd-trusted-network, in the configuration trusted_network = true";
        return Err(ApiError::new(codes::EXPORT_IMPOSSIBLE, message, hint));
    }
    Ok(Listen::Tcp(parsed))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use ashlar_nbd::Listen;

    #[test]
    fn addresses_are_read_and_nonsense_is_refused_with_examples() {
        assert!(matches!(parse("unix:/run/a.sock", false), Ok(Listen::Unix(..))));
        for text in ["", "localhost", "10809", "unix", "unix:"] {
            let refusal = parse(text, true).expect_err(text).to_string();
            assert!(refusal.contains("127.0.0.1:10809"), "{refusal}");
        }
    }

    #[test]
    fn only_loopback_addresses_are_served_in_clear_text_unless_the_network_is_trusted() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(matches!(parse(address, false), Ok(Listen::Tcp(_))), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1", "[fe80::1]:1"]
        {
            let refusal = parse(address, false).expect_err(address);
            assert!(refusal.hint.contains("--nbd-trusted-network"), "{refusal}");
            assert!(matches!(parse(address, true), Ok(Listen::Tcp(_))), "{address}");
        }
    }
}
