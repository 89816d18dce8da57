//! Password hashes: argon2id, on threads that may block, so many at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::counters::Count;
use crate::options::{HASH_QUEUE_MAX, Options};

const SALT_BYTES: usize = 16;

/// What one hash costs. The default is the second of the equal choices of the OWASP Password Storage
/// Cheat Sheet: 19 MiB, two passes, one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes, which are worked through one after the other.
    pub lanes: u32,
}

impl Default for HashCost {
    fn default() -> Self {
        Self {
            memory_kib: 19 * 1024,
            passes: 2,
            lanes: 1,
        }
    }
}

impl fmt::Display for HashCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory_kib,
            passes,
            lanes,
        } = self;
        write!(f, "argon2id m={memory_kib},t={passes},p={lanes}")
    }
}

/// Hashes and verifies passwords.
#[derive(Debug)]
pub(crate) struct Hasher {
    argon2: Argon2<'static>,
    /// Verified in place of the hash of a user who is not there, so that it takes as long.
    nobodys: Arc<str>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    wait: Duration,
    runtime: Handle,
    pub(crate) done: Count,
    pub(crate) refused: Count,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum HashError {
    /// Too many are waiting, or it took too long until it was this one's turn.
    Busy,
    /// What cannot happen: no randomness, no memory, a thread that was lost.
    Failed(String),
}

impl Hasher {
    /// Makes one, and the hash that belongs to nobody.
    ///
    /// # Errors
    /// A parameter is out of its bounds; the kernel gives no randomness.
    pub(crate) fn new(options: &Options, runtime: Handle) -> Result<Self, String> {
        let cost = options.hash_cost;
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, None)
            .map_err(|error| format!("{cost}: {error}"))?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| error.to_string())?;
        let nobodys = hash(&argon2, &secret)?;
        Ok(Self {
            argon2,
            nobodys: nobodys.into(),
            turns: Arc::new(Semaphore::new(options.hashes_max.max(1))),
            waiting: Arc::new(Semaphore::new(
                usize::try_from(HASH_QUEUE_MAX).unwrap_or(usize::MAX),
            )),
            wait: options.hash_wait,
            runtime,
            done: Count::default(),
            refused: Count::default(),
        })
    }

    /// The hash of a new password, with a new salt, as a PHC string.
    pub(crate) async fn hash(&self, password: String) -> Result<String, HashError> {
        let argon2 = self.argon2.clone();
        self.in_turn(move || hash(&argon2, password.as_bytes()))
            .await
    }

    /// Whether a password is the one of a stored hash. `None` is a user who is not there: that takes
    /// as long, and is never right.
    pub(crate) async fn verify(
        &self,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, HashError> {
        let argon2 = self.argon2.clone();
        let (is_there, against) = match stored {
            Some(stored) => (true, Arc::from(stored)),
            None => (false, Arc::clone(&self.nobodys)),
        };
        let is_right = self
            .in_turn(move || {
                let parsed = PasswordHash::new(&against).map_err(|error| error.to_string())?;
                Ok(argon2.verify_password(password.as_bytes(), &parsed).is_ok())
            })
            .await?;
        Ok(is_there && is_right)
    }

    /// Does the work on a thread that may block, once there is a turn for it.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, HashError> {
        let turn = self.turn().await.inspect_err(|_| self.refused.add(1))?;
        self.done.add(1);
        let done = self.runtime.spawn_blocking(move || {
            let result = work();
            drop(turn); // held by the work, not by the request: that may be gone before
            result
        });
        match done.await {
            Ok(result) => result.map_err(HashError::Failed),
            Err(error) => Err(HashError::Failed(error.to_string())),
        }
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, HashError> {
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(HashError::Busy);
        };
        match timeout(self.wait, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(HashError::Busy),
        }
    }
}

fn hash(argon2: &Argon2<'_>, password: &[u8]) -> Result<String, String> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(|error| error.to_string())?;
    let hash: PasswordHash = argon2
        .hash_password_with_salt(password, &salt)
        .map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}
