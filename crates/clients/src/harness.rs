//! A virtual user without sockets, with a clock that the test moves.

use loadline_load::Message;
use loadline_load::message::Interval;
use loadline_load::recorder::GroupRecorder;
use loadline_record::Tally;

use crate::{Event, Order, UserContext, VirtualUser};

/// A virtual user and its context.
pub(crate) struct Harness<U: ?Sized> {
    pub(crate) user: Box<U>,
    pub(crate) recorder: GroupRecorder,
    /// Of the time before the start.
    unrecorded: GroupRecorder,
    pub(crate) now_ns: u64,
    pub(crate) is_ending: bool,
}

impl<U: VirtualUser + ?Sized> Harness<U> {
    /// A second after the machine was started.
    pub(crate) fn new(user: Box<U>) -> Self {
        Self {
            user,
            recorder: GroupRecorder::new(1),
            unrecorded: GroupRecorder::new(1),
            now_ns: 1_000_000_000,
            is_ending: false,
        }
    }

    pub(crate) fn order(&mut self) -> Order {
        let (user, mut context) = self.parts();
        user.next_order(&mut context)
    }

    pub(crate) fn on_event(&mut self, event: Event<'_>) {
        let (user, mut context) = self.parts();
        user.on_event(event, &mut context);
    }

    /// The moment that was waited for, unless it is over.
    pub(crate) fn wakes_at(&mut self, ns: u64) {
        self.now_ns = self.now_ns.max(ns);
        self.on_event(Event::Woken);
    }

    /// What was recorded since the last time.
    pub(crate) fn interval(&mut self) -> Interval {
        let mut all = Vec::new();
        self.recorder.tally(0).unfinished += 0; // there is one in any case
        self.recorder
            .flush(0, 0, false, &mut |message| match message {
                Message::Interval(interval) => all.push(*interval),
                other => panic!("{other:?}"),
            });
        all.remove(0)
    }

    pub(crate) fn tally(&mut self) -> Tally {
        self.interval().tally
    }

    fn parts(&mut self) -> (&mut U, UserContext<'_>) {
        let recorder = match self.user.prepares() {
            true => &mut self.unrecorded,
            false => &mut self.recorder,
        };
        let context = UserContext {
            now_ns: self.now_ns,
            phase: 0,
            calendar: None,
            recorder,
            is_ending: self.is_ending,
        };
        (&mut *self.user, context)
    }
}
