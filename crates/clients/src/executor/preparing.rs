//! What virtual users do before the start: those that prepare run, a few at a time.

use super::Executor;
use super::member::Doing;
use super::visit::GoesOn;

/// Members that prepare at once, on each thread. Preparing is work for the server, logging in say,
/// and it is not what is measured: all users at once would reach its limits.
const PREPARING_MAX: u32 = 16;

impl Executor<'_> {
    /// Goes on with those that wait for their turn, within the bound.
    pub(super) fn prepare_more(&mut self) {
        while let Some(index) = self.preparing.next(PREPARING_MAX) {
            if let Some(member) = &mut self.members[index as usize] {
                member.doing = Doing::Nothing;
                member.is_preparing = true;
                self.preparing.begin();
                self.visit(index);
            }
        }
    }

    /// A member has prepared.
    pub(super) fn prepared(&mut self, index: u32) -> Option<GoesOn> {
        self.timers.clear(index);
        if let Some(member) = &mut self.members[index as usize] {
            member.doing = Doing::Prepared;
            member.until_ns = u64::MAX;
            if std::mem::take(&mut member.is_preparing) {
                self.preparing.end();
            }
        }
        None
    }

    /// A member cannot prepare: the first reason is kept.
    pub(super) fn gave_up(&mut self, index: u32, why: String) -> Option<GoesOn> {
        self.failure.get_or_insert(why);
        self.retire(index);
        None
    }
}
