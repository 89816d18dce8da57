//! What virtual users do before the start: those that prepare run, a few at a time.

use loadline_load::secure_link::Handshake;

use super::Executor;
use super::drive::GoesOn;
use super::user_state::Activity;

/// Users that prepare at once, on each thread. Preparing is work for the server, logging in say,
/// and it is not what is measured: all users at once would reach its limits.
const PREPARING_MAX: u32 = 16;

/// A connection of a user that prepares.
pub(super) struct EarlyConnection {
    /// How long it took to come to be, in nanoseconds.
    pub(super) took_ns: u64,
    pub(super) handshake: Option<Handshake>,
}

impl Executor<'_> {
    /// Goes on with those that wait for their turn, within the bound.
    pub(super) fn prepare_more(&mut self) {
        while let Some(index) = self.preparing.next(PREPARING_MAX) {
            if let Some(user) = &mut self.users[index as usize] {
                user.activity = Activity::Nothing;
                user.is_preparing = true;
                self.preparing.begin();
                self.drive(index);
            }
        }
    }

    /// A user has prepared. A connection that it has now is one of the run.
    pub(super) fn prepared(&mut self, index: u32) -> Option<GoesOn> {
        self.timers.clear(index);
        let connection = self.early_connections.remove(&index);
        if let Some(user) = &mut self.users[index as usize] {
            user.activity = Activity::Prepared;
            user.until_ns = u64::MAX;
            if let Some(connection) = connection.filter(|_| user.link.is_some()) {
                let phase = self.time.calendar.phase();
                let recorder = self.recorder.group(user.group);
                recorder.connected(phase, connection.took_ns);
                if let Some(handshake) = connection.handshake {
                    recorder.handshake(phase, handshake);
                }
            }
            if std::mem::take(&mut user.is_preparing) {
                self.preparing.end();
            }
        }
        None
    }

    /// A user cannot prepare: the first reason is kept.
    pub(super) fn gave_up(&mut self, index: u32, why: String) -> Option<GoesOn> {
        self.failure.get_or_insert(why);
        self.retire(index);
        None
    }
}
