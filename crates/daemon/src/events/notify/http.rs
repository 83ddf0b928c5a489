//! Posts a JSON document to an `http://` URL.
//!
//! What must stay true: one connection for each document, every step within the time limit. An
//! answer other than 2xx is a failure; redirections are not followed. No TLS here: the
//! configuration refuses `https://` and says what to do (docs/adr/0030-being-told.md).

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use tokio::time::Instant;

/// The most of an answer that is read: its first line.
const ANSWER_MAX: usize = 1024;

/// Where to post.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    /// A name or an address; without brackets.
    host: String,
    port: u16,
    /// The path with the query.
    path: String,
}

impl Address {
    /// Read a URL.
    ///
    /// # Errors
    /// Why it cannot be used, in one line.
    pub(crate) fn parse(url: &str) -> Result<Address, String> {
        if url.starts_with("https://") {
            return Err(format!(
                "{url}: Ashlar posts over http only; for https write \
                 run = [\"curl\", \"-fsS\", \"--json\", \"@-\", \"{url}\"]"
            ));
        }
        let wrong = || format!("'{url}' is not a URL like http://host:8080/path");
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        if !rest.chars().all(|it| it.is_ascii_graphic()) {
            return Err(wrong());
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        if place.contains('@') {
            return Err(format!(
                "{url}: no user and password in a URL; use run with curl for that"
            ));
        }
        let (host, port) = match place.strip_prefix('[').and_then(|it| it.split_once(']')) {
            Some((host, port)) => (host, port),
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None if port.is_empty() => 80,
            None => return Err(wrong()),
        };
        if host.is_empty() || port == 0 {
            return Err(wrong());
        }
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Address { host: host.to_owned(), port, path })
    }

    /// Host and port as in a URL.
    fn place(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// The URL without its query, which may be a secret.
    pub(super) fn name(&self) -> String {
        format!("http://{}{}", self.place(), self.path.split('?').next().unwrap_or_default())
    }
}

/// Post `document` and wait for the answer.
///
/// # Errors
/// Why it did not arrive, in one line.
pub(super) fn post(address: &Address, document: &[u8], time_max: Duration) -> Result<(), String> {
    let until = Instant::now() + time_max;
    let failed = |error: io::Error| format!("{}: {error}", address.name());
    let line = exchange(address, document, until).map_err(failed)?;
    let mut words = line.split(' ');
    let is_http = words.next().is_some_and(|it| it.starts_with("HTTP/1."));
    match words.next() {
        Some(code) if is_http && code.len() == 3 && code.starts_with('2') => Ok(()),
        Some(_) if is_http => Err(format!("{} answered {}", address.name(), line.trim())),
        _ => Err(format!("{} does not speak HTTP/1", address.name())),
    }
}

fn exchange(address: &Address, document: &[u8], until: Instant) -> io::Result<String> {
    let mut stream = connect(address, until)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: ashlar/{}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        address.path,
        address.place(),
        env!("CARGO_PKG_VERSION"),
        document.len()
    );
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(&[head.as_bytes(), document].concat())?;
    let mut answer = Vec::new();
    while answer.len() < ANSWER_MAX && !answer.contains(&b'\n') {
        let mut bytes = [0; 256];
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).chars().filter(|it| !it.is_control()).collect())
}

fn connect(address: &Address, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The time that is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| io::ErrorKind::TimedOut.into())
}
