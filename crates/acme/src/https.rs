//! A client of HTTP/1.1 over TLS, as small as authorities allow: one connection for each request, and
//! an end to everything.
//!
//! The parts are the program's own: `loadline_tls` and the client's session of `loadline_proto`.

use std::future::{Future, ready};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::pin::Pin;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::header::USER_AGENT;
use http::{Request, Response, StatusCode, Uri};
use http_body::Body as _;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use loadline_proto::{ClientSession, Limits, Method, Received, ReplyFault, ReplyObserver};
use loadline_tls::{Authorities, Profile, TlsClient, TlsError};
use serde_json::Value;

use crate::error::HttpError;

/// From the look-up of the host to the last byte: authorities respond within seconds, and nobody waits
/// for this thread.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For one of a host's addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Certificates with their chain are some KiB, directories less.
const RESPONSE_BYTES_MAX: usize = 256 << 10;
/// Who asks: RFC 8555 section 6.1 wants it known.
const AGENT: &str = concat!("loadline/", env!("CARGO_PKG_VERSION"));
/// A record of TLS.
const PIECE_BYTES: usize = 16 << 10;

/// Asks authorities.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: TlsClient,
    retry_after: Arc<Mutex<Option<Duration>>>,
    /// Of the response to the last request, if that was signed; 0: there was none, or it was not.
    status: Arc<AtomicU16>,
}

/// A socket whose reads and writes come to an end together, however many there are: a handshake, or a record,
/// is several, and an authority that sends a byte now and then would have the thread for days.
#[derive(Debug)]
struct Limited {
    socket: TcpStream,
    until: Instant,
}

/// A response: its head, and all of its content.
#[derive(Debug, Default)]
struct Whole {
    head: Vec<u8>,
    content: Vec<u8>,
    is_too_large: bool,
}

impl Http {
    pub(crate) fn new(trusted: &Authorities) -> Result<Self, TlsError> {
        Ok(Self {
            client: TlsClient::new(trusted, Profile::Intermediate)?,
            retry_after: Arc::default(),
            status: Arc::default(),
        })
    }

    /// What the response to the last request said about when to ask again (`Retry-After`); only once.
    pub(crate) fn take_retry_after(&self) -> Option<Duration> {
        let mut retry_after = self
            .retry_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        retry_after.take()
    }

    /// The status of the response to the last request. `None`: there was no response, or the request was not
    /// signed, as those for a nonce and for the directory are not: they say nothing of what is asked for.
    pub(crate) fn signed_status(&self) -> Option<u16> {
        Some(self.status.load(Relaxed)).filter(|status| *status > 0)
    }

    /// The JSON at a URL, for everybody to read.
    pub(crate) fn get(&self, url: &str) -> Result<Value, HttpError> {
        let request = Request::get(url).body(Vec::new());
        let request = request.map_err(|_| HttpError::Url(url.to_owned()))?;
        let host = host(request.uri());
        let response = self.exchange(&request)?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err(HttpError::Status { host, status });
        }
        serde_json::from_slice(response.body()).map_err(|source| HttpError::Json { host, source })
    }

    /// The same; `None`: the authority has answered that there is nothing.
    pub(crate) fn get_if_there(&self, url: &str) -> Result<Option<Value>, HttpError> {
        match self.get(url) {
            Ok(found) => Ok(Some(found)),
            Err(HttpError::Status { status, .. }) if status < 500 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A request and its response, whatever that is.
    fn exchange(&self, request: &Request<Vec<u8>>) -> Result<Response<Vec<u8>>, HttpError> {
        self.take_retry_after(); // what an earlier response said is not about this one
        self.status.store(0, Relaxed);
        let uri = request.uri();
        let Some((name, port)) = host_and_port(uri) else {
            return Err(HttpError::Url(uri.to_string()));
        };
        let failed = |source| HttpError::Io {
            host: host(uri),
            source,
        };
        let until = Instant::now() + TIMEOUT;
        let socket = connect(name, port, until).map_err(failed)?;
        let stream = self.client.stream(bare(name), Limited { socket, until });
        let mut stream = stream.map_err(|source| HttpError::Tls {
            host: host(uri),
            source,
        })?;
        stream.write_all(&written(request)).map_err(failed)?;
        let mut session = ClientSession::new();
        session.requested(match *request.method() {
            http::Method::HEAD => Method::Head,
            http::Method::POST => Method::Post,
            _ => Method::Get,
        });
        let (limits, mut whole) = (Limits::default(), Whole::default());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let received = match stream.read(&mut piece) {
                Ok(0) => session.received_eof(),
                Ok(count) => session.received(&piece[..count], &limits, &mut whole),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            if whole.is_too_large {
                return Err(HttpError::TooLarge {
                    host: host(uri),
                    most: RESPONSE_BYTES_MAX,
                });
            }
            match received {
                Received::More => {}
                Received::Reply(reply) => {
                    // RFC 8555 section 6.2: what is signed is a POST.
                    if request.method() == http::Method::POST {
                        self.status.store(reply.status, Relaxed);
                    }
                    return self.response(uri, reply.status, whole);
                }
                Received::Fault(fault) => {
                    return Err(HttpError::Http {
                        host: host(uri),
                        fault: words(fault).to_owned(),
                    });
                }
            }
        }
    }

    /// The response as a library has it. What an authority that is broken sends is none.
    fn response(
        &self,
        uri: &Uri,
        status: u16,
        whole: Whole,
    ) -> Result<Response<Vec<u8>>, HttpError> {
        let mut response = Response::builder().status(status);
        let head = String::from_utf8_lossy(&whole.head);
        for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
            response = response.header(name, value.trim());
        }
        let failed = |error: http::Error| HttpError::Http {
            host: host(uri),
            fault: error.to_string(),
        };
        let response = response.body(whole.content).map_err(failed)?;
        let text = |name: &str| response.headers().get(name)?.to_str().ok();
        let mut retry_after = self
            .retry_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *retry_after = text("retry-after").and_then(|text| duration(text, SystemTime::now()));
        let is_problem = text("content-type").is_some_and(|it| it.contains("json"));
        if status >= StatusCode::BAD_REQUEST.as_u16() && !is_problem {
            let host = host(uri);
            return Err(HttpError::Status { host, status });
        }
        Ok(response)
    }
}

impl HttpClient for Http {
    /// Done when it returns: this thread has nothing else to do.
    fn request(
        &self,
        request: Request<BodyWrapper<bytes::Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, content(body));
        let response = self.exchange(&request).map(|response| {
            let (parts, content) = response.into_parts();
            BytesResponse {
                parts,
                body: Box::new(bytes::Bytes::from(content)),
            }
        });
        let response = response.map_err(|error| instant_acme::Error::Other(Box::new(error)));
        Box::pin(ready(response))
    }
}

impl io::Read for Limited {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(left(self.until)?))?;
        self.socket.read(bytes).map_err(in_words)
    }
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        self.socket.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl ReplyObserver for Whole {
    fn head(&mut self, head: &[u8]) {
        self.head.extend_from_slice(head);
    }

    fn content(&mut self, piece: &[u8]) {
        self.is_too_large |= self.content.len() + piece.len() > RESPONSE_BYTES_MAX;
        if !self.is_too_large {
            self.content.extend_from_slice(piece);
        }
    }
}

/// A future that is done as soon as it is asked, as all are whose requests are. `None`: it is not.
pub(crate) fn done<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// The content of a request, which is in memory.
fn content(mut body: BodyWrapper<bytes::Bytes>) -> Vec<u8> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut content = Vec::new();
    while let std::task::Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context)
    {
        content.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it));
    }
    content
}

/// To the first of a host's addresses that takes connections.
fn connect(name: &str, port: u16, until: Instant) -> io::Result<TcpStream> {
    let mut failed = None;
    for address in (bare(name), port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?.min(CONNECT_TIMEOUT)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("the host has no address")))
}

/// The time that is left.
fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(in_words(io::ErrorKind::WouldBlock.into())),
        left => Ok(left),
    }
}

/// The end of the time is "resource temporarily unavailable" to a socket.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no whole response within {} s", TIMEOUT.as_secs()),
        ),
        _ => error,
    }
}

/// A request as it is sent.
fn written(request: &Request<Vec<u8>>) -> Vec<u8> {
    let uri = request.uri();
    let target = uri.path_and_query().map_or("/", |it| it.as_str());
    let mut head = format!(
        "{} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
        request.method(),
        host(uri)
    )
    .into_bytes();
    let agent = request.headers().get(USER_AGENT);
    let library = agent
        .and_then(|it| it.to_str().ok())
        .map(|it| format!(" {it}"));
    head.extend_from_slice(
        format!("User-Agent: {AGENT}{}\r\n", library.unwrap_or_default()).as_bytes(),
    );
    for (name, value) in request.headers() {
        if name == USER_AGENT {
            continue;
        }
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    if request.method() == http::Method::POST {
        head.extend_from_slice(format!("Content-Length: {}\r\n", request.body().len()).as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(request.body());
    head
}

/// Whether this is a URL that can be asked.
pub(crate) fn is_url(text: &str) -> bool {
    let uri = text.parse::<Uri>();
    uri.is_ok_and(|uri| host_and_port(&uri).is_some())
}

/// Of an https URL without a user. `None`: it is none, or its port is none.
fn host_and_port(uri: &Uri) -> Option<(&str, u16)> {
    uri.scheme_str().filter(|scheme| *scheme == "https")?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    match uri.authority()?.as_str().strip_prefix(host)? {
        "" => Some((host, 443)),
        rest => Some((host, rest.strip_prefix(':')?.parse().ok()?)),
    }
}

/// The host with its port, if it has one.
pub(crate) fn host(uri: &Uri) -> String {
    uri.authority()
        .map_or_else(String::new, |it| it.as_str().to_owned())
}

fn words(fault: ReplyFault) -> &'static str {
    match fault {
        ReplyFault::ClosedEarly => "the connection was closed before one",
        ReplyFault::CutHead | ReplyFault::CutContent { .. } => {
            "the connection was closed within it"
        }
        ReplyFault::Malformed(what) => what,
        ReplyFault::Unsolicited => "bytes without a request",
    }
}

/// An IPv6 address without its brackets.
fn bare(name: &str) -> &str {
    name.trim_start_matches('[').trim_end_matches(']')
}

/// `Retry-After`: seconds, or a date.
fn duration(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    match u64::from_str(text) {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn when_to_ask_again() {
        let now = httpdate::parse_http_date("Wed, 25 Nov 2026 16:00:00 GMT").unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Wed, 25 Nov 2026 16:01:00 GMT", Some(60)),
            ("Wed, 25 Nov 2026 15:00:00 GMT", None),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(duration(text, now), seconds.map(Duration::from_secs));
        }
    }

    /// Each read of a handshake, or of a record, had all of the time.
    #[test]
    fn no_read_or_write_begins_once_the_time_is_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"two").unwrap();
        let until = Instant::now() + TIMEOUT;
        let mut limited = Limited { socket, until };
        let mut byte = [0];
        assert_eq!(limited.read(&mut byte).unwrap(), 1);
        assert_eq!(limited.write(&byte).unwrap(), 1);
        limited.until = Instant::now();
        for error in [limited.read(&mut byte), limited.write(&byte)] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(error.to_string(), "no whole response within 30 s");
        }
    }

    #[test]
    fn urls_that_can_be_asked() {
        for (text, expected) in [
            ("https://a.example/dir", Some(("a.example", 443))),
            ("HTTPS://a.example:14000/dir", Some(("a.example", 14000))),
            ("https://[::1]:8443/", Some(("[::1]", 8443))),
            ("https://a.example:99999/dir", None),
            ("https://a.example:/dir", None),
            ("https://user@a.example/dir", None),
            ("https://user:443@a.example/dir", None),
            ("http://a.example/dir", None),
            ("/dir", None),
        ] {
            let uri: Uri = text.parse().unwrap();
            assert_eq!(host_and_port(&uri), expected, "{text}");
            assert_eq!(is_url(text), expected.is_some(), "{text}");
        }
        for text in ["https://", "https://a:1:2/dir", "https://[::1/dir"] {
            assert!(!is_url(text), "{text}");
        }
    }

    #[test]
    fn a_request_as_it_is_sent() {
        let request = Request::post("https://a.example:14000/x?y=z")
            .header("content-type", "application/jose+json")
            .header("user-agent", "library/1")
            .body(b"{}".to_vec())
            .unwrap();
        let text = String::from_utf8(written(&request)).unwrap();
        assert_eq!(
            text,
            "POST /x?y=z HTTP/1.1\r\nHost: a.example:14000\r\nConnection: close\r\n\
             User-Agent: loadline/0.1.0 library/1\r\ncontent-type: application/jose+json\r\nContent-Length: 2\r\n\r\n{}"
        );
    }
}
