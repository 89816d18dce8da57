//! What the connections of a loop cost (`--balance adaptive`): the time from one to the next is what the
//! next one took.

use loadline_base::Token;
use loadline_capacity::balance::{ConnectionCost, LoopMeasured, Move, TOP};
use loadline_proto::Handler;
use loadline_sys::usage;

use super::EventLoop;
use crate::accept::adaptive::next_interval;
use crate::transport::Driver;

/// Bits of a connection's name that number those of one loop.
const NUMBER_BITS: u32 = 48;

/// Costs since the last report.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// By slot.
    of: Vec<Cost>,
    /// Slots of connections that cost something.
    touched: Vec<u32>,
    /// Up to when time is charged.
    until_us: u64,
    busy_us: u64,
    handled: u64,
    due_us: u64,
    /// CPU time of the thread, and time in which it waited for a CPU, at the last report.
    before: Option<(u64, u64)>,
    /// Connections that were named here.
    named: u64,
    report: LoopMeasured,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Of the connection; it keeps it when it moves.
    name: u64,
    us: u64,
}

impl Costs {
    /// A new connection; its name.
    fn name(&mut self, loop_index: usize) -> u64 {
        self.named += 1;
        (loop_index as u64) << NUMBER_BITS | self.named
    }

    fn enter(&mut self, slot: u32, name: u64) {
        let slot = slot as usize;
        if slot >= self.of.len() {
            self.of.resize(slot + 1, Cost::default());
        }
        self.of[slot] = Cost { name, us: 0 };
    }

    fn charge(&mut self, slot: u32, now_us: u64) {
        let took_us = now_us.saturating_sub(std::mem::replace(&mut self.until_us, now_us));
        self.handled += 1;
        if let Some(cost) = self.of.get_mut(slot as usize)
            && took_us > 0
        {
            if cost.us == 0 {
                self.touched.push(slot);
            }
            cost.us += took_us;
        }
    }

    /// What came since the last report, if the next one is due.
    #[cold]
    fn take(&mut self, now_us: u64, ready: usize) -> &LoopMeasured {
        self.due_us = next_interval(now_us);
        let cpu_us = u64::try_from(usage::thread_cpu().as_micros()).unwrap_or(u64::MAX);
        let delay_us = usage::thread_run_delay_ns().unwrap_or(0) / 1000;
        let (cpu_before_us, delay_before_us) = self
            .before
            .replace((cpu_us, delay_us))
            .unwrap_or((cpu_us, delay_us));
        let cpu_us = cpu_us.saturating_sub(cpu_before_us);
        let delay_us = delay_us.saturating_sub(delay_before_us);
        let turns_us = std::mem::take(&mut self.busy_us);
        let report = &mut self.report;
        // It also needs a CPU after its waits, before its turns begin.
        report.busy_us = turns_us.max(cpu_us + delay_us);
        report.cpu_us = cpu_us.min(report.busy_us);
        report.handled = std::mem::take(&mut self.handled);
        report.ready = ready as u64;
        let share = (cpu_us as f64 / turns_us.max(1) as f64).min(1.0);
        report.top.clear();
        for slot in self.touched.drain(..) {
            let cost = &mut self.of[slot as usize];
            let us = std::mem::take(&mut cost.us);
            report.top.push(ConnectionCost {
                connection: cost.name,
                cpu_us: (us as f64 * share) as u64,
            });
        }
        if report.top.len() > TOP {
            let most = |cost: &ConnectionCost| std::cmp::Reverse(cost.cpu_us);
            report.top.select_nth_unstable_by_key(TOP, most);
            report.top.truncate(TOP);
        }
        report
    }
}

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// A connection has a slot now; `None`: it is new to the server.
    pub(super) fn enter_costs(&mut self, token: Token, name: Option<u64>) {
        if let Some(costs) = &mut self.costs {
            let name = name.unwrap_or_else(|| costs.name(self.index));
            costs.enter(token.index, name);
        }
    }

    /// The name of a connection; 0 if names are not needed.
    pub(super) fn name_of(&self, token: Token) -> u64 {
        let cost = (self.costs.as_ref()).and_then(|costs| costs.of.get(token.index as usize));
        cost.map_or(0, |cost| cost.name)
    }

    /// Has the connection of this name move, if it is here.
    pub(super) fn begin_move_of(&mut self, name: u64, to: usize) {
        let costs = self.costs.as_ref();
        let slot = costs.and_then(|costs| costs.of.iter().position(|cost| cost.name == name));
        if let Some(token) = slot.and_then(|slot| self.slots.token_at(slot)) {
            self.begin_move(token, to);
        }
    }

    /// A turn begins.
    #[inline]
    pub(super) fn begin_costs(&mut self, began_us: u64) {
        if let Some(costs) = &mut self.costs {
            costs.until_us = began_us;
        }
    }

    /// Something was done for a connection.
    #[inline]
    pub(super) fn charge(&mut self, token: Token) {
        if let Some(costs) = &mut self.costs {
            costs.charge(token.index, self.site.clock.now_us());
        }
    }

    /// A turn has ended: reports, and decides for all, if it is time for that.
    #[inline]
    pub(super) fn balance(&mut self, began_us: u64, now_us: u64) {
        let (Some(costs), Some(adaptive)) = (&mut self.costs, self.group.adaptive()) else {
            return;
        };
        costs.busy_us += now_us.saturating_sub(began_us);
        if now_us >= costs.due_us {
            let ready = self.again.len() + self.driver.left();
            adaptive.report(self.index, costs.take(now_us, ready));
        }
        let loads = self.group.loops().iter().map(|handle| &handle.load);
        for Move {
            connection,
            from,
            to,
            ..
        } in adaptive.decide(now_us, loads)
        {
            match from == self.index {
                true => self.begin_move_of(connection, to),
                false => self.group.order_move(from, connection, to),
            }
        }
    }
}
