//! What is between the ends: bytes in memory, which come as the test says.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Default)]
pub struct Pipes {
    pub to_server: VecDeque<u8>,
    pub to_client: VecDeque<u8>,
    /// The server sends no more.
    pub is_closed: bool,
}

/// The client's end. Nobody is woken: the test polls.
#[derive(Clone, Default)]
pub struct Wire(Arc<Mutex<Pipes>>);

impl Wire {
    pub fn pipes(&self) -> MutexGuard<'_, Pipes> {
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
        if pipes.to_client.is_empty() {
            return match pipes.is_closed {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
        }
        let (front, _) = pipes.to_client.as_slices();
        let len = front.len().min(buffer.remaining());
        buffer.put_slice(&front[..len]);
        pipes.to_client.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pipes().to_server.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
