//! One user of a scenario: thinks, asks, waits for the answer, and goes on or begins anew.

use std::sync::Arc;

use loadline_load::recorder::Stamps;
use loadline_load::seed::{Purpose, generator};
use loadline_load::{Share, judge};
use loadline_proto::{ClientSession, Limits, Received, Reply};
use loadline_record::{ErrorKind, Tally};
use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::Setting;
use super::answer::{Answer, Problem, check_status, named};
use super::capture::{self, Source};
use super::cookies::{Jar, Origin};
use super::request::{self, Ask};
use super::script::{Script, Step};
use super::state::{Base, Stage};
use super::template::{Escape, Values};
use crate::{Event, Order, UserContext, VirtualUser};

/// What is received at once.
const RECEIVE_BYTES_MAX: usize = 64 << 10;
/// How long a user waits before it begins anew after a connection failed: long enough that
/// thousands of them do not spin on a server that is gone, short enough to see it come back.
const PAUSE_NS: u64 = 100_000_000;

/// One user.
#[derive(Debug)]
pub(super) struct User {
    script: Arc<Script>,
    setting: Arc<Setting>,
    number: u64,
    random: Pcg64Mcg,
    jar: Jar,
    captured: Vec<Option<Vec<u8>>>,
    /// What the setup left: what the user begins with, each time.
    base: Base,
    /// Why the setup failed.
    failure: Option<String>,
    /// How often it has begun, from 1.
    iteration: u64,
    step: usize,
    stage: Stage,
    is_connected: bool,
    /// The connection has to be closed before anything else; by reset, if true.
    must_close: Option<bool>,
    session: ClientSession,
    answer: Answer,
    /// The request that is due or out.
    ask: Option<Ask>,
    redirects: u32,
    /// The target of the last page: links are relative to it.
    page: Vec<u8>,
    stamps: Stamps,
    phase: u16,
}

impl User {
    /// User `number` of the whole user group, from 0.
    pub(super) fn new(script: Arc<Script>, setting: Arc<Setting>, number: u64, seed: u64) -> Self {
        let captured = vec![None; script.captured_count];
        Self {
            random: generator(seed, Purpose::Users, stream(number)),
            script,
            setting,
            number,
            jar: Jar::default(),
            base: Base {
                jar: Jar::default(),
                captured: captured.clone(),
                page: b"/".to_vec(),
            },
            captured,
            failure: None,
            iteration: 1,
            step: 0,
            stage: Stage::Opening,
            is_connected: false,
            must_close: None,
            session: ClientSession::new(),
            answer: Answer::default(),
            ask: None,
            redirects: 0,
            page: b"/".to_vec(),
            stamps: Stamps::default(),
            phase: 0,
        }
    }

    fn script_step(&self) -> &Step {
        &self.script.steps[self.step]
    }

    /// Before the start: nothing is counted.
    fn is_in_setup(&self) -> bool {
        self.step < self.script.setup_count
    }

    /// Where what it does is counted, if it is.
    fn tally<'s>(&self, context: &'s mut UserContext<'_>) -> Option<&'s mut Tally> {
        let is_counted = !self.is_in_setup();
        is_counted.then(|| context.recorder.tally(self.phase))
    }

    fn count_error(&self, kind: ErrorKind, context: &mut UserContext<'_>) {
        if let Some(tally) = self.tally(context) {
            tally.error(kind);
        }
    }

    /// Thinks before the step at hand, and for `least_ns` in any case.
    fn think(&mut self, now_ns: u64, least_ns: u64) {
        let think_ns = self.script_step().think.chosen(self.random.next_u64());
        self.stage = Stage::Thinking {
            until_ns: now_ns.saturating_add(think_ns.max(least_ns)),
        };
    }

    /// The request at hand is due.
    fn due(&mut self, due_ns: u64, ask: Ask, context: &mut UserContext<'_>) {
        self.phase = context.phase_of(due_ns);
        self.stamps = Stamps {
            due_ns,
            ..Stamps::default()
        };
        self.ask = Some(ask);
        self.stage = Stage::Due;
        if let Some(tally) = self.tally(context) {
            tally.offered += 1;
        }
        self.script_step().counts.requested();
    }

    /// The think time is over.
    fn begin_step(&mut self, due_ns: u64, context: &mut UserContext<'_>) {
        let script = Arc::clone(&self.script);
        let setting = Arc::clone(&self.setting);
        let step = &script.steps[self.step];
        self.redirects = 0;
        let page = std::mem::take(&mut self.page);
        let spec = request::ask(step, &setting, &page, &mut self.values(&script));
        self.page = page;
        if let Some(ask) = spec {
            self.due(due_ns, ask, context);
            return;
        }
        // It cannot be asked: an error that was never sent.
        let nowhere = Ask {
            method: step.method,
            target: Vec::new(),
            has_content: false,
        };
        self.due(due_ns, nowhere, context);
        self.count_error(ErrorKind::WrongContent, context);
        self.problem(|| "the link that was captured leads elsewhere".to_owned());
        self.begin_anew(context.now_ns, PAUSE_NS);
    }

    /// The values of its variables, over a script that is held apart from it.
    fn values<'v>(&'v mut self, script: &'v Script) -> Values<'v> {
        let rows = script.rows.len() as u64;
        let row = self
            .number
            .checked_rem(rows)
            .and_then(|row| usize::try_from(row).ok());
        Values {
            user: self.number + 1,
            iteration: self.iteration,
            random: &mut self.random,
            row: row.map_or(&[], |row| script.rows[row].as_slice()),
            captured: &self.captured,
        }
    }

    /// The bytes of the request at hand, which goes out now.
    fn send(&mut self, context: &mut UserContext<'_>) -> Vec<u8> {
        let script = Arc::clone(&self.script);
        let setting = Arc::clone(&self.setting);
        let step = &script.steps[self.step];
        let Some(ask) = self.ask.take() else {
            return Vec::new();
        };
        let mut jar = std::mem::take(&mut self.jar);
        let both = (&*script, &*setting);
        let bytes = request::write(
            &ask,
            step,
            both,
            &mut jar,
            context.now_ns,
            &mut self.values(&script),
        );
        self.jar = jar;
        self.session.requested(ask.method);
        self.ask = Some(ask);
        self.answer.begin(step.needs_content());
        self.stamps.sent_ns = context.now_ns;
        self.stage = Stage::Sending;
        if let Some(tally) = self.tally(context) {
            tally.sent += 1;
        }
        bytes
    }

    /// What some bytes, or the end, came to.
    fn take(&mut self, received: Received, context: &mut UserContext<'_>) {
        match received {
            Received::More => {}
            Received::Reply(reply) => self.completed(reply, context),
            Received::Fault(fault) => {
                let (kind, text) = (judge::cut(fault), named(fault));
                self.lost(kind, || text.to_owned(), context);
            }
        }
    }

    /// The request at hand will have no answer.
    fn lost(
        &mut self,
        kind: ErrorKind,
        what: impl FnOnce() -> String,
        context: &mut UserContext<'_>,
    ) {
        if !self.is_in_setup() {
            let after_ns = context.now_ns.saturating_sub(self.stamps.due_ns);
            context.recorder.failed(self.phase, kind, after_ns);
        }
        self.problem(what);
        self.must_close = Some(kind == ErrorKind::Timeout);
        self.begin_anew(context.now_ns, PAUSE_NS);
    }

    /// The first problem of a step is kept in words; one of the setup is the end.
    fn problem(&mut self, what: impl FnOnce() -> String) {
        let user = self.number + 1;
        if self.is_in_setup() {
            let words = format!("{}: user {user}: {}", self.script_step().name, what());
            self.failure.get_or_insert(words);
            return;
        }
        let counts = &self.script_step().counts;
        counts.failed(|| format!("user {user}: {}", what()));
    }

    /// An answer is complete.
    fn completed(&mut self, reply: Reply, context: &mut UserContext<'_>) {
        self.stamps.last_ns = context.now_ns;
        if let Some(tally) = self.tally(context) {
            tally.answered(reply.status, reply.content_bytes);
            context.recorder.completed(self.phase, &self.stamps);
        }
        if !reply.keep_alive || self.stage == Stage::Sending {
            self.must_close = Some(false);
        }
        self.take_cookies(context.now_ns);
        match self.judge(&reply) {
            Err((kind, text)) => {
                if let Some(tally) = self.tally(context) {
                    tally.judged(Some(kind), reply.status);
                }
                self.problem(|| text);
                self.begin_anew(context.now_ns, 0);
            }
            Ok(redirect) => {
                let late_ns = self.stamps.last_ns.saturating_sub(self.stamps.due_ns);
                let deadline_ns = self.setting.deadline_ns.filter(|_| !self.is_in_setup());
                if deadline_ns.is_some_and(|deadline_ns| late_ns > deadline_ns) {
                    // It has its answer all the same.
                    self.count_error(ErrorKind::Late, context);
                    self.problem(|| "later than the deadline".to_owned());
                } else {
                    if redirect.is_none() {
                        self.script_step().counts.succeeded();
                    }
                    if let Some(tally) = self.tally(context) {
                        tally.good += 1;
                    }
                }
                self.go_on(redirect, context);
            }
        }
    }

    /// Goes where the answer leads, or to the next step.
    fn go_on(&mut self, redirect: Option<Ask>, context: &mut UserContext<'_>) {
        let now_ns = context.now_ns;
        if let Some(ask) = redirect {
            self.redirects += 1;
            return self.due(now_ns, ask, context);
        }
        if let Some(ask) = self.ask.take() {
            self.page = ask.target;
        }
        self.step += 1;
        if self.step == self.script.setup_count {
            self.base.jar.clone_from(&self.jar);
            self.base.captured.clone_from(&self.captured);
            self.base.page.clone_from(&self.page);
            self.stage = Stage::SetUp;
            return;
        }
        if self.step < self.script.steps.len() {
            return self.think(now_ns, 0);
        }
        self.begin_anew(now_ns, 0);
    }

    /// Begins with the first step again, as often as the scenario says; not where the setup failed.
    fn begin_anew(&mut self, now_ns: u64, pause_ns: u64) {
        self.ask = None;
        if self.is_in_setup() {
            self.stage = Stage::SetUp;
            return;
        }
        let was_whole = self.step == self.script.steps.len();
        self.step = self.script.setup_count;
        if !(was_whole && self.script.keeps_state) {
            self.jar.clone_from(&self.base.jar);
            self.captured.clone_from(&self.base.captured);
            self.page.clone_from(&self.base.page);
        }
        if self
            .script
            .repeat
            .is_some_and(|repeat| self.iteration >= repeat)
        {
            self.stage = Stage::Done;
            return;
        }
        self.iteration += 1;
        self.think(now_ns, pause_ns);
    }

    fn take_cookies(&mut self, now_ns: u64) {
        let date =
            capture::header(&self.answer.head, "Date").and_then(|text| str::from_utf8(text).ok());
        let date = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let origin = Origin {
            host: &self.setting.authority,
            path: self.ask.as_ref().map_or(b"/", Ask::path),
            now_ns,
            date: date.unwrap_or(self.script.read_at),
        };
        for (name, value) in capture::fields(&self.answer.head) {
            if name.eq_ignore_ascii_case(b"set-cookie") {
                self.jar.set(value, &origin);
            }
        }
    }

    /// Whether a complete answer is the one that was expected; where a redirect leads. Takes what is
    /// to be taken from it.
    fn judge(&mut self, reply: &Reply) -> Result<Option<Ask>, Problem> {
        let script = Arc::clone(&self.script);
        let step = &script.steps[self.step];
        if reply.excess_bytes > 0 {
            return Err((ErrorKind::LongBody, "bytes behind the response".to_owned()));
        }
        if let Some(ask) = self.redirect(reply.status) {
            if self.redirects == step.follow_max {
                let text = format!("more than {} redirects", step.follow_max);
                return Err((ErrorKind::OtherStatus, text));
            }
            return Ok(Some(ask));
        }
        check_status(reply.status, &step.statuses)?;
        if let Some(template) = &step.contains {
            let mut text = Vec::new();
            template.write(&mut self.values(&script), Escape::Nothing, &mut text);
            if capture::find(&self.answer.content, &text).is_none() {
                let text = format!(
                    "the response does not contain `{}`",
                    String::from_utf8_lossy(&text)
                );
                return Err((ErrorKind::WrongContent, text));
            }
        }
        self.capture(step)?;
        Ok(None)
    }

    /// Where the answer leads, if the step follows redirects.
    fn redirect(&self, status: u16) -> Option<Ask> {
        if self.script_step().follow_max == 0 {
            return None;
        }
        let location = capture::header(&self.answer.head, "Location");
        request::redirected(self.ask.as_ref()?, status, location, &self.setting)
    }

    fn capture(&mut self, step: &Step) -> Result<(), Problem> {
        let source = Source {
            head: &self.answer.head,
            content: &self.answer.content,
            jar: &self.jar,
        };
        for (index, capture) in &step.captures {
            let Some(value) = capture.find(&source) else {
                let text = format!("the response has no {}", capture.describe());
                return Err((ErrorKind::WrongContent, text));
            };
            self.captured[*index] = Some(value);
        }
        Ok(())
    }

    /// The run is over: what is out may still come, what is not sent will not be.
    fn end(&mut self, context: &mut UserContext<'_>) {
        match self.stage {
            Stage::Awaiting { .. } | Stage::Done => return,
            Stage::Due | Stage::Connecting | Stage::Sending => self.count_unfinished(context),
            Stage::Opening | Stage::Thinking { .. } | Stage::SetUp | Stage::Starting => {}
        }
        self.stage = Stage::Done;
    }

    fn count_unfinished(&self, context: &mut UserContext<'_>) {
        if let Some(tally) = self.tally(context) {
            tally.unfinished += 1;
        }
    }

    fn connected(&mut self, context: &UserContext<'_>) {
        self.is_connected = true;
        self.must_close = None;
        self.session = ClientSession::new();
        match self.stage {
            Stage::Opening => self.think(context.now_ns, 0),
            Stage::Connecting => self.stage = Stage::Due,
            _ => {}
        }
    }

    fn sent(&mut self) {
        if self.stage == Stage::Sending {
            let until_ns = self.stamps.sent_ns.saturating_add(self.setting.timeout_ns);
            self.stage = Stage::Awaiting { until_ns };
        }
    }

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        if !matches!(self.stage, Stage::Sending | Stage::Awaiting { .. }) {
            self.must_close = Some(false);
            return;
        }
        if !self.session.has_begun() {
            self.stamps.first_ns = context.now_ns;
        }
        let limits = &Limits::default();
        let received = self.session.received(bytes, limits, &mut self.answer);
        self.take(received, context);
    }

    fn woken(&mut self, context: &mut UserContext<'_>) {
        if let Stage::Awaiting { until_ns } = self.stage
            && context.now_ns >= until_ns
        {
            self.lost(
                ErrorKind::Timeout,
                || "no response within the timeout".to_owned(),
                context,
            );
        }
    }

    fn closed(&mut self, is_cut: bool, context: &mut UserContext<'_>) {
        self.is_connected = false;
        self.must_close = None;
        if matches!(self.stage, Stage::Sending | Stage::Awaiting { .. }) {
            let received = match is_cut {
                true => self.session.received_cut(),
                false => self.session.received_eof(),
            };
            self.take(received, context);
        }
        self.must_close = None;
        self.session = ClientSession::new();
    }

    fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        self.is_connected = false;
        if self.stage == Stage::Opening {
            // No request was due; the next one will open another.
            self.phase = context.phase;
            self.count_error(kind, context);
            self.think(context.now_ns, PAUSE_NS);
        }
        if matches!(
            self.stage,
            Stage::Connecting | Stage::Sending | Stage::Awaiting { .. }
        ) {
            self.lost(kind, || format!("the connection: {}", kind.name()), context);
        }
        self.must_close = None;
        self.session = ClientSession::new();
    }

    fn close(&mut self, reset: bool) -> Order {
        self.is_connected = false;
        self.must_close = None;
        self.session = ClientSession::new();
        Order::Close { reset }
    }
}

impl VirtualUser for User {
    fn prepares(&self) -> bool {
        self.is_in_setup()
    }

    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        if context.is_ending {
            self.end(context);
        }
        if let (true, Some(reset)) = (self.is_connected, self.must_close) {
            return self.close(reset);
        }
        if let Stage::Thinking { until_ns } = self.stage {
            if context.now_ns < until_ns {
                return Order::SleepUntil { ns: until_ns };
            }
            self.begin_step(until_ns, context);
        }
        match self.stage {
            Stage::Due if self.is_connected => Order::Send(self.send(context)),
            Stage::Opening => Order::Connect,
            Stage::Due | Stage::Connecting => {
                self.stage = Stage::Connecting;
                Order::Connect
            }
            Stage::Sending => {
                // Asked for out of turn: the answer may come before the request has gone.
                let ns = self.stamps.sent_ns.saturating_add(self.setting.timeout_ns);
                Order::ReceiveUntil {
                    bytes_max: RECEIVE_BYTES_MAX,
                    ns,
                }
            }
            Stage::Awaiting { until_ns } => Order::ReceiveUntil {
                bytes_max: RECEIVE_BYTES_MAX,
                ns: until_ns,
            },
            Stage::SetUp => match self.failure.take() {
                Some(why) => Order::GiveUp(why),
                None => {
                    self.stage = Stage::Starting;
                    Order::AwaitStart
                }
            },
            Stage::Starting => {
                self.think(context.now_ns, 0);
                self.next_order(context)
            }
            Stage::Thinking { .. } => self.next_order(context),
            Stage::Done if self.is_connected => self.close(false),
            Stage::Done => Order::Done,
        }
    }

    fn on_event(&mut self, event: Event<'_>, context: &mut UserContext<'_>) {
        match event {
            Event::Connected => self.connected(context),
            Event::Sent => self.sent(),
            Event::Received(bytes) => self.received(bytes, context),
            Event::Woken => self.woken(context),
            Event::Closed => self.closed(false, context),
            Event::Cut => self.closed(true, context),
            Event::Failed(kind) => self.failed(kind, context),
            Event::Abandoned => {
                if self.stage != Stage::Done && self.ask.take().is_some() {
                    self.count_unfinished(context);
                }
                self.stage = Stage::Done;
            }
        }
    }

    fn requests_out(&self) -> u32 {
        let is_out = matches!(self.stage, Stage::Sending | Stage::Awaiting { .. });
        u32::from(is_out && !self.is_in_setup())
    }
}

/// Each user has random numbers of its own.
const fn stream(number: u64) -> Share {
    Share {
        index: number as u32,
        of: (number >> 32) as u32,
    }
}
