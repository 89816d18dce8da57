//! Tickets by which clients resume sessions: encrypted state that the client keeps, so that the server
//! need not.
//!
//! A ticket is the name of its key (16 bytes), a nonce (12), and then, sealed by AES-256-GCM for servers that
//! ask clients for the same certificates, the time (8) and the state. Keys are random and change by themselves,
//! or come from files that several machines share. A client's secrets are as safe as these keys: none is used
//! for more than a day, or the operator sees to it. No ticket is accepted after a day, whatever its key.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;

use crate::Warning;
use crate::error::{TlsError, read};
use crate::files::ChangedFiles;
use crate::key_file::key_file_warning;

/// A random key seals tickets for so long, and opens them for as long again.
const ROTATION: Duration = Duration::from_secs(12 * 3600);

/// How long ago the handshake may be whose session goes on, by its ticket or from memory. Each has tickets of its own,
/// so one of TLS 1.2 goes on for longer if its client resumes it each day.
pub(crate) const SESSION_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// How far the clocks of machines with the same keys may differ.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(5 * 60);

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// The least that a file of a key has.
const FILE_BYTES_MIN: usize = 32;

/// Keys of tickets.
#[derive(Debug)]
pub struct Tickets {
    keys: RwLock<Keys>,
}

#[derive(Debug)]
struct Keys {
    /// The first one seals, all of them open.
    all: Vec<TicketKey>,
    /// When the first one was made; `None`: they come from files.
    since: Option<Instant>,
    /// Of the files that they come from.
    warnings: Vec<Warning>,
}

/// A moment by two clocks: random keys change by the one that is never set; machines that share keys have the
/// other one in common.
#[derive(Clone, Copy)]
struct Moment {
    steady: Instant,
    wall: SystemTime,
}

struct TicketKey {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey")
    }
}

impl Tickets {
    /// Random keys that change every twelve hours, and are known to this process alone.
    #[must_use]
    pub fn rotating() -> Self {
        Self::with(Keys {
            all: TicketKey::random().into_iter().collect(),
            since: Some(Instant::now()),
            warnings: Vec::new(),
        })
    }

    /// Given keys, each of 32 or more random bytes, with where it comes from: the first one seals, the
    /// others open tickets of before.
    ///
    /// # Errors
    /// One is too short.
    pub fn given<'k>(
        keys: impl IntoIterator<Item = (&'k str, &'k [u8])>,
    ) -> Result<Self, TlsError> {
        Ok(Self::with(Keys {
            all: derive_all(keys)?,
            since: None,
            warnings: Vec::new(),
        }))
    }

    fn with(keys: Keys) -> Self {
        Self {
            keys: RwLock::new(keys),
        }
    }

    /// Seals with other given keys from now on.
    fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// What an operator should know of the keys' files: all users of the machine can read them.
    #[must_use]
    pub fn key_warnings(&self) -> Vec<Warning> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.warnings.clone()
    }

    /// A new random key, if it is time for one, and an end of the oldest. Each handshake sees to that; where
    /// there may be none for long, this is to be called now and then.
    pub fn rotate(&self) {
        self.rotate_at(Instant::now());
    }

    fn rotate_at(&self, now: Instant) {
        let is_due = |keys: &Keys| {
            let since = keys.since;
            since.is_some_and(|since| now.saturating_duration_since(since) >= ROTATION)
        };
        if !is_due(&self.keys.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if is_due(&keys)
            && let Some(key) = TicketKey::random()
        {
            // After a pause both are too old.
            let since = keys.since.unwrap_or(now);
            if now.saturating_duration_since(since) >= 2 * ROTATION {
                keys.all.clear();
            }
            keys.all.insert(0, key);
            keys.all.truncate(2);
            keys.since = Some(now);
        }
    }

    fn seal(&self, state: &[u8], context: &[u8], now: Moment) -> Option<Vec<u8>> {
        self.rotate_at(now.steady);
        let dated = [&now.wall_s().to_be_bytes()[..], state].concat();
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.all.first()?.seal(&dated, context)
    }

    fn open(&self, ticket: &[u8], context: &[u8], now: Moment) -> Option<Vec<u8>> {
        self.rotate_at(now.steady);
        let (name, sealed) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.all.iter().find(|key| key.name == *name)?;
        let dated = key.open(sealed, context)?;
        let (sealed_s, state) = dated.split_first_chunk()?;
        let is_valid = is_valid(u64::from_be_bytes(*sealed_s), now.wall_s());
        is_valid.then(|| state.to_vec())
    }
}

impl Moment {
    fn now() -> Self {
        Self {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    fn wall_s(self) -> u64 {
        let since_1970 = self.wall.duration_since(UNIX_EPOCH);
        since_1970.unwrap_or_default().as_secs()
    }
}

/// Whether a ticket of this time is accepted. After the clock was set, clients make a full handshake at worst.
fn is_valid(sealed_s: u64, now_s: u64) -> bool {
    let is_past = sealed_s <= now_s.saturating_add(CLOCK_SKEW_MAX.as_secs());
    is_past && now_s.saturating_sub(sealed_s) < SESSION_AGE_MAX.as_secs()
}

/// Tickets of one server: those of another with the same keys, but another context, are none of its own.
#[derive(Debug)]
pub(crate) struct TicketsOfServer {
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) context: Vec<u8>,
    /// Otherwise they are made, and sessions begin anew.
    pub(crate) are_accepted: bool,
}

impl ProducesTickets for TicketsOfServer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        ROTATION.as_secs() as u32
    }

    fn encrypt(&self, state: &[u8]) -> Option<Vec<u8>> {
        let Self {
            tickets, context, ..
        } = self;
        tickets.seal(state, context, Moment::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let Self {
            tickets,
            context,
            are_accepted,
        } = self;
        (*are_accepted).then(|| tickets.open(ticket, context, Moment::now()))?
    }
}

impl TicketKey {
    fn new(name: [u8; NAME_BYTES], key: &[u8; KEY_BYTES]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        Some(Self { name, key })
    }

    /// `None`: the kernel has no random bytes.
    fn random() -> Option<Self> {
        let (mut name, mut key) = ([0; NAME_BYTES], [0; KEY_BYTES]);
        rand::fill(&mut name).ok()?;
        rand::fill(&mut key).ok()?;
        Self::new(name, &key)
    }

    /// Of the bytes of a file: the same on every machine that has it.
    fn derive(secret: &[u8]) -> Option<Self> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"loadline tickets");
        let secret = salt.extract(secret);
        let (mut name, mut key) = ([0; NAME_BYTES], [0; KEY_BYTES]);
        let expand = |info: &[u8], out: &mut [u8]| {
            let info = [info];
            let expanded = secret.expand(&info, Length(out.len())).ok()?;
            expanded.fill(out).ok()
        };
        expand(b"name", &mut name)?;
        expand(b"key", &mut key)?;
        Self::new(name, &key)
    }

    fn seal(&self, state: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + state.len() + TAG_BYTES);
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        let mut sealed = state.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from([&self.name, context].concat());
        self.key
            .seal_in_place_append_tag(nonce, aad, &mut sealed)
            .ok()?;
        ticket.extend_from_slice(&sealed);
        Some(ticket)
    }

    fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut state = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let aad = Aad::from([&self.name, context].concat());
        let len = self.key.open_in_place(nonce, aad, &mut state).ok()?.len();
        state.truncate(len);
        Some(state)
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive_all<'k>(
    keys: impl IntoIterator<Item = (&'k str, &'k [u8])>,
) -> Result<Vec<TicketKey>, TlsError> {
    let derive = |(path, secret): (&str, &[u8])| {
        let key = match secret.len() >= FILE_BYTES_MIN {
            true => TicketKey::derive(secret),
            false => None,
        };
        key.ok_or_else(|| TlsError::ShortTicketKey {
            path: path.to_owned(),
            len: secret.len(),
        })
    };
    keys.into_iter().map(derive).collect()
}

/// Keys of tickets in files that several machines share.
#[derive(Debug)]
pub struct TicketFiles {
    files: ChangedFiles,
    tickets: Arc<Tickets>,
}

impl TicketFiles {
    /// Reads them: the first one seals.
    ///
    /// # Errors
    /// One cannot be read, or is too short.
    pub fn load(paths: Vec<PathBuf>) -> Result<Self, TlsError> {
        let files = ChangedFiles::new(paths);
        Ok(Self {
            tickets: Arc::new(Tickets::with(load(files.paths())?)),
            files,
        })
    }

    /// The keys.
    #[must_use]
    pub fn tickets(&self) -> &Arc<Tickets> {
        &self.tickets
    }

    /// Takes the files up whether they have changed or not.
    ///
    /// # Errors
    /// One cannot be read, or is too short; the keys of before stay.
    pub fn reload(&mut self) -> Result<(), TlsError> {
        let Self { files, tickets } = self;
        files.reload(|paths| {
            tickets.replace(load(paths)?);
            Ok(())
        })
    }

    /// Takes up what has changed, at the second look that finds it so. `None`: nothing was; an error is
    /// reported once.
    pub fn refresh(&mut self) -> Option<Result<(), TlsError>> {
        let Self { files, tickets } = self;
        files.refresh(|paths| {
            tickets.replace(load(paths)?);
            Ok(())
        })
    }
}

fn load(paths: &[PathBuf]) -> Result<Keys, TlsError> {
    let mut files = Vec::new();
    for path in paths {
        files.push((path.display().to_string(), read(path)?));
    }
    let warnings = paths.iter();
    let warnings = warnings.filter_map(|path| key_file_warning(path, "the ticket key"));
    Ok(Keys {
        all: derive_all(files.iter().map(|(path, key)| (path.as_str(), &key[..])))?,
        since: None,
        warnings: warnings.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &[u8] = b"the state of a session";
    const CONTEXT: &[u8] = b"one server";
    const SECOND: Duration = Duration::from_secs(1);

    impl std::ops::Add<Duration> for Moment {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self {
                steady: self.steady + time,
                wall: self.wall + time,
            }
        }
    }

    #[test]
    fn a_random_key_opens_for_one_rotation_more() {
        let tickets = Tickets::rotating();
        let start = Moment::now();
        let ticket = tickets.seal(STATE, CONTEXT, start).unwrap();
        assert_eq!(
            tickets.open(&ticket, CONTEXT, start).as_deref(),
            Some(STATE)
        );
        let later = start + ROTATION;
        assert_eq!(
            tickets.open(&ticket, CONTEXT, later).as_deref(),
            Some(STATE)
        );
        let second = tickets.seal(STATE, CONTEXT, later).unwrap();
        assert_ne!(ticket[..NAME_BYTES], second[..NAME_BYTES], "another key");
        let end = later + ROTATION;
        assert_eq!(tickets.open(&ticket, CONTEXT, end), None);
        assert_eq!(tickets.open(&second, CONTEXT, end).as_deref(), Some(STATE));
        assert_eq!(tickets.open(&second, CONTEXT, end + 3 * ROTATION), None);
    }

    #[test]
    fn keys_of_a_server_that_nobody_asks_are_forgotten_too() {
        let tickets = Tickets::rotating();
        let start = Moment::now();
        let ticket = tickets.seal(STATE, CONTEXT, start).unwrap();
        let has_its_key = || {
            let keys = tickets.keys.read().unwrap();
            keys.all.iter().any(|key| key.name == ticket[..NAME_BYTES])
        };
        tickets.rotate_at(start.steady + ROTATION);
        assert!(has_its_key());
        tickets.rotate_at(start.steady + 2 * ROTATION);
        assert!(!has_its_key());
    }

    #[test]
    fn given_keys_are_the_same_on_every_machine() {
        let (old, new) = ([1; 80], [2; 32]);
        let first = Tickets::given([("old", &old[..])]).unwrap();
        let second = Tickets::given([("new", &new[..]), ("old", &old)]).unwrap();
        let now = Moment::now();
        let ticket = first.seal(STATE, CONTEXT, now).unwrap();
        let end = now + SESSION_AGE_MAX;
        let skewed = |by: Duration| Moment {
            wall: now.wall - by,
            ..now
        };
        for (time, is_opened) in [
            (now, true),
            (now + (SESSION_AGE_MAX - SECOND), true),
            (end, false),
            (end + 9 * ROTATION, false),
            (skewed(CLOCK_SKEW_MAX), true),
            (skewed(CLOCK_SKEW_MAX + SECOND), false),
        ] {
            let opened = second.open(&ticket, CONTEXT, time);
            let expected = is_opened.then_some(STATE);
            assert_eq!(opened.as_deref(), expected, "{:?}", time.wall);
        }
        let ticket = second.seal(STATE, CONTEXT, now).unwrap();
        assert_eq!(first.open(&ticket, CONTEXT, now), None);
        let short = Tickets::given([("key", &old[..31])]).unwrap_err();
        assert!(
            short.to_string().starts_with("key: 31 bytes are too few"),
            "{short}"
        );
    }

    #[test]
    fn what_was_changed_on_its_way_is_no_ticket() {
        let tickets = Tickets::rotating();
        let now = Moment::now();
        let ticket = tickets.seal(STATE, CONTEXT, now).unwrap();
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(tickets.open(&changed, CONTEXT, now), None, "byte {index}");
            assert_eq!(
                tickets.open(&ticket[..index], CONTEXT, now),
                None,
                "{index} bytes"
            );
        }
        assert_eq!(tickets.open(&ticket, b"", now), None, "of another server");
    }
}
