//! The control socket: routes, refusals, the stream of events.
//!
//! What must stay true: only the owner and the group of the socket can reach it; a body that is not
//! exactly a request is refused with the reason and nothing is done; every refusal is an `ApiError`.

use crate::backend::{Backend, Serves};
use crate::metrics;
use ashlar_api::v1::array::{Assemble, Create, Stop};
use ashlar_api::v1::event::{EVENTS_PATH, FOLLOW_PATH};
use ashlar_api::v1::export::{FuseAttach, FuseDetach, NbdListen};
use ashlar_api::v1::job::{JobControl, ScrubStart};
use ashlar_api::v1::member::{Fail, ReAdd, Replace};
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_api::v1::status::{GetStatus, METRICS_PATH};
use ashlar_api::{ApiError, Call, Method, codes};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

/// Who may use the socket: its owner and its group.
const SOCKET_MODE: u32 = 0o660;
/// How often a follower of events looks for new ones.
const EVENT_POLL: Duration = Duration::from_millis(100);
/// Lines that wait for a follower that reads slowly; after that it waits for the reader.
const EVENT_LINES_MAX: usize = 64;

/// Every route of the control interface.
pub fn router<B: Backend>(backend: B) -> Router {
    let router = Router::new();
    let router = with::<B, Create>(router);
    let router = with::<B, Assemble>(router);
    let router = with::<B, Stop>(router);
    let router = with::<B, Fail>(router);
    let router = with::<B, Replace>(router);
    let router = with::<B, ReAdd>(router);
    let router = with::<B, SpareAdd>(router);
    let router = with::<B, SpareRemove>(router);
    let router = with::<B, ScrubStart>(router);
    let router = with::<B, JobControl>(router);
    let router = with::<B, NbdListen>(router);
    let router = with::<B, FuseAttach>(router);
    let router = with::<B, FuseDetach>(router);
    let router = with::<B, GetStatus>(router);
    router
        .route(METRICS_PATH, get(metrics::answer::<B>))
        .route(EVENTS_PATH, get(recent_events::<B>))
        .route(FOLLOW_PATH, get(follow_events::<B>))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .with_state(backend)
}

/// The control socket at `path`, made anew if a dead daemon left one there.
///
/// # Errors
/// `AddrInUse` if a daemon answers there, `AlreadyExists` if something else is there, or what the
/// system says.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) => std::fs::remove_file(path)?,
        Err(_) => {}
    }
    // Until its mode is set, the usual umask keeps everybody but the owner out.
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

fn with<B: Backend + Serves<C>, C: Call>(router: Router<B>) -> Router<B> {
    let route: MethodRouter<B, Infallible> = match C::METHOD {
        Method::Get => get(ask::<B, C>),
        Method::Post => post(ask::<B, C>),
    };
    router.route(C::PATH, route)
}

async fn ask<B: Backend + Serves<C>, C: Call>(State(backend): State<B>, body: Bytes) -> Response {
    let body = if C::METHOD == Method::Get { Bytes::from_static(b"{}") } else { body };
    let answer = match serde_json::from_slice::<C>(&body) {
        Ok(call) => backend.serve(call).await,
        Err(error) => Err(malformed(C::PATH, &error)),
    };
    match answer {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(refusal) => refuse(&refusal),
    }
}

fn malformed(path: &str, error: &serde_json::Error) -> ApiError {
    let message = format!("the request to {path} makes no sense ({error}); nothing was done");
    ApiError::new(
        codes::REQUEST_MALFORMED,
        message,
        "client and daemon must be of the same version",
    )
}

async fn unknown() -> Response {
    refuse(&ApiError::new(
        codes::REQUEST_UNKNOWN,
        "there is no such request; nothing was done",
        "client and daemon must be of the same version",
    ))
}

fn refuse(refusal: &ApiError) -> Response {
    let status = match refusal.code.split_once('.') {
        Some(("request", "malformed")) => StatusCode::BAD_REQUEST,
        Some((_, "unknown")) => StatusCode::NOT_FOUND,
        Some(("system", _)) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::CONFLICT,
    };
    json(status, refusal)
}

fn json<T: serde::Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

const NDJSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/x-ndjson")];

/// New events as lines, and the sequence of the last one.
fn lines_after<B: Backend>(backend: &B, after: u64) -> (Vec<Bytes>, u64) {
    let events = backend.events_since(after);
    let last = events.last().map_or(after, |event| event.sequence);
    let line = |event| {
        let mut line = serde_json::to_vec(event).ok()?;
        line.push(b'\n');
        Some(Bytes::from(line))
    };
    (events.iter().filter_map(line).collect(), last)
}

async fn recent_events<B: Backend>(State(backend): State<B>) -> Response {
    (NDJSON, lines_after(&backend, 0).0.concat()).into_response()
}

async fn follow_events<B: Backend>(State(backend): State<B>) -> Response {
    let (sender, receiver) = mpsc::channel(EVENT_LINES_MAX);
    tokio::spawn(async move {
        let mut seen = 0;
        loop {
            let (lines, last) = lines_after(&backend, seen);
            seen = last;
            for line in lines {
                if sender.send(line).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(EVENT_POLL) => {}
            }
        }
    });
    (NDJSON, Body::new(Lines(receiver))).into_response()
}

/// A response body that grows as lines arrive.
struct Lines(mpsc::Receiver<Bytes>);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(http_body::Frame::data(line))))
    }
}
