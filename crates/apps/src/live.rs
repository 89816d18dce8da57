//! The live page: what the server does, second by second, drawn in the browser.
//!
//! One page with its own script and style, which needs no other server. It asks for server-sent events;
//! each response has the seconds that the browser has not seen, and ends, and the browser asks again a
//! second later, as event sources do. So a watcher holds no thread, no worker and no connection for
//! longer than one response takes, also in architectures where a thread serves one connection at a time.

use std::fmt;
use std::sync::Arc;

use loadline_proto::{Body, Exchange, Request};

use crate::status::is_read;

/// Where the page gets its seconds from. Asked on a serving thread: must not block.
pub trait LiveSource: Send + Sync + 'static {
    /// The seconds after the one with this number, as server-sent events: each with its number as `id`.
    /// `None`: all that are kept.
    fn events(&self, after: Option<u64>) -> String;
}

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LivePart {
    /// The document.
    Document,
    /// Its style sheet.
    Style,
    /// Its script.
    Script,
    /// The seconds.
    Events,
}

/// The page at one path.
#[derive(Clone)]
pub struct LivePage {
    folder: String,
    source: Arc<dyn LiveSource>,
}

/// The page loads from its own server only, and its document has no script or style in itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const DOCUMENT: &str = include_str!("live/live.html");
const STYLE: &str = include_str!("live/live.css");
const SCRIPT: &str = include_str!("live/live.js");

/// How long the browser waits before it asks again.
const RETRY: &str = "retry: 1000\n\n";

impl fmt::Debug for LivePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePage")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl LivePage {
    /// The page `live` in this folder, `/-/` for example.
    #[must_use]
    pub fn new(folder: impl Into<String>, source: Arc<dyn LiveSource>) -> Self {
        Self {
            folder: folder.into(),
            source,
        }
    }

    /// The paths of all its parts.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let names = ["live", "live.css", "live.js", "live/events"];
        names.map(|name| format!("{}{name}", self.folder)).into()
    }

    /// The part that a request for this path is for, if any.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<LivePart> {
        Some(match path.strip_prefix(self.folder.as_bytes())? {
            b"live" => LivePart::Document,
            b"live.css" => LivePart::Style,
            b"live.js" => LivePart::Script,
            b"live/events" => LivePart::Events,
            _ => return None,
        })
    }

    /// Answers a request for it.
    pub fn answer(&self, part: LivePart, exchange: &mut Exchange) {
        if !is_read(exchange) {
            return;
        }
        let Exchange {
            request, response, ..
        } = exchange;
        let (content_type, text) = match part {
            LivePart::Document => ("text/html; charset=utf-8", DOCUMENT.to_owned()),
            LivePart::Style => ("text/css; charset=utf-8", STYLE.to_owned()),
            LivePart::Script => ("text/javascript; charset=utf-8", SCRIPT.to_owned()),
            LivePart::Events => {
                let events = self.source.events(last_event(request));
                ("text/event-stream", RETRY.to_owned() + &events)
            }
        };
        response.field("Content-Type", content_type);
        response.field("Cache-Control", "no-store");
        response.field("X-Content-Type-Options", "nosniff");
        if part == LivePart::Document {
            response.field("Content-Security-Policy", POLICY);
        }
        response.body = Body::Bytes(text.into_bytes());
    }
}

/// The number of the last event that the browser has seen.
fn last_event(request: &Request) -> Option<u64> {
    let mut fields = request.fields();
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"last-event-id"))?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
