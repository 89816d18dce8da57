//! One connection: its socket, what came of a request, how far its answer is.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown, sockopt};

use crate::answer::{After, Answer};
use crate::http2::{Http2, PREFACE};
use crate::inbox::Inbox;
use crate::record::Times;
use crate::request::{self, Parsed, Request};
use crate::secure::Secure;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A request is awaited.
    Reading,
    /// A request waits for its answer to be due.
    Serving,
    /// An answer is on its way.
    Writing,
    /// Output has ended; input is thrown away until it ends, too.
    Draining,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) stage: Stage,
    /// By how much the next answer is late, whatever it is, in nanoseconds.
    pub(crate) delay_ns: u64,
    /// Whether there may be something to read.
    pub(crate) is_readable: bool,
    /// Whether the client will send no more: then reading goes on until that is seen.
    pub(crate) is_half_closed: bool,
    /// Number and times of the request at hand.
    pub(crate) times: Times,
    /// What is sent when it is due.
    pub(crate) answer: Option<Answer>,
    written: usize,
    /// Received and not understood yet.
    input: Vec<u8>,
    /// When the last of it arrived.
    input_ns: u64,
    /// `None`: plain HTTP.
    secure: Option<Box<Secure>>,
    /// `None`: HTTP/1, or nothing has come yet.
    pub(crate) http2: Option<Box<Http2>>,
    /// A head whose content has not come yet, with what is to come.
    head: Option<Request>,
    content_left: u64,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A request, and when its last byte had arrived.
    Request(Request, u64),
    /// Nothing more for now.
    Nothing,
    /// The client has ended, or the connection is gone.
    End,
    /// What came is not understood.
    Not,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, secure: Option<Box<Secure>>) -> Self {
        Self {
            socket,
            stage: Stage::Reading,
            delay_ns: 0,
            is_readable: false,
            is_half_closed: false,
            times: Times::default(),
            answer: None,
            written: 0,
            input: Vec::new(),
            input_ns: 0,
            secure,
            http2: None,
            head: None,
            content_left: 0,
        }
    }

    /// Reads until there is a request, or nothing more. What is read now had arrived at `at_ns`, or
    /// before.
    pub(crate) fn read(&mut self, inbox: &mut Inbox, at_ns: u64) -> Read {
        loop {
            if let Some(found) = self.take_request() {
                return found;
            }
            if !self.is_readable {
                return Read::Nothing;
            }
            match inbox.receive(&self.socket, at_ns) {
                Ok((&[], _)) => return Read::End,
                Ok((bytes, arrived_ns)) => {
                    self.input_ns = arrived_ns;
                    let understood = match &mut self.secure {
                        None => {
                            self.input.extend_from_slice(bytes);
                            Ok(())
                        }
                        Some(secure) => secure.received(bytes, &mut self.input),
                    };
                    if understood.is_err() {
                        return Read::Not;
                    }
                    // A short read means that the socket is empty: the next byte is a new event.
                    let count = bytes.len();
                    self.is_readable = inbox.is_filled_by(count) || self.is_half_closed;
                    if self.flush().is_err() {
                        return Read::End;
                    }
                }
                Err(nix::Error::EAGAIN) => self.is_readable = false,
                Err(nix::Error::EINTR) => {}
                Err(_) => return Read::End,
            }
        }
    }

    fn take_request(&mut self) -> Option<Read> {
        if self.http2.is_none() && self.head.is_none() && !self.input.is_empty() {
            let begun = self.input.len().min(PREFACE.len());
            let is_http2 = self.input[..begun] == PREFACE[..begun];
            if is_http2 && begun < PREFACE.len() {
                return None;
            }
            if is_http2 {
                self.input.drain(..begun);
                self.http2 = Some(Box::new(Http2::new()));
            }
        }
        if self.http2.is_some() {
            return self.take_stream();
        }
        if self.head.is_none() && !self.input.is_empty() {
            match request::parse(&self.input) {
                Parsed::More => return None,
                Parsed::Not => return Some(Read::Not),
                Parsed::Request(head) => {
                    self.input.drain(..head.head_bytes);
                    self.content_left = head.content_bytes;
                    self.head = Some(head);
                }
            }
        }
        let content = usize::try_from(self.content_left).unwrap_or(usize::MAX);
        let taken = content.min(self.input.len());
        self.input.drain(..taken);
        self.content_left -= taken as u64;
        match self.content_left {
            0 => (self.head.take()).map(|head| Read::Request(head, self.input_ns)),
            _ => None,
        }
    }

    fn take_stream(&mut self) -> Option<Read> {
        let http2 = self.http2.as_mut()?;
        let taken = http2.take(&mut self.input);
        let has_answers = !http2.out.is_empty();
        if has_answers && self.write_frames().is_err() {
            return Some(Read::End);
        }
        match taken {
            Parsed::More => None,
            Parsed::Not => Some(Read::Not),
            Parsed::Request(request) => Some(Read::Request(request, self.input_ns)),
        }
    }

    /// Encrypts what is to be sent next, frames or an answer, where there is TLS.
    ///
    /// # Errors
    /// TLS refuses it.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        let Some(secure) = &mut self.secure else {
            return Ok(());
        };
        if let Some(http2) = &mut self.http2 {
            secure.send(&http2.out)?;
            http2.out.clear();
        } else if let (Some(answer), 0) = (&self.answer, self.written) {
            secure.send(&answer.bytes)?;
            self.written = answer.bytes.len();
        }
        Ok(())
    }

    /// Sends what the socket takes of frames.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn write_frames(&mut self) -> io::Result<()> {
        if self.http2.is_some() && self.secure.is_some() {
            self.seal()?;
            return self.flush().map(|_| ());
        }
        let Some(http2) = &mut self.http2 else {
            return Ok(());
        };
        let sent = send(&self.socket, &http2.out)?;
        http2.out.drain(..sent);
        Ok(())
    }

    /// Sends what the socket takes of the answer; true: all of it is sent.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn write(&mut self) -> io::Result<bool> {
        self.seal()?;
        let Some(answer) = &self.answer else {
            return Ok(true);
        };
        let is_sent = if self.secure.is_some() {
            self.flush()?
        } else {
            self.written += send(&self.socket, &answer.bytes[self.written..])?;
            self.written == answer.bytes.len()
        };
        self.written *= usize::from(!is_sent);
        Ok(is_sent)
    }

    /// Sends what TLS itself has to say, as far as the socket takes it; true: all of it.
    fn flush(&mut self) -> io::Result<bool> {
        let Some(secure) = &mut self.secure else {
            return Ok(true);
        };
        let sent = send(&self.socket, secure.waiting())?;
        secure.sent(sent);
        Ok(secure.waiting().is_empty())
    }

    /// What follows a whole answer; false: the connection is to be dropped.
    pub(crate) fn end(&mut self, after: After) -> bool {
        match after {
            After::Keep => self.stage = Stage::Reading,
            After::Close => {
                self.stage = Stage::Draining;
                if let Some(secure) = &mut self.secure {
                    let _ = secure.end(); // the end of the connection says it, too
                    let _ = self.flush();
                }
                return net::shutdown(&self.socket, Shutdown::Write).is_ok();
            }
            After::Reset => {
                // Closing without lingering is a reset.
                let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
                return false;
            }
        }
        true
    }

    /// Throws away what there is; false: the client has ended, too.
    pub(crate) fn drain(&mut self, buffer: &mut [u8]) -> bool {
        while self.is_readable {
            match net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.is_readable = false,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Sends what the socket takes of `bytes`; how many that were.
fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}
