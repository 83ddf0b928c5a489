//! `spin_us`: how long an idle worker polls before it sleeps.

use std::str::FromStr;
use std::time::Duration;

/// Longer than a client on this machine needs for its next request, shorter than a drive for a
/// read.
const USUAL_US: u16 = 50;

/// How long, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polling {
    /// So many microseconds, as long as that is of use.
    AtMost(u16),
    /// Until there is work: it never sleeps, and takes its core whole.
    Always,
}

impl Default for Polling {
    fn default() -> Polling {
        Polling::AtMost(USUAL_US)
    }
}

impl Polling {
    /// As a worker is told.
    pub fn most(self) -> Duration {
        match self {
            Polling::AtMost(micros) => Duration::from_micros(micros.into()),
            Polling::Always => Duration::MAX,
        }
    }
}

impl FromStr for Polling {
    type Err = String;

    fn from_str(text: &str) -> Result<Polling, String> {
        match text.parse() {
            Ok(micros) => Ok(Polling::AtMost(micros)),
            Err(_) if text == "always" => Ok(Polling::Always),
            Err(_) => Err(format!("'{text}' is neither 0 to 65535 microseconds nor always")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Polling;

    #[test]
    fn polling_is_so_long_or_always() {
        assert_eq!("0".parse(), Ok(Polling::AtMost(0)));
        assert_eq!("always".parse(), Ok(Polling::Always));
        for wrong in ["", "-1", "65536", "never"] {
            assert!(wrong.parse::<Polling>().is_err(), "{wrong}");
        }
    }
}
