//! The addresses at which NBD may listen.
//!
//! What must stay true: NBD without TLS has neither login nor encryption. So a TCP address is
//! refused unless clients must use TLS, or the operator says that everybody who can reach it is
//! trusted. Every local user can reach a loopback address.

use ashlar_api::{ApiError, codes};
use ashlar_session::Listen;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The mode of a Unix socket: its owner and its group may connect.
const SOCKET_MODE: u32 = 0o660;

/// The place that `address` names. `may_be_tcp` if TLS is demanded there, or everybody who can
/// reach it is trusted.
///
/// # Errors
/// It makes no sense, or is open to a network that nobody said is trusted.
pub fn parse(address: &str, may_be_tcp: bool) -> Result<Listen, ApiError> {
    if let Some(path) = address.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Listen::Unix(PathBuf::from(path), SOCKET_MODE));
    }
    let parsed: SocketAddr = address.parse().map_err(|_| {
        let message = format!("'{address}' is not an address; nothing was changed");
        let hint = "write unix:/run/ashlar/nbd.sock, or IP:PORT such as 192.0.2.1:10809";
        ApiError::new(codes::REQUEST_MALFORMED, message, hint)
    })?;
    if !may_be_tcp {
        let reach = match parsed.ip().to_canonical().is_loopback() {
            true => "every user of this machine",
            false => "a whole network",
        };
        let message = format!(
            "NBD at {address} would be clear text without a login for {reach}; nothing was changed"
        );
        let hint = "take --nbd unix:PATH, which only its owner and group may open; or demand TLS \
                    with --nbd-tls DIR, in the configuration tls = { directory = \"FOLDER\" }; \
                    or, if everybody who can reach it may read and destroy every volume, \
                    say --nbd-trusted-network, in the configuration trusted_network = true";
        return Err(ApiError::new(codes::EXPORT_IMPOSSIBLE, message, hint));
    }
    Ok(Listen::Tcp(parsed))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use ashlar_session::Listen;

    #[test]
    fn addresses_are_read_and_nonsense_is_refused_with_examples() {
        assert!(matches!(parse("unix:/run/a.sock", false), Ok(Listen::Unix(_, 0o660))));
        for text in ["", "localhost", "10809", "unix", "unix:"] {
            let refusal = parse(text, true).expect_err(text).to_string();
            assert!(refusal.contains("unix:/run/ashlar/nbd.sock"), "{refusal}");
        }
    }

    #[test]
    fn no_tcp_address_is_served_in_clear_text_unless_who_can_reach_it_is_trusted() {
        for (address, reach) in [
            ("127.0.0.1:1", "every user of this machine"),
            ("127.9.9.9:1", "every user of this machine"),
            ("[::1]:1", "every user of this machine"),
            ("[::ffff:127.0.0.1]:1", "every user of this machine"),
            ("0.0.0.0:1", "a whole network"),
            ("[::]:1", "a whole network"),
            ("192.0.2.1:1", "a whole network"),
            ("[::ffff:192.0.2.1]:1", "a whole network"),
            ("[fe80::1]:1", "a whole network"),
        ] {
            let refusal = parse(address, false).expect_err(address);
            assert!(refusal.message.contains(reach), "{refusal}");
            assert!(refusal.hint.contains("--nbd-trusted-network"), "{refusal}");
            assert!(matches!(parse(address, true), Ok(Listen::Tcp(_))), "{address}");
        }
    }
}
