//! What a loop lends the core for one of its turns: time, date, spare memory, counters, the log.

use loadline_base::Millis;

use crate::latency::Timing;
use crate::{AccessLog, Counters, Exchange, HttpDate, Pool};

/// Time, date and memory, lent for one turn of a loop: so that tests run on a fake clock, and nothing on the hot
/// path allocates or reads a clock.
pub struct Context<'t> {
    /// The time, read once per turn.
    pub now: Millis,
    /// When what is received now came, about: it may have waited for its loop. `now` where that is not known.
    pub came: Millis,
    /// The date, formatted once per second.
    pub date: &'t HttpDate,
    /// Spare memory of this thread.
    pub pool: &'t mut Pool,
    /// This thread's counters.
    pub counters: &'t Counters,
    /// This thread's access log, if there is one.
    pub log: Option<&'t mut AccessLog>,
}

impl Context<'_> {
    /// The head of this one is complete, or there will be none.
    pub(crate) fn stamp(&self, exchange: &mut Exchange) {
        exchange.began = self.now;
        exchange.ready = self.came;
        exchange.began_us = match self.log.as_deref() {
            Some(log) => log.now_us(),
            None => self.counters.latencies.now_us(),
        };
        let waited_us = self.counters.latencies.waited_us();
        exchange.came_us = exchange.began_us.saturating_sub(waited_us);
    }

    /// A response is complete, with so much content that has left or is about to: it is measured and
    /// logged.
    pub(crate) fn answered(&mut self, exchange: Box<Exchange>, bytes: u64) {
        match Timing::of(&exchange) {
            Some(timing) => self.counters.latencies.record(timing),
            None => self.counters.unmeasured(exchange.response.status),
        }
        if let Some(log) = self.log.as_deref_mut() {
            let status = exchange.response.status;
            log.add(&exchange, status, bytes, self.date);
        }
        self.pool.give_exchange(exchange);
    }
}
