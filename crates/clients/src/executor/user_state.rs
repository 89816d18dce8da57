//! One virtual user of the executor: what it does, and its connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use loadline_base::Buffer;
use loadline_load::judge::{broken, connect_fault};
use loadline_load::secure_link::{Broken, Handshake, SecureLink};
use loadline_proto::{Connector, LayerFailure};
use loadline_record::ErrorKind;
use loadline_sys::connect::{self, Unread};
use loadline_sys::socket;

use crate::{Order, VirtualUser};

/// A virtual user with what the executor knows of it.
pub(super) struct UserState {
    pub(super) virtual_user: Box<dyn VirtualUser>,
    pub(super) link: Option<Link>,
    pub(super) activity: Activity,
    /// When its activity ends at the latest; `u64::MAX`: never.
    pub(super) until_ns: u64,
    /// Its number in the whole user group.
    pub(super) number: u64,
    /// Index into the plan's user groups.
    pub(super) user_group: u16,
    /// The group that its results belong to.
    pub(super) group: u16,
    /// Before the start: its orders are carried out all the same.
    pub(super) is_preparing: bool,
    /// Whether it waits in the ready queue.
    pub(super) is_queued: bool,
    /// Requests of it that are counted as being out.
    pub(super) requests_out: u32,
}

/// Which order is being carried out.
#[derive(Debug)]
pub(super) enum Activity {
    /// None: it is to be asked for one.
    Nothing,
    /// Before the start: its first order, which waits for the start.
    Held(Order),
    /// Before the start: it waits for its turn to connect.
    Queued,
    Connecting,
    /// The connection is there, and the handshake of its layer is not over.
    Handshaking,
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
    /// What its bytes pass through; `None`: nothing.
    secure: Option<Box<Secure>>,
    /// Which connection of the thread: events of earlier ones miss.
    pub(super) generation: u32,
    /// When it was begun.
    pub(super) begun_ns: u64,
    /// Reading may bring something.
    pub(super) is_readable: bool,
    /// Something has happened on it since it was made: it has come to be, or not.
    pub(super) is_decided: bool,
    /// The peer will send no more after what is there.
    pub(super) is_half_closed: bool,
    /// The socket may take something.
    pub(super) is_writable: bool,
}

/// A layer, and what has come through it and was not taken yet.
#[derive(Debug)]
struct Secure {
    layer: SecureLink,
    plain: Buffer,
    taken: usize,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, generation: u32, begun_ns: u64) -> Self {
        Self {
            socket,
            secure: None,
            generation,
            begun_ns,
            is_readable: false,
            is_decided: false,
            is_half_closed: false,
            is_writable: false,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Begins the handshake of a layer.
    pub(super) fn secure(&mut self, connector: &dyn Connector, now_ns: u64) -> Result<(), Broken> {
        let layer = SecureLink::begin(connector, now_ns)?;
        self.secure = Some(Box::new(Secure {
            layer,
            plain: Buffer::default(),
            taken: 0,
        }));
        Ok(())
    }

    /// Goes on with the handshake; `None`: it waits for the server.
    pub(super) fn shake(
        &mut self,
        buffer: &mut [u8],
        now_ns: u64,
    ) -> Result<Option<Handshake>, ErrorKind> {
        loop {
            let Some(secure) = &mut self.secure else {
                return Err(ErrorKind::Handshake);
            };
            let flushed = secure.layer.flush(self.socket.as_fd());
            if let Some(handshake) = secure.layer.handshake(now_ns) {
                return Ok(Some(handshake));
            }
            if !self.is_readable {
                return flushed.map(|_| None).map_err(|error| connect_fault(&error));
            }
            match socket::receive(self.socket.as_fd(), buffer) {
                Ok(None) => self.is_readable = false,
                Ok(Some(0)) => return Err(ErrorKind::ClosedEarly),
                Ok(Some(count)) => secure.take_in(&mut buffer[..count], self.socket.as_fd())?,
                Err(error) => return Err(connect_fault(&error)),
            }
        }
    }

    /// Sends what the socket takes; `None`: nothing for now.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if !self.is_writable {
            return Ok(None);
        }
        let Some(secure) = &mut self.secure else {
            let sent = connect::send(self.socket.as_fd(), bytes);
            self.is_writable = !matches!(sent, Ok(None));
            return sent;
        };
        if secure.layer.is_flushed() {
            secure.layer.seal(bytes);
        }
        let count = secure.layer.flush(self.socket.as_fd())?;
        self.is_writable = secure.layer.is_flushed();
        Ok((count > 0).then_some(count))
    }

    /// Receives at most `most` bytes into the buffer; `None`: nothing is there, `Some(0)`: the end.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        most: usize,
    ) -> Result<Option<usize>, ErrorKind> {
        let Some(secure) = &mut self.secure else {
            let received = socket::receive(self.socket.as_fd(), &mut buffer[..most]);
            match received {
                Ok(None) => self.is_readable = false,
                // Less than there was room for: the rest will be an event.
                Ok(Some(count)) => self.is_readable = count == most || self.is_half_closed,
                Err(_) => {}
            }
            return received.map_err(|error| broken(&error));
        };
        match secure.fill(&mut buffer[..most], self.socket.as_fd())? {
            Unread::None => {
                self.is_readable = false;
                Ok(None)
            }
            Unread::End => Ok(Some(0)),
            Unread::Some => {
                let left = &secure.plain[secure.taken..];
                let count = left.len().min(most);
                buffer[..count].copy_from_slice(&left[..count]);
                secure.taken += count;
                Ok(Some(count))
            }
        }
    }

    /// Whether receiving would bring the end at once. For one that is half-closed: what its layer has
    /// sealed is read, since only there it shows whether bytes or the layer's own end come first.
    pub(super) fn is_over(&mut self, buffer: &mut [u8]) -> Result<bool, ErrorKind> {
        let socket = self.socket.as_fd();
        let unread = match &mut self.secure {
            None => connect::unread(socket).map_err(|error| broken(&error))?,
            Some(secure) => secure.fill(buffer, socket)?,
        };
        Ok(unread == Unread::End)
    }

    /// Says that nothing more will be sent.
    pub(super) fn part(&mut self) {
        if let Some(secure) = &mut self.secure {
            secure.layer.part(self.socket.as_fd());
        }
    }

    /// Whether an end of it, now, is one that anybody could have made: its layer has not said so.
    pub(super) fn is_cut(&self) -> bool {
        let secure = self.secure.as_ref();
        secure.is_some_and(|secure| !secure.layer.has_ended())
    }

    /// Why its layer has failed.
    pub(super) fn failure(&self) -> Option<&LayerFailure> {
        self.secure.as_ref()?.layer.failure()
    }
}

impl Secure {
    /// Reads from the socket until something has come through the layer, or its end.
    fn fill(&mut self, buffer: &mut [u8], socket: BorrowedFd<'_>) -> Result<Unread, ErrorKind> {
        loop {
            if self.taken < self.plain.len() {
                return Ok(Unread::Some);
            }
            if self.layer.has_ended() {
                return Ok(Unread::End);
            }
            match socket::receive(socket, buffer) {
                Ok(None) => return Ok(Unread::None),
                Ok(Some(0)) => return Ok(Unread::End),
                Ok(Some(count)) => self.take_in(&mut buffer[..count], socket)?,
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    /// Takes in what was received; all that came before it was taken.
    fn take_in(&mut self, bytes: &mut [u8], socket: BorrowedFd<'_>) -> Result<(), ErrorKind> {
        self.plain.clear();
        self.taken = 0;
        let received = self.layer.received(bytes, &mut self.plain);
        let _ = self.layer.flush(socket); // if it is broken, reading says so
        received.map_err(|Broken| self.layer.error_kind())
    }
}
