//! The app of the handler made for tests.

use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::time::Duration;

use loadline_base::Buffer;
use loadline_proto::{Body, Exchange, Piece, Port};

use super::{Gate, eventually};

/// Pieces of a response that has as many as there is room for.
pub(crate) const PIECES_MAX: usize = 200;

/// What tests know of the app's tasks.
#[derive(Default)]
pub(crate) struct TestApp {
    is_open: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Pieces that were produced so far.
    pub(crate) pieces: AtomicUsize,
    /// Tasks that were begun so far.
    pub(crate) begun: AtomicUsize,
    /// Where tasks hold their threads.
    pub(crate) gate: Gate,
}

impl TestApp {
    /// Waits until a task waits.
    pub(crate) fn await_waiting(&self) {
        eventually(|| self.waker.lock().unwrap().is_some());
    }

    /// Wakes it.
    pub(crate) fn open(&self) {
        self.is_open.store(true, SeqCst);
        let waker = self.waker.lock().unwrap().take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until it was opened.
    pub(super) async fn pass(&self, mut exchange: Box<Exchange>, port: Port) {
        poll_fn(|context| {
            let mut waker = self.waker.lock().unwrap();
            if self.is_open.load(SeqCst) {
                return Poll::Ready(());
            }
            *waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        exchange.response.body = Body::Bytes(b"passed".to_vec());
        port.answer(exchange);
    }

    /// Holds its thread for so long.
    pub(super) fn work(mut exchange: Box<Exchange>, port: &Port, time: Duration) {
        std::thread::sleep(time);
        exchange.response.body = Body::Bytes(b"worked".to_vec());
        port.answer(exchange);
    }

    /// Waits for the content, and says how long it is.
    pub(super) async fn count(mut exchange: Box<Exchange>, port: Port) {
        let mut len = 0;
        while let Ok(Some(content)) = port.content().await {
            len += content.len();
        }
        exchange.response.body = Body::Bytes(len.to_string().into_bytes());
        port.answer(exchange);
    }

    /// Fills the room that there is, again and again.
    pub(super) async fn produce(&self, mut exchange: Box<Exchange>, port: Port) {
        exchange.response.body = Body::Stream { len: None };
        port.answer(exchange);
        for _ in 0..PIECES_MAX {
            let Ok(room) = port.room().await else {
                return;
            };
            self.pieces.fetch_add(1, SeqCst);
            port.produce(Piece::Data(Buffer::from(vec![b'x'; room])));
        }
        port.produce(Piece::End);
    }
}
