//! What a user keeps of an answer until it has been looked at, in bounded memory; and what can be
//! wrong with one, in words.

use loadline_load::judge;
use loadline_proto::{ReplyFault, ReplyObserver};
use loadline_record::ErrorKind;

/// Content that is kept to be searched. A page; what lies behind is not seen.
const CONTENT_BYTES_MAX: usize = 1 << 20;
/// Memory of a page that is kept for the next one, for each of thousands of users.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// What is kept of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) head: Vec<u8>,
    pub(super) content: Vec<u8>,
    keeps_content: bool,
}

impl ReplyObserver for Answer {
    fn head(&mut self, head: &[u8]) {
        self.head.extend_from_slice(head);
    }

    fn content(&mut self, piece: &[u8]) {
        if self.keeps_content {
            let room = CONTENT_BYTES_MAX - self.content.len();
            self.content
                .extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }
}

impl Answer {
    /// Forgets the last one; `keeps_content`: the next one's is searched.
    pub(super) fn begin(&mut self, keeps_content: bool) {
        self.keeps_content = keeps_content;
        self.head.clear();
        self.content.clear();
        if self.content.capacity() > KEPT_BYTES_MAX {
            self.content = Vec::new();
        }
    }
}

/// Why a step did not end well, in words.
pub(super) type Problem = (ErrorKind, String);

/// Whether a status is one of those that are expected; empty: 200 to 299.
pub(super) fn check_status(status: u16, expected: &[u16]) -> Result<(), Problem> {
    let Some(kind) = judge::status_fault(status, expected) else {
        return Ok(());
    };
    let listed: Vec<String> = expected.iter().map(u16::to_string).collect();
    let wanted = match expected {
        [] => "200 to 299".to_owned(),
        _ => listed.join(" or "),
    };
    Err((kind, format!("the status {status}, not {wanted}")))
}

/// What a broken answer is reported as.
pub(super) fn named(fault: ReplyFault) -> &'static str {
    match fault {
        ReplyFault::ClosedEarly => "closed before a response",
        ReplyFault::CutHead => "closed within the head of the response",
        ReplyFault::CutContent { .. } => "closed within the content",
        ReplyFault::Malformed(text) => text,
        ReplyFault::Unsolicited => "bytes behind the last response",
    }
}
