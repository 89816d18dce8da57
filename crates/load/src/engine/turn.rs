//! One turn of the loop: wait, then events, connections with more to read, deadlines, new
//! connections, requests that are due.

use std::io;
use std::time::Duration;

use loadline_base::{Millis, Token};
use loadline_sys::clock::monotonic_ns;

use super::client::Stage;
use super::{Driver, Engine};
use crate::Message;
use crate::client_loop::{ClientLoop, WAIT_NS_MAX};

/// How long a turn goes on with its events before the end, a stop and the live figures are looked
/// after: a new connection for each event adds up, most of all on a CPU that others want as well.
const TURN_NS_MAX: u64 = 20_000_000;

impl Engine<'_> {
    /// One turn, which waits no longer than until `until_ns`.
    pub(super) fn turn(&mut self, until_ns: u64, out: &mut dyn FnMut(Message)) -> io::Result<()> {
        match self.has_events() {
            true => {
                self.time.look_at_clock();
                self.sample_in_flight(self.time.now_ns);
            }
            false => self.wait(until_ns)?,
        }
        let begin_ns = self.time.now_ns;
        self.pass_boundaries(out);
        self.count_due();
        self.drive();
        self.flush_links();
        while self.has_events() {
            if self.time.now_ns.saturating_sub(begin_ns) > TURN_NS_MAX {
                return Ok(()); // the next turn goes on with them
            }
            let event = self.events.get(self.event_next);
            self.event_next += 1;
            self.event(event);
            self.drive();
            self.flush_links();
        }
        self.receive_more();
        self.see_to_deadlines(); // finds answers, too
        if matches!(self.driver, Driver::Closed(_)) {
            self.begin_ready();
        }
        if !self.time.is_ending {
            self.open_more();
        }
        self.drive();
        self.flush_links();
        self.secured.check()
    }

    /// Whether events of the last wait have not been seen to yet.
    #[inline]
    fn has_events(&self) -> bool {
        self.event_next < self.events.len()
    }

    #[inline]
    fn wait(&mut self, until_ns: u64) -> io::Result<()> {
        let before_ns = monotonic_ns();
        self.sample_in_flight(before_ns);
        let wait_ns = self.wait_ns(before_ns, until_ns);
        self.event_next = 0;
        match self.plan.spins {
            true => self.spin(before_ns.saturating_add(wait_ns))?,
            false => self.sleep(wait_ns)?,
        }
        self.waits.waited(before_ns, self.time.now_ns);
        self.sample_in_flight(self.time.now_ns);
        let waited_ns = self.time.now_ns.saturating_sub(before_ns);
        let answers = match self.http2.is_empty() {
            true => self.events.len(),
            // An event may bring many: as many as the last ones did.
            false => self.http2.take_answered().max(self.events.len()),
        };
        self.coalescing.woken(self.time.now_ns, answers);
        self.time.meter.waited(waited_ns, self.events.len());
        Ok(())
    }

    /// Until something has happened, or for `wait_ns`.
    #[inline]
    fn sleep(&mut self, wait_ns: u64) -> io::Result<()> {
        let nap_ns = self.coalescing.nap_ns(self.in_flight).min(wait_ns);
        if nap_ns > 0 {
            let before_ns = monotonic_ns();
            std::thread::sleep(Duration::from_nanos(nap_ns));
            self.coalescing
                .slept(nap_ns, monotonic_ns().saturating_sub(before_ns));
        }
        self.poller.wait_ns(&mut self.events, Some(wait_ns))?;
        self.time.look_at_clock();
        Ok(())
    }

    /// Until something has happened, or that moment has come, without letting go of the CPU.
    fn spin(&mut self, until_ns: u64) -> io::Result<()> {
        loop {
            self.poller.wait_ns(&mut self.events, Some(0))?;
            self.time.look_at_clock();
            if self.has_events() || self.time.now_ns >= until_ns {
                return Ok(());
            }
        }
    }

    fn wait_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        if !self.unread.is_empty() {
            return 0;
        }
        let timer_ms = self.wheel.wait_ms(Millis(now_ns / 1_000_000));
        let timer_ns = timer_ms.map_or(u64::MAX, |ms| ms * 1_000_000);
        until_ns
            .min(self.due_ns())
            .min(self.time.calendar.next_ns())
            .saturating_sub(now_ns)
            .min(timer_ns)
            .min(WAIT_NS_MAX)
    }

    /// When the next request can be sent as far as time goes.
    #[inline]
    fn due_ns(&self) -> u64 {
        if !self.time.is_started || self.time.is_ending {
            return u64::MAX;
        }
        match &self.driver {
            Driver::Closed(closed) => closed.next_ns(),
            Driver::Open(open) => open.next_ns(),
            Driver::OwnSchedules(own) => own.next_ns(),
        }
    }

    /// Sends what is due.
    #[inline]
    pub(super) fn drive(&mut self) {
        if self.due_ns() > self.time.now_ns {
            return;
        }
        match self.driver {
            Driver::Closed(_) => self.begin_due(),
            Driver::Open(_) => self.send_due(),
            Driver::OwnSchedules(_) => self.send_own(),
        }
    }

    #[inline]
    fn event(&mut self, event: loadline_sys::Event) {
        let Token { index, generation } = Token::from_bits(event.bits);
        if let Some(number) = self.link_at(index) {
            return self.link_event(number, generation, event);
        }
        let client = &self.clients[index as usize];
        if client.generation != generation {
            return;
        }
        if client.stage == Stage::Connecting {
            if !event.is_writable() {
                return;
            }
            self.connecting(index, event.is_gone());
        }
        if event.is_readable() && self.clients[index as usize].generation == generation {
            self.receive(index, event.is_half_closed());
        }
        let client = &self.clients[index as usize];
        let is_blocked = matches!(client.stage, Stage::Sending | Stage::Handshaking)
            && client.generation == generation;
        if is_blocked && event.is_writable() {
            self.time.look_at_clock();
            self.send_rest(index);
        }
    }

    fn receive_more(&mut self) {
        // Those that come in meanwhile have their turn in the next round.
        for _ in 0..self.unread.len() {
            let Some((token, is_half_closed)) = self.unread.pop_front() else {
                return;
            };
            if let Some(number) = self.link_at(token.index) {
                self.receive_more_of_link(number, token.generation, is_half_closed);
            } else if self.clients[token.index as usize].generation == token.generation {
                self.receive(token.index, is_half_closed);
            }
        }
    }

    /// Counts what has become due by now.
    fn count_due(&mut self) {
        if self.time.is_started && !self.time.is_ending {
            let (now_ns, end_ns) = (self.time.now_ns, self.time.calendar.end_ns());
            let until_ns = now_ns.saturating_add(1).min(end_ns);
            self.count_offered(until_ns, self.time.calendar.phase());
        }
    }
}
