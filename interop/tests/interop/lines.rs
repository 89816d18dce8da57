//! A gRPC service of tonic's, written by hand: a method of each of the four kinds.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};

use futures_util::stream::{self, Stream, StreamExt as _};
use loadline_tower::Body;
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// Every message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Line {
    #[prost(string, tag = "1")]
    pub text: String,
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

impl Line {
    pub fn new(text: &str, count: u32) -> Self {
        Self {
            text: text.to_owned(),
            count,
        }
    }
}

pub type Codec = ProstCodec<Line, Line>;
type Lines = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

/// What tests see of the service.
#[derive(Debug, Default)]
pub struct Shared {
    /// Calls that hang in it.
    pub hanging: AtomicU64,
    /// The deadline that a call came with, as it was sent.
    pub timeout: Mutex<Option<String>>,
}

/// Counts until it is dropped.
struct Hanging(Arc<Shared>);

impl Hanging {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.hanging.fetch_add(1, SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, SeqCst);
    }
}

/// The service.
#[derive(Clone)]
pub struct LineService(pub Arc<Shared>);

impl Service<http::Request<Body>> for LineService {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let mut grpc = Grpc::new(Codec::default());
            let path = request.uri().path().to_owned();
            Ok(match &*path {
                "/lines.Lines/Answer" => {
                    let answer = service_fn(|request| answer(Arc::clone(&shared), request));
                    grpc.unary(answer, request).await
                }
                "/lines.Lines/Sum" => grpc.client_streaming(service_fn(sum), request).await,
                "/lines.Lines/Count" => {
                    let count = service_fn(|request| count(Arc::clone(&shared), request));
                    grpc.server_streaming(count, request).await
                }
                "/lines.Lines/Echo" => {
                    let echo = service_fn(|request| echo(Arc::clone(&shared), request));
                    grpc.streaming(echo, request).await
                }
                _ => Status::unimplemented(path).into_http(),
            })
        })
    }
}

/// A line for a line.
async fn answer(shared: Arc<Shared>, request: Request<Line>) -> Result<Response<Line>, Status> {
    let timeout = request.metadata().get("grpc-timeout");
    let timeout = timeout.map(|value| value.to_str().unwrap_or_default().to_owned());
    *shared.timeout.lock().unwrap() = timeout;
    let Line { text, count } = request.into_inner();
    match &*text {
        "refuse" => {
            let mut status = Status::with_details(
                Code::FailedPrecondition,
                "not now: 100 % of ä",
                b"\x00details\xff".as_slice().into(),
            );
            let kept = status.metadata_mut();
            kept.insert("x-reason", "asked for".parse().expect("ASCII"));
            Err(status)
        }
        "panic" => panic!("on purpose"),
        "hang" => {
            let _hanging = Hanging::begin(&shared);
            pending().await
        }
        _ => {
            let mut response = Response::new(Line::new(&text, count + 1));
            let kept = response.metadata_mut();
            kept.insert("x-kept", "yes".parse().expect("ASCII"));
            Ok(response)
        }
    }
}

/// A line for many: their number, and their lengths together.
async fn sum(request: Request<Streaming<Line>>) -> Result<Response<Line>, Status> {
    let mut lines = request.into_inner();
    let (mut count, mut len) = (0, 0);
    while let Some(line) = lines.message().await? {
        if line.text == "refuse" {
            return Err(Status::resource_exhausted("enough"));
        }
        count += 1;
        len += line.text.len();
    }
    Ok(Response::new(Line::new(&len.to_string(), count)))
}

/// Many lines for one. They end with an error, or not at all, if the line says so.
async fn count(shared: Arc<Shared>, request: Request<Line>) -> Result<Response<Lines>, Status> {
    let Line { text, count } = request.into_inner();
    let text: Arc<str> = text.into();
    let of = {
        let text = Arc::clone(&text);
        move |count| Ok(Line::new(&text, count))
    };
    let lines = stream::iter(0..count).map(of);
    let hanging = Hanging::begin(&shared);
    let end = stream::once(async move {
        let _hanging = hanging;
        match &*text {
            "hang" => pending().await,
            "refuse" => Some(Err(Status::data_loss("the rest is lost"))),
            _ => None,
        }
    });
    Ok(Response::new(Box::pin(
        lines.chain(end.filter_map(async |it| it)),
    )))
}

/// Each line, as soon as it comes.
async fn echo(
    shared: Arc<Shared>,
    request: Request<Streaming<Line>>,
) -> Result<Response<Lines>, Status> {
    let hanging = Hanging::begin(&shared);
    let lines = request.into_inner().map(move |line| {
        let _hanging = &hanging;
        let line = line?;
        match &*line.text {
            "refuse" => Err(Status::aborted("asked for")),
            _ => Ok(line),
        }
    });
    Ok(Response::new(Box::pin(lines)))
}
