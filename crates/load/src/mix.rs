//! Which request comes next, and what its answer has to be.

use std::sync::Arc;

use loadline_proto::Method;

use crate::Share;

/// What is expected of an answer. Status and length are checked on every answer, content on a
/// sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Statuses that are good; empty: 200 to 299.
    pub statuses: Vec<u16>,
    /// Bytes of content.
    pub length: Option<u64>,
    /// SHA-256 of the content.
    pub sha256: Option<[u8; 32]>,
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// What it says where the connection stays open.
    pub keep: Arc<[u8]>,
    /// What it says as the last one of its connection.
    pub last: Arc<[u8]>,
    /// Its method: an answer to HEAD has no content.
    pub method: Method,
    /// Index into `Mix::expectations`.
    pub expectation: u32,
    /// Index into `Plan::servers`.
    pub server: u16,
}

/// In which order requests are taken.
#[derive(Clone, Debug, PartialEq)]
pub enum MixOrder {
    /// At random, by weight: `cumulative[i]` is the sum of the weights up to and with `i`.
    Weighted {
        /// Strictly increasing.
        cumulative: Vec<f64>,
    },
    /// In turn, as the lines of a replayed log; from the begin again at the end.
    InTurn {
        /// Indexes into `Mix::requests`, one for each line.
        sequence: Arc<[u32]>,
    },
}

/// The requests of a run.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Each different one once.
    pub requests: Vec<Prepared>,
    /// Each different one once.
    pub expectations: Vec<Expectation>,
    /// Which comes when.
    pub order: MixOrder,
}

/// The choices of one thread, repeatable by the seed.
#[derive(Clone, Debug)]
pub struct Chooser {}

impl Mix {
    /// The chooser of one share: at random from the seed, or every `share.of`th line of the
    /// sequence, from line `share.index` on.
    #[must_use]
    pub fn chooser(&self, _share: Share, _seed: u64) -> Chooser {
        Chooser {}
    }
}

impl Chooser {
    /// The index of the next request.
    #[inline]
    pub fn next(&mut self, _mix: &Mix) -> u32 {
        0
    }
}
