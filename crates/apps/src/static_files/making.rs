//! What may be made of a file on the fly, and who has tried.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use loadline_base::Millis;

use super::options::StaticOptions;
use super::version::FileVersion;
use crate::content::encoding::Coding;
use crate::content::media_type::is_text_like;
use crate::content::multipart::Content;

/// Less is not compressed: it goes in one packet in any case.
const BYTES_MIN: u64 = 1 << 10;

/// More is not compressed on the fly: 4 MiB hold a worker for 0.15 s, and are in memory meanwhile.
const BYTES_MAX: u64 = 4 << 20;

/// How long the others do not wait for the one that was given to a worker. If it has not made the variant by
/// then (it was refused, or all makers were busy), another is.
const ASK_AGAIN_MS: u64 = 1000;

/// What may be made of a file.
#[derive(Debug)]
pub(super) struct Making {
    /// Of the file, below the root.
    pub(super) path: Box<[u8]>,
    /// Until when no other request is given to a worker, by coding, on the server's clock.
    asked_until: [AtomicU64; Coding::COMPRESSED.len()],
    /// Codings that were tried, or are being tried, as bits.
    tried: AtomicU8,
}

impl Clone for Making {
    fn clone(&self) -> Self {
        let asked = |until: &AtomicU64| AtomicU64::new(until.load(Ordering::Relaxed));
        Self {
            path: self.path.clone(),
            asked_until: self.asked_until.each_ref().map(asked),
            tried: AtomicU8::new(self.tried.load(Ordering::Relaxed)),
        }
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
            asked_until: Default::default(),
            tried: AtomicU8::new(0),
        })
    }

    /// Bytes of memory that it takes beside itself.
    pub(super) fn held_bytes(&self) -> usize {
        self.path.len()
    }

    /// Whether nobody has tried it yet.
    pub(super) fn may_be(&self, coding: Coding) -> bool {
        coding != Coding::Identity && self.tried.load(Ordering::Relaxed) & bit(coding) == 0
    }

    /// Whether a request for this coding is to be given to a worker: one each second.
    pub(super) fn may_ask(&self, coding: Coding, now: Millis) -> bool {
        let place = Coding::COMPRESSED.iter().position(|it| *it == coding);
        let Some(asked_until) = place.map(|place| &self.asked_until[place]) else {
            return false;
        };
        let next = |until: u64| (now.0 >= until).then_some(now.0.saturating_add(ASK_AGAIN_MS));
        let order = Ordering::Relaxed;
        asked_until.fetch_update(order, order, next).is_ok()
    }

    /// Takes the making of a variant upon this thread; false if another has it, or had it.
    pub(super) fn claim(&self, coding: Coding) -> bool {
        self.tried.fetch_or(bit(coding), Ordering::Relaxed) & bit(coding) == 0
    }

    /// What one coding does not make smaller, others do not.
    pub(super) fn give_up(&self) {
        self.tried.store(u8::MAX, Ordering::Relaxed);
    }
}

fn bit(coding: Coding) -> u8 {
    1 << coding as u8
}
