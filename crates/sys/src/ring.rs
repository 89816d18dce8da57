//! io_uring: sockets that the kernel reads and writes by itself, and says so when it has.
//!
//! A [`Ring`] adopts sockets and owns what the kernel may touch: received bytes lie in buffers that
//! are lent to it, output on its way lies in the slot of its socket, and a slot is used again only
//! after the last completion of its operations. So nothing that a connection does can make the
//! kernel write into memory, or to a descriptor, that has become another's.
//!
//! ```text
//!   adopt · receive · send · read_ahead · pause · close · accept · watch     queued, no more yet
//!                        │
//!                 wait: one system call submits all and waits
//!                        │
//!   next_completion: Accepted · Received · Ended · Sent · Progress · Writable · Signal …
//! ```
//!
//! A send is tried once, in the submission itself, and says nothing if it went out whole
//! (`MSG_DONTWAIT | MSG_WAITALL` with `CQE_SKIP_SUCCESS`): then `next_completion` reports it without a
//! completion, if its owner accepts a late report. What the socket did not take is sent by
//! a second operation that waits for room.
//!
//! So for such a send silence has to mean that the kernel has taken its entry and has not complained.
//! Each has the number of its entry in the order of all entries, which the kernel takes in that order:
//! it is reported once fewer entries than that are left, after a wait whose completions have all been
//! taken, and only while it is the one that its socket has out. Whatever the kernel refuses, a buffer
//! goes back to its owner no sooner than that.
//!
//! Sockets have plain descriptors, non-blocking as everywhere else (io_uring does not mind): direct
//! ones gained 1.5 % and cost peer addresses, sendfile and an inline shutdown.

mod ahead;
mod buffers;
mod completions;
mod features;
mod orders;
mod sockets;

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use loadline_base::{Token, Transmit};

use ahead::Sink;
use buffers::ReceiveBuffers;
pub use features::{Features, WITHOUT, available};
use sockets::{Operation, Socket, Sockets};
pub use sockets::{SOCKET_BYTES, SocketId};

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Operations that one submission takes.
    pub submissions: u32,
    /// Completions that are kept until they are taken; more are kept by the kernel, slower.
    pub completions: u32,
    /// Receive buffers, a power of two up to 32768. As many as are needed at one time become resident.
    pub buffers: u16,
    /// Bytes of each.
    pub buffer_bytes: u32,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self {
            submissions: 1024,
            completions: 8192,
            buffers: 512,
            buffer_bytes: 4 << 10,
        }
    }
}

/// When it is reported that a batch has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentReport {
    /// As soon as it is so.
    AtOnce,
    /// With whatever happens next, or some 50 ms later: where nothing depends on it.
    WithTheNext,
}

/// Something that happened.
#[derive(Debug)]
pub enum Completion<'r> {
    /// A connection came in at the listener with this number.
    Accepted {
        /// As given to `accept`.
        listener: u32,
        /// Non-blocking, closed on exec.
        socket: OwnedFd,
    },
    /// A connection is to be accepted at this listener; answers `await_acceptable`.
    AcceptReady {
        /// As given to `await_acceptable`.
        listener: u32,
    },
    /// Nothing can be accepted at this listener; it is not accepted from until asked again.
    AcceptFailed {
        /// As given to `accept`.
        listener: u32,
        /// Why: most likely a descriptor limit.
        error: io::Error,
    },
    /// Nothing is accepted at this listener any more, as was asked.
    AcceptStopped {
        /// As given to `accept`.
        listener: u32,
    },
    /// Bytes came.
    Received {
        /// Whose.
        token: Token,
        /// Lent until the next call.
        bytes: &'r mut [u8],
    },
    /// No more bytes will come: the peer's regular end, or the connection broke.
    Ended {
        /// Whose.
        token: Token,
        /// `None`: the regular end.
        error: Option<io::Error>,
    },
    /// Part of a batch has left, or the socket had no room for any of it.
    Progress {
        /// Whose.
        token: Token,
        /// How many bytes.
        bytes: u64,
    },
    /// All of a batch has left.
    Sent {
        /// Whose.
        token: Token,
        /// The batch back.
        transmit: Transmit,
    },
    /// A batch cannot be sent: the connection broke.
    SendFailed {
        /// Whose.
        token: Token,
        /// The batch back.
        transmit: Transmit,
        /// Why.
        error: io::Error,
    },
    /// There is room to write again; answers `await_room`.
    Writable {
        /// Whose.
        token: Token,
    },
    /// A range of a file is in memory; answers `read_ahead`.
    ReadAhead {
        /// Whose.
        token: Token,
        /// How many bytes of it; less than was asked for where reading failed or the file is shorter.
        bytes: u64,
    },
    /// The connection broke, or ended in both directions, while nothing was received from it.
    HungUp {
        /// Whose.
        token: Token,
    },
    /// A descriptor given to `watch` became readable.
    Signal {
        /// As given to `watch`.
        id: u32,
    },
}

/// What an operation was, in the user data of its completion; below it lies an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum OperationKind {
    Accept,
    Receive,
    QuietSend,
    Send,
    Room,
    ReadAhead,
    HangUp,
    Watch,
    Mark,
    /// Whose outcome does not matter: cancelling, closing.
    Chore,
}

const KIND_SHIFT: u32 = 32;

fn user_data(kind: OperationKind, index: u32) -> u64 {
    (kind as u64) << KIND_SHIFT | u64::from(index)
}

/// Bytes that one operation sends: a slow reader's progress shows in pieces of this size.
const SEND_BYTES_MAX: usize = 256 << 10;

/// A completion as it lay in the queue.
#[derive(Clone, Copy, Debug)]
struct Taken {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// A ring with its sockets.
pub struct Ring {
    // Dropped by hand, before the memory that the kernel may touch.
    uring: ManuallyDrop<IoUring>,
    features: Features,
    /// It belongs to a thread: the one that waited first.
    is_enabled: bool,
    buffers: ManuallyDrop<ReceiveBuffers>,
    sink: ManuallyDrop<Sink>,
    sockets: Sockets,
    /// Completions taken from the queue, and how many of them were reported.
    taken: Vec<Taken>,
    reported: usize,
    /// Entries that were ordered so far, wrapping; the kernel takes them in this order.
    ordered: u32,
    /// Sends that are to go without a word, by the number of their entries, and how many of the first
    /// have been submitted and are to be reported.
    quiet: VecDeque<(SocketId, u32)>,
    quiet_submitted: usize,
    /// The buffer that was lent with the last completion.
    lent: Option<u16>,
    put_back: bool,
    /// Sockets whose receive has ended and is to be armed again, once buffers are back.
    rearm: Vec<SocketId>,
    /// Buffers had run out: the kernel is to get more.
    wants_buffers: bool,
    /// The last wait may have left input for the next one.
    is_full: bool,
    /// Sockets of which the last wait brought bytes.
    inputs: usize,
    /// The mark has come back.
    has_mark: bool,
    /// Entries that found no room in the queue although what was there had been submitted.
    unqueued: VecDeque<Entry>,
    listeners: Vec<Watched>,
    watched: Vec<Watched>,
    /// Operations that accept or watch and whose last completion has not come.
    in_flight: u32,
    /// How many more entries are shown to the kernel; `None`: all.
    #[cfg(test)]
    entries_left: Option<u32>,
}

/// A descriptor that is accepted from or watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    fd: i32,
    wanted: bool,
    /// A listener that is only polled: it is reported when a connection can be accepted.
    polls: bool,
    operation: Operation,
}

impl Watched {
    const NONE: Self = Self {
        fd: -1,
        wanted: false,
        polls: false,
        operation: Operation::Idle,
    };
}

impl Ring {
    /// A ring without sockets. It is bound to the thread that first waits with it.
    ///
    /// # Errors
    /// The kernel or a sandbox refuses; says why in one line.
    pub fn new(options: &RingOptions) -> io::Result<Self> {
        let mut features = Features::wanted()?;
        let uring = set_up(options, &mut features)?;
        features::check_operations(&uring)?;
        features.no_iowait &= uring.params().is_feature_no_iowait();
        features.quiet_sends &= uring.params().is_feature_skip_cqe_on_success();
        features.multishot_accept &= features::kernel_is_from(6, 8);
        let sink = Sink::new()?;
        let buffers = ReceiveBuffers::register(&uring, options.buffers, options.buffer_bytes)
            .map_err(|error| features::refused(&error))?;
        Ok(Self {
            uring: ManuallyDrop::new(uring),
            features,
            is_enabled: false,
            buffers: ManuallyDrop::new(buffers),
            sink: ManuallyDrop::new(sink),
            sockets: Sockets::default(),
            taken: Vec::with_capacity(options.completions as usize),
            reported: 0,
            ordered: 0,
            quiet: VecDeque::new(),
            quiet_submitted: 0,
            lent: None,
            put_back: false,
            rearm: Vec::new(),
            wants_buffers: false,
            is_full: false,
            inputs: 0,
            has_mark: false,
            unqueued: VecDeque::new(),
            listeners: Vec::new(),
            watched: Vec::new(),
            in_flight: 0,
            #[cfg(test)]
            entries_left: None,
        })
    }

    /// What it uses.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }
}

/// Waiting.
impl Ring {
    /// Submits what is queued and waits until something happens, or `timeout_ns` has passed
    /// (`None`: for ever; 0: not at all). An interruption counts as a time that has passed. What an
    /// earlier wait brought is to be taken by `next_completion` before: there is no waiting beside it.
    ///
    /// # Errors
    /// Only for a mistake of ours.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.enable()?;
        self.prepare();
        if self.left() > 0 {
            // What was ordered leaves. Which quiet sends are done is seen once all completions are taken.
            return self.enter(Some(0));
        }
        self.enter(timeout_ns)?;
        self.take_completions();
        self.find_submitted();
        Ok(())
    }

    /// Finds the quiet sends that the kernel has taken. What it has not, without memory for it, is
    /// still to be read by it; and while it keeps completions back it may still complain of any.
    fn find_submitted(&mut self) {
        let queue = self.uring.submission();
        if queue.cq_overflow() {
            return;
        }
        let left = queue.len() + self.unqueued.len();
        let first_left = self.ordered.wrapping_sub(left as u32);
        let is_submitted = |(_, number): &(SocketId, u32)| {
            // Of two numbers this near to each other, the earlier one is the one less ahead.
            (number.wrapping_sub(first_left) as i32) < 0
        };
        self.quiet_submitted = self.quiet.partition_point(is_submitted);
    }

    fn enter(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        let timeout_ns = match (self.quiet.is_empty(), self.unqueued.is_empty()) {
            (true, true) => timeout_ns,
            (false, true) => Some(timeout_ns.map_or(QUIET_NS_MAX, |ns| ns.min(QUIET_NS_MAX))),
            (_, false) => Some(0),
        };
        let timeout = timeout_ns.map(|ns| {
            types::Timespec::new()
                .sec(ns / 1_000_000_000)
                .nsec((ns % 1_000_000_000) as u32)
        });
        let args = match &timeout {
            Some(timeout) => types::SubmitArgs::new().timespec(timeout),
            None => types::SubmitArgs::new(),
        };
        let mut flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        if self.features.no_iowait {
            flags |= ENTER_NO_IOWAIT;
        }
        let want = u32::from(timeout_ns != Some(0));
        let to_submit = self.entries_shown();
        // SAFETY: the argument is what EXT_ARG announces, and lives through the call. What the
        // entries point to: see `push`.
        let entered = unsafe {
            self.uring
                .submitter()
                .enter(to_submit, want, flags, Some(&args))
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // EBUSY: completions overflowed and have to be taken first. EAGAIN: memory is short.
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.is_enabled {
            self.uring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        Ok(())
    }

    /// Gives buffers back, and arms again what wanted one.
    fn prepare(&mut self) {
        if let Some(buffer) = self.lent.take() {
            self.give_back(buffer);
        }
        let put_back = std::mem::take(&mut self.put_back);
        if std::mem::take(&mut self.wants_buffers) {
            self.buffers.grow();
        } else if put_back {
            self.buffers.publish();
        }
        let mut rearm = std::mem::take(&mut self.rearm);
        for id in rearm.drain(..) {
            if self.sockets.open(id).is_some_and(|socket| socket.wanted) {
                self.receive(id);
            }
        }
        self.rearm = rearm;
        while let Some(entry) = self.unqueued.pop_front() {
            if !self.queue(&entry) {
                self.unqueued.push_front(entry);
                break;
            }
        }
    }

    /// Queues an operation for the next submission; says which of all entries it is.
    fn push(&mut self, entry: Entry) -> u32 {
        let number = self.ordered;
        self.ordered = number.wrapping_add(1);
        if self.unqueued.is_empty() {
            if self.queue(&entry) {
                return number;
            }
            // Full: what is there goes now. An error shows at the next wait.
            let _ = self.enable();
            let _ = self.submit();
            if self.queue(&entry) {
                return number;
            }
        }
        self.unqueued.push_back(entry); // at most some for each socket
        number
    }

    /// Submits what is queued, without waiting.
    fn submit(&self) -> io::Result<usize> {
        #[cfg(test)]
        if self.entries_left.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        self.uring.submitter().submit()
    }

    /// How many of the queued entries are shown to the kernel: all, but in tests of one that has no
    /// memory for more.
    fn entries_shown(&mut self) -> u32 {
        let queued = self.uring.submission().len() as u32;
        #[cfg(test)]
        if let Some(left) = &mut self.entries_left {
            let shown = queued.min(*left);
            *left -= shown;
            return shown;
        }
        queued
    }

    /// `false`: the queue is full.
    fn queue(&mut self, entry: &Entry) -> bool {
        // SAFETY: what the entry points to lives until its last completion: output in the slot of
        // its socket, which is not used again before, the sink, or a static; nothing else is
        // pointed to.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }
}

/// Longest wait beside a send that says nothing when it has gone, so that its line of the access log
/// is written and its connection counts as idle soon, also when nothing else happens.
const QUIET_NS_MAX: u64 = 50_000_000;

const ENTER_GETEVENTS: u32 = 1; // IORING_ENTER_GETEVENTS
const ENTER_EXT_ARG: u32 = 1 << 3; // IORING_ENTER_EXT_ARG
const ENTER_NO_IOWAIT: u32 = 1 << 7; // IORING_ENTER_NO_IOWAIT (6.15)

/// With as many of the features as the kernel takes: flags that it does not know are an error, so
/// the newer ones are left out one after the other.
fn set_up(options: &RingOptions, features: &mut Features) -> io::Result<IoUring> {
    loop {
        let mut builder = IoUring::builder();
        builder
            .setup_cqsize(options.completions)
            .setup_submit_all()
            .setup_r_disabled()
            .setup_clamp();
        if features.defer_taskrun {
            // The flag says that completions were left for the next wait.
            builder
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag();
        }
        if features.no_sqarray {
            builder.setup_no_sqarray();
        }
        match builder.build(options.submissions) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && features.no_sqarray => {
                features.no_sqarray = false;
            }
            Err(error) => return Err(features::refused(&error)),
            Ok(uring) => return Ok(uring),
        }
    }
}

/// How often in a row the end waits in vain for what is in flight before it gives the memory up for
/// lost: 10 ms each. A wait brings some twenty completions, of which there may be thousands.
const LAST_WAITS_MAX: u32 = 100;

impl Drop for Ring {
    /// Cancels everything and waits for it: the kernel may write to memory of an operation until its
    /// last completion.
    fn drop(&mut self) {
        for watched in self.listeners.iter_mut().chain(&mut self.watched) {
            watched.wanted = false;
        }
        while self.next_completion().is_some() {}
        for index in 0..self.sockets.slots_len() {
            if let Some((id, _)) = self.sockets.at(index) {
                self.close(id);
            }
        }
        let any = types::CancelBuilder::any().all();
        self.push_chore(opcode::AsyncCancel2::new(any).build());
        let mut waits_left = LAST_WAITS_MAX;
        let left = |ring: &Self| ring.in_flight as usize + ring.sockets.len();
        while left(self) > 0 && waits_left > 0 {
            let before = left(self);
            if self.wait(Some(10_000_000)).is_err() {
                break;
            }
            while self.next_completion().is_some() {}
            waits_left = match left(self) < before {
                true => LAST_WAITS_MAX,
                false => waits_left - 1,
            };
        }
        let is_quiet = left(self) == 0;
        // SAFETY: none of them is used again.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            if is_quiet {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sink);
            }
        }
        if !is_quiet {
            // The kernel may still write: better lost than another's.
            std::mem::forget(std::mem::take(&mut self.sockets));
        }
    }
}

#[cfg(test)]
mod tests;
