//! Which request comes next, for any connection or for those of one server.

use std::collections::VecDeque;

use crate::mix::Chooser;
use crate::{Mix, Plan, Share};

/// Requests kept for other servers while one of a certain server is looked for. What is beyond is
/// passed over: in a closed loop, a server that answers faster takes more than its part.
const KEPT_MAX: usize = 1024;
/// Choices looked at for one request. That many in a row for other servers, and its client tries again
/// later: the other clients are not to wait for it.
const CHOICES_MAX: usize = 4 * KEPT_MAX;

/// The choices of one thread.
#[derive(Debug)]
pub(super) struct Choices<'p> {
    mix: &'p Mix,
    chooser: Chooser,
    /// Chosen, for each server, by clients of others.
    kept: Vec<VecDeque<u32>>,
}

impl<'p> Choices<'p> {
    /// The choices of `share`.
    pub(super) fn new(plan: &'p Plan, share: Share) -> Self {
        let kept = match plan.servers.len() {
            0 | 1 => Vec::new(),
            servers => vec![VecDeque::with_capacity(KEPT_MAX); servers],
        };
        Self {
            mix: &plan.mix,
            chooser: plan.mix.chooser(share, plan.seed),
            kept,
        }
    }

    /// The next request, for any server.
    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        self.chooser.next(self.mix)
    }

    /// The next request for this server; `None`: none of the next ones is for it.
    #[inline]
    pub(super) fn next_for(&mut self, server: u16) -> Option<u32> {
        if self.kept.is_empty() {
            return Some(self.chooser.next(self.mix));
        }
        self.look_for(server)
    }

    fn look_for(&mut self, server: u16) -> Option<u32> {
        let kept = self.kept.get_mut(usize::from(server));
        if let Some(request) = kept.and_then(VecDeque::pop_front) {
            return Some(request);
        }
        for _ in 0..CHOICES_MAX {
            let request = self.chooser.next(self.mix);
            let wanted = self.mix.requests.get(request as usize)?.server;
            if wanted == server {
                return Some(request);
            }
            if let Some(kept) = self.kept.get_mut(usize::from(wanted))
                && kept.len() < KEPT_MAX
            {
                kept.push_back(request);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expectation, MixOrder, Prepared};

    #[test]
    fn what_was_chosen_for_another_server_is_kept_for_it() {
        let request = |server| Prepared {
            server,
            ..Prepared::get("a", "/")
        };
        let mix = Mix {
            requests: vec![request(0), request(1), request(0)],
            expectations: vec![Expectation::default()],
            order: MixOrder::InTurn([0, 1, 2].into()),
        };
        let mut choices = Choices {
            chooser: mix.chooser(Share::WHOLE, 0),
            mix: &mix,
            kept: vec![VecDeque::new(); 3],
        };
        let wanted = [1, 0, 0, 1, 0, 0].map(|server| choices.next_for(server));
        assert_eq!(wanted, [1, 0, 2, 1, 0, 2].map(Some));
        assert_eq!(choices.next_for(2), None);
        assert!(choices.kept.iter().all(|kept| kept.len() <= KEPT_MAX));
        assert_eq!(choices.next_for(1), Some(1));
    }
}
