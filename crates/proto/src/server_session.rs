//! One connection of a server: HTTP/1, HTTP/2, or another protocol of the same kind.
//!
//! A protocol is a state machine: events in, orders out ([`Session`]). One protocol may stand over
//! another, as TLS over HTTP (`wire`), and one connection may have many streams, each with an
//! [`Exchange`] of its own.

use core::fmt::Debug;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use loadline_base::{Millis, Transmit};

use crate::session::session;
use crate::{
    Action, ClientKey, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fill,
    Http1Session, Http2, Http2Session, Outcome, Piece, Security, Session, SessionConfig, StreamId,
};

/// One connection of a server as a state machine: events in, orders out.
///
/// It begins as HTTP/1, and goes on as HTTP/2 if its first bytes, or the layer below, say so. HTTP/1
/// stands in place, since an idle connection should be small; anything else is boxed.
#[derive(Debug)]
pub enum ServerSession {
    /// HTTP/1.0 and 1.1, or nothing yet.
    Http1(Http1Session),
    /// HTTP/2, or another protocol.
    Other(Box<dyn Session>),
}

/// Makes the session of a connection that was just accepted.
pub type NewSession =
    fn(&Arc<SessionConfig>, Option<SocketAddr>, &mut Context<'_>) -> Box<dyn Session>;

/// A protocol whose connections have something in common: certificates, for example.
pub trait SharedProtocol: Debug + Send + Sync {
    /// A connection that was just accepted.
    fn session(
        &self,
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Box<dyn Session>;
}

/// What a listener's connections speak.
#[derive(Clone, Debug, Default)]
pub enum Protocol {
    /// HTTP/1.0 and 1.1, and HTTP/2 by prior knowledge.
    #[default]
    Http,
    /// Another protocol.
    Other(NewSession),
    /// Another protocol, with what its connections share.
    Shared(Arc<dyn SharedProtocol>),
}

impl ServerSession {
    /// A connection that was just accepted and speaks HTTP in plain text.
    #[must_use]
    pub fn new(
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Self {
        let mut http1 = Http1Session::new(config, peer, cx);
        http1.expect_http2();
        let mut session = Self::Http1(http1);
        if config.http2 == Http2::Only {
            session.go_on_as_http2(None, cx);
        }
        session
    }

    /// A connection that was just accepted and speaks HTTP over a layer, which says by which version:
    /// `layer_opened`.
    #[must_use]
    pub fn over_layer(
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Self {
        Self::Http1(Http1Session::new(config, peer, cx))
    }

    /// Bytes came: see [`Session::received`].
    #[inline]
    pub fn received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        match self {
            Self::Http1(session) if session.may_be_http2() => self.first_received(bytes, cx),
            Self::Http1(session) => session.received(bytes, cx),
            Self::Other(session) => session.received(bytes, cx),
        }
    }

    /// The first bytes, which say what the client speaks.
    #[cold]
    fn first_received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        self.follow_preface(bytes, cx);
        match self {
            Self::Http1(session) => session.received(bytes, cx),
            Self::Other(session) => session.received(bytes, cx),
        }
    }

    /// Goes on as HTTP/2 if these bytes, which are still to be received, are the first of it.
    pub(crate) fn follow_preface(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        if let Self::Http1(session) = self
            && session.may_be_http2()
            && session.begins_http2(bytes)
        {
            self.go_on_as_http2(None, cx);
        }
    }

    /// The layer below is open: see [`Session::layer_opened`].
    pub fn layer_opened(&mut self, security: &Arc<Security>, cx: &mut Context<'_>) {
        let is_only = matches!(self, Self::Http1(session) if session.is_http2_only());
        if security.is_http2 || is_only {
            return self.go_on_as_http2(Some(security), cx);
        }
        match self {
            Self::Http1(session) => session.layer_opened(security, cx),
            Self::Other(session) => session.layer_opened(security, cx),
        }
    }

    fn go_on_as_http2(&mut self, security: Option<&Arc<Security>>, cx: &mut Context<'_>) {
        if let Self::Http1(session) = self {
            *self = Self::Other(Box::new(Http2Session::after(session, security, cx)));
        }
    }
}

impl Protocol {
    /// A connection that was just accepted.
    #[must_use]
    pub fn session(
        &self,
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> ServerSession {
        match self {
            Self::Http => ServerSession::new(config, peer, cx),
            Self::Other(new) => ServerSession::Other(new(config, peer, cx)),
            Self::Shared(shared) => ServerSession::Other(shared.session(config, peer, cx)),
        }
    }
}

/// Passes events and questions on: of HTTP/1, and of either.
macro_rules! delegate {
    (
        events of the connection { $($(#[$own_doc:meta])*
            fn $own:ident($($own_arg:ident: $own_type:ty),*);)+ }
        events { $($(#[$event_doc:meta])*
            fn $event:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)+ }
        questions { $($(#[$question_doc:meta])*
            fn $question:ident($($asked:ident: $asked_type:ty),*) -> $answer:ty;)+ }
    ) => {
        delegate!(@implement Http1Session
            [$($own($($own_arg: $own_type),*))+]
            [$($event($($arg: $type),*) $(-> $out)?)+]
            [$($question($($asked: $asked_type),*) -> $answer)+]);
        delegate!(@implement ServerSession
            [$($own($($own_arg: $own_type),*))+]
            [$($event($($arg: $type),*) $(-> $out)?)+]
            [$($question($($asked: $asked_type),*) -> $answer)+]);

        impl ServerSession {
            $($(#[$event_doc])*
            #[inline]
            pub fn $event(&mut self, $($arg: $type),*) $(-> $out)? {
                match self {
                    Self::Http1(session) => session.$event($($arg),*),
                    Self::Other(session) => session.$event($($arg),*),
                }
            })+
            $($(#[$question_doc])*
            #[inline]
            #[must_use]
            pub fn $question(&self, $($asked: $asked_type),*) -> $answer {
                match self {
                    Self::Http1(session) => session.$question($($asked),*),
                    Self::Other(session) => session.$question($($asked),*),
                }
            })+
        }
    };
    (@implement $session:ident
        [$($own:ident($($own_arg:ident: $own_type:ty),*))+]
        [$($event:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?)+]
        [$($question:ident($($asked:ident: $asked_type:ty),*) -> $answer:ty)+]) => {
        impl Session for $session {
            $(#[inline]
            fn $own(&mut self, $($own_arg: $own_type),*) {
                Self::$own(self, $($own_arg),*)
            })+
            $(#[inline]
            fn $event(&mut self, $($arg: $type),*) $(-> $out)? {
                Self::$event(self, $($arg),*)
            })+
            $(#[inline]
            fn $question(&self, $($asked: $asked_type),*) -> $answer {
                Self::$question(self, $($asked),*)
            })+
        }
    };
}

session!(delegate);
