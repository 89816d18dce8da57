//! A handler that works as long as its client asks for: `bench/sizes.py` looks with it for the best number
//! of threads.
//!
//! `curl localhost:8080/sleep/1000` or `/spin/1000`, in microseconds; the status page is `/-/status`
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use std::time::Duration;

use loadline_apps::ServiceKind;
use loadline_apps::service_time::spend;
use loadline_observe::StartWithPages as _;
use loadline_proto::{Body, Context, Exchange, Handler, Outcome, Status};

/// Longer is a mistake.
const WORK_MAX: Duration = Duration::from_secs(1);

struct Working;

/// What a path asks for.
fn work(path: &[u8]) -> Option<(ServiceKind, Duration)> {
    let (kind, time) = std::str::from_utf8(path).ok()?[1..].split_once('/')?;
    let time = Duration::from_micros(time.parse().ok()?);
    let kind = match kind {
        "sleep" => ServiceKind::Sleep,
        "spin" => ServiceKind::Spin,
        _ => return None,
    };
    (time <= WORK_MAX).then_some((kind, time))
}

impl Handler for Working {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, _: &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        if work(exchange.request.path()).is_some() {
            return Outcome::Blocking;
        }
        exchange.response.error(Status::NOT_FOUND);
        Outcome::Ready
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        if let Some((kind, time)) = work(exchange.request.path()) {
            spend(time, kind);
        }
        exchange.response.body = Body::Bytes(b"done\n".to_vec());
    }
}

fn main() -> std::io::Result<()> {
    let args = args::Args::parse();
    let control = args.server(Working).start_with_pages()?;
    args.say();
    control.wait().map(drop)
}
