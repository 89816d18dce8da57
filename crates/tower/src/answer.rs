//! From an `http::Response` to an exchange and pieces.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Instant;

use bytes::{Buf, BufMut as _};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http_body::{Body, Frame};
use loadline_base::{Buffer, limited};
use loadline_proto::{
    Body as AnswerBody, Exchange, Fields, Gone, Method, Piece, Port, Response, Status,
};

use crate::{BoxError, FAILURES_MAX};

/// Content up to this length is copied into memory of an earlier answer; the app's own memory of longer
/// content is taken over, up to a window of it: memory that is shared has to be copied. 4 KiB: as much may
/// stay with each pooled exchange.
const COPIED_MAX: usize = 4 << 10;

/// Gives a whole answer to the client.
pub(crate) async fn give<B>(response: http::Response<B>, mut exchange: Box<Exchange>, port: &Port)
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let mut body = pin!(body);
    let Some(stated) = head(&parts, &mut exchange) else {
        limited!(FAILURES_MAX, Instant::now(), |more| tracing::error!(
            "an app answered with {}, which is no final status{more}",
            parts.status
        ));
        exchange.response.error(Status::INTERNAL_SERVER_ERROR);
        return port.answer(exchange);
    };
    crate::request::spare(parts.headers);
    let len = stated.or_else(|| body.size_hint().exact());
    if exchange.request.method == Method::Head || exchange.response.status.has_no_content() {
        return give_head(exchange, stated, len, port);
    }
    let (first, len) = match first_frame(body.as_mut(), len, &mut exchange).await {
        First::Whole(bytes) => {
            exchange.response.body = AnswerBody::Bytes(bytes);
            return port.answer(exchange);
        }
        First::Failed(error) => {
            limited!(FAILURES_MAX, Instant::now(), |more| tracing::error!(
                "the content of an app's response failed: {error}{more}"
            ));
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            return port.answer(exchange);
        }
        First::Missing => {
            exchange.response.body = AnswerBody::Stream { len };
            port.answer(exchange);
            return port.produce(Piece::End); // less than it says: to be broken off
        }
        First::Streams { first, len } => (first, len),
    };
    exchange.response.body = AnswerBody::Stream { len };
    port.answer(exchange);
    let end = match stream(first, body, port).await {
        Ok(()) => Piece::End,
        Err(Broken::Gone) => return,
        Err(Broken::Failed(error)) => {
            limited!(FAILURES_MAX, Instant::now(), |more| tracing::error!(
                "the content of an app's response broke off: {error}{more}"
            ));
            Piece::Abort
        }
    };
    port.produce(end);
}

/// Status and fields; what Content-Length says. Says `None` for what cannot be a final answer.
#[allow(
    clippy::option_option,
    reason = "a length that may be stated, if all is well"
)]
fn head(parts: &Parts, exchange: &mut Exchange) -> Option<Option<u64>> {
    let response = &mut exchange.response;
    response.status = Status::new(parts.status.as_u16()).filter(|status| status.code() >= 200)?;
    let mut stated = None;
    for (name, value) in &parts.headers {
        match *name {
            header::CONNECTION => response.close |= says_close(value),
            header::TRANSFER_ENCODING | header::UPGRADE => {}
            header::CONTENT_LENGTH => stated = value.to_str().ok().and_then(|v| v.parse().ok()),
            _ if is_of_the_connection(name) => {}
            _ => response.field(name.as_str(), value.as_bytes()),
        }
    }
    Some(stated)
}

fn says_close(value: &HeaderValue) -> bool {
    let mut options = value.as_bytes().split(|byte| *byte == b',');
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

fn is_of_the_connection(name: &HeaderName) -> bool {
    matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// An answer without content: to HEAD, 204 or 304.
fn give_head(mut exchange: Box<Exchange>, stated: Option<u64>, len: Option<u64>, port: &Port) {
    let response = &mut exchange.response;
    let is_head = exchange.request.method == Method::Head && !response.status.has_no_content();
    // A length of 0 may be a framework's, for content that it left out itself.
    let len = match is_head {
        true => len.filter(|len| *len > 0).or(stated),
        false => stated.filter(|len| *len > 0),
    };
    response.stated_len = len;
    if is_head && len.is_none() {
        response.body = AnswerBody::Stream { len: None }; // states no length
        port.answer(exchange);
        return port.produce(Piece::End);
    }
    response.body = AnswerBody::Bytes(Vec::new()); // no error page in its place
    port.answer(exchange);
}

/// What can be had of the content at once.
enum First<D> {
    /// All of it.
    Whole(Vec<u8>),
    /// It is over without a byte, though a length was stated. A body must not be polled behind its end.
    Missing,
    /// Perhaps a part, and how much there is, if that is known.
    Streams {
        first: Option<Frame<D>>,
        len: Option<u64>,
    },
    Failed(BoxError),
}

/// Most answers are one frame that is there at once: they leave in one piece with their head, unless it is
/// larger than a window. The app may share its memory between many answers, so only what is on its way is
/// copied.
async fn first_frame<B>(
    mut body: Pin<&mut B>,
    len: Option<u64>,
    exchange: &mut Exchange,
) -> First<B::Data>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return match len {
            None | Some(0) => First::Whole(Vec::new()),
            Some(_) => First::Missing,
        };
    }
    let polled = core::future::poll_fn(|context| Poll::Ready(body.as_mut().poll_frame(context)));
    match polled.await {
        Poll::Pending => First::Streams { first: None, len },
        Poll::Ready(None) if len.is_none_or(|len| len == 0) => First::Whole(Vec::new()),
        Poll::Ready(None) => First::Missing,
        Poll::Ready(Some(Err(error))) => First::Failed(error.into()),
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) => {
                let count = data.remaining();
                let is_all = len.is_none_or(|len| len == count as u64) && body.is_end_stream();
                if is_all && count <= exchange.stream_window_bytes {
                    return First::Whole(whole(data, &mut exchange.response));
                }
                First::Streams {
                    first: Some(Frame::data(data)),
                    len: if is_all { Some(count as u64) } else { len },
                }
            }
            Err(frame) => First::Streams {
                first: Some(frame),
                len,
            },
        },
    }
}

/// Content of one frame: copied if it is small, into memory that is there already.
fn whole(mut data: impl Buf, response: &mut Response) -> Vec<u8> {
    let count = data.remaining();
    if count > COPIED_MAX {
        return data.copy_to_bytes(count).into();
    }
    let mut content = response.content_memory();
    content.put(data);
    content
}

enum Broken {
    Gone,
    Failed(BoxError),
}

impl From<Gone> for Broken {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// Passes content on, as the client takes it.
async fn stream<B>(
    first: Option<Frame<B::Data>>,
    mut body: Pin<&mut B>,
    port: &Port,
) -> Result<(), Broken>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut next = first;
    loop {
        let frame = match next.take() {
            Some(frame) => frame,
            None if body.is_end_stream() => return Ok(()),
            None => {
                let frame = core::future::poll_fn(|context| body.as_mut().poll_frame(context));
                match frame.await {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => return Err(Broken::Failed(error.into())),
                    None => return Ok(()),
                }
            }
        };
        match frame.into_data() {
            Ok(data) => produce(data, port).await?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    port.produce(Piece::Trailers(trailer_fields(&trailers)));
                    return Ok(()); // they are the last frame; tonic's bodies would go on
                }
            }
        }
    }
}

async fn produce(mut data: impl Buf, port: &Port) -> Result<(), Gone> {
    while data.has_remaining() {
        let room = port.room().await?;
        let bytes = data.copy_to_bytes(room.min(data.remaining()));
        port.produce(Piece::Data(Buffer::from(Vec::from(bytes))));
    }
    Ok(())
}

/// Trailers, without those that would have had to come before (RFC 9110 section 6.5.1).
fn trailer_fields(trailers: &HeaderMap) -> Fields {
    const NOT_BEHIND: [HeaderName; 20] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::DATE,
        header::EXPIRES,
        header::HOST,
        header::LOCATION,
        header::RETRY_AFTER,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::VARY,
        header::WARNING,
        header::WWW_AUTHENTICATE,
    ];
    let mut fields = Fields::default();
    for (name, value) in trailers {
        if !NOT_BEHIND.contains(name) && !is_of_the_connection(name) {
            fields.add(name.as_str(), value.as_bytes());
        }
    }
    fields
}
