//! The requests that the apps of a server have, of all threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_proto::latency::MOUNTS_MEASURED;

use super::app::{AppControl, AppCounts, Wait};
use crate::clock::Clock;

/// Decides for each mount which requests an app takes.
#[derive(Debug)]
pub(crate) struct AppRequests {
    clock: Clock,
    mounts: [Mount; MOUNTS_MEASURED],
}

#[derive(Debug)]
struct Mount {
    /// Requests that were admitted and are not over.
    count: AtomicU32,
    /// Those of them that do not wait, or not yet.
    admitted: AtomicU32,
    control: Mutex<AppControl>,
}

impl Mount {
    fn lock(&self) -> MutexGuard<'_, AppControl> {
        // Nothing panics while it holds the lock.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppRequests {
    pub(crate) fn new(goal: Duration, clock: Clock) -> Arc<Self> {
        let mounts = std::array::from_fn(|_| Mount {
            count: AtomicU32::new(0),
            admitted: AtomicU32::new(0),
            control: Mutex::new(AppControl::new(goal)),
        });
        Arc::new(Self { clock, mounts })
    }

    /// By mount.
    pub(crate) fn counts(&self) -> Vec<AppCounts> {
        let mounts = self.mounts.iter();
        mounts.map(|mount| mount.lock().counts()).collect()
    }

    /// A request for the app of this mount has come. `Err`: it could not be answered in time; its client is to come
    /// back after so many seconds.
    pub(crate) fn admit(self: &Arc<Self>, mount: u8) -> Result<AppRequest, u32> {
        let mount = usize::from(mount).min(MOUNTS_MEASURED - 1);
        let of = &self.mounts[mount];
        // Without others there is nothing to wait for, and no lock to take.
        if of.count.load(Relaxed) > 0 {
            let admitted = of.admitted.load(Relaxed);
            let refused = of.lock().offer(admitted, self.clock.now_us());
            if let Some(retry_after_s) = refused {
                return Err(retry_after_s);
            }
        }
        of.count.fetch_add(1, Relaxed);
        of.admitted.fetch_add(1, Relaxed);
        Ok(AppRequest {
            of: Arc::clone(self),
            mount,
            wait: None,
            is_answered: false,
        })
    }
}

/// A request that an app has, until it is answered or its client has left (dropped).
#[derive(Debug)]
pub(crate) struct AppRequest {
    of: Arc<AppRequests>,
    mount: usize,
    /// Since it has begun to wait.
    wait: Option<Wait>,
    is_answered: bool,
}

impl AppRequest {
    fn mount(&self) -> &Mount {
        &self.of.mounts[self.mount]
    }

    /// The app waits for something, for this request.
    pub(crate) fn waits(&mut self) {
        if self.wait.is_none() {
            let now_us = self.of.clock.now_us();
            let wait = self.mount().lock().begin(now_us);
            self.wait = Some(wait);
            self.mount().admitted.fetch_sub(1, Relaxed);
        }
    }

    /// The app has answered it.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for AppRequest {
    fn drop(&mut self) {
        match self.wait {
            Some(wait) => {
                let now_us = self.of.clock.now_us();
                let mut control = self.mount().lock();
                match self.is_answered {
                    true => control.answered(wait, now_us),
                    false => control.left(wait, now_us),
                }
            }
            None => {
                self.mount().admitted.fetch_sub(1, Relaxed);
            }
        }
        self.mount().count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn counts(requests: &AppRequests, mount: usize) -> (u32, u32) {
        let mount = &requests.mounts[mount];
        (mount.count.load(Relaxed), mount.admitted.load(Relaxed))
    }

    #[test]
    fn each_mount_has_its_own_and_nothing_is_left_behind() {
        static NOW_US: AtomicU64 = AtomicU64::new(0);
        let requests = AppRequests::new(Duration::from_secs(1), Clock::simulated(&NOW_US));
        let mut waiting: Vec<AppRequest> = (0..64).map(|_| requests.admit(1).unwrap()).collect();
        assert_eq!(counts(&requests, 1), (64, 64));
        waiting.iter_mut().for_each(AppRequest::waits);
        assert_eq!(counts(&requests, 1), (64, 0));
        for (at, request) in waiting.into_iter().enumerate() {
            NOW_US.store((at as u64 + 1) * 20_000, Relaxed);
            request.answered();
        }
        assert_eq!(counts(&requests, 1), (0, 0));
        let known = requests.counts();
        assert_eq!((known.len(), known[1].answered), (MOUNTS_MEASURED, 64));
        assert_eq!(known[1].queued_us, 20_000 * known[1].queued_answers);
        assert!(known[1].queued_us > 0, "{known:?}");
        assert_eq!(known[0], AppCounts::default());
        // Each costs the next one 20 ms: some fifty can be answered within a second.
        let admitted: Vec<AppRequest> = (0..200).map_while(|_| requests.admit(1).ok()).collect();
        assert!((40..60).contains(&admitted.len()), "{}", admitted.len());
        assert!(requests.admit(1).is_err_and(|seconds| seconds >= 1));
        let _others: Vec<AppRequest> = (0..200).map_while(|_| requests.admit(0).ok()).collect();
        assert_eq!(counts(&requests, 0), (200, 200), "another app");
        drop(admitted);
        assert_eq!(counts(&requests, 1), (0, 0));
    }
}
