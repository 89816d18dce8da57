//! A session, and what it has said and shown.

use loadline_proto::{ClientSession, Limits, Method, Received, Reply, ReplyFault, ReplyObserver};

/// What an observer saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub heads: Vec<u8>,
    pub content: Vec<u8>,
}

impl ReplyObserver for Seen {
    fn head(&mut self, head: &[u8]) {
        self.heads.extend_from_slice(head);
    }

    fn content(&mut self, piece: &[u8]) {
        assert!(!piece.is_empty(), "an empty piece says nothing");
        self.content.extend_from_slice(piece);
    }
}

/// What an answer came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub result: Result<Reply, ReplyFault>,
    pub seen: Seen,
    /// Whether the end of the connection was needed.
    pub at_eof: bool,
}

/// Feeds the pieces to a session that waits for an answer to `method`, then the end of the
/// connection if that is needed.
pub(crate) fn play(method: Method, pieces: &[&[u8]], limits: &Limits) -> Outcome {
    let mut session = ClientSession::new();
    session.requested(method);
    let mut seen = Seen::default();
    for piece in pieces {
        let result = match session.received(piece, limits, &mut seen) {
            Received::More => continue,
            Received::Reply(reply) => Ok(reply),
            Received::Fault(fault) => Err(fault),
        };
        let at_eof = false;
        return Outcome {
            result,
            seen,
            at_eof,
        };
    }
    let result = match session.received_eof() {
        Received::More => panic!("an end that is none"),
        Received::Reply(reply) => Ok(reply),
        Received::Fault(fault) => Err(fault),
    };
    let at_eof = true;
    Outcome {
        result,
        seen,
        at_eof,
    }
}

/// In one piece, to a GET, within the usual limits.
pub(crate) fn get(bytes: &[u8]) -> Outcome {
    play(Method::Get, &[bytes], &Limits::default())
}
