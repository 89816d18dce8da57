//! What a run needs to speak HTTP/2: its requests as field blocks, and how many of them share a
//! connection.

use std::sync::Arc;

use loadline_proto::{Connector, Http2Fields, RequestBlocks};

use crate::{Mix, Prepared};

/// The part of a plan that is about HTTP/2.
#[derive(Clone, Debug)]
pub struct Http2Plan {
    /// Requests that a connection carries at one time, at most: in a closed loop, as many clients share
    /// it. At least one.
    pub streams: u32,
    /// By the indexes of `Mix::requests`.
    pub requests: Arc<[Http2Request]>,
    /// By server, as `Plan::connectors`, but that they ask for HTTP/2.
    pub connectors: Vec<Option<Arc<dyn Connector>>>,
}

/// A request, ready to be sent over HTTP/2. Its content is that of its form for HTTP/1.
#[derive(Clone, Debug)]
pub struct Http2Request {
    /// Its fields.
    pub blocks: RequestBlocks,
    /// Where its content begins in `Prepared::keep`.
    pub body_start: usize,
}

impl Http2Plan {
    /// For the requests of `mix` to servers that have these connectors.
    #[must_use]
    pub fn new(mix: &Mix, streams: u32, connectors: Vec<Option<Arc<dyn Connector>>>) -> Self {
        let mut requests: Vec<Option<Http2Request>> = vec![None; mix.requests.len()];
        let servers = mix.requests.iter().map(|one| usize::from(one.server) + 1);
        for server in 0..servers.max().unwrap_or(0) {
            let is_secure = matches!(connectors.get(server), Some(Some(_)));
            let scheme = if is_secure { "https" } else { "http" };
            let of_server = |index: &usize| usize::from(mix.requests[*index].server) == server;
            let indexes: Vec<usize> = (0..mix.requests.len()).filter(of_server).collect();
            let (fields, starts): (Vec<_>, Vec<_>) = indexes
                .iter()
                .map(|index| fields(&mix.requests[*index], scheme))
                .unzip();
            let blocks = RequestBlocks::prepare(&fields);
            for ((index, blocks), body_start) in indexes.into_iter().zip(blocks).zip(starts) {
                requests[index] = Some(Http2Request { blocks, body_start });
            }
        }
        Self {
            streams: streams.max(1),
            requests: requests.into_iter().flatten().collect(),
            connectors,
        }
    }
}

/// The fields of a request, from its form for HTTP/1, and where its content begins.
fn fields(request: &Prepared, scheme: &'static str) -> (Http2Fields, usize) {
    let bytes = &request.keep;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or(bytes.len());
    let head = &bytes[..end];
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(|line| line.trim_ascii_end());
    let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
    let mut fields = Http2Fields {
        method: words.next().unwrap_or_default().to_vec(),
        scheme,
        path: words.next().unwrap_or_default().to_vec(),
        ..Http2Fields::default()
    };
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = line[..colon].to_ascii_lowercase();
        let value = line[colon + 1..].trim_ascii();
        match name.as_slice() {
            b"host" => fields.authority = value.to_vec(),
            // It is about the connection of HTTP/1 (RFC 9113 section 8.2.2).
            b"connection" => {}
            _ => fields.fields.push((name, value.to_vec())),
        }
    }
    (fields, (end + 4).min(bytes.len()))
}

#[cfg(test)]
mod tests {
    use loadline_proto::Method;

    use super::*;

    #[test]
    fn a_request_of_http_1_has_its_fields() {
        let keep = b"POST /a?b=c HTTP/1.1\r\nHost: h:80\r\nUser-Agent: me\r\nX-Empty: \r\n\
            Connection: keep-alive\r\nContent-Length: 6\r\n\r\na\r\n\r\nb";
        let request = Prepared {
            keep: Arc::from(&keep[..]),
            method: Method::Post,
            ..Prepared::get("h:80", "/")
        };
        let (found, start) = fields(&request, "https");
        assert_eq!(&keep[start..], b"a\r\n\r\nb");
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let expected = Http2Fields {
            method: b"POST".to_vec(),
            scheme: "https",
            authority: b"h:80".to_vec(),
            path: b"/a?b=c".to_vec(),
            fields: vec![
                pair("user-agent", "me"),
                pair("x-empty", ""),
                pair("content-length", "6"),
            ],
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn each_request_has_its_blocks_whatever_its_server() {
        let of = |server, path| Prepared {
            server,
            ..Prepared::get("h", path)
        };
        let mut mix = Mix::of(of(1, "/b"));
        mix.requests.extend([of(0, "/a"), of(1, "/ccc")]);
        let plan = Http2Plan::new(&mix, 0, Vec::new());
        assert_eq!((plan.requests.len(), plan.streams), (3, 1));
        for (request, prepared) in plan.requests.iter().zip(&mix.requests) {
            assert_eq!(request.body_start, prepared.keep.len());
        }
        let len = |index: usize| plan.requests[index].blocks.held_bytes();
        assert!(len(2) > len(0) && len(0) == len(1));
    }
}
