//! A request's content as an `http_body::Body`: read from the client when the app asks for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use loadline_proto::{Gone, Port, RequestBody};

/// The content of a request, as it comes. Nothing more than a window (64 KiB) is read before the app
/// asks; dropped unread, it is thrown away or the connection ends after the answer.
#[derive(Debug, Default)]
pub struct Body {
    /// `None`: nothing more will come.
    port: Option<Port>,
    /// Bytes that are still to come, if that is known.
    left: Option<u64>,
    /// Content that was collected already.
    whole: Option<Bytes>,
}

impl Body {
    pub(crate) fn of(request: &RequestBody, port: &Port) -> Self {
        match request {
            RequestBody::Empty => Self::default(),
            RequestBody::Pending { len } => Self {
                port: Some(port.clone()),
                left: *len,
                whole: None,
            },
            RequestBody::Whole(bytes) => Self {
                port: None,
                left: None,
                whole: Some(Bytes::copy_from_slice(bytes)).filter(|bytes| !bytes.is_empty()),
            },
        }
    }
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
                self.port = None;
                self.left = None;
                None
            }
            Err(gone) => {
                self.port = None;
                Some(Err(gone))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_none() && (self.port.is_none() || self.left == Some(0))
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
