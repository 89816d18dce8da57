//! One user as an actor: thinks, asks, waits for the answer, and goes on or begins anew.

use std::sync::Arc;

use loadline_proto::{ClientSession, Received, Reply, ReplyFault};
use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::Setting;
use super::answer::Answer;
use super::capture::{self, Source};
use super::cookies::{Jar, Origin};
use super::request::{self, Ask};
use super::script::{Script, Step, Think};
use super::template::{Escape, Values};
use crate::actors::{Actor, Order, Scene};
use crate::recorder::Stamps;
use crate::seed::{Purpose, generator};
use crate::{ErrorKind, Share, judge};

/// What is received at once.
const RECEIVE_BYTES_MAX: usize = 64 << 10;
/// How long a user waits before it begins anew after a connection failed: long enough that
/// thousands of them do not spin on a server that is gone, short enough to see it come back.
const PAUSE_NS: u64 = 100_000_000;

/// Where a user stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not asked yet.
    Begin,
    /// The first connection is opened, before anything is due.
    Opening,
    /// Nothing until then; then the next step is due.
    Thinking { until_ns: u64 },
    /// A request is due; a connection may be missing.
    Due,
    /// The connection was asked for.
    Connecting,
    /// The request is on its way out.
    Sending,
    /// The answer is awaited, until then.
    Awaiting { until_ns: u64 },
    /// It does nothing any more.
    Done,
}

/// Why a step did not end well, in words.
type Problem = (ErrorKind, String);

/// One user.
#[derive(Debug)]
pub(super) struct User {
    script: Arc<Script>,
    setting: Arc<Setting>,
    number: u64,
    random: Pcg64Mcg,
    jar: Jar,
    captured: Vec<Option<Vec<u8>>>,
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
    /// User `number` of the whole crowd, from 0.
    pub(super) fn new(script: Arc<Script>, setting: Arc<Setting>, number: u64, seed: u64) -> Self {
        let captured = vec![None; script.captured_count];
        Self {
            random: generator(seed, Purpose::Users, stream(number)),
            script,
            setting,
            number,
            jar: Jar::default(),
            captured,
            iteration: 1,
            step: 0,
            stage: Stage::Begin,
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

    /// Thinks before the step at hand, and for `least_ns` in any case.
    fn think(&mut self, now_ns: u64, least_ns: u64) {
        let Think {
            least_ns: from,
            most_ns: to,
        } = self.script_step().think;
        let think_ns = from + spread(self.random.next_u64(), to - from);
        self.stage = Stage::Thinking {
            until_ns: now_ns.saturating_add(think_ns.max(least_ns)),
        };
    }

    /// The request at hand is due.
    fn due(&mut self, due_ns: u64, ask: Ask, scene: &mut Scene<'_>) {
        self.phase = scene.phase;
        self.stamps = Stamps {
            due_ns,
            ..Stamps::default()
        };
        self.ask = Some(ask);
        self.stage = Stage::Due;
        scene.recorder.tally(self.phase).offered += 1;
        self.script_step().counts.requested();
    }

    /// The think time is over.
    fn begin_step(&mut self, due_ns: u64, scene: &mut Scene<'_>) {
        let script = Arc::clone(&self.script);
        let setting = Arc::clone(&self.setting);
        let step = &script.steps[self.step];
        self.redirects = 0;
        let page = std::mem::take(&mut self.page);
        let asked = request::ask(step, &setting, &page, &mut self.values(&script));
        self.page = page;
        if let Some(ask) = asked {
            self.due(due_ns, ask, scene);
            return;
        }
        // It cannot be asked: an error that was never sent.
        let nowhere = Ask {
            method: step.method,
            target: Vec::new(),
            has_content: false,
        };
        self.due(due_ns, nowhere, scene);
        scene
            .recorder
            .tally(self.phase)
            .error(ErrorKind::WrongContent);
        self.problem(|| "the link that was captured leads elsewhere".to_owned());
        self.begin_anew(scene.now_ns, PAUSE_NS);
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
    fn send(&mut self, scene: &mut Scene<'_>) -> Vec<u8> {
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
            scene.now_ns,
            &mut self.values(&script),
        );
        self.jar = jar;
        self.session.requested(ask.method);
        self.ask = Some(ask);
        self.answer.begin(step.needs_content());
        self.stamps.sent_ns = scene.now_ns;
        self.stage = Stage::Sending;
        scene.recorder.tally(self.phase).sent += 1;
        bytes
    }

    /// What some bytes, or the end, came to.
    fn take(&mut self, received: Received, scene: &mut Scene<'_>) {
        match received {
            Received::More => {}
            Received::Reply(reply) => self.completed(reply, scene),
            Received::Fault(fault) => {
                let (kind, text) = (judge::cut(fault), named(fault));
                self.lost(kind, || text.to_owned(), scene);
            }
        }
    }

    /// The request at hand will have no answer.
    fn lost(&mut self, kind: ErrorKind, what: impl FnOnce() -> String, scene: &mut Scene<'_>) {
        let after_ns = scene.now_ns.saturating_sub(self.stamps.due_ns);
        scene.recorder.failed(self.phase, kind, after_ns);
        self.problem(what);
        self.must_close = Some(kind == ErrorKind::Timeout);
        self.begin_anew(scene.now_ns, PAUSE_NS);
    }

    /// The first problem of a step is told in words.
    fn problem(&self, what: impl FnOnce() -> String) {
        let user = self.number + 1;
        self.script_step()
            .counts
            .failed(|| format!("user {user}: {}", what()));
    }

    /// An answer is complete.
    fn completed(&mut self, reply: Reply, scene: &mut Scene<'_>) {
        self.stamps.last_ns = scene.now_ns;
        let tally = scene.recorder.tally(self.phase);
        tally.answered(&reply);
        scene.recorder.completed(self.phase, &self.stamps);
        if !reply.keep_alive || self.stage == Stage::Sending {
            self.must_close = Some(false);
        }
        self.take_cookies(scene.now_ns);
        match self.judge(&reply) {
            Err((kind, text)) => {
                scene.recorder.tally(self.phase).error(kind);
                self.problem(|| text);
                self.begin_anew(scene.now_ns, 0);
            }
            Ok(redirect) => {
                let late_ns = self.stamps.last_ns.saturating_sub(self.stamps.due_ns);
                if self
                    .setting
                    .deadline_ns
                    .is_some_and(|deadline_ns| late_ns > deadline_ns)
                {
                    // It has its answer all the same.
                    scene.recorder.tally(self.phase).error(ErrorKind::Late);
                    self.problem(|| "later than the deadline".to_owned());
                } else {
                    scene.recorder.tally(self.phase).good += 1;
                }
                self.go_on(redirect, scene);
            }
        }
    }

    /// Goes where the answer leads, or to the next step.
    fn go_on(&mut self, redirect: Option<Ask>, scene: &mut Scene<'_>) {
        let now_ns = scene.now_ns;
        if let Some(ask) = redirect {
            self.redirects += 1;
            return self.due(now_ns, ask, scene);
        }
        if let Some(ask) = self.ask.take() {
            self.page = ask.target;
        }
        self.step += 1;
        if self.step < self.script.steps.len() {
            return self.think(now_ns, 0);
        }
        self.begin_anew(now_ns, 0);
    }

    /// Begins with the first step again, as often as the scenario says.
    fn begin_anew(&mut self, now_ns: u64, pause_ns: u64) {
        let was_whole = self.step == self.script.steps.len();
        self.step = 0;
        self.ask = None;
        if !(was_whole && self.script.keeps_state) {
            self.jar.clear();
            self.captured.fill(None);
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
            return Err((ErrorKind::LongBody, "bytes behind the answer".to_owned()));
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
                    "the answer does not contain `{}`",
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
        request::redirected(
            self.ask.as_ref()?,
            status,
            location,
            &self.setting.authority,
        )
    }

    fn capture(&mut self, step: &Step) -> Result<(), Problem> {
        let source = Source {
            head: &self.answer.head,
            content: &self.answer.content,
            jar: &self.jar,
        };
        for (index, capture) in &step.captures {
            let Some(value) = capture.find(&source) else {
                let text = format!("the answer has no {}", capture.describe());
                return Err((ErrorKind::WrongContent, text));
            };
            self.captured[*index] = Some(value);
        }
        Ok(())
    }

    /// The run is over: what is out may still come, what is not sent will not be.
    fn end(&mut self, scene: &mut Scene<'_>) {
        match self.stage {
            Stage::Awaiting { .. } | Stage::Done => return,
            Stage::Due | Stage::Connecting | Stage::Sending => {
                scene.recorder.tally(self.phase).unfinished += 1;
            }
            Stage::Begin | Stage::Opening | Stage::Thinking { .. } => {}
        }
        self.stage = Stage::Done;
    }

    fn close(&mut self, reset: bool) -> Order {
        self.is_connected = false;
        self.must_close = None;
        self.session = ClientSession::new();
        Order::Close { reset }
    }
}

impl Actor for User {
    fn next_order(&mut self, scene: &mut Scene<'_>) -> Order {
        if scene.is_ending {
            self.end(scene);
        }
        if let (true, Some(reset)) = (self.is_connected, self.must_close) {
            return self.close(reset);
        }
        if self.stage == Stage::Begin {
            // Asked for before the start: nothing is due yet.
            self.stage = Stage::Opening;
        }
        if let Stage::Thinking { until_ns } = self.stage {
            if scene.now_ns < until_ns {
                return Order::SleepUntil { ns: until_ns };
            }
            self.begin_step(until_ns, scene);
        }
        match self.stage {
            Stage::Due if self.is_connected => Order::Send(self.send(scene)),
            Stage::Opening => Order::Connect,
            Stage::Due | Stage::Connecting => {
                self.stage = Stage::Connecting;
                Order::Connect
            }
            Stage::Sending => {
                // Asked out of turn: the answer may come before the request has gone.
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
            Stage::Begin | Stage::Thinking { .. } => self.next_order(scene),
            Stage::Done if self.is_connected => self.close(false),
            Stage::Done => Order::Done,
        }
    }

    fn connected(&mut self, scene: &mut Scene<'_>) {
        self.is_connected = true;
        self.must_close = None;
        self.session = ClientSession::new();
        match self.stage {
            Stage::Opening => self.think(scene.now_ns, 0),
            Stage::Connecting => self.stage = Stage::Due,
            _ => {}
        }
    }

    fn sent(&mut self, _scene: &mut Scene<'_>) {
        if self.stage == Stage::Sending {
            let until_ns = self.stamps.sent_ns.saturating_add(self.setting.timeout_ns);
            self.stage = Stage::Awaiting { until_ns };
        }
    }

    fn received(&mut self, bytes: &[u8], scene: &mut Scene<'_>) {
        if !matches!(self.stage, Stage::Sending | Stage::Awaiting { .. }) {
            self.must_close = Some(false);
            return;
        }
        if !self.session.has_begun() {
            self.stamps.first_ns = scene.now_ns;
        }
        let limits = &self.setting.limits;
        let received = self.session.received(bytes, limits, &mut self.answer);
        self.take(received, scene);
    }

    fn woken(&mut self, scene: &mut Scene<'_>) {
        if let Stage::Awaiting { until_ns } = self.stage
            && scene.now_ns >= until_ns
        {
            self.lost(
                ErrorKind::Timeout,
                || "no answer within the timeout".to_owned(),
                scene,
            );
        }
    }

    fn closed(&mut self, scene: &mut Scene<'_>) {
        self.is_connected = false;
        self.must_close = None;
        if matches!(self.stage, Stage::Sending | Stage::Awaiting { .. }) {
            let received = self.session.received_eof();
            self.take(received, scene);
        }
        self.must_close = None;
        self.session = ClientSession::new();
    }

    fn failed(&mut self, kind: ErrorKind, scene: &mut Scene<'_>) {
        self.is_connected = false;
        if self.stage == Stage::Opening {
            // No request was due; the next one will open another.
            scene.recorder.tally(scene.phase).error(kind);
            self.think(scene.now_ns, PAUSE_NS);
        }
        if matches!(
            self.stage,
            Stage::Connecting | Stage::Sending | Stage::Awaiting { .. }
        ) {
            self.lost(kind, || format!("the connection: {}", kind.name()), scene);
        }
        self.must_close = None;
        self.session = ClientSession::new();
    }

    fn abandoned(&mut self, scene: &mut Scene<'_>) {
        if self.stage != Stage::Done && self.ask.is_some() {
            scene.recorder.tally(self.phase).unfinished += 1;
            self.ask = None;
        }
        self.stage = Stage::Done;
    }

    fn requests_out(&self) -> u32 {
        u32::from(matches!(
            self.stage,
            Stage::Sending | Stage::Awaiting { .. }
        ))
    }
}

fn check_status(status: u16, expected: &[u16]) -> Result<(), Problem> {
    let Some(kind) = judge::status_fault(status, expected) else {
        return Ok(());
    };
    let wanted = match expected {
        [] => "200 to 299".to_owned(),
        list => list
            .iter()
            .map(u16::to_string)
            .collect::<Vec<_>>()
            .join(" or "),
    };
    Err((kind, format!("the status {status}, not {wanted}")))
}

fn named(fault: ReplyFault) -> &'static str {
    match fault {
        ReplyFault::ClosedEarly => "closed before an answer",
        ReplyFault::CutHead => "closed within the head of the answer",
        ReplyFault::CutContent { .. } => "closed within the content",
        ReplyFault::Malformed(text) => text,
        ReplyFault::Unsolicited => "bytes behind the last answer",
    }
}

/// Each user has random numbers of its own.
const fn stream(number: u64) -> Share {
    Share {
        index: number as u32,
        of: (number >> 32) as u32,
    }
}

/// From a random number to one from 0 to `most`.
fn spread(random: u64, most: u64) -> u64 {
    let wide = u128::from(random) * (u128::from(most) + 1);
    (wide >> 64) as u64
}
