//! A connection that ends when its peer takes too long, or when another connection needs its seat.
//!
//! What must stay true: the time for the head of a request runs from the first look for it, and
//! bytes that trickle in do not prolong it. While the peer reads nothing of an answer, time runs.
//! Not here: bodies of requests (`control`), and who gets a seat (`seats`).

use crate::seats::{Seat, Serving};
use axum::body::{Body, Bytes, HttpBody};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

/// Times of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For the head of a request, and how long a connection may be idle.
    pub head: Duration,
    /// In which a peer must take something of its answer.
    pub send: Duration,
}

/// A connection with a seat and times.
#[derive(Debug)]
pub struct Guarded<S, K> {
    stream: S,
    seat: Seat<K>,
    /// Somebody else has the seat.
    is_over: bool,
    times: Times,
    /// Running while no request is being answered; `None` before it was first needed and while one
    /// is.
    head: Option<Pin<Box<Sleep>>>,
    /// Running while the peer takes nothing of what is to be sent.
    send: Option<Pin<Box<Sleep>>>,
}

impl<S, K> Guarded<S, K> {
    /// Watch over `stream`.
    pub fn new(stream: S, seat: Seat<K>, times: Times) -> Guarded<S, K> {
        Guarded { stream, seat, is_over: false, times, head: None, send: None }
    }

    /// Whether the seat is somebody else's.
    fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        // Once it is known nobody may ask again.
        self.is_over = self.is_over || Pin::new(&mut self.seat.ended).poll(context).is_ready();
        self.is_over
    }

    /// What came of a write: while nothing is taken, time runs.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.seat.course.set_stuck(polled.is_pending());
        if polled.is_ready() {
            self.send = None;
            return polled;
        }
        if self.has_ended(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let time = self.times.send;
        ready!(self.send.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin, K: Unpin> AsyncRead for Guarded<S, K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() && self.has_ended(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if self.seat.course.is_serving() {
            // It waits for us. Its next request has all its time again.
            self.head = None;
            return polled;
        }
        // Bytes that trickle in do not prolong it.
        let time = self.times.head;
        let head = self.head.get_or_insert_with(|| Box::pin(sleep(time)));
        match polled {
            Poll::Ready(_) if head.deadline() > Instant::now() => polled,
            Poll::Pending if head.as_mut().poll(context).is_pending() => Poll::Pending,
            _ => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin, K: Unpin> AsyncWrite for Guarded<S, K> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// An answer: while it is being sent its request counts as being answered.
pub struct Answer {
    /// What is sent.
    pub body: Body,
    /// Kept until it has been sent.
    pub _serving: Serving,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// A response body that grows as lines arrive.
pub struct Lines(pub mpsc::Receiver<Bytes>);

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
