//! Locks over loom's. While a failed case unwinds, destructors lock without loom: it would panic once
//! more, and that ends the whole process.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};
use std::thread::panicking;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    /// Decides who is next.
    turn: loom::sync::Mutex<()>,
    value: std::sync::Mutex<T>,
}

/// Drops the value before the turn.
pub(crate) struct MutexGuard<'m, T> {
    value: std::sync::MutexGuard<'m, T>,
    turn: Option<loom::sync::MutexGuard<'m, ()>>,
    mutex: &'m Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            turn: loom::sync::Mutex::new(()),
            value: std::sync::Mutex::new(value),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let turn = match panicking() {
            true => None,
            false => Some(self.turn.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        Ok(self.guard(turn))
    }

    pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
        self.value.get_mut()
    }

    fn guard<'m>(&'m self, turn: Option<loom::sync::MutexGuard<'m, ()>>) -> MutexGuard<'m, T> {
        MutexGuard {
            value: self.value.lock().unwrap_or_else(PoisonError::into_inner),
            turn,
            mutex: self,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> LockResult<MutexGuard<'m, T>> {
        let MutexGuard { value, turn, mutex } = guard;
        drop(value);
        let wait = |turn| self.0.wait(turn).unwrap_or_else(PoisonError::into_inner);
        Ok(mutex.guard(turn.map(wait)))
    }

    pub(crate) fn notify_one(&self) {
        if !panicking() {
            self.0.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if !panicking() {
            self.0.notify_all();
        }
    }
}
