//! Files below a document root as answers: GET and HEAD, from memory where it can.
//!
//! A request goes the shortest way that will do:
//!
//! ```text
//!   index of the thread's own ── fresh ──────────────────────────► answer   no lock, no allocation
//!        │ unknown, stale, or kept open
//!   cache of all threads ── fresh, or as it was by `stat` ───────► answer
//!        │ unknown or changed
//!   open and read, without waiting ── all in the kernel's caches ─► answer
//!        │ not there
//!   `Outcome::Blocking` ── the same again, where waiting is allowed ► answer
//! ```
//!
//! Without waiting also means: without asking another machine. What does not lie on the root's own
//! mount, and that on a disk of this machine, is opened and looked at where waiting is allowed.
//!
//! A file like text is compressed on the way through `Outcome::Blocking` for the first client that accepts
//! that, and kept with its entry (`making`, `made`).
//!
//! What is found is taken for granted for a second. Writes through a shared memory map that leave
//! the times of the file alone are not seen until something else about it changes.

mod directory;
mod entry;
mod load;
mod local;
mod made;
mod making;
mod options;
mod representation;
mod root;
mod serve;
pub(crate) mod version;
mod walk;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_base::Millis;
use loadline_proto::{Context, Exchange, FieldName, Handler, Method, Outcome, Status, TargetForm};

use crate::content::media_type::MediaTypes;
use crate::content::path::{self, SitePath};
use crate::file_cache::{Index, IndexSpace, SharedCache};
use entry::{Entry, FRESH_MS, OPEN_UNSEEN_MS_MAX, Target, UNSURE_MS_MAX};
use load::{Failure, Loader, join};
use made::Makers;
use root::{Access, Root};
use serve::{SELECTIVE, ServeMode};

pub use options::{CacheControlRule, InvalidCacheControl, StaticOptions};

/// Fields that keep a request from the fastest way.
const SPECIAL: u32 = SELECTIVE | FieldName::set(&[FieldName::AcceptEncoding]);

/// An entry not asked for this long is opened again rather than looked at by path: what `stat`
/// needs may have left the kernel's caches, and there is no way to ask it not to wait.
const LOOK_WITHIN_MS: u64 = 10_000;

/// Longer paths are not remembered for having nothing behind them.
const MISSING_PATH_BYTES_MAX: usize = 1024;

/// A handler that serves the files below a directory.
pub struct StaticFiles {
    root: Root,
    options: StaticOptions,
    cache: SharedCache<Entry>,
    space: Arc<IndexSpace>,
    /// Threads that compress.
    makers: Makers,
    /// When files without requests were last closed, in milliseconds.
    swept_ms: AtomicU64,
    /// The latest time on the server's clock that a loop has seen.
    seen_ms: AtomicU64,
    /// Loads that have begun.
    loads: AtomicU64,
}

/// What a thread keeps of its own: the files in memory that it used last, by the path as it came.
pub struct LocalFiles {
    index: Index<Entry>,
    /// Memory for a decoded path, and for its name in the shared cache.
    path: Vec<u8>,
    key: Vec<u8>,
    swept: Millis,
}

/// What the cache holds, for the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Files and directories.
    pub entries: usize,
    /// Paths with nothing behind them.
    pub misses: usize,
    /// Weight, in bytes (see `CacheLimits`).
    pub weight: u64,
}

impl StaticFiles {
    /// Serves what lies below `directory`.
    ///
    /// # Errors
    /// If it is not a directory, or cannot be entered.
    pub fn new(directory: &Path, options: StaticOptions) -> io::Result<Self> {
        Ok(Self {
            root: Root::open(directory, options.follow_symlinks, options.before_looking)?,
            cache: SharedCache::new(&options.cache),
            space: Arc::new(IndexSpace::new(&options.cache)),
            makers: Makers::default(),
            swept_ms: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            options,
        })
    }

    /// Resolves paths without `openat2`, as on kernels that do not have it.
    #[must_use]
    pub fn without_openat2(mut self) -> Self {
        self.root.walk_only();
        self
    }

    /// Looks whether the page that is to answer for what is not there can do so. Waits for the disk.
    ///
    /// # Errors
    /// Why not: 404 if there is no such file, another status if it would be refused.
    pub fn check_fallback(&self) -> Result<(), Status> {
        let Some(fallback) = &self.options.spa_fallback else {
            return Ok(());
        };
        let now = Millis(0); // before the server's clock begins
        match self.look_up_fallback(fallback, &mut Vec::new(), Access::Any, now) {
            Ok(entry) if matches!(entry.target, Target::File(_)) => Ok(()),
            Ok(_) | Err(Failure::Missing | Failure::WouldBlock) => Err(Status::NOT_FOUND),
            Err(Failure::Refused(status)) => Err(status),
        }
    }

    /// What the shared cache holds.
    #[must_use]
    pub fn cache_use(&self) -> CacheUse {
        let (entries, misses) = self.cache.counts();
        CacheUse {
            entries,
            misses,
            weight: self.cache.weight(),
        }
    }

    /// The way of everything that the fastest way is not for.
    fn handle_on_loop(
        &self,
        local: &mut LocalFiles,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        if answer_other_methods(exchange) {
            return Outcome::Ready;
        }
        let now = cx.now;
        self.note_time(now);
        if now.since(local.swept) >= OPEN_UNSEEN_MS_MAX {
            local.swept = now;
            self.sweep(now);
        }
        let (index, buffer, key) = (&mut local.index, &mut local.path, &mut local.key);
        let asked = exchange.request.path();
        if index.find(asked).is_none() {
            index.revive(asked);
        }
        if let Some(entry) = index.find(asked)
            && entry.is_fresh(cx.now)
            && let Target::File(resource) = &entry.target
        {
            return self.serve_file(resource, exchange, ServeMode::NonBlocking(cx));
        }
        let path = match path::decode(asked, buffer) {
            Ok(path) => path,
            Err(error) => {
                exchange.response.error(error.status());
                return Outcome::Ready;
            }
        };
        match self.look_up(&path, key, Access::Cached, cx.now) {
            Ok(entry) => {
                let is_file = matches!(entry.target, Target::File(_));
                match index.find(asked) {
                    Some(known) if Arc::ptr_eq(known, &entry) => {}
                    _ if is_file && !entry.has_open_files() => index.insert(asked, &entry),
                    Some(_) => index.remove(asked),
                    None => {}
                }
                self.serve(&entry, &path, exchange, ServeMode::NonBlocking(cx))
            }
            Err(failure) => {
                index.remove(asked);
                self.fail(failure, &path, exchange, ServeMode::NonBlocking(cx))
            }
        }
    }

    /// Notes the time for those who have no clock: [`Self::time_at_least`].
    fn note_time(&self, now: Millis) {
        if self.seen_ms.load(Ordering::Relaxed) < now.0 {
            self.seen_ms.fetch_max(now.0, Ordering::Relaxed);
        }
    }

    /// About now, and not later. A request may have waited long for its worker: what is found then is
    /// newer than the request.
    fn time_at_least(&self, exchange: &Exchange) -> Millis {
        exchange
            .began
            .max(Millis(self.seen_ms.load(Ordering::Relaxed)))
    }

    /// Closes files without requests; once a minute, by the first thread that comes by. Whether files may
    /// be left open.
    fn sweep(&self, now: Millis) -> bool {
        let is_due = |last: u64| now.since(Millis(last)) >= OPEN_UNSEEN_MS_MAX;
        let order = Ordering::Relaxed;
        let next = |last: u64| is_due(last).then_some(now.0);
        if self.swept_ms.fetch_update(order, order, next).is_err() {
            return true;
        }
        let is_left_open = Cell::new(false);
        self.cache.retain(|entry| {
            let is_kept = entry.is_kept(now);
            if is_kept && entry.has_open_files() {
                is_left_open.set(true);
            }
            is_kept
        });
        is_left_open.get()
    }

    /// The entry for `path`: as remembered, if it is fresh or still holds, else made anew.
    fn look_up(
        &self,
        path: &SitePath<'_>,
        key: &mut Vec<u8>,
        access: Access,
        now: Millis,
    ) -> Result<Arc<Entry>, Failure> {
        if path.has_hidden_component() && !self.options.hidden {
            return Err(Failure::Refused(Status::FORBIDDEN));
        }
        // A file and a directory of one name are two things.
        key.clear();
        key.extend_from_slice(path.relative());
        if path.is_directory_like() {
            key.push(b'/');
        }
        if let Some(entry) = self.cache.find(key) {
            let holds = entry.files_hold();
            if entry.is_fresh(now) && holds {
                return Ok(entry);
            }
            if !entry.is_local && holds {
                return self.look_up_elsewhere(path, key, &entry, access, now);
            }
            let unseen_ms = entry.unseen_ms(now);
            if holds && !entry.claim_check(now) {
                return Ok(entry); // another thread is at it
            }
            let may_look = access == Access::Any || unseen_ms < LOOK_WITHIN_MS;
            if holds && may_look && entry.holds(&self.root) {
                return Ok(entry);
            }
            entry.retire();
        } else if self.cache.is_missing(key, now) {
            return Err(Failure::Missing);
        }
        self.load(path, key, access, now)
    }

    /// The same for a stale entry that only those may look at who may wait, one at a time. Meanwhile
    /// the others take it as it is, for a while: so a file system that hangs holds one worker for each
    /// of its files that is known, and no loop.
    fn look_up_elsewhere(
        &self,
        path: &SitePath<'_>,
        key: &[u8],
        entry: &Arc<Entry>,
        access: Access,
        now: Millis,
    ) -> Result<Arc<Entry>, Failure> {
        match entry.checked_ms(now) {
            Some(ms) if ms < UNSURE_MS_MAX => return Ok(Arc::clone(entry)),
            Some(_) => return Err(Failure::Refused(Status::SERVICE_UNAVAILABLE)),
            None if access == Access::Cached => return Err(Failure::WouldBlock),
            None => {}
        }
        let Some(_check) = entry.check(now) else {
            return Ok(Arc::clone(entry)); // another was quicker
        };
        if entry.holds(&self.root) {
            entry.refresh(now);
            return Ok(Arc::clone(entry));
        }
        let made = self.load(path, key, access, now);
        entry.retire(); // for threads that have it in their own index
        made
    }

    /// Makes the entry for `path` anew, unless another load has done so meanwhile that began later, or has found the
    /// same: of a file that many ask for at once, one entry has what is compressed for all.
    fn load(
        &self,
        path: &SitePath<'_>,
        key: &[u8],
        access: Access,
        now: Millis,
    ) -> Result<Arc<Entry>, Failure> {
        let number = self.loads.fetch_add(1, Ordering::Relaxed);
        let loader = Loader {
            root: &self.root,
            options: &self.options,
            access,
            now,
            wall: (self.options.wall_clock)(),
            before: self.cache.find(key).or_else(|| self.by_other_name(path)),
            number,
            is_local: Cell::new(false),
        };
        let loaded = loader.load(path);
        let lock = self.cache.lock(key);
        let is_as_good = |known: &Arc<Entry>| {
            let was_there = (loader.before.as_ref()).is_some_and(|it| Arc::ptr_eq(it, known));
            let is_same = loaded.as_ref().is_ok_and(|entry| entry.is_of_same(known));
            known.is_newer_than(number) || !was_there && is_same && known.is_fresh(now)
        };
        if let Some(known) = self.cache.find(key).filter(is_as_good) {
            return Ok(known);
        }
        match loaded {
            Ok(entry) => {
                let entry = Arc::new(entry);
                let evicted = self.cache.insert(key, &entry);
                drop(lock);
                drop(evicted);
                Ok(entry)
            }
            Err(failure) => {
                match failure {
                    Failure::Missing if key.len() <= MISSING_PATH_BYTES_MAX => {
                        self.cache
                            .insert_missing(key, Millis(now.0.saturating_add(FRESH_MS)));
                    }
                    Failure::Missing | Failure::Refused(_) => self.cache.remove(key),
                    Failure::WouldBlock => {}
                }
                Err(failure)
            }
        }
    }

    /// What is known of an index file by its other name, its directory's or its own: what was made of it is good for
    /// both.
    fn by_other_name(&self, path: &SitePath<'_>) -> Option<Arc<Entry>> {
        let relative = path.relative();
        let mut names = self.options.index.iter();
        if path.is_directory_like() {
            return names.find_map(|name| self.cache.find(&join(relative, name.as_bytes())));
        }
        let slash = relative.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = relative.split_at(slash.map_or(0, |at| at + 1));
        if !names.any(|index| index.as_bytes() == name) {
            return None;
        }
        match directory {
            b"" => self.cache.find(b"/"),
            directory => self.cache.find(directory),
        }
    }

    /// Answers where there is no entry for `path`.
    fn fail(
        &self,
        failure: Failure,
        path: &SitePath<'_>,
        exchange: &mut Exchange,
        mode: ServeMode<'_, '_>,
    ) -> Outcome {
        let status = match failure {
            Failure::WouldBlock => return Outcome::Blocking,
            Failure::Refused(status) => status,
            Failure::Missing => {
                let now = match &mode {
                    ServeMode::NonBlocking(cx) => cx.now,
                    ServeMode::Blocking => self.time_at_least(exchange),
                };
                match self.fallback(path, exchange, mode.access(), now) {
                    Some(Err(Failure::WouldBlock)) => return Outcome::Blocking,
                    Some(Ok(entry)) => {
                        if let Target::File(resource) = &entry.target {
                            return self.serve_file(resource, exchange, mode);
                        }
                        Status::NOT_FOUND
                    }
                    Some(Err(_)) | None => Status::NOT_FOUND,
                }
            }
        };
        exchange.response.error(status);
        if status == Status::SERVICE_UNAVAILABLE {
            exchange.response.field("Retry-After", "1");
        }
        Outcome::Ready
    }

    /// The page that answers for a path with nothing behind it, if one is to.
    fn fallback(
        &self,
        path: &SitePath<'_>,
        exchange: &Exchange,
        access: Access,
        now: Millis,
    ) -> Option<Result<Arc<Entry>, Failure>> {
        let fallback = self.options.spa_fallback.as_ref()?;
        if !may_be_page(path.relative(), &self.options.media_types) {
            return None;
        }
        let mut key = Vec::new();
        let entry = self.look_up_fallback(fallback, &mut key, access, now);
        Some(match access {
            Access::Any => entry.map(|entry| self.with_variant(entry, &key, exchange)),
            Access::Cached => entry,
        })
    }

    /// The entry for the name of a fallback, by the rules for paths of requests.
    fn look_up_fallback(
        &self,
        fallback: &str,
        key: &mut Vec<u8>,
        access: Access,
        now: Millis,
    ) -> Result<Arc<Entry>, Failure> {
        let mut buffer = Vec::new();
        path::encode(fallback.trim_start_matches('/').as_bytes(), false, key);
        let path = path::decode(key, &mut buffer);
        let path = path.map_err(|error| Failure::Refused(error.status()))?;
        self.look_up(&path, key, access, now)
    }
}

impl Handler for StaticFiles {
    type Local = LocalFiles;

    fn local(&self) -> LocalFiles {
        LocalFiles {
            index: Index::new(&self.space),
            path: Vec::new(),
            key: Vec::new(),
            swept: Millis(0),
        }
    }

    #[inline]
    fn handle(
        &self,
        local: &mut LocalFiles,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        let request = &exchange.request;
        if matches!(request.method, Method::Get | Method::Head)
            && !request.has_any(SPECIAL)
            && let Some(entry) = local.index.find(request.path())
            && entry.is_fresh(cx.now)
            && let Target::File(resource) = &entry.target
            && let Some(content) = resource.identity.memory()
            && content.len() <= self.options.inline_bytes_max
        {
            exchange.answer_borrowed(Status::OK, &resource.identity.fields, content, cx);
            return Outcome::Ready;
        }
        self.handle_on_loop(local, exchange, cx)
    }

    /// Does all of it, so it may also be called without `handle` before.
    fn handle_blocking(&self, exchange: &mut Exchange) {
        if answer_other_methods(exchange) {
            return;
        }
        let mut buffer = Vec::new();
        let path = match path::decode(exchange.request.path(), &mut buffer) {
            Ok(path) => path,
            Err(error) => return exchange.response.error(error.status()),
        };
        let (now, mut key) = (self.time_at_least(exchange), Vec::new());
        let outcome = match self.look_up(&path, &mut key, Access::Any, now) {
            Ok(entry) => {
                let entry = self.with_variant(entry, &key, exchange);
                self.serve(&entry, &path, exchange, ServeMode::Blocking)
            }
            Err(failure) => self.fail(failure, &path, exchange, ServeMode::Blocking),
        };
        debug_assert_eq!(outcome, Outcome::Ready);
    }

    fn release_unused(&self, cx: &Context<'_>) -> bool {
        self.sweep(cx.now)
    }
}

impl fmt::Debug for StaticFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("StaticFiles");
        out.field("root", &self.root)
            .field("cache", &self.cache_use())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LocalFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalFiles").finish_non_exhaustive()
    }
}

/// Answers what is neither GET nor HEAD.
fn answer_other_methods(exchange: &mut Exchange) -> bool {
    match exchange.request.method {
        Method::Get | Method::Head if exchange.request.form != TargetForm::Asterisk => {
            return false;
        }
        Method::Options => {
            exchange.response.clear();
            exchange.response.status = Status::NO_CONTENT;
        }
        _ => exchange.response.error(Status::METHOD_NOT_ALLOWED),
    }
    exchange.response.field("Allow", "GET, HEAD, OPTIONS");
    true
}

/// Whether what is missing at `path` could have been a page: a script or an image could not, and
/// answering for it with a page would hide that it is missing.
fn may_be_page(path: &[u8], media_types: &MediaTypes) -> bool {
    let media_type = media_types.of(path);
    media_type.starts_with("text/html") || media_type.starts_with("application/octet-stream")
}
