//! The end of a connection over a layer.

use super::{End, Filling, Layered};
use crate::{Context, Layer, Session};

impl<L: Layer, S: Session> Layered<L, S> {
    /// The session closes: the peer learns where the bytes end, if that is possible, and if nothing is
    /// missing: to a client of HTTP/1.0 this end says that its response is whole (RFC 9112 section 8).
    pub(super) fn close(&mut self, cx: &Context<'_>) {
        let can_send = self.layer.is_open() && !self.gone && self.in_flight.is_none();
        let may_send = can_send && !self.session.is_cut();
        match self.end {
            End::Open if may_send => {
                self.layer.finish(&mut self.out);
                self.end = End::Last;
                self.since = cx.now;
            }
            End::Said | End::Finishing | End::Last
                if !self.gone && (!self.out.is_empty() || self.in_flight.is_some()) =>
            {
                // Asked again, it says the same: its time does not begin anew.
                if self.end != End::Last {
                    self.end = End::Last;
                    self.since = cx.now;
                }
            }
            _ => self.end = End::Closed,
        }
    }

    /// What is read for output that will never leave.
    pub(super) fn drop_fill(&mut self, cx: &mut Context<'_>) {
        if let Filling::NotCached(fill) | Filling::Cached(fill) =
            std::mem::replace(&mut self.filling, Filling::No)
        {
            cx.pool.buffers.give(fill.buffer);
        }
    }

    /// No more bytes of the socket's will be understood.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.end, End::Last | End::Closed)
    }
}
