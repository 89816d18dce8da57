//! Drives a virtual user: its order is carried out as far as it goes, and the next one is asked for.

use loadline_load::judge::broken;
use loadline_record::ErrorKind;
use loadline_sys::connect::{self, Unread};

use super::user_state::{Activity, Link};
use super::{Executor, RECEIVE_BYTES};
use crate::{Event, Order};

/// Steps, an order or an event each, for which a user is driven. Then the others have their turn, so
/// that one that never has to wait does not delay them.
pub(super) const STEPS_MAX: usize = 32;

/// There is more to do at once. Where a step returns none of it, there is nothing to do until something
/// happens.
#[must_use]
pub(super) struct GoesOn;

impl Executor<'_> {
    /// Drives this user until it has to wait.
    pub(super) fn drive(&mut self, index: u32) {
        for _ in 0..STEPS_MAX {
            if self.step(index).is_none() {
                return;
            }
        }
        self.drive_later(index);
    }

    fn step(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        match &mut user.activity {
            Activity::Nothing => self.ask(index),
            Activity::Connecting => self.connecting(index),
            Activity::Handshaking => self.handshaking(index),
            Activity::Sending { .. } => self.sending(index),
            Activity::Receiving { .. } => self.receiving(index),
            Activity::Sleeping => self.sleeping(index),
            Activity::Held(_)
            | Activity::Queued
            | Activity::Opened(_)
            | Activity::Unprepared
            | Activity::Prepared
                if !self.time.is_started =>
            {
                None
            }
            Activity::Held(order) => {
                let order = std::mem::replace(order, Order::Done);
                self.begin(index, order)
            }
            // The start may come before the turn of one that is queued or unprepared.
            Activity::Queued => self.connect(index),
            Activity::Opened(Ok(())) => self.notify(index, Event::Connected),
            Activity::Opened(Err(kind)) => {
                let kind = *kind;
                self.failed(index, kind)
            }
            Activity::Prepared if user.link.as_ref().is_some_and(|link| link.is_half_closed) => {
                self.closed(index)
            }
            Activity::Unprepared | Activity::Prepared => self.ask(index),
        }
    }

    fn ask(&mut self, index: u32) -> Option<GoesOn> {
        let order = self.call(index, |user, context| user.next_order(context))?;
        self.begin(index, order)
    }

    /// Begins to carry out an order.
    fn begin(&mut self, index: u32, order: Order) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        let mut until_ns = u64::MAX;
        user.activity = match order {
            Order::Connect => return self.connect(index),
            Order::Send(bytes) => {
                until_ns = self.time.now_ns.saturating_add(self.plan.timeout_ns);
                Activity::Sending { bytes, sent: 0 }
            }
            Order::Receive { bytes_max } => Activity::Receiving { bytes_max },
            Order::ReceiveUntil { bytes_max, ns } => {
                until_ns = ns;
                Activity::Receiving { bytes_max }
            }
            Order::SleepUntil { ns } => {
                until_ns = ns;
                Activity::Sleeping
            }
            Order::Close { reset } => {
                match user.link.take() {
                    Some(link) if reset => connect::reset_on_close(link.fd()),
                    Some(mut link) => link.part(),
                    None => {}
                }
                Activity::Nothing
            }
            Order::AwaitStart => return self.prepared(index),
            Order::GiveUp(why) => return self.gave_up(index, why),
            Order::Done => {
                self.retire(index);
                return None;
            }
        };
        user.until_ns = until_ns;
        // What is over already is seen to in the next step.
        match until_ns == u64::MAX || until_ns <= self.time.now_ns {
            true => self.timers.clear(index),
            false => self.timers.set(index, until_ns),
        }
        Some(GoesOn)
    }

    fn sending(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        let Activity::Sending { bytes, sent } = &mut user.activity else {
            return None;
        };
        let Some(link) = &mut user.link else {
            return self.closed(index);
        };
        let result = match &bytes[*sent..] {
            [] => Ok(Some(0)),
            rest => link.send(rest),
        };
        match result {
            Ok(None) if user.until_ns > self.time.now_ns => None,
            Ok(None) => {
                connect::reset_on_close(link.fd()); // or the kernel goes on trying
                self.failed(index, ErrorKind::Timeout)
            }
            Ok(Some(count)) => {
                *sent += count;
                let is_whole = *sent == bytes.len();
                user.until_ns = self.time.now_ns.saturating_add(self.plan.timeout_ns);
                if !is_whole {
                    self.timers.set(index, user.until_ns);
                }
                if self.time.is_started {
                    let phase = self.time.calendar.phase();
                    let tally = self.recorder.group(user.group).tally(phase);
                    tally.bytes_sent += count as u64;
                }
                self.time.look_at_clock();
                match is_whole {
                    true => self.notify(index, Event::Sent),
                    false => Some(GoesOn),
                }
            }
            // It takes no more, but has sent something first, which is read.
            Err(_) if matches!(connect::unread(link.fd()), Ok(Unread::Some)) => {
                link.is_readable = true;
                link.is_half_closed = true;
                self.notify(index, Event::Sent)
            }
            Err(error) => self.failed(index, broken(&error)),
        }
    }

    fn receiving(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        let (Activity::Receiving { bytes_max }, link) = (&user.activity, &mut user.link) else {
            return None;
        };
        let Some(link) = link else {
            return self.closed(index);
        };
        if link.is_readable {
            let most = (*bytes_max).clamp(1, RECEIVE_BYTES);
            match link.receive(&mut self.buffer, most) {
                Ok(None) => {}
                Ok(Some(0)) => {
                    self.time.look_at_clock();
                    return self.closed(index);
                }
                Ok(Some(count)) => {
                    self.is_proven = true;
                    self.time.look_at_clock();
                    return self.received(index, count);
                }
                Err(kind) => {
                    self.time.look_at_clock();
                    self.look_at_failure(index);
                    return self.failed(index, kind);
                }
            }
        }
        self.woken_or_waiting(index)
    }

    /// Nothing is received, but the end is seen: once nothing that could be received lies before it.
    fn sleeping(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        if let Some(link) = &mut user.link
            && link.is_half_closed
        {
            match link.is_over(&mut self.buffer) {
                Ok(true) => return self.closed(index),
                Ok(false) => {}
                Err(kind) => {
                    self.look_at_failure(index);
                    return self.failed(index, kind);
                }
            }
        }
        self.woken_or_waiting(index)
    }

    fn woken_or_waiting(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_ref();
        if user.is_some_and(|user| user.until_ns > self.time.now_ns) {
            return None;
        }
        self.notify(index, Event::Woken)
    }

    fn received(&mut self, index: u32, count: usize) -> Option<GoesOn> {
        if let Some(user) = &self.users[index as usize]
            && self.time.is_started
        {
            let phase = self.time.calendar.phase();
            let tally = self.recorder.group(user.group).tally(phase);
            tally.bytes_received += count as u64;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let step = self.notify(index, Event::Received(&buffer[..count]));
        self.buffer = buffer;
        step
    }

    /// The peer has ended the connection in good order, as far as TCP can tell.
    fn closed(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_ref();
        let link = user.and_then(|user| user.link.as_ref());
        let is_cut = link.is_some_and(Link::is_cut);
        self.notify(index, if is_cut { Event::Cut } else { Event::Closed })
    }

    /// The connection did not come to be, or broke.
    pub(super) fn failed(&mut self, index: u32, kind: ErrorKind) -> Option<GoesOn> {
        self.notify(index, Event::Failed(kind))
    }

    /// The order at hand has come to this event, which may be the end of the connection; the next one
    /// is asked for.
    pub(super) fn notify(&mut self, index: u32, event: Event<'_>) -> Option<GoesOn> {
        if let Some(user) = &mut self.users[index as usize] {
            user.activity = Activity::Nothing;
            if matches!(event, Event::Closed | Event::Cut | Event::Failed(_)) {
                user.link = None;
            }
        }
        self.call(index, |user, context| user.on_event(event, context))?;
        Some(GoesOn)
    }
}
