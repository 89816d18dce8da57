//! io_uring: sockets that the kernel reads and writes by itself, and says so when it has.
//!
//! A [`Ring`] adopts sockets and owns what the kernel may touch: received bytes lie in buffers that
//! are lent to it, output on its way lies in the slot of its socket, and a slot is used again only
//! after the last completion of its operations. So nothing that a connection does can make the
//! kernel write into memory, or to a descriptor, that has become another's.
//!
//! ```text
//!   adopt · receive · send · pause · close · accept · watch     queued, nothing happens yet
//!                        │
//!                 wait: one system call submits all and waits
//!                        │
//!   next: Accepted · Received · Ended · Sent · Progress · Writable · Signal      one by one
//! ```
//!
//! A send is tried once, in the submission itself, and says nothing if it went out whole
//! (`MSG_DONTWAIT | MSG_WAITALL` with `CQE_SKIP_SUCCESS`): then `next` reports it without a
//! completion, if its owner is content to hear of it later. What the socket did not take is sent by a second operation that waits for room.
//!
//! Sockets have plain descriptors, non-blocking as everywhere else (io_uring does not mind): direct
//! ones gained 1.5 % and cost peer addresses, sendfile and an inline shutdown.

mod buffers;
mod completions;
mod features;
mod sockets;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use loadline_base::{Token, Transmit};

use buffers::ReceiveBuffers;
pub use features::{Features, WITHOUT, available};
pub use sockets::SocketId;
use sockets::{Receiving, Sending, Socket, Sockets};

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Operations that one submission takes.
    pub submissions: u32,
    /// Completions that are kept until they are taken; more are kept by the kernel, slower.
    pub completions: u32,
    /// Receive buffers, a power of two up to 32768. All of them become resident in time.
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

/// When it is told that a batch has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// As soon as it is so.
    AtOnce,
    /// With whatever happens next: where nothing depends on it.
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
    /// Nothing can be accepted at this listener; it is not accepted from until asked again.
    AcceptFailed {
        /// As given to `accept`.
        listener: u32,
        /// Why: a descriptor limit, or cancelled.
        error: io::Error,
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
    /// Part of a batch has left.
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
    /// The peer has gone while nothing was received from it.
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
enum Kind {
    Accept,
    Receive,
    QuietSend,
    Send,
    Room,
    HangUp,
    Watch,
    /// Whose outcome does not matter: cancelling, closing.
    Chore,
}

const KIND_SHIFT: u32 = 32;

fn user_data(kind: Kind, index: u32) -> u64 {
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
    sockets: Sockets,
    /// Completions taken from the queue, and how many of them were told.
    taken: Vec<Taken>,
    told: usize,
    /// Sockets whose output is to go without a word, by the next submission and by the last.
    quiet: Vec<SocketId>,
    quiet_submitted: Vec<SocketId>,
    quiet_told: usize,
    /// The buffer that was lent with the last completion.
    lent: Option<u16>,
    put_back: bool,
    /// Sockets whose receive has ended and is to be armed again, once buffers are back.
    rearm: Vec<SocketId>,
    listeners: Vec<Watched>,
    watched: Vec<Watched>,
    /// Operations that accept or watch and whose last completion has not come.
    in_flight: u32,
}

/// A descriptor that is accepted from or watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    fd: i32,
    wanted: bool,
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
        let buffers = ReceiveBuffers::register(&uring, options.buffers, options.buffer_bytes)
            .map_err(|error| features::refused(&error))?;
        Ok(Self {
            uring: ManuallyDrop::new(uring),
            features,
            is_enabled: false,
            buffers: ManuallyDrop::new(buffers),
            sockets: Sockets::default(),
            taken: Vec::with_capacity(options.completions as usize),
            told: 0,
            quiet: Vec::new(),
            quiet_submitted: Vec::new(),
            quiet_told: 0,
            lent: None,
            put_back: false,
            rearm: Vec::new(),
            listeners: Vec::new(),
            watched: Vec::new(),
            in_flight: 0,
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
    /// (`None`: for ever; 0: not at all). An interruption counts as a time that has passed.
    ///
    /// # Errors
    /// Only for a mistake of ours.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.enable()?;
        self.prepare();
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
        let to_submit = self.uring.submission().len() as u32;
        // SAFETY: the argument is what EXT_ARG announces, and lives through the call. What the
        // entries point to: see `push`.
        let entered = unsafe {
            self.uring
                .submitter()
                .enter(to_submit, want, flags, Some(&args))
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // EBUSY: completions overflowed and have to be taken first. EAGAIN: memory is short.
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(error),
        }
        self.take_completions();
        Ok(())
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
        if std::mem::take(&mut self.put_back) {
            self.buffers.publish();
        }
        let mut rearm = std::mem::take(&mut self.rearm);
        for id in rearm.drain(..) {
            if self.sockets.open(id).is_some_and(|socket| socket.wanted) {
                self.receive(id);
            }
        }
        self.rearm = rearm;
        // All of the last submission were told; the next ones take their place.
        self.quiet_submitted.clear();
        std::mem::swap(&mut self.quiet, &mut self.quiet_submitted);
        self.quiet_told = 0;
    }
}

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
            builder.setup_single_issuer().setup_defer_taskrun();
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

/// Orders: queued, and submitted by the next `wait`.
impl Ring {
    /// Takes a socket over; completions tell it as `owner`. Nothing is received before `receive`.
    pub fn adopt(&mut self, socket: OwnedFd, owner: Token) -> SocketId {
        self.sockets.insert(socket, owner)
    }

    /// The descriptor, for socket options and calls of the loop's own; `None` once let go of.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> Option<BorrowedFd<'_>> {
        let socket = self.sockets.get(id)?;
        (!socket.closing)
            .then_some(socket.fd.as_ref())
            .flatten()
            .map(AsFd::as_fd)
    }

    /// Sockets that are adopted, those included whose last completions have not come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Things that the last `wait` brought and that were not told yet, at most.
    #[must_use]
    pub fn left(&self) -> usize {
        self.taken.len() - self.told + (self.quiet_submitted.len() - self.quiet_told)
    }

    /// Whether there are no sockets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes are welcome from now on. Costs nothing while a receive is armed.
    #[inline]
    pub fn receive(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.wanted = true;
        if socket.receiving == Receiving::Idle && !socket.ended {
            self.arm_receive(id);
        }
    }

    fn arm_receive(&mut self, id: SocketId) {
        let multishot = self.features.multishot_receive;
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        let Some(fd) = socket.raw() else { return };
        socket.receiving = Receiving::Armed;
        socket.in_flight += 1;
        let entry = if multishot {
            opcode::RecvMulti::new(types::Fd(fd), buffers::GROUP).build()
        } else {
            opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), 0)
                .buf_group(buffers::GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT)
        };
        self.push(entry.user_data(user_data(Kind::Receive, id.0.index)));
    }

    /// No bytes are welcome until `receive`; those that the kernel has taken already come still.
    /// That the peer has gone is told all the same.
    pub fn pause(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.wanted = false;
        let Some(fd) = socket.raw() else { return };
        let stop = socket.receiving == Receiving::Armed;
        let watch = !socket.watching_hang_up && !socket.ended;
        if stop {
            socket.receiving = Receiving::Stopping;
        }
        if watch {
            socket.watching_hang_up = true;
            socket.in_flight += 1;
        }
        if stop {
            self.cancel(user_data(Kind::Receive, id.0.index));
        }
        if watch {
            let flags = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as u32;
            let poll = opcode::PollAdd::new(types::Fd(fd), flags).build();
            self.push(poll.user_data(user_data(Kind::HangUp, id.0.index)));
        }
    }

    /// Sends a batch that is all in memory; answered by `Sent` or `SendFailed`, with `Progress`
    /// before where it takes long. One at a time.
    ///
    /// With `Told::WithTheNext`, that all has left is told when the next thing happens, whenever that
    /// is: it costs no completion. With `Told::AtOnce` it ends a wait.
    ///
    /// # Panics
    /// If one is out already.
    #[inline]
    pub fn send(&mut self, id: SocketId, transmit: Transmit, told: Told) {
        // What takes more than one operation goes on when the first one is heard of.
        let quiet = self.features.quiet_sends
            && told == Told::WithTheNext
            && transmit.is_last_piece()
            && transmit.remaining() <= SEND_BYTES_MAX as u64;
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        assert!(
            matches!(socket.sending, Sending::Idle),
            "one batch at a time"
        );
        if quiet {
            socket.sending = Sending::Quiet(transmit);
            self.push_send(id, Kind::QuietSend);
            self.quiet.push(id);
        } else {
            socket.sending = Sending::Waiting(transmit);
            self.push_send(id, Kind::Send);
        }
    }

    fn push_send(&mut self, id: SocketId, kind: Kind) {
        let Some((_, socket)) = self.sockets.at(id.0.index) else {
            return;
        };
        let Some(fd) = socket.raw() else { return };
        let (Sending::Quiet(transmit) | Sending::Waiting(transmit)) = &socket.sending else {
            return;
        };
        let Some(loadline_base::Chunk::Memory(memory)) = transmit.front() else {
            unreachable!("files are sent by `write`");
        };
        let len = memory.len().min(SEND_BYTES_MAX) as u32;
        let address = memory.as_ptr();
        socket.in_flight += 1;
        let (flags, squeue_flags) = match kind {
            Kind::QuietSend => (
                libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT,
                Flags::SKIP_SUCCESS,
            ),
            _ => (libc::MSG_NOSIGNAL, Flags::empty()),
        };
        let entry = opcode::Send::new(types::Fd(fd), address, len)
            .flags(flags)
            .build()
            .flags(squeue_flags)
            .user_data(user_data(kind, id.0.index));
        self.push(entry);
    }

    /// Tells when there is room to write, once: for what the loop writes by itself.
    pub fn await_room(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        let Some(fd) = socket.raw() else { return };
        socket.in_flight += 1;
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32).build();
        self.push(poll.user_data(user_data(Kind::Room, id.0.index)));
    }

    /// Lets go of a socket: nothing is told of it any more. What is in flight is cancelled, the
    /// descriptor is closed, and the slot is used again after the last completion.
    pub fn close(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.open(id) else {
            return;
        };
        socket.closing = true;
        let in_flight = socket.in_flight > 0;
        let fd = socket.raw();
        if let (true, Some(fd)) = (in_flight, fd) {
            let all = types::CancelBuilder::fd(types::Fd(fd)).all();
            let entry = opcode::AsyncCancel2::new(all).build();
            self.push_chore(entry);
        }
        // The operations hold the file until they end; its number may go to another at once.
        if let Some((_, socket)) = self.sockets.at(id.0.index)
            && let Some(fd) = socket.fd.take()
        {
            let fd = fd.into_raw_fd();
            self.push_chore(opcode::Close::new(types::Fd(fd)).build());
        }
        self.sockets.release(id.0.index);
    }

    /// Accepts connections at `listener` from now on, told under its number.
    pub fn accept(&mut self, listener: u32, fd: BorrowedFd<'_>) {
        let index = listener as usize;
        if self.listeners.len() <= index {
            self.listeners.resize(
                index + 1,
                Watched {
                    fd: -1,
                    wanted: false,
                },
            );
        }
        let armed = self.listeners[index].wanted;
        self.listeners[index] = Watched {
            fd: fd.as_raw_fd(),
            wanted: true,
        };
        if !armed {
            self.arm_accept(listener);
        }
    }

    fn arm_accept(&mut self, listener: u32) {
        let fd = types::Fd(self.listeners[listener as usize].fd);
        let entry = if self.features.multishot_accept {
            let accept = opcode::AcceptMulti::new(fd);
            accept
                .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
                .build()
        } else {
            let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let accept = opcode::Accept::new(fd, address, length);
            accept
                .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
                .build()
        };
        self.in_flight += 1;
        self.push(entry.user_data(user_data(Kind::Accept, listener)));
    }

    /// Accepts no more at `listener`; those who came in already are told still, and `AcceptFailed`
    /// (cancelled) at the end.
    pub fn stop_accepting(&mut self, listener: u32) {
        if let Some(watched) = self.listeners.get_mut(listener as usize)
            && watched.wanted
        {
            watched.wanted = false;
            self.cancel(user_data(Kind::Accept, listener));
        }
    }

    /// Tells `Signal` each time that `fd` (an eventfd) becomes readable, from now on.
    pub fn watch(&mut self, id: u32, fd: BorrowedFd<'_>) {
        let index = id as usize;
        if self.watched.len() <= index {
            self.watched.resize(
                index + 1,
                Watched {
                    fd: -1,
                    wanted: false,
                },
            );
        }
        self.watched[index] = Watched {
            fd: fd.as_raw_fd(),
            wanted: true,
        };
        self.arm_watch(id);
    }

    fn arm_watch(&mut self, id: u32) {
        let fd = types::Fd(self.watched[id as usize].fd);
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true);
        self.in_flight += 1;
        self.push(poll.build().user_data(user_data(Kind::Watch, id)));
    }

    fn cancel(&mut self, target: u64) {
        let entry = opcode::AsyncCancel2::new(types::CancelBuilder::user_data(target)).build();
        self.push_chore(entry);
    }

    /// An operation whose outcome says nothing that is not known.
    fn push_chore(&mut self, entry: Entry) {
        let quiet = match self.features.quiet_sends {
            true => Flags::SKIP_SUCCESS,
            false => Flags::empty(),
        };
        self.push(entry.flags(quiet).user_data(user_data(Kind::Chore, 0)));
    }

    fn push(&mut self, entry: Entry) {
        // SAFETY: what the entry points to lives until its last completion: output in the slot of
        // its socket, which is not used again before; nothing else is pointed to.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            // Full: what is there goes now. An error shows at the next wait.
            let _ = self.enable();
            let _ = self.uring.submitter().submit();
        }
    }
}

/// How often the end waits for what is in flight before it gives the memory up for lost.
const LAST_WAITS_MAX: u32 = 100;

impl Drop for Ring {
    /// Cancels everything and waits for it: the kernel may write to memory of an operation until its
    /// last completion.
    fn drop(&mut self) {
        for watched in self.listeners.iter_mut().chain(&mut self.watched) {
            watched.wanted = false;
        }
        while self.next().is_some() {}
        for index in 0..self.sockets.slots_len() {
            if let Some((id, _)) = self.sockets.at(index) {
                self.close(id);
            }
        }
        let any = types::CancelBuilder::any().all();
        self.push_chore(opcode::AsyncCancel2::new(any).build());
        for _ in 0..LAST_WAITS_MAX {
            if self.in_flight == 0 && self.sockets.len() == 0 {
                break;
            }
            if self.wait(Some(10_000_000)).is_err() {
                break;
            }
            while self.next().is_some() {}
        }
        let is_quiet = self.in_flight == 0 && self.sockets.len() == 0;
        // SAFETY: neither is used again.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            if is_quiet {
                ManuallyDrop::drop(&mut self.buffers);
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
