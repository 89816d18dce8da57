//! A protocol as a state machine: events in, orders out.

use core::fmt::Debug;
use core::net::IpAddr;
use std::sync::Arc;

use loadline_base::{Millis, Transmit};

use crate::{
    Action, ClientKey, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fill,
    Outcome, Piece, Security, StreamId,
};

/// Gives the events and questions of a session to a macro: each is written down once, here.
macro_rules! session {
    ($apply:ident) => {
        $apply! {
            events of the connection {
                /// Bytes came. Welcome after `Wait { read: true }`, bounded otherwise by what the loop reads
                /// at once. (`&mut`: a layer such as TLS decrypts in place.)
                fn received(bytes: &mut [u8], cx: &mut Context<'_>);

                /// The layer below is open, before any of its bytes are received. What it has agreed on with the
                /// client is known.
                fn layer_opened(security: &Arc<Security>, cx: &mut Context<'_>);
            }
            events {
                /// The next order. To be asked after every event until it says `Wait` or `Close`.
                fn next_action(cx: &mut Context<'_>) -> Action;

                /// What is received next has waited for its thread for so long, in microseconds. It counts for a
                /// handshake, until that is done.
                fn delayed(us: u64);

                /// The peer will send no more (a half-close): answers still go out, but for those of apps
                /// that do not work for a client which may have left.
                fn received_eof(cx: &mut Context<'_>);

                /// The peer has closed its end, behind input that was not received yet: for requests that wait
                /// for a worker. `received_eof` follows in its place.
                fn half_closed();

                /// The socket holds nothing: the answer to `ReceivePending`.
                fn nothing_pending(cx: &mut Context<'_>);

                /// Of many requests on a connection, no further one is begun until they are no longer held: what is
                /// ready is sent before, and what has come is received. Returns whether they were held.
                fn hold_requests(are_held: bool) -> bool;

                /// Part of what is out has left; for the minimum rate.
                fn progressed(bytes: u64, cx: &mut Context<'_>);

                /// All of what was out has left.
                fn sent(transmit: Transmit, cx: &mut Context<'_>);

                /// File content for `Fill` is in its buffer, as much as there was.
                fn filled(fill: Box<Fill>, cx: &mut Context<'_>);

                /// The rest of what `Fill` asks for is not in the page cache. It is read into it; then `cached`.
                fn not_cached(fill: Box<Fill>, cx: &mut Context<'_>);

                /// A range of a file is in the page cache by now. What `not_cached` was said of is ordered
                /// again. What it took does not count against the client.
                fn cached(cx: &mut Context<'_>);

                /// What `Compute` orders was done, or there was no room for it.
                fn computed(computation: Box<dyn Computation>, cx: &mut Context<'_>);

                /// The peer is gone altogether (reset, hang-up). `Close` follows.
                fn peer_gone(cx: &mut Context<'_>);

                /// The quick step ran.
                fn ran(exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>);

                /// The blocking step is done (or was refused: then the answer says so). In a drain the last
                /// answer says so, and whether it is the last is known once what has arrived behind it was
                /// received.
                fn completed(exchange: Box<Exchange>, cx: &mut Context<'_>);

                /// The app's task answers: with the whole, or with a head whose content follows by
                /// `produced`.
                fn answered(exchange: Box<Exchange>, cx: &mut Context<'_>);

                /// The task has read this much of what was offered: the window reopens. The first call, with
                /// 0 perhaps, says that it wants content at all.
                fn consumed(stream: StreamId, bytes: usize, cx: &mut Context<'_>);

                /// The task has produced a piece of its answer.
                fn produced(stream: StreamId, piece: Piece, cx: &mut Context<'_>);

                /// `deadline` has passed. Called too early, it changes nothing.
                fn expired(cx: &mut Context<'_>);

                /// The server is going down: finish what was accepted, say that the connection ends, then
                /// `Close`. An idle connection closes at once, unless a request has arrived.
                fn draining(cx: &mut Context<'_>);

                /// Answer a new connection with 503 and close, for this reason, without reading a request.
                fn refuse(reason: CloseReason, cx: &mut Context<'_>);

                /// Close without an answer, for this reason.
                fn abort(reason: CloseReason);

                /// Counts for a journal of connections from now on; `ended` gives the record back.
                fn keep_record(record: Option<Box<ConnectionRecord>>);

                /// The connection is about to be closed: memory goes back to the pool. Nothing but `ended` may
                /// follow.
                fn release(cx: &mut Context<'_>);

                /// The connection is closed: memory goes back to the pool, the close is counted by its
                /// reason. Returns the record, if one was kept. Nothing may follow.
                fn ended(cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>>;
            }
            questions {
                /// When to call `expired`. `None` while only the server itself is awaited.
                fn deadline() -> Option<Millis>;

                /// Between requests with nothing received: may be closed to make room.
                fn is_idle() -> bool;

                /// Who its client is, if that is known of the connection: not on a Unix socket, nor behind a
                /// trusted proxy.
                fn client_address() -> Option<IpAddr>;

                /// Behind a trusted proxy: for whose request it holds what it holds, nobody's between two
                /// requests. `None` behind none.
                fn proxied_client() -> Option<ClientKey>;

                /// Whether a handshake comes before its requests, of which nothing was understood yet.
                fn is_before_handshake() -> bool;

                /// How long the server has kept its handshake, waiting included, in microseconds, until the first
                /// request behind it is run; otherwise 0. It is less for a client that has let time pass since.
                fn handshake_us(now: Millis) -> u64;

                /// Whether many requests of it may be in progress, as far as is known (HTTP/2).
                fn is_multiplexed() -> bool;

                /// Whether blocking steps have exchanges of it: `Block`, and not `completed`.
                fn has_steps() -> bool;

                /// Closed in the middle of a response: what was sent of it is not to look whole.
                fn is_cut() -> bool;

                /// Whether it waits for `cached` or `computed`: then nobody but the owner that was given the
                /// order may have it.
                fn has_work_out() -> bool;

                /// Since when it waits for its client in the middle of a request or a response: `None` if it
                /// does not.
                fn awaits_client_since() -> Option<Millis>;

                /// Memory that it holds beside itself, in bytes.
                fn held_bytes() -> usize;
            }
        }
    };
}
pub(crate) use session;

macro_rules! declare {
    (
        events of the connection { $($(#[$own_doc:meta])*
            fn $own:ident($($own_arg:ident: $own_type:ty),*);)+ }
        events { $($(#[$event_doc:meta])*
            fn $event:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)+ }
        questions { $($(#[$question_doc:meta])*
            fn $question:ident($($asked:ident: $asked_type:ty),*) -> $answer:ty;)+ }
    ) => {
        /// A protocol as a state machine: events in, orders out. It sees no socket, no clock and no
        /// thread.
        pub trait Session: Debug + Send {
            $($(#[$own_doc])* fn $own(&mut self, $($own_arg: $own_type),*);)+
            $($(#[$event_doc])* fn $event(&mut self, $($arg: $type),*) $(-> $out)?;)+
            $($(#[$question_doc])* fn $question(&self, $($asked: $asked_type),*) -> $answer;)+
        }
    };
}

session!(declare);
