//! The app: reports what it saw, and answers in every form on demand.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use futures_util::stream::{self, StreamExt as _};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use loadline_tower::{Addresses, Security};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};

/// What the tests see of the app, and move in it.
pub struct Shared {
    /// Requests that hang in it.
    pub hanging: AtomicU64,
    /// Bytes of content that it has read.
    pub read: AtomicU64,
    /// What `/events` says next.
    pub events: mpsc::UnboundedSender<String>,
    received: Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Default for Shared {
    fn default() -> Self {
        let (events, received) = mpsc::unbounded_channel();
        Self {
            hanging: AtomicU64::new(0),
            read: AtomicU64::new(0),
            events,
            received: Mutex::new(received),
        }
    }
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
        // Only within the context of a runtime is there one to ask for.
        assert!(tokio::runtime::Handle::try_current().is_ok());
        self.0.hanging.fetch_sub(1, SeqCst);
    }
}

pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/saw", any(saw))
        .route("/saw/{*rest}", any(saw))
        .route("/whoami", get(whoami))
        .route("/hello", get(|| async { "hello" }))
        .route("/status/{code}", any(status))
        .route("/fields", get(fields))
        .route("/own-security", get(|| async { (OWN_SECURITY, "own") }))
        .route("/known/{len}", get(known))
        .route("/unknown/{len}", get(unknown))
        .route("/form/{form}", get(form))
        .route("/drivers", get(drivers))
        .route("/events", get(events))
        .route("/echo", post(echo))
        .route("/swallow", post(swallow))
        .route("/unread", post(|| async { "unread" }))
        .route("/hang", any(hang))
        .route("/hang-late", get(hang_late))
        .route("/panic", get(panics))
        .with_state(shared)
}

async fn panics() {
    panic!("on purpose");
}

/// Everything of a request, one thing a line.
async fn saw(request: Request) -> String {
    let (parts, body) = request.into_parts();
    let mut said = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
    for (name, value) in &parts.headers {
        writeln!(said, "{name}: {}", value.as_bytes().escape_ascii()).unwrap();
    }
    let addresses = parts.extensions.get::<Addresses>().unwrap();
    let client = addresses.client.map(|client| client.address);
    writeln!(said, "client {client:?} secure {}", addresses.is_secure).unwrap();
    writeln!(said, "peer {:?}", addresses.peer).unwrap();
    writeln!(said, "local {:?}", addresses.local).unwrap();
    let hint = http_body::Body::size_hint(&body).exact();
    writeln!(said, "length {hint:?}").unwrap();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    writeln!(said, "content {}", collected.to_bytes().escape_ascii()).unwrap();
    for (name, value) in &trailers {
        writeln!(said, "trailer {name}: {}", value.as_bytes().escape_ascii()).unwrap();
    }
    said
}

/// As the manual has it.
async fn whoami(Extension(tls): Extension<Arc<Security>>) -> String {
    let subject = tls.client_subject.as_deref().unwrap_or("nobody");
    let name = tls.server_name.as_deref().unwrap_or("no name");
    format!("{subject} by {} at {name}", tls.version)
}

async fn status(Path(code): Path<u16>) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}

/// Of an app that knows better than the server for how long its site keeps to HTTPS.
const OWN_SECURITY: [(&str, &str); 1] = [("strict-transport-security", "max-age=7")];

async fn fields() -> (HeaderMap, &'static str) {
    let mut headers = HeaderMap::new();
    headers.append("set-cookie", HeaderValue::from_static("a=1"));
    headers.append("x-between", HeaderValue::from_static("  b  "));
    headers.append("set-cookie", HeaderValue::from_static("b=2"));
    headers.insert("x-opaque", HeaderValue::from_bytes(b"\xff\xfe\tx").unwrap());
    headers.insert(
        "date",
        HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"),
    );
    headers.insert("server", HeaderValue::from_static("its own"));
    headers.insert("keep-alive", HeaderValue::from_static("timeout=1"));
    (headers, "fields")
}

async fn known(Path(len): Path<usize>) -> Vec<u8> {
    pattern(len)
}

async fn unknown(Path(len): Path<usize>) -> Body {
    let bytes = Bytes::from(pattern(len));
    let pieces = (0..len)
        .step_by(10_000)
        .map(move |at| bytes.slice(at..len.min(at + 10_000)));
    Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)))
}

/// Bytes in which every place is different from its neighbourhood; they come again after a prime number.
pub fn pattern(len: usize) -> Vec<u8> {
    static PERIOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..65_521_u64)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect()
    });
    let mut bytes = PERIOD.repeat(len.div_ceil(PERIOD.len()));
    bytes.truncate(len);
    bytes
}

/// Frames, whatever they say of their length.
struct Frames {
    frames: std::vec::IntoIter<Result<Frame<Bytes>, &'static str>>,
    pending_first: bool,
    /// It does not say that it is over.
    has_no_end: bool,
    /// It says how long its content is.
    is_sized: bool,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if std::mem::take(&mut self.pending_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.frames.next() {
            None if self.has_no_end => Poll::Pending,
            next => Poll::Ready(next),
        }
    }

    fn size_hint(&self) -> SizeHint {
        if !self.is_sized {
            return SizeHint::default();
        }
        let frames = self.frames.as_slice().iter().flatten();
        let lens = frames.filter_map(Frame::data_ref).map(Bytes::len);
        SizeHint::with_exact(lens.sum::<usize>() as u64)
    }
}

async fn form(Path(form): Path<String>) -> Response {
    let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
    let trailers = |name: &'static str, value: &'static str| {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, HeaderValue::from_static(value));
        Ok(Frame::trailers(trailers))
    };
    let (frames, len) = match &*form {
        "trailers" | "trailers-of-known-length" => {
            let frames = vec![data("content"), trailers("x-sum", "7")];
            (frames, None)
        }
        "forbidden-trailers" => (vec![data("x"), trailers("content-length", "9")], None),
        "connection-trailers" => (vec![data("x"), trailers("keep-alive", "timeout=1")], None),
        "trailers-without-an-end" => (vec![data("x"), trailers("x-sum", "1")], None),
        "trailers-alone" => (vec![trailers("x-sum", "0")], None),
        "short" => (vec![data("shor")], Some("5")),
        "none-of-it" => (vec![], Some("5")),
        "long" => (vec![data("longer")], Some("5")),
        "exact" => (vec![data("ex"), data("act")], Some("5")),
        "fails-first" => (vec![Err("on purpose")], None),
        "fails-late" => (vec![data("begun"), Err("on purpose")], None),
        "empty" => (vec![], None),
        "empty-frames" => (vec![data(""), data("x"), data("")], None),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let pending_first = form == "fails-late";
    let frames = frames.into_iter();
    let mut response = Response::new(Body::new(Frames {
        frames,
        pending_first,
        has_no_end: form == "trailers-without-an-end",
        is_sized: form == "trailers-of-known-length",
    }));
    if let Some(len) = len {
        response
            .headers_mut()
            .insert("content-length", HeaderValue::from_static(len));
    }
    response
}

/// What needs a runtime: timers, sockets, tasks, threads that may block.
async fn drivers() -> String {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"from a socket").await.unwrap();
    });
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    accepted.await.unwrap();
    let blocking = tokio::task::spawn_blocking(|| " and a thread")
        .await
        .unwrap();
    text + blocking
}

async fn events(State(shared): State<Arc<Shared>>) -> Response {
    let events = stream::unfold(Hanging::begin(&shared), |hanging| async move {
        let event = hanging.0.received.lock().await.recv().await?;
        Some((Ok::<_, Infallible>(format!("data: {event}\n\n")), hanging))
    });
    let fields = [("content-type", "text/event-stream")];
    (fields, Body::from_stream(events)).into_response()
}

async fn echo(body: Body) -> Body {
    Body::from_stream(body.into_data_stream())
}

async fn swallow(State(shared): State<Arc<Shared>>, body: Body) -> String {
    let mut content = body.into_data_stream();
    let mut sum = 0_u64;
    while let Some(bytes) = content.next().await {
        let len = bytes.unwrap().len() as u64;
        shared.read.fetch_add(len, SeqCst);
        sum += len;
    }
    sum.to_string()
}

async fn hang(State(shared): State<Arc<Shared>>) {
    let _hanging = Hanging::begin(&shared);
    pending().await
}

async fn hang_late(State(shared): State<Arc<Shared>>) -> Body {
    let hanging = Hanging::begin(&shared);
    let first = stream::once(async { Ok::<_, Infallible>("begun") });
    Body::from_stream(first.chain(stream::once(async move {
        let _hanging = hanging;
        pending().await
    })))
}
