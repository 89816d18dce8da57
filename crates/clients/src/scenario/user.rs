//! One user of a scenario: thinks, asks, waits for the answer, and goes on or begins anew.

use std::sync::Arc;

use loadline_load::seed::{Purpose, generator};
use loadline_load::{Share, judge};
use loadline_proto::{Received, Reply};
use loadline_record::ErrorKind;
use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::Setting;
use super::answer::{Answer, Problem, check_status, named};
use super::capture::{self, Source};
use super::cookies::{Jar, Origin};
use super::request::{self, Ask};
use super::script::{Script, Step};
use super::state::{Known, Stage};
use super::template::{Escape, Values};
use crate::exchange::Exchange;
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
    known: Known,
    /// What the setup left: what the user begins with, each time.
    base: Known,
    /// Why the setup failed.
    failure: Option<String>,
    /// How often it has begun, from 1.
    iteration: u64,
    step: usize,
    stage: Stage,
    is_connected: bool,
    /// The connection has to be closed before anything else; by reset, if true.
    must_close: Option<bool>,
    exchange: Exchange,
    /// All of the request that is out was sent; its answer may come before.
    is_sent: bool,
    answer: Answer,
    /// The request that is due or out.
    ask: Option<Ask>,
    redirects: u32,
}

impl User {
    /// User `number` of the whole user group, from 0.
    pub(super) fn new(script: Arc<Script>, setting: Arc<Setting>, number: u64, seed: u64) -> Self {
        let known = Known {
            jar: Jar::default(),
            captured: vec![None; script.captured_count],
            page: b"/".to_vec(),
        };
        // Each user has random numbers of its own.
        let stream = Share {
            index: number as u32,
            of: (number >> 32) as u32,
        };
        Self {
            random: generator(seed, Purpose::Users, stream),
            script,
            setting,
            number,
            base: known.clone(),
            known,
            failure: None,
            iteration: 1,
            step: 0,
            stage: Stage::Opening,
            is_connected: false,
            must_close: None,
            exchange: Exchange::default(),
            is_sent: false,
            answer: Answer::default(),
            ask: None,
            redirects: 0,
        }
    }

    fn script_step(&self) -> &Step {
        &self.script.steps[self.step]
    }

    /// Before the start: what is recorded counts nowhere.
    fn is_in_setup(&self) -> bool {
        self.step < self.script.setup_count
    }

    /// Thinks before the step at hand, and for `least_ns` in any case.
    fn think(&mut self, now_ns: u64, least_ns: u64) {
        let think_ns = self.script_step().think.chosen(self.random.next_u64());
        self.stage = Stage::Thinking {
            until_ns: now_ns.saturating_add(think_ns.max(least_ns)),
        };
    }

    /// The request at hand is due.
    fn due(&mut self, due_ns: u64, ask: Option<Ask>, context: &mut UserContext<'_>) {
        self.exchange.due(due_ns, context);
        self.ask = ask;
        self.stage = Stage::Due;
        self.script_step().counts().requests += 1;
    }

    /// The think time is over.
    fn begin_step(&mut self, due_ns: u64, context: &mut UserContext<'_>) {
        let (script, setting) = (Arc::clone(&self.script), Arc::clone(&self.setting));
        let step = &script.steps[self.step];
        self.redirects = 0;
        let ask = request::ask(step, &setting, &mut self.values(&script));
        let leads_elsewhere = ask.is_none();
        self.due(due_ns, ask, context);
        if leads_elsewhere {
            self.exchange.unsendable(ErrorKind::WrongContent, context);
            self.problem(|| "the link that was captured leads elsewhere".to_owned());
            self.begin_anew(context.now_ns, PAUSE_NS);
        }
    }

    /// The values of its variables, over a script that is held apart from it.
    fn values<'v>(&'v mut self, script: &'v Script) -> Values<'v> {
        let row = self.number % script.rows.len().max(1) as u64;
        Values {
            user: self.number + 1,
            iteration: self.iteration,
            random: &mut self.random,
            row: script.rows.get(row as usize).map_or(&[], Vec::as_slice),
            known: &mut self.known,
        }
    }

    /// The bytes of the request at hand, which goes out now.
    fn send(&mut self, context: &mut UserContext<'_>) -> Vec<u8> {
        let (script, setting) = (Arc::clone(&self.script), Arc::clone(&self.setting));
        let step = &script.steps[self.step];
        let Some(ask) = self.ask.take() else {
            return Vec::new();
        };
        let (both, now_ns) = ((&*script, &*setting), context.now_ns);
        let bytes = request::write(&ask, step, both, now_ns, &mut self.values(&script));
        self.exchange.sent(ask.method, context);
        self.ask = Some(ask);
        self.answer.begin(step.needs_content());
        self.is_sent = false;
        self.stage = Stage::Awaiting {
            until_ns: now_ns.saturating_add(setting.timeout_ns),
        };
        bytes
    }

    /// What some bytes, or the end, came to.
    fn take(&mut self, received: Received, context: &mut UserContext<'_>) {
        match received {
            Received::More => {}
            Received::Reply(reply) => self.completed(reply, context),
            Received::Fault(fault) => {
                self.lost(judge::cut(fault), || named(fault).to_owned(), context);
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
        self.exchange.failed(kind, context);
        self.problem(what);
        self.must_close = Some(kind == ErrorKind::Timeout);
        self.begin_anew(context.now_ns, PAUSE_NS);
    }

    /// The first problem of a step is kept in words; one of the setup is the end.
    fn problem(&mut self, what: impl FnOnce() -> String) {
        let user = self.number + 1;
        let mut counts = self.script.steps[self.step].counts();
        if self.is_in_setup() {
            let words = format!("{}: user {user}: {}", counts.name, what());
            self.failure.get_or_insert(words);
            return;
        }
        counts.failures += 1;
        let words = || format!("user {user}: {}", what());
        counts.first_failure.get_or_insert_with(words);
    }

    /// An answer is complete.
    fn completed(&mut self, reply: Reply, context: &mut UserContext<'_>) {
        if !reply.keep_alive || !self.is_sent {
            self.must_close = Some(false);
        }
        self.take_cookies(context.now_ns);
        let judged = self.judge(&reply);
        let fault = match &judged {
            Err((kind, _)) => Some(*kind),
            Ok(_) => self.is_late(context.now_ns).then_some(ErrorKind::Late),
        };
        self.exchange.completed(&reply, fault, context);
        match judged {
            Err((_, text)) => {
                self.problem(|| text);
                self.begin_anew(context.now_ns, 0);
            }
            Ok(redirect) => {
                if fault.is_some() {
                    // It has its answer all the same.
                    self.problem(|| "later than the deadline".to_owned());
                } else if redirect.is_none() {
                    self.script_step().counts().successes += 1;
                }
                self.go_on(redirect, context);
            }
        }
    }

    /// Whether an answer that came now came too late.
    fn is_late(&self, now_ns: u64) -> bool {
        let late_ns = self.exchange.since_due_ns(now_ns);
        let is_beyond = |deadline_ns| late_ns > deadline_ns;
        !self.is_in_setup() && self.setting.deadline_ns.is_some_and(is_beyond)
    }

    /// Goes where the answer leads, or to the next step.
    fn go_on(&mut self, redirect: Option<Ask>, context: &mut UserContext<'_>) {
        let now_ns = context.now_ns;
        if redirect.is_some() {
            self.redirects += 1;
            return self.due(now_ns, redirect, context);
        }
        if let Some(ask) = self.ask.take() {
            self.known.page = ask.target;
        }
        self.step += 1;
        if self.step == self.script.setup_count {
            self.base.clone_from(&self.known);
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
            self.known.reset_to(&self.base);
        }
        let repeat = self.script.repeat;
        if repeat.is_some_and(|repeat| self.iteration >= repeat) {
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
                self.known.jar.set(value, &origin);
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
                let text = String::from_utf8_lossy(&text);
                let text = format!("the response does not contain `{text}`");
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
            jar: &self.known.jar,
        };
        for (index, capture) in &step.captures {
            let Some(value) = capture.find(&source) else {
                let text = format!("the response has no {}", capture.describe());
                return Err((ErrorKind::WrongContent, text));
            };
            self.known.captured[*index] = Some(value);
        }
        Ok(())
    }

    /// The run is over: what is out may still come, what is not sent will not be.
    fn end(&mut self, context: &mut UserContext<'_>) {
        if !(self.exchange.is_out() && self.is_sent) {
            self.exchange.given_up(context);
            self.stage = Stage::Done;
        }
    }

    fn connected(&mut self, context: &UserContext<'_>) {
        self.is_connected = true;
        self.must_close = None;
        self.exchange.connected();
        if self.stage == Stage::Opening {
            self.think(context.now_ns, 0);
        }
    }

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        if !self.exchange.is_out() {
            self.must_close = Some(false);
            return;
        }
        let now_ns = context.now_ns;
        let received = self.exchange.take(bytes, &mut self.answer, now_ns);
        self.take(received, context);
    }

    fn woken(&mut self, context: &mut UserContext<'_>) {
        if let Stage::Awaiting { until_ns } = self.stage
            && context.now_ns >= until_ns
        {
            let what = || "no response within the timeout".to_owned();
            self.lost(ErrorKind::Timeout, what, context);
        }
    }

    fn closed(&mut self, is_cut: bool, context: &mut UserContext<'_>) {
        self.is_connected = false;
        if self.exchange.is_out() {
            let received = self.exchange.take_end(is_cut);
            self.take(received, context);
        }
        self.must_close = None;
    }

    fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        self.is_connected = false;
        match self.stage {
            Stage::Opening => {
                // No request was due; the next one will open another.
                context.recorder.tally(context.phase).error(kind);
                self.think(context.now_ns, PAUSE_NS);
            }
            Stage::Due | Stage::Awaiting { .. } => {
                self.lost(kind, || format!("the connection: {}", kind.name()), context);
            }
            _ => {}
        }
        self.must_close = None;
    }

    fn close(&mut self, reset: bool) -> Order {
        self.is_connected = false;
        self.must_close = None;
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
            Stage::Opening | Stage::Due => Order::Connect,
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
            Event::Sent => self.is_sent = true,
            Event::Received(bytes) => self.received(bytes, context),
            Event::Woken => self.woken(context),
            Event::Closed => self.closed(false, context),
            Event::Cut => self.closed(true, context),
            Event::Failed(kind) => self.failed(kind, context),
            Event::Abandoned => {
                self.exchange.given_up(context);
                self.stage = Stage::Done;
            }
        }
    }

    fn requests_out(&self) -> u32 {
        u32::from(self.exchange.is_out() && !self.is_in_setup())
    }
}
