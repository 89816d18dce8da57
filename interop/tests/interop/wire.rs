//! What is between two ends: bytes in memory, which come as the test says.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes on their way in one direction.
#[derive(Default)]
pub struct Pipe {
    pub bytes: BytesMut,
    /// No more will come.
    pub is_closed: bool,
}

#[derive(Default)]
pub struct Pipes {
    pub to_server: Pipe,
    pub to_client: Pipe,
}

#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

/// The end that the `h2` crate has. Nobody is woken: the test polls.
#[derive(Clone)]
pub struct Wire {
    pipes: Arc<Mutex<Pipes>>,
    side: Side,
}

impl Wire {
    /// The `h2` crate is the client.
    pub fn of_client() -> Self {
        Self::of(Side::Client)
    }

    /// It is the server.
    pub fn of_server() -> Self {
        Self::of(Side::Server)
    }

    fn of(side: Side) -> Self {
        Self {
            pipes: Arc::default(),
            side,
        }
    }

    pub fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipes {
    fn incoming(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Client => &mut self.to_client,
            Side::Server => &mut self.to_server,
        }
    }

    fn outgoing(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Client => &mut self.to_server,
            Side::Server => &mut self.to_client,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipes = self.pipes();
        let pipe = pipes.incoming(self.side);
        if pipe.bytes.is_empty() {
            return match pipe.is_closed {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
        }
        let len = pipe.bytes.len().min(buffer.remaining());
        buffer.put_slice(&pipe.bytes[..len]);
        pipe.bytes.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipes = self.pipes();
        pipes.outgoing(self.side).bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipes().outgoing(self.side).is_closed = true;
        Poll::Ready(Ok(()))
    }
}
