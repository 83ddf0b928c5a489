//! The control socket: routes, refusals, the stream of events.
//!
//! What must stay true: only the owner and the group of the socket can reach it. Every request for
//! a change is in the event log, with its caller and its answer. A body that is not exactly a
//! request is refused with the reason, and nothing is done. Every refusal is an `ApiError`. Not
//! here: the peer, and how long it may take (`peer`).

use crate::backend::{Backend, Serves, openapi, with_calls};
use crate::guarded::{Answer, Lines};
use crate::metrics;
use crate::peer::{Gate, Peer, PeerLimits};
use crate::seats::Serving;
use ashlar_api::openapi::OPENAPI_PATH;
use ashlar_api::v1::event::{EVENTS_PATH, Event, FOLLOW_PATH};
use ashlar_api::v1::status::METRICS_PATH;
use ashlar_api::{ApiError, Call, Method, codes};
use ashlar_engine::event_names;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{self, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

/// The socket's mode: its owner and its group may use it.
const SOCKET_MODE: u32 = 0o660;
/// How often a follower of events looks for new ones.
const EVENT_POLL: Duration = Duration::from_millis(100);
/// Lines that wait for a follower that reads slowly; after that it waits for the reader.
const EVENT_LINES_MAX: usize = 64;

/// Names of the events that tell who asked.
pub(crate) mod names {
    /// Somebody asked for a change. Fields: `request` (its path), `uid`, `gid` and `pid` of who
    /// asked as the kernel has them, `answer` (`done`, or the code of the refusal).
    pub(crate) const CALLED: &str = "control.called";
}

/// Answer what comes through `gate`, for ever.
///
/// # Errors
/// What the system says when nobody can be let in any more.
pub async fn answer<B: Backend>(gate: Gate, backend: B) -> io::Result<()> {
    let limits = gate.limits;
    let guard = middleware::from_fn_with_state((backend.clone(), limits), guard::<B>);
    let router = router(backend).layer(guard);
    axum::serve(gate, router.into_make_service_with_connect_info::<Peer>()).await
}

/// Every route of the control interface.
fn router<B: Backend>(backend: B) -> Router {
    with_calls(Router::new())
        .route(METRICS_PATH, get(metrics::answer::<B>))
        .route(EVENTS_PATH, get(recent_events::<B>))
        .route(FOLLOW_PATH, get(follow_events::<B>))
        .route(OPENAPI_PATH, get(async || json(StatusCode::OK, &openapi())))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .with_state(backend)
}

/// The control socket at `path`, made anew if a dead daemon left one there.
///
/// # Errors
/// `AddrInUse` if a daemon answers there, `AlreadyExists` if something else is there, `NotFound` if
/// its folder is not, or what the system says.
pub fn listen(path: &Path) -> io::Result<Gate> {
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
    Ok(Gate::new(listener, path))
}

/// Rules for every request: which callers may send it, the size and time of its body, and the event
/// that records a change.
async fn guard<B: Backend>(
    State((backend, limits)): State<(B, PeerLimits)>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let mut serving = Serving::begun(&peer.course);
    let path = request.uri().path().chars().take(64).collect::<String>();
    let mut fields = vec![
        ("request", path),
        ("uid", peer.uid.to_string()),
        ("gid", peer.gid.to_string()),
        ("pid", peer.pid.to_string()),
    ];
    if !peer.is_allowed {
        backend.record(event_names::CONTROL_REFUSED, fields);
        return refuse(&ApiError::new(
            codes::PEER_REFUSED,
            format!("user {} may not use the control socket; nothing was done", peer.uid),
            "only root, the daemon's user and members of the socket's group may",
        ));
    }
    let is_change = request.method() == http::Method::POST;
    let (head, body) = request.into_parts();
    let body = match whole(body, limits).await {
        Ok(body) => body,
        Err(refusal) => return refuse(&refusal),
    };
    // A follower of events waits for ever. Its seat goes to a connection that needs one.
    if head.uri.path() != FOLLOW_PATH {
        serving.carry_out();
    }
    if is_change {
        // What is asked of an array that is still being started would be refused.
        backend.ready().await;
    }
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    if is_change {
        let code = response.extensions().get::<RefusalCode>();
        fields.push(("answer", code.map_or_else(|| "done".to_owned(), |code| code.0.clone())));
        backend.record(names::CALLED, fields);
    }
    response.map(|body| Body::new(Answer { body, _serving: serving }))
}

/// The whole body of a request, if it is short enough and comes in time.
async fn whole(body: Body, limits: PeerLimits) -> Result<Bytes, ApiError> {
    let reading = axum::body::to_bytes(body, limits.body_bytes);
    let what = match tokio::time::timeout(limits.body_time, reading).await {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(_)) => format!("its body is longer than {} bytes, or broke off", limits.body_bytes),
        Err(_) => format!("its body did not come within {} s", limits.body_time.as_secs()),
    };
    let message = format!("the request makes no sense ({what}); nothing was done");
    Err(ApiError::new(codes::REQUEST_MALFORMED, message, "send less, and send it at once"))
}

/// The code of a refusal, for the event log.
#[derive(Clone)]
struct RefusalCode(String);

/// `router` with the route of one call.
pub(crate) fn with<B: Backend + Serves<C>, C: Call>(router: Router<B>) -> Router<B> {
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
        Some(("peer", _)) => StatusCode::FORBIDDEN,
        Some(("request", "malformed")) => StatusCode::BAD_REQUEST,
        Some((_, "unknown")) => StatusCode::NOT_FOUND,
        Some(("system", _)) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::CONFLICT,
    };
    let mut response = json(status, refusal);
    response.extensions_mut().insert(RefusalCode(refusal.code.clone()));
    response
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
    (lines(&events), last)
}

fn lines(events: &[Event]) -> Vec<Bytes> {
    let line = |event| {
        let mut line = serde_json::to_vec(event).ok()?;
        line.push(b'\n');
        Some(Bytes::from(line))
    };
    events.iter().filter_map(line).collect()
}

async fn recent_events<B: Backend>(State(backend): State<B>) -> Response {
    (NDJSON, lines(&backend.all_events()).concat()).into_response()
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
