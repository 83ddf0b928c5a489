//! The metrics listener, and its limits on connections and time.
//!
//! What must stay true: everybody who can reach the address may read, and nobody can do more.
//! Connections are few, and those of one peer fewer. An idle one ends by itself or for a newer one.
//! No request changes anything. A stream of changes that is open makes room for others. Not here:
//! the answers (`metrics`, `page`).

use crate::arrays::Arrays;
use crate::backend::Backend;
use crate::config::Config;
use crate::descriptors::Spare;
use crate::exports::Say;
use crate::guarded::{Answer, Guarded, Times};
use crate::metrics;
use crate::page::{self, LIVE_PATH, Page};
use crate::seats::{Course, Room, Seats, Serving, Taken};
use crate::services::Service;
use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use std::future::IntoFuture;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;

/// Connections at the same time.
pub const CONNECTIONS: usize = 32;
/// Of these, connections of one peer.
const CONNECTIONS_OF_ONE: usize = 16;
/// For the head of a request, for being idle, and for taking something of an answer.
const TIMES: Times = Times { head: Duration::from_secs(10), send: Duration::from_secs(10) };

/// Where connections come from, as far as one peer can have many addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// This machine, whatever address of it.
    Here,
    /// An address.
    V4([u8; 4]),
    /// A network of 64 bits: usually one machine has all of it.
    V6([u8; 8]),
}

impl Origin {
    /// Of an address.
    fn of(address: IpAddr) -> Origin {
        match address.to_canonical() {
            address if address.is_loopback() => Origin::Here,
            IpAddr::V4(address) => Origin::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Origin::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// Somebody who connected.
#[derive(Clone, Debug)]
struct Scraper(Arc<Course>);

impl Connected<IncomingStream<'_, ScrapeGate>> for Scraper {
    fn connect_info(stream: IncomingStream<'_, ScrapeGate>) -> Scraper {
        Scraper(Arc::clone(stream.remote_addr()))
    }
}

/// The metrics listener.
#[derive(Debug)]
pub struct ScrapeGate {
    listener: TcpListener,
    spare: Spare,
    seats: Arc<Seats<Origin>>,
}

/// The connections of the metrics listener, for counting them.
#[derive(Clone, Debug, Default)]
pub struct ScrapeSeats {
    seats: Arc<Seats<Origin>>,
    /// Somebody listens.
    is_served: Arc<AtomicBool>,
}

impl ScrapeSeats {
    /// How many there are.
    pub fn usage(&self) -> Taken {
        self.seats.usage()
    }
}

impl ScrapeGate {
    /// Look at who connects to `listener`.
    pub fn new(listener: TcpListener, seats: &ScrapeSeats) -> ScrapeGate {
        ScrapeGate { listener, spare: Spare::kept(), seats: Arc::clone(&seats.seats) }
    }

    fn admit(
        &self,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Option<(Guarded<TcpStream, Origin>, Arc<Course>)> {
        let origin = Origin::of(from.ip());
        let (is_own, anybody) = (|other: &Origin| *other == origin, |_: &Origin| true);
        let own = Room { counts: &is_own, seats: CONNECTIONS_OF_ONE, yields: &is_own };
        let all = Room { counts: &anybody, seats: CONNECTIONS, yields: &anybody };
        let seat = Seats::take(&self.seats, origin, &[own, all])?;
        let course = Arc::clone(&seat.course);
        Some((Guarded::new(stream, seat, TIMES), course))
    }
}

impl Listener for ScrapeGate {
    type Io = Guarded<TcpStream, Origin>;
    type Addr = Arc<Course>;

    async fn accept(&mut self) -> (Self::Io, Arc<Course>) {
        loop {
            // Connections that were accepted before go on first, and so does the control socket.
            yield_now().await;
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    if let Some(admitted) = self.admit(stream, from) {
                        return admitted;
                    }
                }
                Err(error) => {
                    let listener = &self.listener;
                    self.spare.close_one(&error, |context| listener.poll_accept(context)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Arc<Course>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Serve metrics and the page at the address that the configuration names, unless they are.
pub async fn begin(arrays: &Arrays, config: &Config, say: Say<'_>) {
    let Some(address) = config.serve.metrics else { return };
    let service = Service::side(format!("metrics at {address}"));
    if arrays.seats.metrics.is_served.swap(true, Ordering::AcqRel) {
        return;
    }
    let went = listen(arrays, &service, address).await;
    arrays.seats.metrics.is_served.store(went.is_ok(), Ordering::Release);
    arrays.services.note(service, went.map(Some), say);
}

/// # Errors
/// One line.
async fn listen(arrays: &Arrays, service: &Service, at: SocketAddr) -> Result<String, String> {
    let listener = TcpListener::bind(at).await.map_err(|error| error.to_string())?;
    let at = listener.local_addr().unwrap_or(at);
    let gate = ScrapeGate::new(listener, &arrays.seats.metrics);
    let (own, service) = (arrays.clone(), service.clone());
    tokio::spawn(async move {
        let ended = answer(gate, own.clone()).await;
        let why = ended.err().map_or("it ended".to_owned(), |error| error.to_string());
        own.seats.metrics.is_served.store(false, Ordering::Release);
        own.services.lost(service, why);
    });
    Ok(format!("metrics at http://{at}/metrics\npage at http://{at}/"))
}

/// Answer what comes through `gate`, for ever.
///
/// # Errors
/// What the system says when nobody can be let in any more.
pub async fn answer<B: Backend>(gate: ScrapeGate, backend: B) -> io::Result<()> {
    let page = Page::new(backend.clone());
    let router = Router::new()
        .route("/metrics", get(metrics::answer::<B>))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is /, /metrics and /healthz\n") })
        .with_state(backend)
        .merge(page::router(Arc::clone(&page)))
        .layer(middleware::from_fn(on_course));
    let served = axum::serve(gate, router.into_make_service_with_connect_info::<Scraper>());
    tokio::select! {
        served = served.into_future() => served,
        // They never end by themselves.
        () = page.keep_sampling() => Ok(()),
        () = page.keep_drawing() => Ok(()),
    }
}

/// While a scrape is being answered its connection keeps its seat.
async fn on_course(
    ConnectInfo(peer): ConnectInfo<Scraper>,
    request: Request,
    next: Next,
) -> Response {
    let mut serving = Serving::begun(&peer.0);
    // Who follows the page waits for ever. Its seat goes to a connection that needs one.
    if request.uri().path() != LIVE_PATH {
        serving.carry_out();
    }
    let response = next.run(request).await.into_response();
    response.map(|body| Body::new(Answer { body, _serving: serving }))
}

#[cfg(test)]
mod tests {
    use super::Origin;
    use std::net::IpAddr;

    #[test]
    fn one_machine_is_one_peer_whatever_its_addresses() {
        let of = |text: &str| Origin::of(text.parse::<IpAddr>().expect("an address"));
        for here in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(of(here), Origin::Here, "{here}");
        }
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
