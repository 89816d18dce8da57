//! The status page: the server's counters as JSON and as Prometheus text.

use std::fmt;
use std::sync::Arc;

use loadline_proto::{Body, Exchange, FieldName, Method, Status};

/// Where the status page gets its texts from. Asked on a serving thread: must not block.
pub trait StatusSource: Send + Sync + 'static {
    /// The counters as one JSON object.
    fn json(&self) -> String;
    /// The counters in the Prometheus text format.
    fn prometheus(&self) -> String;
}

/// The page at one path.
#[derive(Clone)]
pub struct StatusPage {
    path: String,
    source: Arc<dyn StatusSource>,
}

impl fmt::Debug for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusPage")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl StatusPage {
    /// A page at `path`, which begins with a slash.
    #[must_use]
    pub fn new(path: impl Into<String>, source: Arc<dyn StatusSource>) -> Self {
        Self {
            path: path.into(),
            source,
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The folder of its path, with a slash at its end: where the probes belong.
    #[must_use]
    pub fn folder(&self) -> &str {
        let path = self.path.trim_end_matches('/');
        let end = path.rfind('/').map_or(0, |slash| slash + 1);
        &path[..end]
    }

    /// Whether the request is for this page.
    #[must_use]
    pub fn matches(&self, exchange: &Exchange) -> bool {
        exchange.request.path() == self.path.as_bytes()
    }

    /// Answers a request for this page: JSON, or Prometheus text for `?format=prometheus` and for
    /// clients that accept plain text and no JSON, as Prometheus does.
    pub fn answer(&self, exchange: &mut Exchange) {
        if !is_read(exchange) {
            return;
        }
        let Exchange {
            request, response, ..
        } = exchange;
        let (content_type, text) = if wants_prometheus(request) {
            (
                "text/plain; version=0.0.4; charset=utf-8",
                self.source.prometheus(),
            )
        } else {
            ("application/json", self.source.json())
        };
        response.field("Content-Type", content_type);
        response.field("Cache-Control", "no-store");
        response.field("Vary", "Accept");
        response.body = Body::Bytes(text.into_bytes());
    }
}

/// Whether what a request is for is only read, as pages of the server's own can be; else it is
/// refused.
pub(crate) fn is_read(exchange: &mut Exchange) -> bool {
    let is_read = matches!(exchange.request.method, Method::Get | Method::Head);
    if !is_read {
        exchange.response.error(Status::METHOD_NOT_ALLOWED);
        exchange.response.field("Allow", "GET, HEAD");
    }
    is_read
}

fn wants_prometheus(request: &loadline_proto::Request) -> bool {
    match request.query() {
        Some(b"format=prometheus") => return true,
        Some(b"format=json") => return false,
        _ => {}
    }
    let accepts = |media_type: &[u8]| {
        let ranges = request.field_values(FieldName::Accept);
        ranges
            .flat_map(|value| value.split(|byte| *byte == b','))
            .filter_map(|range| range.split(|byte| *byte == b';').next())
            .any(|range| range.trim_ascii().eq_ignore_ascii_case(media_type))
    };
    accepts(b"text/plain") && !accepts(b"application/json")
}
