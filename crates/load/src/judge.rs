//! What an answer comes to: as expected, or which kind of error. For plain clients and those with behaviour.

use std::io;

use loadline_proto::{Method, Reply, ReplyFault, StreamFault};
use loadline_record::ErrorKind;

use crate::Expectation;

/// What is wrong with an answer, if anything is: its status before its length, its length before
/// its content. `sha256` is the hash of the content, if that was looked at.
#[inline]
pub fn fault(
    reply: &Reply,
    method: Method,
    expected: &Expectation,
    sha256: Option<[u8; 32]>,
) -> Option<ErrorKind> {
    if reply.excess_bytes > 0 {
        return Some(ErrorKind::LongBody);
    }
    if let Some(kind) = status_fault(reply.status, &expected.statuses) {
        return Some(kind);
    }
    if let Some(length) = expected.length
        && method != Method::Head
        && reply.content_bytes != length
    {
        return Some(match reply.content_bytes < length {
            true => ErrorKind::ShortBody,
            false => ErrorKind::LongBody,
        });
    }
    let is_other = method != Method::Head && sha256.is_some() && sha256 != expected.sha256;
    is_other.then_some(ErrorKind::WrongContent)
}

/// What is wrong with a status, if anything is. Of none in particular, 200 to 299 are expected.
#[inline]
pub fn status_fault(status: u16, expected: &[u16]) -> Option<ErrorKind> {
    let is_expected = match expected {
        [] => (200..300).contains(&status),
        statuses => statuses.contains(&status),
    };
    (!is_expected).then(|| ErrorKind::of_status(status))
}

/// What an answer that did not become complete is counted as.
pub fn cut(fault: ReplyFault) -> ErrorKind {
    match fault {
        ReplyFault::ClosedEarly => ErrorKind::ClosedEarly,
        ReplyFault::CutHead | ReplyFault::CutContent { .. } => ErrorKind::ShortBody,
        ReplyFault::Malformed(_) => ErrorKind::Malformed,
        ReplyFault::Unsolicited => ErrorKind::LongBody,
    }
}

/// The same of a stream of HTTP/2.
pub(crate) fn stream_fault(fault: StreamFault) -> ErrorKind {
    match fault {
        StreamFault::Reset(_) => ErrorKind::StreamReset,
        StreamFault::Unprocessed => ErrorKind::ClosedEarly,
        StreamFault::Short => ErrorKind::ShortBody,
        StreamFault::Long => ErrorKind::LongBody,
        StreamFault::Malformed(_) => ErrorKind::Malformed,
    }
}

/// What kept a connection from coming to be.
#[must_use]
pub fn connect_fault(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
        io::ErrorKind::TimedOut => ErrorKind::ConnectTimeout,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ErrorKind::Reset,
        _ => ErrorKind::ConnectFailed,
    }
}

/// What broke a connection that had come to be.
#[must_use]
pub fn broken(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::*;

    fn reply(status: u16, content_bytes: u64) -> Reply {
        Reply {
            status,
            content_bytes,
            keep_alive: true,
            excess_bytes: 0,
        }
    }

    #[test]
    fn status_comes_before_length_and_length_before_content() {
        let any = Expectation::default();
        let not_found = Expectation {
            statuses: vec![404],
            ..Expectation::default()
        };
        let exact = Expectation {
            length: Some(5),
            sha256: Some([1; 32]),
            ..Expectation::default()
        };
        let (get, head) = (Method::Get, Method::Head);
        let (right, wrong) = (Some([1; 32]), Some([2; 32]));
        for (reply, method, expected, sha256, fault_expected) in [
            (reply(200, 5), get, &any, None, None),
            (reply(206, 0), get, &any, None, None),
            (reply(304, 0), get, &any, None, Some(OtherStatus)),
            (reply(404, 0), get, &any, None, Some(Status4xx)),
            (reply(503, 0), get, &any, None, Some(Status5xx)),
            (reply(404, 9), get, &not_found, None, None),
            (reply(200, 9), get, &not_found, None, Some(OtherStatus)),
            (reply(200, 5), get, &exact, None, None),
            (reply(200, 5), get, &exact, right, None),
            (reply(200, 5), get, &exact, wrong, Some(WrongContent)),
            (reply(200, 4), get, &exact, wrong, Some(ShortBody)),
            (reply(200, 6), get, &exact, None, Some(LongBody)),
            (reply(200, 0), head, &exact, None, None),
            (reply(200, 0), head, &exact, wrong, None),
            (reply(500, 4), get, &exact, wrong, Some(Status5xx)),
        ] {
            let found = fault(&reply, method, expected, sha256);
            assert_eq!(found, fault_expected, "{reply:?} {expected:?}");
        }
        let excess = Reply {
            excess_bytes: 1,
            ..reply(500, 5)
        };
        assert_eq!(fault(&excess, get, &any, None), Some(LongBody));
    }

    #[test]
    fn a_timeout_of_the_kernel_is_one_of_the_connection_only_before_it_has_come_to_be() {
        for (error, before, after) in [
            (io::ErrorKind::TimedOut, ConnectTimeout, Timeout),
            (io::ErrorKind::ConnectionReset, Reset, Reset),
            (io::ErrorKind::BrokenPipe, Reset, Reset),
            (io::ErrorKind::HostUnreachable, ConnectFailed, Reset),
        ] {
            let error = io::Error::from(error);
            assert_eq!(connect_fault(&error), before, "{error}");
            assert_eq!(broken(&error), after, "{error}");
        }
    }
}
