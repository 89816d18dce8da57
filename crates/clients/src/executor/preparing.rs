//! What virtual users do before the start: those that prepare run, a few at a time.

use std::collections::VecDeque;

use super::Executor;
use super::member::Doing;
use super::visit::Step;

/// Members that prepare at once, on each thread. Preparing is work for the server, logging in say,
/// and it is not what is measured: users who came all at once would find its limits.
const PREPARING_MAX: u32 = 16;

/// Members that have something to do before the start.
#[derive(Debug, Default)]
pub(super) struct Preparing {
    queue: VecDeque<u32>,
    in_progress: u32,
    /// Why there will be no start.
    failure: Option<String>,
}

impl Preparing {
    /// Whether no member is left to prepare.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.in_progress == 0
    }

    /// Why there will be no start, if so.
    pub(super) fn failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    fn ended(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }
}

impl Executor<'_> {
    /// Has a member wait for its turn, if it prepares.
    pub(super) fn will_prepare(&mut self, index: u32) -> bool {
        let Some(member) = &mut self.members[index as usize] else {
            return false;
        };
        if member.user.prepares() {
            member.doing = Doing::Unprepared;
            self.preparing.queue.push_back(index);
            return true;
        }
        false
    }

    /// Goes on with those that wait for their turn, within the bound.
    pub(super) fn prepare_more(&mut self) {
        while self.preparing.in_progress < PREPARING_MAX
            && let Some(index) = self.preparing.queue.pop_front()
        {
            if let Some(member) = &mut self.members[index as usize] {
                member.doing = Doing::Nothing;
                member.is_preparing = true;
                self.preparing.in_progress += 1;
                self.visit(index);
            }
        }
    }

    /// A member has prepared.
    pub(super) fn prepared(&mut self, index: u32) -> Step {
        self.timers.clear(index);
        if let Some(member) = &mut self.members[index as usize] {
            member.doing = Doing::Prepared;
            member.until_ns = u64::MAX;
        }
        self.no_longer_preparing(index);
        Step::Waits
    }

    /// A member cannot prepare: the first reason is kept.
    pub(super) fn gave_up(&mut self, index: u32, why: String) -> Step {
        self.preparing.failure.get_or_insert(why);
        self.retire(index);
        Step::Waits
    }

    pub(super) fn no_longer_preparing(&mut self, index: u32) {
        if let Some(member) = &mut self.members[index as usize]
            && std::mem::take(&mut member.is_preparing)
        {
            self.preparing.ended();
        }
    }
}
