//! A blocking thread for each connection, up to a cap (P5).
//!
//! At the cap the oldest idle connection makes room; if none is idle, the newcomer gets a 503. Its
//! honest weakness: memory and scheduling for every connection, idle or not.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use loadline_base::slab::Slab;
use loadline_base::{LogLimit, Millis, Token};
use loadline_proto::Handler;
use loadline_sys::{Accepted, socket};

use crate::Listener;
use crate::admission::{Admission, Kind, Load, Verdict};
use crate::kit::Kit;
use crate::parts::acceptor::{Acceptor, AtLimit, Newcomer};
use crate::parts::blocking::{self, Tenure};
use crate::parts::counters::Role;
use crate::parts::crew::{Crew, Member, STACK_BYTES};
use crate::parts::log;
use crate::parts::shutdown::Stage;
use crate::site::{Site, Started};

/// Kits of ended threads that are kept for new ones: as many as come and go in a moment.
const SPARE_KITS_MAX: usize = 256;

pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listeners, AtLimit::Refuse, &site.descriptor_log_after)?;
    let mut kit = Kit::new(site, Role::Acceptor);
    let hall = Hall {
        site: Arc::clone(site),
        crew: Crew::new()?,
        shared: Arc::default(),
    };
    started.tell();
    loop {
        let seen = site.shutdown.stage();
        if site.shutdown.is_cut(kit.tick()) {
            break;
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        let row = Arc::clone(&kit.row);
        match acceptor.next(kit.now(), &row)? {
            Some(Newcomer::Serve(accepted)) => hall.admit(accepted, &mut kit),
            Some(Newcomer::Refuse(accepted)) => {
                // It holds the last descriptor: one that is let go makes room for the next.
                if hall.shared.evict() {
                    acceptor.resume();
                    hall.seat(accepted, Verdict::Admit, &mut kit);
                } else {
                    blocking::refuse_at_once(&accepted, site, &mut kit);
                }
            }
            None if acceptor.is_drained() => break,
            None => {
                kit.offer_log();
                acceptor.wait(kit.now(), site.shutdown.next_fd(seen))?;
            }
        }
    }
    drop(acceptor);
    drop(kit);
    hall.crew.wait_empty(site)
}

/// Where connections are seated.
struct Hall<H: Handler> {
    site: Arc<Site<H>>,
    crew: Arc<Crew>,
    shared: Arc<Shared<H>>,
}

/// What serving threads share with the accepting one.
struct Shared<H: Handler> {
    seats: Mutex<Seats>,
    spare_kits: Mutex<Vec<Kit<H>>>,
}

impl<H: Handler> Default for Shared<H> {
    fn default() -> Self {
        Self {
            seats: Mutex::default(),
            spare_kits: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct Seats {
    taken: Slab<Arc<Seat>>,
    /// Seats of evicted connections whose threads have not ended yet.
    leaving: usize,
    /// Seats of connections that are being refused.
    refusals: usize,
}

impl<H: Handler> Hall<H> {
    /// Decides on a new connection.
    fn admit(&self, accepted: Accepted, kit: &mut Kit<H>) {
        let mut load = {
            let seats = self.shared.lock();
            Load {
                connections: seats.taken.len() - seats.leaving - seats.refusals,
                refusals: seats.refusals,
                ..Load::default()
            }
        };
        let admission = Admission::of(&self.site.options);
        let mut verdict = admission.decide(Kind::Connection, &load);
        if verdict != Verdict::Admit {
            load.has_idle = self.shared.evict();
            verdict = admission.decide(Kind::Connection, &load);
        }
        match verdict {
            Verdict::Admit | Verdict::EvictIdle => self.seat(accepted, Verdict::Admit, kit),
            Verdict::Refuse => self.seat(accepted, Verdict::Refuse, kit),
            Verdict::Drop | Verdict::Queue => {
                blocking::refuse_at_once(&accepted, &self.site, kit);
            }
        }
    }

    /// Gives a connection a thread of its own.
    fn seat(&self, accepted: Accepted, verdict: Verdict, kit: &mut Kit<H>) {
        let Accepted { socket, peer } = accepted;
        let seat = Arc::new(Seat {
            socket,
            peer,
            idle_since: AtomicU64::new(BUSY),
        });
        let token = {
            let mut seats = self.shared.lock();
            seats.refusals += usize::from(verdict == Verdict::Refuse);
            seats.taken.insert(Arc::clone(&seat))
        };
        let site = Arc::clone(&self.site);
        let taken = Taken {
            shared: Arc::clone(&self.shared),
            token,
            verdict,
            seat: Arc::clone(&seat),
            _member: self.crew.enter(),
        };
        let spawned = thread::Builder::new()
            .name("connection".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let Taken { shared, seat, .. } = &taken;
                let mut kit = shared.take_kit(&site);
                let (socket, peer) = (seat.socket.as_fd(), seat.peer);
                kit.tick();
                let record = kit.journal_accepted(peer);
                blocking::serve(socket, peer, &site, &mut kit, &**seat, verdict, record);
                shared.give_kit(kit);
                drop(taken); // all of it, also its member of the crew
            });
        let Err(error) = spawned else { return };
        static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
        log::say_within(&LIMIT, |more| {
            tracing::warn!(
                "a connection was refused, since no thread can be started: {error}{more}"
            );
        });
        if let Some(seat) = Arc::into_inner(seat) {
            let (socket, peer) = (seat.socket, seat.peer);
            blocking::refuse_at_once(&Accepted { socket, peer }, &self.site, kit);
        }
    }
}

impl<H: Handler> Shared<H> {
    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the longest idle connection's seat away, if any is idle.
    ///
    /// A look at each seat, some ns: little beside the thread that is started for the newcomer.
    fn evict(&self) -> bool {
        let mut seats = self.lock();
        loop {
            let oldest = (0..seats.taken.slot_count())
                .filter_map(|index| seats.taken.get(seats.taken.token_at(index)?))
                .map(|seat| (seat.idle_since.load(Ordering::Relaxed), seat))
                .filter(|(since, _)| *since < BUSY)
                .min_by_key(|(since, _)| *since);
            let Some((since, seat)) = oldest else {
                return false;
            };
            // It may have got a request just now: then it stays, and another one is looked for.
            if seat.evict(since) {
                seats.leaving += 1;
                return true;
            }
        }
    }

    /// A thread is done with its seat.
    fn leave(&self, token: Token, verdict: Verdict) {
        let mut seats = self.lock();
        let Some(seat) = seats.taken.remove(token) else {
            return;
        };
        seats.refusals -= usize::from(verdict == Verdict::Refuse);
        seats.leaving -= usize::from(seat.idle_since.load(Ordering::Relaxed) == EVICTED);
    }

    fn take_kit(&self, site: &Site<H>) -> Kit<H> {
        let spare = {
            let mut kits = self
                .spare_kits
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            kits.pop()
        };
        spare.unwrap_or_else(|| Kit::with_scratch(site, Role::Thread, blocking::SCRATCH_BYTES))
    }

    fn give_kit(&self, kit: Kit<H>) {
        let mut kits = self
            .spare_kits
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if kits.len() < SPARE_KITS_MAX {
            kits.push(kit);
        }
    }
}

/// A seat and the thread on it; dropped, however the thread ends, the seat is free again.
struct Taken<H: Handler> {
    shared: Arc<Shared<H>>,
    token: Token,
    verdict: Verdict,
    /// The last of it closes the socket, before the crew counts one less.
    seat: Arc<Seat>,
    _member: Member,
}

impl<H: Handler> Drop for Taken<H> {
    fn drop(&mut self) {
        self.shared.leave(self.token, self.verdict);
    }
}

/// A connection and its tenure, which the accepting thread may end while it is idle.
struct Seat {
    socket: OwnedFd,
    peer: Option<SocketAddr>,
    /// Since when it has been idle, in ms; or one of the two below. Whoever changes it from idle,
    /// by one atomic step, decides: the thread goes on, or the connection ends.
    idle_since: AtomicU64,
}

/// Not idle.
const BUSY: u64 = u64::MAX - 1;
/// Taken away: nothing comes after it.
const EVICTED: u64 = u64::MAX;

impl Seat {
    fn evict(&self, since: u64) -> bool {
        let (order, state) = (Ordering::AcqRel, &self.idle_since);
        let won = state
            .compare_exchange(since, EVICTED, order, Ordering::Relaxed)
            .is_ok();
        if won {
            socket::cut(self.socket.as_fd()); // wakes its thread
        }
        won
    }
}

impl Tenure for Seat {
    fn rest(&self, now: Millis) {
        self.idle_since.store(now.0, Ordering::Release);
    }

    fn resume(&self) -> bool {
        let (order, state) = (Ordering::AcqRel, &self.idle_since);
        state.fetch_max(BUSY, order) != EVICTED
    }
}
