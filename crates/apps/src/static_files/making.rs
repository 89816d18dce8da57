//! What may be made of a file on the fly, what is being made, and what was tried in vain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use loadline_base::Millis;
use loadline_codings::{BYTES_MIN, Coding, is_text_like};

use super::options::StaticOptions;
use super::version::FileVersion;
use crate::content::multipart::Content;

/// More is not compressed on the fly: 4 MiB hold a worker for 0.15 s, and are in memory meanwhile.
const BYTES_MAX: u64 = 4 << 20;

/// How long the others do not wait for the one that was given to a worker. If it has not made the variant by
/// then (it was refused, or all makers were busy), another is.
const ASK_AGAIN_MS: u64 = 1000;

/// What may be made of a file.
#[derive(Clone, Debug)]
pub(super) struct Making {
    /// Of the file, below the root.
    pub(super) path: Box<[u8]>,
    /// Common to the entries that differ only in what was made.
    attempts: Arc<Attempts>,
}

#[derive(Debug, Default)]
struct Attempts {
    /// Until when no other request is given to a worker, by coding, on the server's clock.
    asked_until: [AtomicU64; Coding::COMPRESSED.len()],
    /// Codings whose making has begun, as bits.
    begun: AtomicU8,
    /// Codings that are not to be had, as bits.
    failed: AtomicU8,
}

/// A variant that is being made. If its end is not said, it has failed: a panic ends it, too.
#[derive(Debug)]
pub(super) struct Attempt {
    attempts: Arc<Attempts>,
    /// Codings that are not to be had if it ends now, as bits.
    failing: u8,
}

impl Attempt {
    /// The variant is kept.
    pub(super) fn succeed(&mut self) {
        self.failing = 0;
    }

    /// It cannot be made now: another thread may try.
    pub(super) fn put_off(&mut self) {
        let begun = &self.attempts.begun;
        begun.fetch_and(!self.failing, Ordering::Relaxed);
        self.failing = 0;
    }

    /// What one coding does not make smaller, others do not.
    pub(super) fn give_up(&mut self) {
        self.failing = u8::MAX;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let failed = &self.attempts.failed;
        failed.fetch_or(self.failing, Ordering::Relaxed);
    }
}

impl Making {
    /// What may be made of this file.
    pub(super) fn of(
        path: &[u8],
        content: &Content,
        version: &FileVersion,
        options: &StaticOptions,
    ) -> Option<Self> {
        let size = version.content.size;
        if !options.compress || !(BYTES_MIN..=BYTES_MAX).contains(&size) {
            return None;
        }
        let (bytes, open_files) = match content {
            Content::Shared(bytes) => (bytes.len(), 0),
            Content::File(_) => (0, 1),
        };
        // Where the entry is not kept, each request would have to make it.
        let weight = options.cache.weight(bytes, open_files);
        let is_kept = weight <= options.cache.entry_weight_max();
        (is_kept && is_text_like(&options.media_types.of(path))).then(|| Self {
            path: path.into(),
            attempts: Arc::default(),
        })
    }

    /// Bytes of memory that it takes beside itself.
    pub(super) fn held_bytes(&self) -> usize {
        self.path.len() + size_of::<Attempts>()
    }

    /// Whether it is to be had, now or once it is made.
    pub(super) fn may_be(&self, coding: Coding) -> bool {
        let failed = self.attempts.failed.load(Ordering::Relaxed);
        coding != Coding::Identity && failed & bit(coding) == 0
    }

    /// Whether a thread makes it, or has made it.
    pub(super) fn has_begun(&self, coding: Coding) -> bool {
        self.attempts.begun.load(Ordering::Relaxed) & bit(coding) != 0
    }

    /// Whether a request for this coding is to be given to a worker: one each second.
    pub(super) fn may_ask(&self, coding: Coding, now: Millis) -> bool {
        let place = Coding::COMPRESSED.iter().position(|it| *it == coding);
        let Some(asked_until) = place.map(|place| &self.attempts.asked_until[place]) else {
            return false;
        };
        let next = |until: u64| (now.0 >= until).then_some(now.0.saturating_add(ASK_AGAIN_MS));
        let order = Ordering::Relaxed;
        asked_until.fetch_update(order, order, next).is_ok()
    }

    /// Takes the making of a variant upon this thread; `None` if another has it, or had it.
    pub(super) fn claim(&self, coding: Coding) -> Option<Attempt> {
        let begun = &self.attempts.begun;
        let before = begun.fetch_or(bit(coding), Ordering::Relaxed);
        (before & bit(coding) == 0).then(|| Attempt {
            attempts: Arc::clone(&self.attempts),
            failing: bit(coding),
        })
    }
}

fn bit(coding: Coding) -> u8 {
    1 << coding as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_attempt_comes_to() {
        type End = fn(&mut Attempt);
        let ends: [(End, bool, bool, bool); 4] = [
            (Attempt::succeed, true, true, false),
            (Attempt::give_up, false, false, false),
            (Attempt::put_off, true, true, true),
            (|_| (), false, true, false), // a panic
        ];
        for (end, may_be, may_be_in_others, is_tried_again) in ends {
            let making = Making {
                path: Box::from(&b"a.txt"[..]),
                attempts: Arc::default(),
            };
            let mut attempt = making.claim(Coding::Gzip).unwrap();
            assert!(making.claim(Coding::Gzip).is_none());
            end(&mut attempt);
            drop(attempt);
            assert_eq!(making.may_be(Coding::Gzip), may_be);
            assert_eq!(making.may_be(Coding::Brotli), may_be_in_others);
            assert_eq!(making.claim(Coding::Gzip).is_some(), is_tried_again);
        }
    }
}
