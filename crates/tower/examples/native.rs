//! A handler of Loadline's own, on the fast path: no future, no allocation, nothing shared between
//! threads. It counts the requests of each thread.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use std::io::Write as _;

use loadline_proto::{Context, Exchange, Fields, Handler, Method, Outcome, Status};

struct Counting;

/// What each serving thread has of its own.
struct Local {
    requests: u64,
    fields: Fields,
    page: Vec<u8>,
}

impl Handler for Counting {
    type Local = Local;

    fn local(&self) -> Local {
        Local {
            requests: 0,
            fields: Fields::default().with("Content-Type", "text/plain"),
            page: Vec::new(),
        }
    }

    /// On the thread that owns the connection: it must not block.
    fn handle(&self, local: &mut Local, exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
        if !matches!(exchange.request.method, Method::Get | Method::Head) {
            exchange.response.error(Status::METHOD_NOT_ALLOWED);
            exchange.response.field("Allow", "GET, HEAD");
            return Outcome::Ready;
        }
        if exchange.request.path() == b"/slow" {
            return Outcome::Blocking;
        }
        local.requests += 1;
        local.page.clear();
        let _ = writeln!(local.page, "request {} of this thread", local.requests); // into memory
        exchange.answer_borrowed(Status::OK, &local.fields, &local.page, cx);
        Outcome::Ready
    }

    /// On a thread that may block, where there is one.
    fn handle_blocking(&self, exchange: &mut Exchange) {
        std::thread::sleep(std::time::Duration::from_millis(100));
        exchange.response.body = loadline_proto::Body::Bytes(b"slowly\n".to_vec());
    }
}

fn main() -> std::io::Result<()> {
    args::Args::parse().serve(Counting)
}
