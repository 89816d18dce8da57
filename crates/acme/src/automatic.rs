//! Certificates that are ordered and renewed as the schedule says: one step in each turn, by a clock that
//! the caller reads.

mod served;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use loadline_tls::{Authorities, Certificates};

use crate::authority::{Authority, UnderWay, Wanted};
use crate::challenges::{Method01, Shown, Tokens};
use crate::failed::{Failed, Why};
use crate::https::{Http, is_url};
use crate::schedule::{Draw, Schedule, Step};
use crate::state_dir::StateDir;
use crate::{AcmeError, ExternalAccount, Reason, UnixTime};
use served::{Served, file};

/// How long the thread sleeps at most: the clock may be set meanwhile.
const SLEEP_MOST: Duration = Duration::from_secs(600);
/// Between two steps of the thread, at least.
const SLEEP_LEAST: Duration = Duration::from_millis(100);

/// Between two tries to tell the authority another address.
const CONTACT_EVERY: Duration = Duration::from_secs(24 * 3600);

const SCHEDULE: &str = "schedule.json";

/// What can be chosen about automatic certificates.
#[derive(Clone, Debug)]
pub struct AcmeOptions {
    /// Whom the authority writes to.
    pub email: String,
    /// The names, each with a certificate of its own: plain DNS names in lower case.
    pub names: Vec<String>,
    /// The authority: the URL of its directory.
    pub directory: String,
    /// Who signs the certificate of the authority's own server.
    pub trusted: Authorities,
    /// The state directory.
    pub folder: PathBuf,
    /// The authority's terms are agreed to.
    pub terms_agreed: bool,
    /// An account that the authority has already, to which the one for certificates is bound.
    pub external_account: Option<ExternalAccount>,
    /// How names are validated: the next one after each failure.
    pub methods: Vec<Method01>,
    /// Between two looks at an order, if the authority does not say.
    pub look_every: Duration,
}

/// Certificates that are ordered and renewed.
pub struct Automatic {
    options: AcmeOptions,
    authority: Authority,
    schedule: Schedule,
    certificates: Arc<Certificates>,
    tokens: Tokens,
    served: Served,
    /// Responses to challenges of orders under way, by name.
    shown: BTreeMap<String, Vec<Shown>>,
    /// The ends of certificates that end before others may be ordered, by name.
    late: BTreeMap<String, UnixTime>,
    /// When the account was last to be updated with the present address; `None`: it has it.
    contact_tried_at: Option<UnixTime>,
    report: Arc<Mutex<Report>>,
    /// What panics.
    #[cfg(test)]
    fault: Option<tests::Fault>,
}

/// What an operator wants to know.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Names that have no certificate yet.
    pub names_without: u64,
    /// Certificates that have ended, or end before others may be ordered.
    pub late: u64,
    /// How often the authority, or a name, has failed since it last succeeded.
    pub failures: u32,
    /// Certificates since the start.
    pub issued: u64,
    /// When something is done next.
    pub next: UnixTime,
    /// What went wrong last; empty if nothing has since a certificate came.
    pub last_error: String,
}

impl Automatic {
    /// Reads what there is. Nothing is asked of the authority, but for its terms if they are to be agreed
    /// to. The certificates that there are, are in service from now on; responses to challenges are among
    /// these certificates and tokens.
    ///
    /// # Errors
    /// The URL of the directory is none, the state directory cannot be used, or the terms are to be agreed
    /// to.
    pub fn open(
        options: AcmeOptions,
        certificates: &Arc<Certificates>,
        tokens: &Tokens,
    ) -> Result<Self, AcmeError> {
        if !is_url(&options.directory) {
            return Err(AcmeError::Directory(options.directory)); // the library would panic, each time
        }
        let authority = Authority {
            http: Http::new(&options.trusted)?,
            state: StateDir::open(&options.folder, &options.directory)?,
            url: options.directory.clone(),
            look_every: options.look_every,
        };
        let has_account = authority.has_account()?;
        if !has_account && !options.terms_agreed {
            return Err(terms(&authority));
        }
        let schedule = authority.state.read(SCHEDULE)?;
        let schedule = schedule.and_then(|kept| match serde_json::from_slice(&kept) {
            Ok(schedule) => Some(schedule),
            Err(error) => {
                let path = authority.state.path(SCHEDULE);
                tracing::warn!("{}: {error}; it is begun anew", path.display());
                None
            }
        });
        let mut schedule = match schedule {
            Some(schedule) => Schedule::resumed(schedule, &options.names, draw()),
            None => Schedule::new(&options.names, draw()),
        };
        schedule.registered(has_account);
        let mut it = Self {
            contact_tried_at: authority.contact_tried_at(&options.email)?,
            options,
            authority,
            schedule,
            certificates: Arc::clone(certificates),
            tokens: tokens.clone(),
            served: Served::default(),
            shown: BTreeMap::new(),
            late: BTreeMap::new(),
            report: Arc::default(),
            #[cfg(test)]
            fault: None,
        };
        for name in it.options.names.clone() {
            it.load(&name);
        }
        it.serve();
        Ok(it)
    }

    /// How it stands, at any time.
    #[must_use]
    pub fn report(&self) -> Arc<Mutex<Report>> {
        Arc::clone(&self.report)
    }

    /// Does what is due now, one step of it. Returns when the next one is due, which may be now.
    pub fn turn(&mut self, now: UnixTime) -> UnixTime {
        #[cfg(test)]
        assert!(self.fault != Some(tests::Fault::Turn), "on purpose");
        let began = Instant::now();
        self.follow_address(now);
        let step = self.schedule.passed(now);
        if let Step::Wait(until) = step {
            self.time_passed(now);
            self.note(|report| report.next = until);
            return until;
        }
        // A panic is a failure as any other: it is tried again after a pause, which grows.
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(&step, now)));
        let done = done.unwrap_or_else(|panic| Err(Failed::refused(panicked(panic.as_ref()))));
        let now = now.plus(began.elapsed());
        if let Err(failed) = done {
            self.failed(&step, &failed, now);
        }
        self.time_passed(now);
        if let Err(error) = self.keep() {
            tracing::error!("acme: {error}");
        }
        now
    }

    /// Does what is due, on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(mut self) -> io::Result<()> {
        let work = move || {
            loop {
                thread::sleep(self.turn_guarded());
            }
        };
        thread::Builder::new().name("acme".into()).spawn(work)?;
        Ok(())
    }

    /// A turn, whatever panics in it. Returns how long to sleep then.
    fn turn_guarded(&mut self) -> Duration {
        match catch_unwind(AssertUnwindSafe(|| self.turn(UnixTime::now()))) {
            Ok(next) => (next.since(UnixTime::now())).clamp(SLEEP_LEAST, SLEEP_MOST),
            Err(panic) => {
                let text = panicked(panic.as_ref());
                tracing::error!("acme: {text}; the next try is in {SLEEP_MOST:?}");
                self.note(|report| {
                    report.failures += 1;
                    report.last_error = text;
                });
                SLEEP_MOST
            }
        }
    }

    fn carry_out(&mut self, step: &Step, now: UnixTime) -> Result<(), Failed> {
        #[cfg(test)]
        assert!(self.fault != Some(tests::Fault::Step), "on purpose");
        match step {
            Step::Register => self.register(now),
            Step::Order(name) => self.order(name, now),
            Step::Inquire(name) => self.inquire(name, now),
            Step::Wait(_) => Ok(()),
        }
    }

    fn register(&mut self, now: UnixTime) -> Result<(), Failed> {
        if !self.options.terms_agreed {
            return Err(Failed::refused(
                "the authority's terms are to be agreed to again, for another account",
            ));
        }
        self.schedule.registering(now);
        self.keep()?;
        let external = self.options.external_account.as_ref();
        self.authority.register(&self.options.email, external)?;
        self.schedule.registered(true);
        self.contact_tried_at = None;
        tracing::info!("acme: an account at {}", self.options.directory);
        Ok(())
    }

    /// Tells the authority the address if the account has another one. Certificates do not depend on it.
    fn follow_address(&mut self, now: UnixTime) {
        let Some(tried_at) = self.contact_tried_at else {
            return;
        };
        let tried_at = tried_at.min(now); // what lies ahead is of a clock that was wrong
        self.contact_tried_at = Some(tried_at);
        if now < tried_at.plus(CONTACT_EVERY) || now < self.schedule.next_try(None) {
            return;
        }
        self.contact_tried_at = Some(now); // also if this one panics
        let email = &self.options.email;
        match self.authority.update_contact(email, now) {
            Ok(()) => {
                self.contact_tried_at = None;
                tracing::info!("acme: the account has the address {email} now");
            }
            Err(failed) => tracing::warn!(
                "acme: {}: the account does not have the address {email} yet: {}; the next try is in a day",
                self.options.directory,
                failed.message
            ),
        }
    }

    fn order(&mut self, name: &str, now: UnixTime) -> Result<(), Failed> {
        let began = Instant::now();
        self.forget_done_order(name)?;
        if !self.authority.has_order(name) {
            self.schedule.order_ended(name);
        }
        self.schedule.ordering(name, now);
        self.keep()?;
        let mut methods = self.options.methods.clone();
        let turn = self.schedule.failures_of(name) as usize % methods.len().max(1);
        methods.rotate_left(turn);
        let shared = (&self.tokens, &self.certificates);
        let show = |method, token: &str, response: &str, digest: &[u8]| {
            let shown = Shown::new(method, (name, token), (response, digest), shared);
            shown.map_err(|error| Failed::refused(error.to_string()))
        };
        let wanted = Wanted {
            name,
            before: self.served.newest(name),
            has_failed_often: self.schedule.has_failed_often(name),
            methods,
            show: &show,
        };
        let shown = self.shown.entry(name.to_owned()).or_default();
        let mut order = self.authority.make_ready(&wanted, shown)?;
        self.finalize(&mut order, name, now)?;
        self.authority.wait_until_valid(&mut order)?;
        self.schedule.granted(name, now);
        self.keep()?;
        let pem = self.authority.download(&mut order)?;
        let now = now.plus(began.elapsed());
        let state = &self.authority.state;
        let validity = self.served.take_up(state, name, pem.as_bytes(), now)?;
        if let Err(error) = self.authority.forget_order(name) {
            tracing::warn!("acme: {name}: {error}; it is removed before the next order");
        }
        self.shown.remove(name);
        self.serve();
        self.schedule.issued(name, validity, now);
        let renew_at = self.schedule.next_try(Some(name));
        tracing::info!(
            "acme: {name}: a certificate until {}; it is renewed from {renew_at} on",
            validity.to
        );
        self.note(|report| {
            report.issued += 1;
            report.last_error.clear();
        });
        Ok(())
    }

    /// Removes the order of the certificate that is in service, if it is still there. It would be gone on with.
    fn forget_done_order(&self, name: &str) -> Result<(), Failed> {
        let state = &self.authority.state;
        let pem = state.read(&file(name)).ok().flatten();
        let pem = pem.filter(|_| self.served.newest(name).is_some());
        match pem.is_some_and(|pem| self.authority.has_order_of(name, &pem)) {
            true => (self.authority.forget_order(name)).map_err(Failed::of_file),
            false => Ok(()),
        }
    }

    /// That a certificate may exist has to be known after a restart, too, though no response comes before it.
    fn finalize(&mut self, order: &mut UnderWay, name: &str, now: UnixTime) -> Result<(), Failed> {
        let was_finalized = self.schedule.certificate_may_exist(name);
        self.schedule.finalized(name, now);
        self.keep()?;
        let finalized = self.authority.finalize(order, name);
        finalized.inspect_err(|failed| {
            if !failed.keeps_order && !was_finalized {
                self.schedule.finalization_refused(name);
            }
        })
    }

    fn inquire(&mut self, name: &str, now: UnixTime) -> Result<(), Failed> {
        let Some(certificate) = self.served.newest(name) else {
            return Ok(());
        };
        let before = self.schedule.renew_at(name);
        let (window, again) = self.authority.renewal(certificate)?;
        self.schedule.inquired(name, window, again, now);
        let renew_at = self.schedule.renew_at(name);
        if let Some(renew_at) = renew_at.filter(|_| renew_at != before) {
            tracing::info!(
                "acme: {name}: it is renewed from {renew_at} on, as the authority suggests"
            );
        }
        Ok(())
    }

    /// Says what went wrong, and when it is tried again.
    fn failed(&mut self, step: &Step, failed: &Failed, now: UnixTime) {
        let name = match step {
            Step::Order(name) => Some(name.as_str()),
            _ => None,
        };
        let is_forgotten = name.is_some_and(|name| self.ends_order(name, failed, now));
        let what = name.unwrap_or(&self.options.directory);
        let mut text = format!("{what}: {}", failed.message);
        let reason = match failed.why {
            Why::Failed(reason) => reason,
            Why::OrderLost if is_forgotten => {
                tracing::warn!("acme: {text}; another one is made");
                return;
            }
            Why::OrderLost => Reason::Refused, // without a pause it would be lost again at once
            Why::AccountLost => {
                if let Err(error) = self.account_lost() {
                    text.push_str(&format!("; no other account is made: {error}"));
                }
                Reason::Unreachable
            }
        };
        let retry_after = failed.retry_after;
        match step {
            Step::Inquire(name) => self.schedule.inquiry_failed(name, reason, retry_after, now),
            _ => self.schedule.failed(name, reason, retry_after, now),
        }
        let next = self.schedule.next_try(name).max(now);
        tracing::warn!("acme: {text}; the next try is at {next}");
        self.note(|report| report.last_error = text);
    }

    /// Whether there was an order of a name that is not gone on with after a failure, and is forgotten now.
    fn ends_order(&mut self, name: &str, failed: &Failed, now: UnixTime) -> bool {
        if self.keeps_order(name, failed, now) {
            if !self.authority.has_order(name) {
                self.schedule.order_ended(name); // none was made
            }
            return false;
        }
        self.schedule.order_ended(name);
        self.shown.remove(name);
        let forgotten = self.authority.forget_order(name);
        let forgotten = forgotten.inspect_err(|error| tracing::error!("acme: {error}"));
        forgotten.is_ok()
    }

    /// Another account is made, once this one is kept elsewhere: the authority may be in error about it, and the key
    /// is nowhere else.
    fn account_lost(&mut self) -> Result<(), AcmeError> {
        let aside = self.authority.set_account_aside()?;
        self.schedule.registered(false);
        self.contact_tried_at = None; // the other one is made with the address
        if let Some(aside) = aside {
            tracing::warn!(
                "acme: {}: the account cannot be used: it is kept as {}, and another one is made",
                self.options.directory,
                aside.display()
            );
        }
        Ok(())
    }

    /// Whether the order of a name is gone on with after a failure: for a while at most. One whose certificate may
    /// exist is, some times, though it is refused or lost, or the account is: the key is nowhere else.
    fn keeps_order(&mut self, name: &str, failed: &Failed, now: UnixTime) -> bool {
        if self.schedule.order_is_overdue(name, now) {
            return false;
        }
        match failed.why {
            Why::OrderLost => failed.keeps_order && self.schedule.certificate_may_exist(name),
            _ if failed.keeps_order => true,
            Why::Failed(Reason::Refused) | Why::AccountLost => self.schedule.order_refused(name),
            _ => false,
        }
    }

    /// What follows from the time alone.
    fn time_passed(&mut self, now: UnixTime) {
        if self.served.passed(&self.authority.state, now) {
            self.serve();
        }
        self.certificates.passed(now.into());
        self.look_for_late(now);
    }

    /// Says of each certificate that ends before another one may be ordered, once.
    fn look_for_late(&mut self, now: UnixTime) {
        let end = |name: &String| Some((name.clone(), self.schedule.ends_unrenewed(name, now)?));
        let late: BTreeMap<_, _> = self.options.names.iter().filter_map(end).collect();
        for (name, end) in &late {
            if self.late.get(name) != Some(end) {
                let next = self.schedule.next_try(Some(name)).max(now);
                tracing::warn!(
                    "acme: {name}: the certificate ends at {end}, before the next try at {next}"
                );
            }
        }
        self.note(|report| report.late = late.len() as u64);
        self.late = late;
    }

    /// A certificate from its file. One that cannot be used is ordered anew.
    fn load(&mut self, name: &str) {
        let loaded = self.served.load(&self.authority.state, name);
        let validity = loaded.unwrap_or_else(|failed| {
            tracing::warn!("acme: {name}: {}; another one is ordered", failed.message);
            None
        });
        self.schedule.loaded(name, validity);
    }

    /// Serves what there is. The first certificate is for clients that ask for none of the names.
    fn serve(&self) {
        let (mut all, mut awaited) = (Vec::new(), Vec::new());
        for name in &self.options.names {
            let count = all.len();
            all.extend(self.served.of(name).cloned());
            if all.len() == count {
                awaited.push(name.clone());
            }
        }
        let without = awaited.len() as u64;
        self.certificates.replace_awaiting(all, awaited);
        self.note(|report| report.names_without = without);
    }

    /// Writes what was asked and what is due.
    fn keep(&self) -> Result<(), AcmeError> {
        self.note(|report| report.failures = self.schedule.failures());
        match serde_json::to_vec(&self.schedule) {
            Ok(text) => self.authority.state.write(SCHEDULE, &text),
            Err(_) => Ok(()), // maps by text and numbers: there is nothing that JSON cannot say
        }
    }

    fn note(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Where the terms are.
fn terms(authority: &Authority) -> AcmeError {
    let url = authority.url.clone();
    match authority.directory() {
        Ok(directory) => match directory.terms_of_service {
            Some(terms) => AcmeError::Terms(terms),
            None => AcmeError::Terms(format!("{url} (which names none)")),
        },
        Err(failed) => AcmeError::TermsUnknown {
            url,
            why: failed.message,
        },
    }
}

/// What a panic says.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a panic: {}", text.unwrap_or("no message"))
}

/// Jitter from the kernel.
fn draw() -> Draw {
    Box::new(|| {
        let mut bytes = [0; 4];
        match getrandom::fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
            Err(_) => 0.5,
        }
    })
}
