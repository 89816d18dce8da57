//! What is known of one path below the root, and how long it may be taken for granted.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_base::Millis;
use loadline_codings::{AcceptedCodings, Coding};

use super::making::Making;
use super::representation::{Origin, Representation};
use super::root::Root;
use super::version::FileVersion;
use crate::content::multipart::Content;
use crate::file_cache::{CacheLimits, Weighty};

/// For how long nothing is looked at again: a change is seen within a second.
pub(super) const FRESH_MS: u64 = 1000;

/// How long the file system may take to say how a file is that it cannot be asked about without
/// waiting. Meanwhile it is served as it was; then it is unavailable, since its state is unknown.
pub(super) const UNSURE_MS_MAX: u64 = 10_000;

/// For how long a file is kept open without a request for it.
pub(super) const OPEN_UNSEEN_MS_MAX: u64 = 60_000;

/// A path and what it leads to.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) target: Target,
    weight: u64,
    open_files: usize,
    /// Until when it is taken for granted, on the server's clock; 0 if it is known to be stale.
    fresh_until: AtomicU64,
    /// What has to hold for it to be fresh for another second. None: it is always made anew.
    probes: Box<[Probe]>,
    /// It can be looked at without waiting for another machine: by any thread.
    pub(super) is_local: bool,
    /// How many loads began before the one that found it.
    load_number: u64,
    /// Since when a thread waits for the file system to know how it is, on the server's clock; 0:
    /// none does.
    checked_since: AtomicU64,
}

/// The check of an entry, by the thread that has it; ends with the value.
#[derive(Debug)]
pub(super) struct Check<'e>(&'e Entry);

impl Drop for Check<'_> {
    fn drop(&mut self) {
        self.0.checked_since.store(0, Ordering::Relaxed);
    }
}

/// What a path leads to.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all that are kept are files"
)]
#[derive(Debug)]
pub(super) enum Target {
    /// A file to send.
    File(Resource),
    /// A directory that was asked for without its slash.
    Redirect,
    /// A directory without an index file.
    Directory,
}

/// A place in the file system, and what has to be there.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) path: CString,
    pub(super) expected: Seen,
}

/// What a look at a place shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// What its path leads to; `None`: nothing.
    Target(Option<FileVersion>),
    /// A link that leads out of the root: the link itself. What is behind it may be another machine's, and cannot be
    /// had anyway. Where it is another link on the way that leads out, a change of that one does not show.
    LinkOut(FileVersion),
}

impl Seen {
    /// What is there.
    pub(super) fn version(&self) -> Option<&FileVersion> {
        match self {
            Self::Target(version) => version.as_ref(),
            Self::LinkOut(version) => Some(version),
        }
    }
}

impl Probe {
    fn holds(&self, root: &Root) -> bool {
        match self.expected {
            Seen::Target(version) => root.version_at(&self.path) == Ok(version),
            Seen::LinkOut(version) => root.link_at(&self.path) == Ok(Some(version)),
        }
    }
}

impl Entry {
    pub(super) fn new(
        target: Target,
        probes: Vec<Probe>,
        is_local: bool,
        limits: &CacheLimits,
        now: Millis,
        load_number: u64,
    ) -> Self {
        let mut held = (size_of::<Self>(), 0);
        if let Target::File(resource) = &target {
            held.0 += resource.making.as_ref().map_or(0, Making::held_bytes);
            for representation in resource.all() {
                let (bytes, open_files) = representation.held();
                held.0 += bytes + size_of::<Representation>();
                held.1 += open_files;
            }
        }
        let probe_bytes = |probe: &Probe| size_of::<Probe>() + probe.path.as_bytes_with_nul().len();
        held.0 += probes.iter().map(probe_bytes).sum::<usize>();
        Self {
            target,
            weight: limits.weight(held.0, held.1),
            open_files: held.1,
            fresh_until: AtomicU64::new(now.0.saturating_add(FRESH_MS)),
            probes: probes.into(),
            is_local,
            load_number,
            checked_since: AtomicU64::new(0),
        }
    }

    /// The same with a variant that was made of the file; as fresh as this one is.
    pub(super) fn with_made(&self, made: Representation, limits: &CacheLimits) -> Option<Self> {
        let Target::File(resource) = &self.target else {
            return None;
        };
        let is_other = |variant: &&Representation| variant.coding != made.coding;
        let others: Vec<Representation> =
            resource.variants.iter().filter(is_other).cloned().collect();
        let resource = Resource {
            identity: resource.identity.clone(),
            variants: others.into_iter().chain([made]).collect(),
            making: resource.making.clone(),
        };
        let target = Target::File(resource);
        let with = Self::new(
            target,
            self.probes.to_vec(),
            self.is_local,
            limits,
            Millis(0),
            self.load_number,
        );
        let until = self.fresh_until.load(Ordering::Relaxed);
        with.fresh_until.store(until, Ordering::Relaxed);
        Some(with)
    }

    /// The variants that were made of content of which a file still consists.
    pub(super) fn made_of(
        &self,
        identity: &Content,
        version: &FileVersion,
    ) -> Vec<(Coding, Arc<[u8]>)> {
        let Target::File(resource) = &self.target else {
            return Vec::new();
        };
        let is_same = match (&resource.identity.content, identity) {
            (Content::Shared(before), Content::Shared(now)) => before == now,
            // Without probes it was too young for its version to tell one content from the next.
            (Content::File(_), Content::File(_)) => {
                resource.identity.version == *version && !self.probes.is_empty()
            }
            _ => false,
        };
        let made = resource.variants.iter();
        let made = made.filter(|variant| is_same && variant.origin == Origin::Made);
        made.filter_map(|made| Some((made.coding, Arc::clone(made.memory()?))))
            .collect()
    }

    /// Whether there is a neighbour in this coding.
    pub(super) fn has_file_in(&self, coding: Coding) -> bool {
        let Target::File(resource) = &self.target else {
            return false;
        };
        let mut variants = resource.variants.iter();
        variants.any(|it| it.coding == coding && it.origin == Origin::File)
    }

    /// Whether it is about the same state of the same file.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        match (&self.target, &other.target) {
            (Target::File(one), Target::File(another)) => {
                one.identity.version == another.identity.version
                    && one.identity.etag == another.identity.etag
            }
            _ => false,
        }
    }

    /// Whether it was found by a load that began later than the one with this number.
    pub(super) fn is_newer_than(&self, load_number: u64) -> bool {
        self.load_number > load_number
    }

    /// For how long a thread has been waiting for the file system to know how it is.
    pub(super) fn checked_ms(&self, now: Millis) -> Option<u64> {
        match self.checked_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(now.0.saturating_sub(since)),
        }
    }

    /// Takes the check upon this thread; `None` if another has it.
    pub(super) fn check(&self, now: Millis) -> Option<Check<'_>> {
        let order = Ordering::Relaxed;
        let taken = self
            .checked_since
            .compare_exchange(0, now.0.max(1), order, order);
        taken.is_ok().then_some(Check(self))
    }

    /// Whether it may be taken for granted.
    #[inline]
    pub(super) fn is_fresh(&self, now: Millis) -> bool {
        now.0 < self.fresh_until.load(Ordering::Relaxed)
    }

    /// How long ago it was last found to be so.
    pub(super) fn unseen_ms(&self, now: Millis) -> u64 {
        let until = self.fresh_until.load(Ordering::Relaxed);
        now.0.saturating_sub(until.saturating_sub(FRESH_MS))
    }

    /// Whether it keeps files open.
    pub(super) fn has_open_files(&self) -> bool {
        self.open_files > 0
    }

    /// Whether it may be kept: a file is not kept open forever because of one request,
    /// for its space is not free before it is closed.
    pub(super) fn is_kept(&self, now: Millis) -> bool {
        !self.has_open_files() || self.unseen_ms(now) < OPEN_UNSEEN_MS_MAX
    }

    /// Takes the check of a stale entry upon this thread; false if another was quicker.
    pub(super) fn claim_check(&self, now: Millis) -> bool {
        let next = |until: u64| (now.0 >= until).then_some(now.0.saturating_add(FRESH_MS));
        let order = Ordering::Relaxed;
        self.fresh_until.fetch_update(order, order, next).is_ok()
    }

    /// Looks whether everything is as it was. Blocks only as far as `stat` does.
    pub(super) fn holds(&self, root: &Root) -> bool {
        !self.probes.is_empty() && self.probes.iter().all(|probe| probe.holds(root))
    }

    /// Whether the files that it holds open are as they were. While it is fresh, content in memory
    /// is good as it is, but a file that was changed cannot be sent under the length of before.
    pub(super) fn files_hold(&self) -> bool {
        match &self.target {
            Target::File(resource) if self.has_open_files() => {
                resource.all().all(Representation::file_holds)
            }
            _ => true,
        }
    }

    /// It was found as it is.
    pub(super) fn refresh(&self, now: Millis) {
        let until = now.0.saturating_add(FRESH_MS);
        self.fresh_until.store(until, Ordering::Relaxed);
    }

    /// Makes it stale, for every thread that has it.
    pub(super) fn retire(&self) {
        self.fresh_until.store(0, Ordering::Relaxed);
    }
}

impl Weighty for Entry {
    fn weight(&self) -> u64 {
        self.weight
    }
}

/// A file and its other forms.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) identity: Representation,
    pub(super) variants: Box<[Representation]>,
    /// What may be made of it; `None`: nothing.
    pub(super) making: Option<Making>,
}

/// The best form of a file that there is for a client, and a better one that should be made for it.
pub(super) type Choice<'r> = (&'r Representation, Option<Coding>);

impl Resource {
    /// The form that a client wants; `accepted` is asked for only if there is a choice.
    #[inline]
    pub(super) fn choose(&self, accepted: impl FnOnce() -> AcceptedCodings) -> Choice<'_> {
        if !self.varies() {
            return (&self.identity, None);
        }
        let accepted = accepted();
        let there = |coding: Coding| self.variants.iter().find(|it| it.coding == coding);
        let may_be_made = |coding: Coding| self.making.as_ref().is_some_and(|it| it.may_be(coding));
        let possible = Coding::COMPRESSED.into_iter();
        let possible = possible.filter(|it| there(*it).is_some() || may_be_made(*it));
        let wanted = accepted.best(possible);
        if wanted == Coding::Identity || there(wanted).is_some() {
            return (there(wanted).unwrap_or(&self.identity), None);
        }
        let best = accepted.best(self.variants.iter().map(|variant| variant.coding));
        let found = there(best).unwrap_or(&self.identity);
        // It is there in a moment: another one beside it would be made for nothing.
        let has_begun = self.making.as_ref().is_some_and(|it| it.has_begun(wanted));
        // Its owner has compressed it: what the client likes as much is not made beside it.
        let is_enough = self
            .variants
            .iter()
            .any(|it| it.origin == Origin::File && !accepted.prefers(wanted, it.coding));
        (found, (!has_begun && !is_enough).then_some(wanted))
    }

    /// Whether what is sent depends on what the client accepts.
    pub(super) fn varies(&self) -> bool {
        !self.variants.is_empty() || self.making.is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Representation> {
        debug_assert_eq!(self.identity.coding, Coding::Identity);
        std::iter::once(&self.identity).chain(&self.variants)
    }
}
