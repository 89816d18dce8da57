//! What a client of HTTP/2 does, for our session and for the server of the `h2` crate: after each operation
//! both have sent it the same, but for the differences that are listed here.
//!
//! An operation has four bytes: see `http2::operations`.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::http2::{Fate, Operation, Operations, Ours, Seen, Theirs, What};
use loadline_proto::http2::frame::{ErrorCode, PREFACE};

/// SETTINGS of nothing, and that the server's were seen.
const SETTINGS: [u8; 18] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];

fuzz_target!(|bytes: &[u8]| {
    let (mut ours, mut theirs) = (Ours::default(), Theirs::default());
    let beginning = [&PREFACE[..], &SETTINGS].concat();
    ours.receive(&beginning);
    theirs.receive(&beginning);
    let mut open = BTreeSet::new();
    for operation in Operations::new(bytes) {
        ours.receive(&operation.bytes);
        theirs.receive(&operation.bytes);
        let (our, their) = (Comparable::of(&ours.seen), Comparable::of(&theirs.seen));
        let head = ours.seen.heads.get(&operation.stream);
        if matches!(head, Some(Fate::Response { status: 400.., .. })) {
            return; // section 8.1.1: a response may be sent to a malformed request
        }
        if our.end.is_some() && our.end == their.end {
            return;
        }
        if our == their {
            match operation.what {
                What::Request(_) => open.insert(operation.stream),
                What::Reset => open.remove(&operation.stream),
                What::GoAway => return, // theirs ends when all streams have
                _ => false,
            };
            continue;
        }
        let is_open = open.contains(&operation.stream);
        if is_shared_otherwise(&ours.seen, &theirs.seen)
            || is_known(&operation, is_open, &ours.seen, &theirs.seen)
        {
            return; // from here on they are not in the same state
        }
        let Operation {
            what,
            stream,
            bytes,
        } = operation;
        let start = &bytes[..bytes.len().min(32)];
        let (our, their) = (&ours.seen, &theirs.seen);
        panic!("{what:?} on {stream}: {start:x?}\nours: {our:?}\ntheirs: {their:?}");
    }
});

/// What has to be the same.
#[derive(Debug, PartialEq, Eq)]
struct Comparable {
    streams: Vec<(u32, Class)>,
    content: BTreeMap<u32, usize>,
    end: Option<Class>,
    acknowledgements: [usize; 2],
}

/// What codes are of one class: the `h2` crate has `PROTOCOL_ERROR` for many of those that have a code of
/// their own (RFC 9113 section 7: none of them has a meaning for the peer but `REFUSED_STREAM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Response(Option<u64>),
    Refused,
    Error,
    NoError,
}

impl Class {
    fn of_code(code: u32) -> Self {
        match code {
            it if it == ErrorCode::NoError as u32 => Self::NoError,
            it if it == ErrorCode::RefusedStream as u32 => Self::Refused,
            _ => Self::Error,
        }
    }

    fn of(fate: Fate) -> Self {
        match fate {
            Fate::Response { len, .. } => Self::Response(len),
            Fate::Reset(code) => Self::of_code(code),
        }
    }
}

impl Comparable {
    fn of(seen: &Seen) -> Self {
        let streams = seen.streams.iter();
        Self {
            streams: streams.map(|(id, fate)| (*id, Class::of(*fate))).collect(),
            content: seen.content.clone(),
            end: seen.go_away.map(Class::of_code),
            acknowledgements: seen.acknowledgements,
        }
    }
}

/// Whether both have used up the connection's window, with content of different streams or other shares of it. Whose
/// content comes first is for the server to say (RFC 9113 section 5.3; RFC 9218 section 10).
fn is_shared_otherwise(ours: &Seen, theirs: &Seen) -> bool {
    let both = [ours, theirs];
    let is_used_up = both.iter().all(|seen| seen.windows.connection() == 0);
    let goes_on = both.iter().all(|seen| seen.go_away.is_none());
    is_used_up && goes_on && ours.content != theirs.content
}

/// Differences that may be, each with where RFC 9113 says so.
fn is_known(operation: &Operation, is_open: bool, ours: &Seen, theirs: &Seen) -> bool {
    let fates = [ours, theirs].map(|seen| seen.streams.get(&operation.stream));
    let ends = [ours, theirs].map(|seen| seen.go_away.map(Class::of_code));
    let classes = fates.map(|fate| fate.map(|it| Class::of(*it)));
    let is_reset = classes.map(|class| class == Some(Class::Error));
    match operation.what {
        // Section 5.5: theirs does not know it. Ours ends the connection if it is not as RFC 9218 has it.
        What::PriorityUpdate => ends == [Some(Class::Error), None],
        // Section 8.1.1: not all look for all that is malformed. Section 5.1.2: one stream too many is refused,
        // whatever its request is like.
        What::Request(_) if ends == [None; 2] => {
            is_reset[0] || classes == [Some(Class::Refused), Some(Class::Error)]
        }
        // Section 8.1: trailers have no pseudo-fields. Theirs does not look.
        What::Trailers(_) if ends == [None; 2] && is_reset[0] => true,
        // Section 5.4: a stream error may be treated as one of the connection. Section 5.1: what comes for a
        // closed stream is ignored, or an error of either.
        _ if ends == [None, Some(Class::Error)] => is_reset[0] || !is_open || fates[0].is_some(),
        _ if ends == [Some(Class::Error), None] => is_reset[1] || !is_open || fates[1].is_some(),
        // Section 6.8: whoever has received GOAWAY may end the connection as well.
        What::GoAway => ends == [None, Some(Class::NoError)],
        _ => false,
    }
}
