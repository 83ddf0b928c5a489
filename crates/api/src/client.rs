//! A blocking client over the control socket.
//!
//! What must stay true: one connection for each call, so a client never sees the answer to another
//! call. A daemon that stops half-way is an error, never an endless wait.

use crate::v1::event::{EVENTS_PATH, Event, FOLLOW_PATH};
use crate::v1::status::METRICS_PATH;
use crate::{ApiError, Call, Method};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// Why a call got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket, or this user may not use it.
    #[error("no daemon answers at {}: {source}", socket.display())]
    Unreachable {
        /// The control socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon refused.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The daemon stopped half-way, or does not speak this version.
    #[error("the daemon's answer cannot be read: {0}")]
    Protocol(String),
}

/// A client of one daemon.
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// A client of the daemon at `socket`. Nothing is connected yet.
    ///
    /// # Errors
    /// If the system has no resources for an event loop.
    pub fn new(socket: &Path) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        Ok(Client { socket: socket.to_path_buf(), runtime })
    }

    /// Ask and wait for the answer.
    ///
    /// # Errors
    /// [`ClientError`]: nobody there, a refusal, or an answer that makes no sense.
    pub fn call<C: Call>(&self, call: &C) -> Result<C::Answer, ClientError> {
        let body = match C::METHOD {
            Method::Get => Vec::new(),
            Method::Post => serde_json::to_vec(call).map_err(protocol)?,
        };
        let answer = self.runtime.block_on(self.exchange(C::METHOD, C::PATH, body))?;
        serde_json::from_slice(&answer).map_err(protocol)
    }

    /// All metrics as OpenMetrics text.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn metrics(&self) -> Result<String, ClientError> {
        let text = self.runtime.block_on(self.exchange(Method::Get, METRICS_PATH, Vec::new()))?;
        String::from_utf8(text).map_err(protocol)
    }

    /// Recent events, oldest first, then, with `follow`, each further one as it happens, until the
    /// daemon stops or `each` returns false.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn events(
        &self,
        follow: bool,
        mut each: impl FnMut(Event) -> bool,
    ) -> Result<(), ClientError> {
        let path = if follow { FOLLOW_PATH } else { EVENTS_PATH };
        let answer = self.runtime.block_on(self.open(Method::Get, path, Vec::new()))?;
        let mut body = answer.into_body();
        let mut pending = Vec::new();
        // Between two frames the runtime rests, so that `each` may make calls of its own.
        while let Some(frame) = self.runtime.block_on(body.frame()) {
            let frame = frame.map_err(protocol)?;
            pending.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                if !each(serde_json::from_slice(&line).map_err(protocol)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ClientError> {
        let response = self.open(method, path, body).await?;
        Ok(response.into_body().collect().await.map_err(protocol)?.to_bytes().to_vec())
    }

    /// Send one request; a refusal is already an error here.
    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::Unreachable { socket: self.socket.clone(), source })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(protocol)?;
        // Ends with the connection; its errors reach us through the response.
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::builder()
            .method(match method {
                Method::Get => hyper::Method::GET,
                Method::Post => hyper::Method::POST,
            })
            .uri(path)
            .header(hyper::header::HOST, "ashlar")
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(protocol)?;
        let response = sender.send_request(request).await.map_err(protocol)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(protocol)?.to_bytes();
        match serde_json::from_slice::<ApiError>(&body) {
            Ok(refusal) => Err(ClientError::Refused(refusal)),
            Err(_) => Err(ClientError::Protocol(format!("{path} answered {status}"))),
        }
    }
}

fn protocol(error: impl ToString) -> ClientError {
    ClientError::Protocol(error.to_string())
}
