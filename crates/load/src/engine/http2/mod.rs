//! Connections of HTTP/2: several clients share one, each with a stream of its own.
//!
//! What it is not: when a client sends and what its response comes to is decided where it is for
//! HTTP/1; the protocol is `loadline_proto::Http2Client`. The clients of connection `n` are the numbers
//! from `n * streams` on; in what waits for events and for time a connection stands behind all clients.
//!
//! ```text
//!   client ── take up ──► session ──► output ── flush, once for many ──► socket
//!   client ◄── completed, failed ◄── feed ◄── receive ◄── socket
//! ```
//!
//! - A request that is sent while the server takes no more of them, or while its connection is in the
//!   making, waits for that: its latency counts from when it was due all the same.
//! - In an open loop a request that is due takes any place of the connection that was used longest ago
//!   (`places`): all connections are used alike. There are no more of them than requests that a connection
//!   may carry.
//! - Where the server takes fewer streams than there are clients for a connection, the others do nothing. If
//!   it takes more later, an open loop uses them; in a closed one, those that have not begun never do.
//! - A connection that the server is about to close (GOAWAY), that has carried as many requests as it
//!   may, or over which nothing has come for as long as a request may take, gets no further request. It
//!   is opened anew after the last response. Requests that the server has not processed then, as its
//!   GOAWAY says, are sent again.
//! - A request that times out is reset; the connection goes on.
//! - Where the server does not send its settings, requests that were sent time out, and the connection fails
//!   after the last of them, with those that wait for it.
//! - *sent* is just before the kernel was given the request's first byte, perhaps together with others.

mod exchange;
mod opening;
mod places;
mod transfer;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use loadline_base::{Buffer, Token};
use loadline_proto::{Http2Client, http2_client};

use super::exchange::Fate;
use crate::http2::Http2Plan;
use crate::secure_link::SecureLink;
use crate::{Loop, Plan, Share};

use places::Places;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinkStage {
    /// There is none.
    #[default]
    Closed,
    /// It is being opened.
    Connecting,
    /// It is there, and the handshake of its layer is not over.
    Handshaking,
    /// The server has not sent its settings yet. Requests may be sent.
    Greeting,
    /// Open.
    Open,
}

impl LinkStage {
    /// Whether requests may be sent.
    fn carries(self) -> bool {
        matches!(self, Self::Greeting | Self::Open)
    }
}

/// A connection that clients share.
#[derive(Debug)]
struct Http2Link {
    session: Http2Client,
    layer: Option<Box<SecureLink>>,
    socket: Option<OwnedFd>,
    stage: LinkStage,
    /// Which connection of this place: an event for an earlier one misses.
    generation: u32,
    /// Index into `Plan::servers`.
    server: u16,
    /// Until when it has to be usable.
    deadline_ns: u64,
    begun_ns: u64,
    /// When something last came over it.
    received_ns: u64,
    /// Requests that it may still carry.
    requests_left: u32,
    /// What becomes of it once nothing is out.
    fate: Fate,
    /// Clients whose request waits for room or for the connection, some of them perhaps no more. Each is
    /// in it once, so there are no more than clients.
    waiting: VecDeque<u32>,
    /// Clients whose request is in the output, and where it begins there.
    unsent: VecDeque<(u32, u64)>,
    /// Of an open loop.
    places: Places,
    is_opening: bool,
    is_queued: bool,
    is_timed: bool,
    /// Whether the socket takes no more.
    is_blocked: bool,
    /// Whether it stands among those to be flushed.
    is_dirty: bool,
    /// Whether it has brought a response.
    is_used: bool,
}

impl Http2Link {
    fn new(server: u16, streams: u32) -> Self {
        Self {
            session: Http2Client::new(0, 0),
            layer: None,
            socket: None,
            stage: LinkStage::Closed,
            generation: 0,
            server,
            deadline_ns: 0,
            begun_ns: 0,
            received_ns: 0,
            requests_left: 0,
            fate: Fate::Kept,
            waiting: VecDeque::with_capacity(streams as usize),
            unsent: VecDeque::with_capacity(streams as usize),
            places: Places::new(streams),
            is_opening: false,
            is_queued: false,
            is_timed: false,
            is_blocked: false,
            is_dirty: false,
            is_used: false,
        }
    }

    /// Whether a request can be sent now, as the next one.
    #[inline]
    fn may_send(&self) -> bool {
        self.stage.carries() && self.fate == Fate::Kept && self.session.has_room()
    }

    /// Whether its clients go on with it.
    #[inline]
    fn is_kept(&self) -> bool {
        self.stage == LinkStage::Open && self.fate == Fate::Kept
    }

    /// Parts with the connection; its events miss from now on.
    fn close(&mut self) {
        self.socket = None;
        self.layer = None;
        self.generation = self.generation.wrapping_add(1);
        self.stage = LinkStage::Closed;
        self.fate = Fate::Kept;
        self.unsent.clear();
        self.is_blocked = false;
    }
}

/// What is known of a server.
#[derive(Clone, Copy, Debug)]
struct ServerSaid {
    /// Streams that it takes, as of its last connection.
    streams_max: u32,
    /// Whether it speaks HTTP/2.
    is_proven: bool,
}

/// The connections of a thread that speak HTTP/2.
#[derive(Debug)]
pub(super) struct Http2Links<'p> {
    plan: Option<&'p Http2Plan>,
    links: Vec<Http2Link>,
    /// Clients of each.
    streams: u32,
    /// Clients of all: the first ones of the thread.
    clients: u32,
    servers: Vec<ServerSaid>,
    /// Those whose output has not been given to the socket.
    dirty: Vec<u32>,
    /// What was received through a layer.
    plain: Buffer,
    /// Responses since the last wait.
    answered: usize,
}

impl<'p> Http2Links<'p> {
    /// Those of a share; none without a plan for them.
    pub(super) fn new(plan: &'p Plan, share: Share, server: impl Fn(usize) -> u16) -> Self {
        let count = match plan.http2.is_some() {
            true => share.count(u64::from(plan.connections)) as usize,
            false => 0,
        };
        let streams = plan.http2.as_ref().map_or(1, |it| it.streams);
        let carried = plan.requests_per_connection.map_or(u32::MAX, |n| n.max(1));
        let streams = match plan.load {
            Loop::Closed { .. } => streams,
            // More would wait for the connection to be opened again, while others are free.
            Loop::Open { .. } | Loop::Timed { .. } => streams.min(carried),
        };
        let said = ServerSaid {
            streams_max: http2_client::STREAMS_ASSUMED,
            is_proven: false,
        };
        Self {
            plan: plan.http2.as_ref(),
            links: (0..count)
                .map(|number| Http2Link::new(server(number), streams))
                .collect(),
            streams,
            clients: count as u32 * streams,
            servers: vec![said; plan.servers.len()],
            dirty: Vec::with_capacity(count),
            plain: Buffer::default(),
            answered: 0,
        }
    }

    /// The servers of their clients, in the order of the clients.
    pub(super) fn servers_of_clients(&self) -> impl Iterator<Item = u16> {
        let streams = self.streams as usize;
        self.links
            .iter()
            .flat_map(move |link| std::iter::repeat_n(link.server, streams))
    }

    /// Whether this client shares one of them.
    #[inline]
    pub(super) fn has(&self, index: u32) -> bool {
        index < self.clients
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.links.len() as u32
    }

    /// Those that are open.
    pub(super) fn open_count(&self) -> u64 {
        let is_open = |link: &&Http2Link| link.stage == LinkStage::Open;
        self.links.iter().filter(is_open).count() as u64
    }

    /// Requests that can be out at one time, as far as the servers have said.
    pub(super) fn in_flight_max(&self) -> u64 {
        let streams = self.links.iter().map(|link| {
            let said = self.servers[usize::from(link.server)];
            u64::from(match said.is_proven {
                true => said.streams_max.min(self.streams),
                false => self.streams,
            })
        });
        streams.sum()
    }

    /// Responses since the last time.
    #[inline]
    pub(super) fn take_answered(&mut self) -> usize {
        std::mem::take(&mut self.answered)
    }

    /// Whether a client has nothing to do: the server takes fewer streams than the connection has
    /// clients.
    pub(super) fn is_beyond_room(&self, index: u32) -> bool {
        let (number, slot) = self.place(index);
        let link = &self.links[number as usize];
        link.stage == LinkStage::Open && slot >= link.session.streams_max()
    }

    /// Whether the connection of a client is in the making: no request can be sent over it yet.
    pub(super) fn is_connecting(&self, index: u32) -> bool {
        let (number, _) = self.place(index);
        let stage = self.links[number as usize].stage;
        matches!(stage, LinkStage::Connecting | LinkStage::Handshaking)
    }

    /// The connection of a client, and its slot there.
    #[inline]
    fn place(&self, index: u32) -> (u32, u32) {
        (index / self.streams, index % self.streams)
    }

    /// The clients of a connection.
    fn clients_of(&self, number: u32) -> std::ops::Range<u32> {
        let first = number * self.streams;
        first..first + self.streams
    }

    #[inline]
    fn link(&mut self, number: u32) -> &mut Http2Link {
        &mut self.links[number as usize]
    }

    /// Has its output given to the socket, before the thread waits.
    #[inline]
    fn touch(&mut self, number: u32) {
        if !std::mem::replace(&mut self.link(number).is_dirty, true) {
            self.dirty.push(number);
        }
    }
}

/// The name of a connection in events; connections stand behind `clients`.
fn token(link: &Http2Link, number: u32, clients: usize) -> Token {
    Token {
        index: clients as u32 + number,
        generation: link.generation,
    }
}
