//! The server of the `h2` crate, over bytes in memory: it does what our handler does.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use http::Response;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{CONFIG, STREAMS_MAX, Seen, content_of};

/// Rounds until nothing moves any more.
const ROUNDS: usize = 20;

#[derive(Default)]
struct Pipes {
    input: VecDeque<u8>,
    output: Vec<u8>,
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Pipes>>);

enum State {
    Handshake(Handshake<Wire, Bytes>),
    Open(Connection<Wire, Bytes>),
    Ended,
}

/// A request whose content is not there yet.
struct Call {
    respond: SendResponse<Bytes>,
    body: RecvStream,
    len: u64,
    /// Of the response.
    content: &'static [u8],
}

/// A connection that was accepted.
pub struct Theirs {
    wire: Wire,
    state: State,
    calls: Vec<Call>,
    /// What it has sent to its client.
    pub seen: Seen,
}

impl Default for Theirs {
    fn default() -> Self {
        let wire = Wire::default();
        let limits = &CONFIG.limits;
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(STREAMS_MAX)
            .initial_window_size(limits.stream_window_bytes as u32)
            .initial_connection_window_size(limits.connection_window_bytes)
            .max_header_list_size(limits.head_bytes_max as u32)
            .reset_stream_duration(Duration::from_secs(3600));
        Self {
            state: State::Handshake(builder.handshake(wire.clone())),
            wire,
            calls: Vec::new(),
            seen: Seen::default(),
        }
    }
}

impl Theirs {
    /// The client sends bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.seen.windows.received(bytes);
        self.wire.pipes().input.extend(bytes);
        for _ in 0..ROUNDS {
            self.step();
            self.calls.retain_mut(|call| !call.ends());
            let output = std::mem::take(&mut self.wire.pipes().output);
            self.seen.read(&output);
        }
    }

    fn step(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let State::Handshake(handshake) = &mut self.state {
            self.state = match Pin::new(handshake).poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Ok(connection)) => State::Open(connection),
                Poll::Ready(Err(_)) => State::Ended,
            };
        }
        let State::Open(connection) = &mut self.state else {
            return;
        };
        match connection.poll_accept(&mut context) {
            Poll::Pending => {}
            Poll::Ready(Some(Ok((request, respond)))) => self.calls.push(Call {
                respond,
                content: content_of(request.uri().path().as_bytes()),
                body: request.into_body(),
                len: 0,
            }),
            Poll::Ready(Some(Err(_)) | None) => self.state = State::Ended,
        }
    }
}

impl Call {
    /// Reads content; responds at its end. Says whether it is over.
    fn ends(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match self.body.poll_data(&mut context) {
                Poll::Pending => return false,
                Poll::Ready(Some(Err(_))) => return true,
                Poll::Ready(Some(Ok(piece))) => {
                    self.len += piece.len() as u64;
                    let _ = self.body.flow_control().release_capacity(piece.len());
                }
                Poll::Ready(None) => break,
            }
        }
        match self.body.poll_trailers(&mut context) {
            Poll::Pending => return false,
            Poll::Ready(Err(_)) => return true,
            Poll::Ready(Ok(_)) => {}
        }
        let response = Response::builder().header("x-len", self.len);
        if let Ok(response) = response.body(()) {
            let is_end = self.content.is_empty();
            let sent = self.respond.send_response(response, is_end);
            if let Ok(mut stream) = sent
                && !is_end
            {
                // What the windows have no room for waits in there.
                let _ = stream.send_data(Bytes::from_static(self.content), true);
            }
        }
        true
    }
}

impl Wire {
    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipes = self.pipes();
        let (front, _) = pipes.input.as_slices();
        let len = front.len().min(buffer.remaining());
        if len == 0 {
            return Poll::Pending;
        }
        buffer.put_slice(&front[..len]);
        pipes.input.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pipes().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
