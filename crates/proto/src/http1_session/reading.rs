//! From bytes to requests: heads, content, and what comes behind them.

use loadline_base::Millis;

use super::{Http1Session, Over};
use crate::http1::{HeadScan, check_scheme};
use crate::progress::{BodyReader, too_much_content};
use crate::session_state::State;
use crate::trusted_proxies::PeerKind;
use crate::{ClientKey, CloseReason, Context, Exchange, Fault, RequestBody, Status};

impl Http1Session {
    /// Looks for a head in what was kept, or in `fresh` bytes of which only leftovers are kept.
    /// `came`: bytes that came just now.
    pub(super) fn read_head(&mut self, fresh: Option<&[u8]>, came: usize, cx: &mut Context<'_>) {
        let mut progress = self.take_progress(cx);
        let fresh_len = fresh.map_or(0, <[u8]>::len) as u64;
        match progress.scan(fresh, &self.config.limits, cx) {
            Ok(HeadScan::Partial) => {
                let begun = progress.has_unread();
                if begun && self.state == State::Idle {
                    self.begin_period(cx);
                }
                self.moved = progress.unread_len();
                self.state = if begun { State::Head } else { State::Idle };
                self.progress = Some(progress);
            }
            Ok(HeadScan::Complete { .. }) => {
                self.state = State::RunDue;
                self.progress = Some(progress);
                if let Err(fault) = self.begin_request(came, cx) {
                    self.fault(fault, cx);
                }
            }
            Err(fault) => {
                progress.client = ClientKey::NOBODY;
                self.progress = Some(progress);
                self.moved = fresh_len;
                self.fault(fault, cx);
            }
        }
    }

    /// Parses the head that the scan has put into the exchange, and settles what follows it.
    fn begin_request(&mut self, came: usize, cx: &Context<'_>) -> Result<(), Fault> {
        let limits = &self.config.limits;
        let peer = self.peer.address();
        let Some(progress) = &mut self.progress else {
            return Ok(());
        };
        let Some(exchange) = &mut progress.exchange else {
            return Ok(());
        };
        progress.client = ClientKey::NOBODY;
        exchange.peer = peer;
        exchange.listener = self.config.listener;
        exchange.is_encrypted = self.over == Over::Layer;
        cx.stamp(exchange);
        let facts = crate::http1::parse(&mut exchange.request, limits)?;
        if self.peer.kind != PeerKind::Proxy {
            check_scheme(&exchange.request, exchange.is_encrypted)?;
        }
        progress.body = BodyReader::new(facts.framing);
        progress.expects_continue = facts.expects_continue;
        progress.persist = facts.persist && self.config.keep_alive;
        (self.config.trusted_proxies).note(&mut self.peer.kind, exchange);
        if self.peer.kind == PeerKind::Proxy {
            progress.client = ClientKey::of_request(exchange);
        }
        exchange.request.body = match progress.body {
            BodyReader::Done => RequestBody::Empty,
            BodyReader::Length { left } => RequestBody::Pending { len: Some(left) },
            BodyReader::Chunked(_) => {
                exchange.request.body = RequestBody::Pending { len: None };
                return progress.look_ahead(came, limits);
            }
        };
        Ok(())
    }

    /// Whether a request has more content than this, as far as that is known.
    pub(super) fn has_content_beyond(&self, bytes_max: u64) -> bool {
        let progress = self.progress.as_ref();
        progress.is_some_and(|progress| progress.content_bytes_min() > bytes_max)
    }

    /// More content is announced, or has come, than is wanted.
    #[cold]
    pub(super) fn refuse_content(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        let progress = self.progress(cx);
        progress.exchange = Some(exchange);
        self.fault(too_much_content(), cx);
    }

    /// Goes on with what has come behind the last request.
    pub(super) fn next_request(&mut self, cx: &mut Context<'_>) {
        self.state = State::Idle;
        if self.has_unread() {
            self.read_head(None, 0, cx);
        }
        if self.eof {
            self.received_eof(cx);
        }
    }

    /// The handler wants the content first.
    pub(super) fn collect(
        &mut self,
        mut exchange: Box<Exchange>,
        bytes_max: u64,
        cx: &mut Context<'_>,
    ) {
        if matches!(exchange.request.body, RequestBody::Whole(_)) {
            // It has the content already: asking again would never end.
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            self.answer(exchange, cx);
            return;
        }
        let bytes_max = bytes_max.min(self.config.limits.body_bytes_max);
        if self.has_content_beyond(bytes_max) {
            return self.refuse_content(exchange, cx);
        }
        let progress = self.progress(cx);
        let announced = match progress.body {
            BodyReader::Length { left } => left,
            _ => 0,
        };
        progress.exchange = Some(exchange);
        progress.begin_collecting(announced, bytes_max);
        let wants_continue = progress.expects_continue && !progress.has_unread();
        progress.expects_continue = false;
        if wants_continue {
            progress.push_continue(cx);
        }
        self.gather(false, cx);
    }

    /// Gathers content: for the handler, or before an app's task is started.
    pub(super) fn gather(&mut self, for_task: bool, cx: &mut Context<'_>) {
        self.state = State::Collecting { for_task };
        self.begin_period(cx);
        self.read_body(cx);
    }

    /// Reads the content from what was kept, to gather it or to throw it away.
    pub(super) fn read_body(&mut self, cx: &mut Context<'_>) {
        let limits = &self.config.limits;
        let collecting = matches!(self.state, State::Collecting { .. });
        let memory = self.check_memory(cx);
        let Some(progress) = &mut self.progress else {
            return;
        };
        let read = match self.state {
            _ if memory.is_err() => memory.map(|()| 0),
            State::Collecting { for_task: true } => progress.read_stream(None, limits, cx),
            _ => progress.read_body(collecting, limits, cx),
        };
        match read {
            Err(fault) if collecting => self.fault(fault, cx),
            Err(fault) => {
                // Its request is answered already: a second answer would be taken for another's.
                cx.counters.fault(&fault);
                self.reason.get_or_insert(CloseReason::BadRequest);
                self.state = State::Ending { linger: true };
            }
            Ok(content_bytes) => self.body_read(content_bytes, cx),
        }
    }

    fn body_read(&mut self, content_bytes: u64, cx: &mut Context<'_>) {
        let progress = self.progress(cx);
        let is_whole = matches!(progress.body, BodyReader::Done);
        let discarded_bytes = progress.discarded_bytes;
        if is_whole {
            self.ready_now(cx);
        }
        match self.state {
            State::Collecting { for_task: true } if is_whole => self.state = State::StartDue,
            State::Collecting { .. } if is_whole => self.state = State::RunDue,
            _ if is_whole => self.next_request(cx),
            _ if self.eof => self.received_eof(cx),
            State::Collecting { .. } => {
                self.moved(content_bytes, self.config.limits.body_pace, cx);
            }
            // Thrown away beyond its bound: closing is cheaper than reading on.
            _ if discarded_bytes > self.config.limits.discard_bytes_max => {
                self.state = State::Ending { linger: true };
            }
            _ => self.moved += content_bytes, // bounded in all
        }
    }

    /// Until now a request has waited for its client: for its content, or to take responses before it.
    pub(super) fn ready_now(&mut self, cx: &Context<'_>) {
        let exchange = self.progress.as_mut().and_then(|it| it.exchange.as_mut());
        if let Some(exchange) = exchange {
            exchange.ready = cx.came;
        }
    }

    /// Until when content has to move on. A line of its framing has the grace, once.
    pub(super) fn body_deadline(&self) -> Millis {
        let pace = &self.config.limits.body_pace;
        let deadline = pace.deadline(self.since, self.moved);
        let line_since = (self.progress.as_ref()).and_then(|progress| progress.line_since);
        line_since.map_or(deadline, |since| deadline.min(pace.deadline(since, 0)))
    }
}
