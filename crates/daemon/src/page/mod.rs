//! The page at the metrics listener: arrays, drives, load, jobs, exports and events at one look.
//!
//! - here          routes, headers, the stream of changes
//! - `frame`       the parts of the page at one moment
//! - [`slots`]     the picture of an array's slots
//! - [`history`]   what the arrays did in the last hour
//! - [`chart`]     that as lines
//!
//! What must stay true: the page only reads, and asks for no more than a scrape does. It is drawn
//! once for all who look, and not at all while nobody does. An open stream neither takes the seat
//! of a scrape nor keeps the daemon from ending. The page needs no script, loads nothing from
//! elsewhere, and runs no script but its own.

pub mod chart;
mod frame;
pub mod history;
pub mod slots;

#[cfg(test)]
pub mod made_up;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Serves};
use crate::control;
use crate::guarded::Lines;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::status::{GetStatus, Status};
use ashlar_api::{ApiError, words};
use askama::Template;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use frame::{Frame, Seen};
use history::{History, SAMPLE_EVERY};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep};

/// The stream of changes: a follower of it waits for ever.
pub const LIVE_PATH: &str = "/live";
/// Streams at the same time: fewer than one peer has connections, so that scrapes have theirs.
const STREAMS_MAX: usize = 8;
/// How often the page is drawn while somebody looks.
const DRAW_EVERY: Duration = Duration::from_secs(2);
/// Events on the page.
const EVENTS_SHOWN: usize = 20;

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// What the page is made from, and who looks.
pub struct Page<B> {
    backend: B,
    host: String,
    began: Instant,
    kept: Mutex<Kept>,
    /// The newest frame.
    frames: watch::Sender<Arc<Frame>>,
    /// Somebody began to look.
    wanted: Notify,
    streams: Arc<Semaphore>,
}

#[derive(Default)]
struct Kept {
    history: History,
    /// The newest first.
    events: VecDeque<Event>,
    /// The newest event's sequence.
    seen: u64,
}

impl<B: Backend> Page<B> {
    /// A page without a past.
    pub fn new(backend: B) -> Arc<Page<B>> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Arc::new(Page {
            backend,
            host: host.trim().to_owned(),
            began: Instant::now(),
            kept: Mutex::default(),
            frames: watch::channel(Arc::default()).0,
            wanted: Notify::new(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn status(&self) -> Result<Status, ApiError> {
        Serves::<GetStatus>::serve(&self.backend, GetStatus {}).await
    }

    /// Take samples, for ever.
    pub async fn keep_sampling(&self) {
        loop {
            if let Ok(status) = self.status().await {
                let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.kept().history.take(at_ms, &status);
            }
            sleep(SAMPLE_EVERY).await;
        }
    }

    /// Draw the page again and again while somebody looks, for ever.
    pub async fn keep_drawing(&self) {
        loop {
            if self.frames.receiver_count() == 0 {
                self.wanted.notified().await;
            }
            if let Ok(frame) = self.draw().await {
                self.frames.send_replace(Arc::new(frame));
            }
            sleep(DRAW_EVERY).await;
        }
    }

    async fn draw(&self) -> Result<Frame, ApiError> {
        let status = self.status().await?;
        let mut kept = self.kept();
        // Not all events: that tells early of faults that are being counted.
        for event in self.backend.events_since(kept.seen) {
            kept.seen = kept.seen.max(event.sequence);
            // What came of a call is an event of its own.
            if event.name != control::names::CALLED {
                kept.events.push_front(event);
            }
        }
        kept.events.truncate(EVENTS_SHOWN);
        let events: Vec<&Event> = kept.events.iter().collect();
        Ok(Frame::of(Seen {
            status: &status,
            history: &kept.history,
            events: &events,
            unix_ms: words::now_ms(),
        }))
    }
}

/// The routes of the page.
pub fn router<B: Backend>(page: Arc<Page<B>>) -> Router {
    Router::new().route("/", get(whole::<B>)).route(LIVE_PATH, get(live::<B>)).with_state(page)
}

#[derive(Template)]
#[template(path = "page/page.html")]
struct Whole<'a> {
    host: &'a str,
    look: String,
    frame: &'a Frame,
}

/// What the page may do: its own style and script, and its own stream.
fn policy() -> String {
    let (style, script) = (hash(STYLE), hash(SCRIPT));
    format!(
        "default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Names the page's style and script: a page that has others must be loaded anew.
fn look() -> String {
    hash(&format!("{STYLE}{SCRIPT}"))
}

fn guards() -> [(HeaderName, &'static str); 4] {
    [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ]
}

async fn whole<B: Backend>(State(page): State<Arc<Page<B>>>) -> Response {
    let frame = match page.draw().await {
        Ok(frame) => frame,
        Err(refusal) => {
            return (StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()).into_response();
        }
    };
    let whole = Whole { host: &page.host, look: look(), frame: &frame };
    match whole.render() {
        Ok(html) => {
            let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
            let policy = (header::CONTENT_SECURITY_POLICY, policy());
            (guards(), [kind, policy], html).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The changes of the page, as server-sent events. Whoever reads slowly misses frames, never the
/// newest.
async fn live<B: Backend>(State(page): State<Arc<Page<B>>>) -> Response {
    let Ok(place) = Arc::clone(&page.streams).try_acquire_owned() else {
        let told = "too many pages are open; this one is complete, reload it for news\n";
        return (StatusCode::SERVICE_UNAVAILABLE, told).into_response();
    };
    let (sender, receiver) = mpsc::channel(1);
    let mut frames = page.frames.subscribe();
    page.wanted.notify_one();
    tokio::spawn(async move {
        let _place = place;
        let mut shown = Arc::new(Frame::default());
        let mut line = Bytes::from(format!("retry: 2000\nevent: look\ndata: {}\n\n", look()));
        loop {
            if sender.send(line).await.is_err() {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                changed = frames.changed() => if changed.is_err() { return },
            }
            let frame = Arc::clone(&frames.borrow_and_update());
            let parts = serde_json::to_string(&frame.since(&shown)).unwrap_or_default();
            line = Bytes::from(format!("data: {parts}\n\n"));
            shown = frame;
        }
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (guards(), kind, Body::new(Lines(receiver))).into_response()
}

/// How a content security policy names a text.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut name = "sha256-".to_owned();
    for three in Sha256::digest(text.as_bytes()).chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=three.len() {
            let six = (bits >> (18 - 6 * digit)) & 63;
            name.push(char::from(DIGITS[usize::try_from(six).unwrap_or(0)]));
        }
        name.push_str(&"=".repeat(3 - three.len()));
    }
    name
}
