//! Password hashes: argon2id, on threads that may block, a bounded number at a time.

use std::collections::TryReserveError;
use std::sync::Arc;
use std::time::Duration;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Params, Version};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::counters::Count;
use crate::hash_memory::HashMemory;
use crate::limits::HASH_QUEUE_MAX;
use crate::options::{HashCost, Options};

const SALT_BYTES: usize = 16;

/// Hashes and verifies passwords.
#[derive(Debug)]
pub(crate) struct Hasher {
    argon2: Argon2<'static>,
    memory: Arc<HashMemory>,
    /// Verified in place of the hash of an unknown user, so that it takes as long.
    nobodys: Arc<str>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    wait: Duration,
    runtime: Handle,
    pub(crate) done: Count,
    pub(crate) refused: Count,
}

/// Why there is no answer. All but the first cannot happen: no randomness, no memory, a lost thread.
#[derive(Debug, Error)]
pub(crate) enum HashError {
    /// Too many are waiting, or it took too long until it was this one's turn.
    #[error("too many hashes")]
    Busy,
    #[error("{0}: {1}")]
    Cost(HashCost, argon2::Error),
    #[error(transparent)]
    Random(#[from] getrandom::Error),
    #[error("memory for a password hash: {0}")]
    Memory(#[from] TryReserveError),
    #[error(transparent)]
    Argon2(#[from] argon2::Error),
    #[error(transparent)]
    Password(#[from] argon2::password_hash::Error),
    #[error(transparent)]
    Form(#[from] argon2::password_hash::phc::Error),
    #[error("a stored password hash has no salt or no output")]
    Incomplete,
    #[error(transparent)]
    Lost(#[from] JoinError),
}

impl Hasher {
    /// Makes one, and a hash that no user has.
    ///
    /// # Errors
    /// A parameter is out of its bounds; the kernel gives no randomness.
    pub(crate) fn new(options: &Options, runtime: Handle) -> Result<Self, HashError> {
        let cost = options.hash_cost;
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, None)
            .map_err(|error| HashError::Cost(cost, error))?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let memory = HashMemory::new(options.hash_memory_kept, runtime.clone());
        let nobodys = hash(&argon2, &memory, &secret)?;
        Ok(Self {
            argon2,
            memory,
            nobodys: nobodys.into(),
            turns: Arc::new(Semaphore::new(options.hashes_max.max(1))),
            waiting: Arc::new(Semaphore::new(HASH_QUEUE_MAX)),
            wait: options.hash_wait,
            runtime,
            done: Count::default(),
            refused: Count::default(),
        })
    }

    /// The hash of a new password, with a new salt, as a PHC string.
    pub(crate) async fn hash(&self, password: String) -> Result<String, HashError> {
        let (argon2, memory) = (self.argon2.clone(), Arc::clone(&self.memory));
        self.in_turn(move || hash(&argon2, &memory, password.as_bytes()))
            .await
    }

    /// Whether a password is the one of a stored hash. `None` is an unknown user: that takes
    /// as long, and is never right.
    pub(crate) async fn verify(
        &self,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, HashError> {
        let memory = Arc::clone(&self.memory);
        let (is_there, against) = match stored {
            Some(stored) => (true, Arc::from(stored)),
            None => (false, Arc::clone(&self.nobodys)),
        };
        let is_right = self
            .in_turn(move || is_of_hash(password.as_bytes(), &memory, &against))
            .await?;
        Ok(is_there && is_right)
    }

    /// Does the work on a thread that may block, once there is a turn for it.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HashError> + Send + 'static,
    ) -> Result<T, HashError> {
        let turn = self.turn().await.inspect_err(|_| self.refused.add(1))?;
        self.done.add(1);
        let done = self.runtime.spawn_blocking(move || {
            let result = work();
            drop(turn); // held by the work, not by the request: that may be gone before
            result
        });
        done.await?
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

fn hash(
    argon2: &Argon2<'_>,
    memory: &Arc<HashMemory>,
    password: &[u8],
) -> Result<String, HashError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt)?;
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    fill(argon2, memory, password, &salt, &mut output)?;
    let hash = PasswordHash {
        algorithm: ARGON2ID_IDENT,
        version: Some(Version::V0x13.into()),
        params: ParamsString::try_from(argon2.params())?,
        salt: Some(Salt::new(&salt)?),
        hash: Some(Output::new(&output)?),
    };
    Ok(hash.to_string())
}

/// Whether a password has this hash, by the cost and the salt that stand in it.
fn is_of_hash(password: &[u8], memory: &Arc<HashMemory>, stored: &str) -> Result<bool, HashError> {
    let hash = PasswordHash::new(stored)?;
    let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else {
        return Err(HashError::Incomplete);
    };
    let version = hash.version.map_or(Ok(Version::V0x13), Version::try_from);
    let argon2 = Argon2::new(
        Algorithm::try_from(hash.algorithm.as_str())?,
        version?,
        Params::try_from(&hash)?,
    );
    let mut output = [0; Output::MAX_LENGTH];
    let output = &mut output[..expected.len()];
    fill(&argon2, memory, password, salt, output)?;
    let output = Output::new(output)?;
    Ok(output == *expected) // takes as long wherever they differ
}

fn fill(
    argon2: &Argon2<'_>,
    memory: &Arc<HashMemory>,
    password: &[u8],
    salt: &[u8],
    output: &mut [u8],
) -> Result<(), HashError> {
    let filled = memory.with(argon2.params().block_count(), |blocks| {
        argon2.hash_password_into_with_memory(password, salt, output, blocks)
    })?;
    Ok(filled?)
}

#[cfg(test)]
mod tests {
    use argon2::{PasswordHasher as _, PasswordVerifier as _};

    use super::*;

    /// With a library's own way to do it: hashes that are stored already stay good.
    #[tokio::test]
    async fn hashes_are_those_of_the_library() {
        let memory = HashMemory::new(Duration::ZERO, Handle::current());
        let params = Params::new(64, 3, 2, None).unwrap();
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let own = hash(&argon2, &memory, b"wind and tide").unwrap();
        assert!(own.starts_with("$argon2id$v=19$m=64,t=3,p=2$"), "{own}");
        let verify = |password: &[u8]| argon2.verify_password(password, own.as_str());
        verify(b"wind and tide").unwrap();
        verify(b"wind and tidE").unwrap_err();
        let theirs = argon2.hash_password_with_salt(b"wind and tide", b"sixteen bytes of");
        let theirs = theirs.unwrap().to_string();
        assert!(is_of_hash(b"wind and tide", &memory, &theirs).unwrap());
        assert!(!is_of_hash(b"wind and tidE", &memory, &theirs).unwrap());
        is_of_hash(b"wind and tide", &memory, "$argon2id$v=19$m=64").unwrap_err();
        is_of_hash(b"wind and tide", &memory, "$argon2id$v=19$m=64,t=3,p=2").unwrap_err();
    }
}
