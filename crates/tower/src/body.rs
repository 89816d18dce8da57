//! A request's content as an `http_body::Body`: read from the client when the app asks for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use loadline_proto::{Fields, Gone, Port, Request, RequestBody, Version};

/// The content of a request, as it comes, and then its trailers. Nothing more than a window (64 KiB) is
/// read before the app asks; dropped unread, it is thrown away or the connection ends after the answer.
#[derive(Debug, Default)]
pub struct Body {
    /// `None`: nothing more will come.
    port: Option<Port>,
    /// Bytes that are still to come, if that is known.
    left: Option<u64>,
    /// Trailers may follow also content of a known length: over HTTP/2.
    may_have_trailers: bool,
    /// Content that was collected already, and its trailers.
    whole: Option<Bytes>,
    trailers: Option<Box<Fields>>,
}

impl Body {
    pub(crate) fn of(request: &Request, port: &Port) -> Self {
        match &request.body {
            RequestBody::Empty => Self::default(),
            RequestBody::Pending { len } => Self {
                port: Some(port.clone()),
                left: *len,
                may_have_trailers: request.version == Version::Http2,
                ..Self::default()
            },
            RequestBody::Whole(bytes) => Self {
                whole: Some(Bytes::copy_from_slice(bytes)).filter(|bytes| !bytes.is_empty()),
                trailers: request.trailers.clone(),
                ..Self::default()
            },
        }
    }
}

/// Trailers in the form that apps have fields in.
fn frame_of(trailers: &Fields) -> Frame<Bytes> {
    let mut map = HeaderMap::new();
    for (name, value) in trailers.iter() {
        let name = HeaderName::from_bytes(name);
        // What is a field to the server is one to `http`; beyond what a map can hold, they are left out.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            _ = map.try_append(name, value);
        }
    }
    Frame::trailers(map)
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Gone;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Gone>>> {
        if let Some(bytes) = self.whole.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(frame_of(&trailers))));
        }
        let Some(port) = &self.port else {
            return Poll::Ready(None);
        };
        let content = match port.poll_content(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(content) => content,
        };
        Poll::Ready(match content {
            Ok(Some(mut buffer)) => {
                let bytes = Bytes::from(std::mem::take(&mut *buffer));
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Some(Ok(Frame::data(bytes)))
            }
            Ok(None) => {
                let trailers = port.take_trailers();
                self.port = None;
                self.left = None;
                trailers.map(|trailers| Ok(frame_of(&trailers)))
            }
            Err(gone) => {
                self.port = None;
                Some(Err(gone))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        let has_come = self.left == Some(0) && !self.may_have_trailers;
        self.whole.is_none() && self.trailers.is_none() && (self.port.is_none() || has_come)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.whole, &self.port, self.left) {
            (Some(bytes), ..) => SizeHint::with_exact(bytes.len() as u64),
            (None, None, _) => SizeHint::with_exact(0),
            (None, Some(_), Some(left)) => SizeHint::with_exact(left),
            (None, Some(_), None) => SizeHint::default(),
        }
    }
}
