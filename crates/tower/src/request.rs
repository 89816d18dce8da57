//! From an exchange to an `http::Request`.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};
use loadline_proto::{Exchange, Port};

use crate::{Addresses, Body};

/// Fields that a map may have room for and be kept: what browsers send, doubled.
const SPARE_FIELDS_MAX: usize = 64;

/// From this many fields on, their values share memory.
const SHARED_FIELDS_MIN: usize = 3;

thread_local! {
    /// The memory of an answer's fields, for those of the next request.
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// Keeps the memory of fields that are no longer needed.
pub(crate) fn spare(mut headers: HeaderMap) {
    if headers.capacity() <= SPARE_FIELDS_MAX {
        headers.clear();
        SPARE.set(Some(headers));
    }
}

/// The request as it was sent; an error if the `http` types cannot hold it, though HTTP allows it.
pub(crate) fn from_exchange(exchange: &Exchange, port: &Port) -> http::Result<Request<Body>> {
    let from = &exchange.request;
    let mut request = Request::new(Body::of(from, port));
    *request.method_mut() = Method::from_bytes(from.method_name())?;
    *request.uri_mut() = Uri::try_from(from.target())?;
    *request.version_mut() = match from.version {
        loadline_proto::Version::Http10 => Version::HTTP_10,
        loadline_proto::Version::Http11 => Version::HTTP_11,
        loadline_proto::Version::Http2 => Version::HTTP_2,
    };
    let headers = request.headers_mut();
    if let Some(spare) = SPARE.take() {
        *headers = spare;
    }
    fields(from, headers)?;
    request.extensions_mut().insert(Addresses {
        client: exchange.client(),
        is_secure: exchange.is_secure(),
        peer: exchange.peer,
        local: exchange.local,
    });
    if let Some(security) = &exchange.security {
        if security.is_early {
            let headers = request.headers_mut();
            headers.insert("early-data", HeaderValue::from_static("1")); // RFC 8470
        }
        request.extensions_mut().insert(Arc::clone(security));
    }
    Ok(request)
}

/// Every field in order. Values share memory if they are many: one piece, and one for counting who
/// uses it.
fn fields(from: &loadline_proto::Request, headers: &mut HeaderMap) -> http::Result<()> {
    let count = from.fields().count();
    headers.reserve(count);
    let shared = (count >= SHARED_FIELDS_MIN).then(|| {
        let len = from.fields().map(|(_, value)| value.len()).sum();
        let mut values = Vec::with_capacity(len);
        from.fields()
            .for_each(|(_, value)| values.extend_from_slice(value));
        Bytes::from(values)
    });
    let mut begin = 0;
    for (name, value) in from.fields() {
        let name = HeaderName::from_bytes(name)?;
        let end = begin + value.len();
        let value = match &shared {
            Some(values) => HeaderValue::from_maybe_shared(values.slice(begin..end)),
            None => HeaderValue::from_bytes(value),
        };
        begin = end;
        headers.try_append(name, value?)?;
    }
    Ok(())
}
