//! The thread that answers: an epoll loop, and a heap of what is due when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::answer::{After, Answers};
use crate::clock::now_ns;
use crate::connection::{Connection, Read, Stage};
use crate::http2::Waiting;
use crate::inbox::Inbox;
use crate::latency::Sampler;
use crate::listener::{self, Listener};
use crate::record::{Shared, Times};
use crate::request::Request;
use crate::secure::Secure;
use crate::timing::Timing;
use crate::{ConnectionFault, Every, Fault, Listening, StubOptions};

/// Events taken at once, and connections accepted in one turn.
const EVENTS_MAX: usize = 256;
const ACCEPTED_MAX: usize = 64;
/// When accepting is tried again after it failed, for lack of descriptors, say.
const ACCEPT_AGAIN_NS: u64 = 10_000_000;
/// Events that are no connection's.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// Where a connection is kept. The generation distinguishes it from those before it.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// The place of the `number`th of things that are spread over `over_ns`: as even as it can be for
/// however many there will be, by multiples of the golden ratio (Knuth, volume 3, 6.4, theorem S).
fn spread(over_ns: u64, number: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15; // of 2^64
    let place = u128::from(number.wrapping_mul(GOLDEN));
    ((u128::from(over_ns) * place) >> 64) as u64
}

pub(crate) struct Responder {
    epoll: OwnedFd,
    listener: Listener,
    options: StubOptions,
    shared: Arc<Shared>,
    timing: Timing,
    answers: Answers,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// When answers are due: (nanoseconds, number of the request, slot, generation).
    due: BinaryHeap<Reverse<(u64, u64, u32, u32)>>,
    inbox: Inbox,
    requests: u64,
    connections: u64,
    accept_again_ns: Option<u64>,
}

impl Responder {
    /// Stands ready; `stop` becomes readable when it is to end.
    pub(crate) fn new(
        options: StubOptions,
        listener: Listener,
        shared: Arc<Shared>,
        stop: &OwnedFd,
        begin_ns: u64,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if options.listening == Listening::Answering {
            let data = EventData::new_u64(LISTENER);
            epoll::add(&epoll, &listener.socket, data, EventFlags::IN)?;
        }
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let sampler = Sampler::new(options.latency, options.draw, options.seed);
        Ok(Self {
            epoll,
            listener,
            shared,
            timing: Timing::new(begin_ns, options.stall, sampler, options.servers),
            answers: Answers::new(&options),
            options,
            slots: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            inbox: Inbox::new(),
            requests: 0,
            connections: 0,
            accept_again_ns: None,
        })
    }

    /// Answers until it is stopped.
    ///
    /// # Errors
    /// The kernel refuses to wait: only by a mistake of this program.
    pub(crate) fn run(mut self) -> io::Result<()> {
        // Timers end on time, not up to 50 us later. A kernel that cannot do that costs precision,
        // which the record shows.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            self.wait(&mut events)?;
            let at_ns = now_ns();
            for event in &events {
                let (bits, flags) = (event.data.u64(), event.flags);
                match bits {
                    STOP => return Ok(()),
                    LISTENER => self.accept(at_ns)?,
                    _ => self.event(bits as u32, (bits >> 32) as u32, flags, at_ns),
                }
                self.answer_due();
            }
            self.answer_due();
            if self.accept_again_ns.is_some_and(|ns| ns <= at_ns) {
                self.accept_again_ns = None;
                let data = EventData::new_u64(LISTENER);
                epoll::modify(&self.epoll, &self.listener.socket, data, EventFlags::IN)?;
            }
        }
    }

    /// Waits for events, but only until shortly before the next answer is due.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let due_ns = self.due.peek().map(|Reverse((due_ns, ..))| *due_ns);
        let wake_ns = due_ns.map(|ns| ns.saturating_sub(self.options.spin_ns));
        let wake_ns = match (wake_ns, self.accept_again_ns) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let timeout = wake_ns.map(|wake_ns| {
            let ns = wake_ns.saturating_sub(now_ns());
            Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            }
        });
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self, at_ns: u64) -> io::Result<()> {
        for _ in 0..ACCEPTED_MAX {
            match listener::accept(&self.listener.socket) {
                Ok(None) => break,
                Ok(Some(socket)) => self.accepted(socket),
                Err(_) => {
                    let data = EventData::new_u64(LISTENER);
                    let nothing = EventFlags::empty();
                    epoll::modify(&self.epoll, &self.listener.socket, data, nothing)?;
                    self.accept_again_ns = Some(at_ns + ACCEPT_AGAIN_NS);
                    break;
                }
            }
        }
        Ok(())
    }

    fn accepted(&mut self, socket: OwnedFd) {
        self.connections += 1;
        self.shared.count(|counts| counts.connections += 1);
        let secure = self.options.tls.as_ref().map(Secure::new).transpose();
        let Ok(secure) = secure else {
            return; // a mistake in the identity, which the client sees
        };
        let mut connection = Connection::new(socket, secure.map(Box::new));
        connection.delay_ns = spread(self.options.spread_ns, self.connections);
        if let Some((index, fault)) = Every::find(&self.options.connection_faults, self.connections)
        {
            self.shared
                .count(|counts| counts.connection_faults[index] += 1);
            let after = match fault {
                ConnectionFault::Close => After::Close,
                ConnectionFault::Reset => After::Reset,
            };
            if !connection.end(after) {
                return;
            }
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let data = EventData::new_u64(u64::from(slot.generation) << 32 | u64::from(index));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match epoll::add(&self.epoll, &connection.socket, data, flags) {
            Ok(()) => slot.connection = Some(connection),
            Err(_) => self.free.push(index), // closes it: the user has no watches left
        }
    }

    fn event(&mut self, index: u32, generation: u32, flags: EventFlags, at_ns: u64) {
        let slot = &mut self.slots[index as usize];
        if slot.generation != generation {
            return; // it was closed earlier in this turn
        }
        let Some(connection) = &mut slot.connection else {
            return;
        };
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            return self.drop_connection(index);
        }
        connection.is_half_closed |= flags.intersects(EventFlags::RDHUP);
        connection.is_readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        if flags.contains(EventFlags::OUT) && connection.write_frames().is_err() {
            return self.drop_connection(index);
        }
        match connection.stage {
            Stage::Serving => {}
            Stage::Reading | Stage::Draining => self.go_on(index, at_ns),
            Stage::Writing => {
                self.write(index);
                self.go_on(index, at_ns);
            }
        }
    }

    /// Takes requests, and answers those that are due at once. What is read now had arrived at
    /// `at_ns`, or before.
    fn go_on(&mut self, index: u32, at_ns: u64) {
        loop {
            let Some(connection) = &mut self.slots[index as usize].connection else {
                return;
            };
            match connection.stage {
                Stage::Serving | Stage::Writing => return,
                Stage::Draining => {
                    if !connection.drain(self.inbox.buffer()) {
                        self.drop_connection(index);
                    }
                    return;
                }
                Stage::Reading => match connection.read(&mut self.inbox, at_ns) {
                    Read::Nothing => return,
                    Read::Request(request, arrived_ns) => self.begin(index, request, arrived_ns),
                    Read::End => return self.drop_connection(index),
                    Read::Not => {
                        self.shared.count(|counts| counts.not_understood += 1);
                        return self.drop_connection(index);
                    }
                },
            }
        }
    }

    /// A request is complete.
    fn begin(&mut self, index: u32, request: Request, arrived_ns: u64) {
        self.requests += 1;
        self.shared.count(|counts| counts.requests += 1);
        let number = self.requests;
        let mut due_ns = self.timing.due_ns(arrived_ns);
        let found = Every::find(&self.options.faults, number);
        if let Some((rule, fault)) = found {
            self.shared.count(|counts| counts.faults[rule] += 1);
            if let Fault::Late { by_ns } = fault {
                due_ns = due_ns.saturating_add(by_ns);
            }
        }
        let fault = found.map(|(_, fault)| fault);
        let slot = &mut self.slots[index as usize];
        let Some(connection) = &mut slot.connection else {
            return;
        };
        due_ns = due_ns.saturating_add(std::mem::take(&mut connection.delay_ns));
        let times = Times {
            number,
            arrived_ns,
            due_ns,
            sent_ns: 0,
        };
        match &mut connection.http2 {
            Some(http2) => http2.waiting.push(Waiting {
                times,
                stream: request.stream,
                fault,
            }),
            None => {
                connection.stage = Stage::Serving;
                connection.times = times;
                connection.answer = Some(self.answers.answer(request, fault));
            }
        }
        if fault == Some(Fault::Never) {
            return;
        }
        if due_ns <= now_ns() {
            self.answer(index, number);
        } else {
            let entry = (due_ns, number, index, slot.generation);
            self.due.push(Reverse(entry));
        }
    }

    /// Gives every answer that is due to the kernel.
    fn answer_due(&mut self) {
        while let Some(Reverse((due_ns, number, index, generation))) = self.due.peek().copied() {
            let now_ns = now_ns();
            if due_ns > now_ns {
                return;
            }
            self.due.pop();
            let slot = &self.slots[index as usize];
            if slot.generation == generation && slot.connection.is_some() {
                self.answer(index, number);
                // What came meanwhile was seen when its event was, at the latest now.
                self.go_on(index, now_ns);
            }
        }
    }

    /// Gives an answer to the kernel; the frames of HTTP/2 to what waits for it, too.
    fn answer(&mut self, index: u32, number: u64) {
        let Some(connection) = &mut self.slots[index as usize].connection else {
            return;
        };
        let Some(http2) = &mut connection.http2 else {
            connection.stage = Stage::Writing;
            if connection.seal().is_err() {
                return self.drop_connection(index);
            }
            connection.times.sent_ns = now_ns();
            return self.write(index);
        };
        let Some(waiting) = http2.due(number) else {
            return; // the client has given it up
        };
        let (after, is_complete) = http2.answer(&waiting, &self.options);
        let is_sealed = connection.seal().is_ok();
        let sent_ns = now_ns();
        let is_gone = !is_sealed || connection.write_frames().is_err();
        if is_complete && !is_gone {
            self.shared.answered(Times {
                sent_ns,
                ..waiting.times
            });
        }
        if is_gone || !connection.end(after) {
            self.drop_connection(index);
        }
    }

    fn write(&mut self, index: u32) {
        let Some(connection) = &mut self.slots[index as usize].connection else {
            return;
        };
        match connection.write() {
            Ok(false) => return,
            Err(_) => return self.drop_connection(index),
            Ok(true) => {}
        }
        // An answer is with the kernel to its last byte.
        let Some(answer) = connection.answer.take() else {
            return;
        };
        if answer.is_complete {
            self.shared.answered(connection.times);
        }
        if !connection.end(answer.after) {
            self.drop_connection(index);
        }
    }

    fn drop_connection(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(connection) = slot.connection.take() {
            if matches!(connection.stage, Stage::Serving | Stage::Writing)
                && connection.answer.is_some()
            {
                self.shared.count(|counts| counts.missed += 1);
            }
            if let Some(http2) = connection.http2 {
                let waiting = http2.waiting.len() as u64;
                self.shared.count(|counts| counts.missed += waiting);
            }
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(index);
        }
    }
}
