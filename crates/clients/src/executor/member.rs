//! One virtual user of the executor: what it is doing, and its connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use loadline_record::ErrorKind;
use loadline_sys::connect;

use crate::{Order, VirtualUser};

/// A virtual user with what the executor knows of it.
pub(super) struct Member {
    pub(super) user: Box<dyn VirtualUser>,
    pub(super) link: Option<Link>,
    pub(super) doing: Doing,
    /// When what it is doing ends at the latest; `u64::MAX`: never.
    pub(super) until_ns: u64,
    /// Its number in the whole user group.
    pub(super) number: u64,
    /// Index into the plan's user groups.
    pub(super) user_group: u16,
    /// The group that its results belong to.
    pub(super) group: u16,
    /// Before the start: its orders are carried out all the same.
    pub(super) is_preparing: bool,
    /// Whether it waits in the queue of those to be visited again.
    pub(super) is_queued: bool,
    /// Requests of it that are counted as being out.
    pub(super) requests_out: u32,
}

/// Which order is being carried out.
#[derive(Debug)]
pub(super) enum Doing {
    /// None: it is to be asked for one.
    Nothing,
    /// Before the start: its first order, which waits for the start.
    Held(Order),
    /// Before the start: it waits for its turn to connect.
    Queued,
    Connecting,
    /// Before the start: what became of its connection.
    Opened(Result<(), ErrorKind>),
    /// Before the start: it waits for its turn to prepare.
    Unprepared,
    /// It has prepared, and waits for the start.
    Prepared,
    Sending {
        bytes: Vec<u8>,
        sent: usize,
    },
    Receiving {
        bytes_max: usize,
    },
    Sleeping,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    /// Which connection of the thread: events of earlier ones miss.
    pub(super) generation: u32,
    /// Reading may bring something.
    pub(super) is_readable: bool,
    /// Something has happened on it since it was made: it has come to be, or not.
    pub(super) is_decided: bool,
    /// The peer will send no more after what is there.
    pub(super) is_half_closed: bool,
    /// The socket may take something.
    pub(super) is_writable: bool,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, generation: u32) -> Self {
        Self {
            socket,
            generation,
            is_readable: false,
            is_decided: false,
            is_half_closed: false,
            is_writable: false,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends what the socket takes; `None`: nothing for now.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if !self.is_writable {
            return Ok(None);
        }
        let sent = connect::send(self.socket.as_fd(), bytes);
        self.is_writable = !matches!(sent, Ok(None));
        sent
    }
}
