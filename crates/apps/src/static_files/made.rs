//! Variants that are compressed on the fly: who makes one, and where it is kept.
//!
//! The loop gives the first request that wants a variant to a worker, which makes it and puts an entry with
//! it in the place of the one without. Meanwhile others get the file in the best form that there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use loadline_base::{MemoryAccount, MemoryBudget};
use loadline_codings::{Coding, Effort, compress};
use loadline_proto::Exchange;

use super::StaticFiles;
use super::entry::{Entry, Target};
use super::load::read_whole;
use super::making::Attempt;
use super::representation::{Facts, Origin, Representation};
use super::root::Access;
use super::serve::accepted;
use crate::content::multipart::Content;
use crate::file_cache::Weighty;

/// Threads that compress, half as many as there are CPUs at most: the rest is for requests that need no
/// compression. It also bounds the memory that compressing takes.
#[derive(Debug)]
pub(super) struct Makers {
    count: AtomicUsize,
    count_max: usize,
}

/// One of them, and what it takes of the memory; ends with the value.
struct Maker<'m> {
    makers: &'m Makers,
    _memory: Option<MemoryAccount>,
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        self.makers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an encoder takes beside what depends on the content.
const TABLES_BYTES: u64 = 2 << 20;

/// What compressing so much content takes: the content, its result, a window (brotli: five times as much as that, see
/// `loadline_codings::stream_bytes`), and tables.
fn bytes_for(coding: Coding, content_bytes: u64) -> u64 {
    let times = match coding {
        Coding::Brotli => 7,
        _ => 3,
    };
    times * content_bytes + TABLES_BYTES
}

impl Default for Makers {
    fn default() -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        Self {
            count: AtomicUsize::new(0),
            count_max: (cpus / 2).max(1),
        }
    }
}

impl Makers {
    /// Becomes one that needs so much memory; `None` if there are enough, or if memory is short or would be then.
    fn join(&self, bytes: u64, memory: Option<&Arc<MemoryBudget>>) -> Option<Maker<'_>> {
        if memory.is_some_and(|memory| !memory.has_room_for(bytes)) {
            return None;
        }
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        let account = |memory| {
            let mut account = MemoryAccount::of_one(memory);
            account.change(0, bytes);
            account
        };
        let maker = Maker {
            makers: self,
            _memory: memory.filter(|_| others < self.count_max).map(account),
        };
        (others < self.count_max).then_some(maker)
    }
}

impl StaticFiles {
    /// The entry that is known by `key`, with the variant that the client wants if it is for this thread to
    /// make it. Computes for long, so a loop makes none.
    pub(super) fn with_variant(
        &self,
        entry: Arc<Entry>,
        key: &[u8],
        exchange: &Exchange,
    ) -> Arc<Entry> {
        if exchange.is_done_by_loop {
            return entry;
        }
        let Target::File(resource) = &entry.target else {
            return entry;
        };
        let (_, missing) = resource.choose(|| accepted(&exchange.request));
        let (Some(coding), Some(making)) = (missing, &resource.making) else {
            return entry;
        };
        let bytes = bytes_for(coding, resource.identity.version.content.size);
        let Some(_maker) = self.makers.join(bytes, self.options.memory.as_ref()) else {
            return entry;
        };
        let Some(mut attempt) = making.claim(coding) else {
            return entry;
        };
        let Some(content) = whole(&resource.identity) else {
            attempt.put_off();
            return entry;
        };
        let Some(bytes) = compress(&content, coding, Effort::OnTheFly) else {
            attempt.give_up();
            return entry;
        };
        let facts = Facts {
            path: &making.path,
            coding,
            version: resource.identity.version,
            content: Content::Shared(bytes.into()),
            origin: Origin::Made,
            has_variants: true,
            loaded: (self.options.wall_clock)(),
        };
        let made = Representation::new(facts, &self.options);
        self.keep(&entry, key, made, &mut attempt).unwrap_or(entry)
    }

    /// Puts a variant beside those that are known by now.
    fn keep(
        &self,
        entry: &Arc<Entry>,
        key: &[u8],
        made: Representation,
        attempt: &mut Attempt,
    ) -> Option<Arc<Entry>> {
        let limits = &self.options.cache;
        let lock = self.cache.lock(key);
        let known = self.cache.find(key);
        let base = match &known {
            Some(known) if known.is_of_same(entry) => known,
            _ => entry,
        };
        if base.has_file_in(made.coding) {
            attempt.succeed();
            return Some(Arc::clone(base)); // its owner has put one beside the file meanwhile
        }
        let with = Arc::new(base.with_made(made, limits)?);
        // Of a file that has changed meanwhile it is for this client alone, and so is what is too heavy.
        let has_changed = known.as_ref().is_some_and(|known| !known.is_of_same(entry));
        if !has_changed && with.weight() <= limits.entry_weight_max() {
            let evicted = self.cache.insert(key, &with);
            entry.retire(); // for threads that have it in their own index
            base.retire();
            drop(lock);
            drop(evicted);
            attempt.succeed();
        }
        Some(with)
    }
}

/// The content of a file; `None` if it cannot be read as it was.
fn whole(identity: &Representation) -> Option<Arc<[u8]>> {
    match &identity.content {
        Content::Shared(bytes) => Some(Arc::clone(bytes)),
        Content::File(file) => {
            let bytes = read_whole(&file.fd, file.version.size, Access::Any).ok()?;
            bytes.filter(|_| identity.file_holds())
        }
    }
}

#[cfg(test)]
mod tests {
    use loadline_codings::stream_bytes;

    use super::*;

    #[test]
    fn all_that_an_encoder_takes_is_counted() {
        for content_bytes in [1 << 10, 1 << 20, 4 << 20] {
            for coding in [Coding::Gzip, Coding::Brotli] {
                let encoder = stream_bytes(coding, Some(content_bytes));
                let all = 2 * content_bytes + encoder; // with the content and its result
                assert!(bytes_for(coding, content_bytes) >= all, "{coding:?}");
            }
        }
    }
}
