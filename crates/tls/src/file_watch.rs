//! Looks after what TLS servers have read from files: what has changed is taken up again, random ticket keys
//! are replaced in time, and what is wrong with certificates is logged.

use std::collections::HashMap;
use std::io;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::{
    CertificateFiles, Certificates, ClientAuthorityFile, TicketFiles, Tickets, TlsServer, Warning,
    WarningKind,
};

/// How often files are looked at: a renewal is in service before anybody waits for it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Reloads that wait. Each reads the files as they are when it begins: a second one would find the same.
const RELOADS_MAX: usize = 1;
/// Between two warnings of the same kind for the same certificate.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);
/// After a panic the pause is so many times as long: the same bytes would panic again.
const AFTER_PANIC: u32 = 30;

/// Files that TLS servers use.
#[derive(Debug, Default)]
pub struct WatchedFiles {
    /// Certificates and their keys.
    pub certificates: Option<CertificateFiles>,
    /// Keys of tickets.
    pub tickets: Option<TicketFiles>,
    /// Authorities of client certificates.
    pub client_authorities: Option<ClientAuthorityFile>,
}

/// Keeps the files of TLS servers in service as they are now.
#[derive(Clone, Debug)]
pub struct FileWatch {
    servers: Vec<TlsServer>,
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    warns: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    files: WatchedFiles,
    warned: Warned,
}

/// Which warnings were given, and when.
#[derive(Debug, Default)]
struct Warned(HashMap<(String, WarningKind), SystemTime>);

/// Has files read again at once. They are looked after until the last clone of it is dropped.
#[must_use = "files are looked after only until it is dropped"]
#[derive(Clone, Debug)]
pub struct Reload(SyncSender<()>);

impl FileWatch {
    /// For a server, and others with the same certificates and options.
    pub fn new<'s>(
        server: &'s TlsServer,
        others: impl IntoIterator<Item = &'s TlsServer>,
        files: WatchedFiles,
    ) -> Self {
        let warned = Warned::default();
        Self {
            servers: iter::once(server).chain(others).cloned().collect(),
            certificates: Arc::clone(server.certificates()),
            tickets: Arc::clone(server.tickets()),
            warns: true,
            state: Arc::new(Mutex::new(State { files, warned })),
        }
    }

    /// Whether what is wrong with certificates is logged. Whoever renews them may say so instead.
    #[must_use]
    pub fn warns(mut self, warns: bool) -> Self {
        self.warns = warns;
        self
    }

    /// Looks at the files every two seconds, on a thread of its own, and logs what was taken up.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&self) -> io::Result<Reload> {
        let (sender, signals) = sync_channel(RELOADS_MAX);
        let watch = self.clone();
        let take_up = move |look| watch.take_up(look, SystemTime::now());
        let look_after = move || follow(&signals, LOOK_EVERY, take_up);
        let builder = std::thread::Builder::new().name("certificates".into());
        builder.spawn(look_after)?;
        Ok(Reload(sender))
    }

    /// Logs what is wrong with certificates and keys now; the same again after a day at the earliest.
    pub fn warn(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.warn_at(&mut state.warned, SystemTime::now());
    }

    /// Looks at the files, takes up what they have, and says what is wrong with what is in service.
    fn take_up(&self, look: Look, now: SystemTime) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { files, warned } = &mut *state;
        let certificates = files.certificates.as_mut();
        let (tickets, clients) = (files.tickets.as_mut(), files.client_authorities.as_mut());
        let servers: Vec<&TlsServer> = self.servers.iter().collect();
        let (certificates, tickets, clients) = match look {
            Look::IfChanged => {
                self.tickets.rotate();
                let certificates = certificates.map(CertificateFiles::refresh);
                let clients = clients.and_then(|it| it.refresh(&servers));
                (
                    certificates,
                    tickets.and_then(TicketFiles::refresh),
                    clients,
                )
            }
            Look::Anew => {
                let certificates = certificates.map(CertificateFiles::reload);
                let clients = clients.map(|it| it.reload(&servers));
                (certificates, tickets.map(TicketFiles::reload), clients)
            }
        };
        let certificates = certificates.unwrap_or_default();
        for error in &certificates.errors {
            tracing::error!("certificates of before stay in service: {error}");
        }
        if certificates.is_any {
            tracing::info!("certificates taken up again");
            *warned = Warned::default();
        }
        match tickets {
            Some(Ok(())) => tracing::info!("ticket keys taken up again"),
            Some(Err(error)) => tracing::error!("ticket keys of before stay in service: {error}"),
            None => {}
        }
        match clients {
            Some(Ok(())) => tracing::info!("authorities of clients taken up again"),
            Some(Err(error)) => {
                tracing::error!("authorities of clients of before stay in service: {error}");
            }
            None => {}
        }
        self.certificates.passed(now);
        self.warn_at(warned, now);
    }

    fn warn_at(&self, warned: &mut Warned, now: SystemTime) {
        let mut warnings = self.tickets.key_warnings();
        if self.warns {
            warnings.extend(self.certificates.warnings(now));
        }
        for warning in warned.due(warnings, now) {
            tracing::warn!("{warning}");
        }
    }
}

impl Warned {
    /// Those that are to be given now, of all that there are: new ones, and each again after a day.
    fn due(&mut self, all: Vec<Warning>, now: SystemTime) -> Vec<Warning> {
        let before = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for warning in all {
            let key = (warning.label.clone(), warning.kind);
            let given = before.get(&key).copied().filter(|at| {
                let apart = now.duration_since(*at);
                apart.unwrap_or_else(|error| error.duration()) < WARN_EVERY
            });
            // Several pairs may have a file in common.
            let is_first = self.0.insert(key, given.unwrap_or(now)).is_none();
            if given.is_none() && is_first {
                due.push(warning);
            }
        }
        due
    }
}

impl Reload {
    /// All files are read, whether they have changed or not. Returns at once.
    pub fn now(&self) {
        let _ = self.0.try_send(()); // one that waits already reads the files as they are now
    }
}

/// How files are looked at.
enum Look {
    IfChanged,
    Anew,
}

/// Looks at files again and again, and anew at each signal, until nobody can send one. A panic, of bytes
/// that nobody has thought of, costs the look that it came from, and the next ones for a while.
fn follow(signals: &Receiver<()>, every: Duration, mut turn: impl FnMut(Look)) {
    let mut pause = every;
    loop {
        let look = match signals.recv_timeout(pause) {
            Ok(()) => Look::Anew,
            Err(RecvTimeoutError::Timeout) => Look::IfChanged,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        pause = every;
        if catch_unwind(AssertUnwindSafe(|| turn(look))).is_err() {
            pause = every * AFTER_PANIC;
            tracing::error!(
                "certificates, ticket keys and authorities of before stay in service: a panic while their \
                 files were looked at; the next look is in {pause:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::{Certificate, TlsOptions, self_signed};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_certificate_that_expires_meanwhile_is_warned_of_once_and_then_each_day() {
        let (day, second) = (DAY, Duration::from_secs(1));
        let certificate = self_signed(&["localhost".to_owned()]).unwrap();
        let end = certificate.not_after();
        let certificates = Certificates::new(vec![certificate]);
        let mut warned = Warned::default();
        for (now, expected) in [
            (end - 30 * day, None),
            (end - 6 * day, Some("expires in 6 days")),
            (end - 6 * day + second, None),
            (end - 6 * day - second, None), // the clock was set back
            (end - 5 * day, Some("expires in 5 days")),
            (end - 4 * day - second, None),
            (end - second, Some("expires in 0 hours")),
            (end, Some("expired 0 hours ago")),
            (end + day - second, None),
            (end + day, Some("expired 24 hours ago")),
        ] {
            let due = warned.due(certificates.warnings(now), now);
            let said = due.first().map(ToString::to_string);
            assert_eq!(said.is_some(), expected.is_some(), "{said:?}, {expected:?}");
            let (said, expected) = (said.unwrap_or_default(), expected.unwrap_or_default());
            assert!(said.contains(expected), "{said}, {expected}");
        }
        // It was renewed, and the new one lasts.
        assert!(warned.due(Vec::new(), end + day).is_empty());
        assert!(warned.0.is_empty());
    }

    /// For `localhost`, from the first day of one year to that of another.
    fn lasting(label: &str, from: i32, to: i32) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let (chain, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        Certificate::from_pem((label, chain.as_bytes()), ("k.pem", key.as_bytes())).unwrap()
    }

    #[test]
    fn what_two_pairs_have_in_common_is_warned_of_once() {
        let all = vec![lasting("c.pem", 2000, 2001), lasting("c.pem", 2000, 2001)];
        let certificates = Certificates::new(all);
        let mut warned = Warned::default();
        let now = SystemTime::now();
        for expected in [1, 0] {
            let due = warned.due(certificates.warnings(now), now);
            let expired = due.iter().filter(|it| it.kind == WarningKind::Expired);
            assert_eq!(expired.count(), expected);
        }
    }

    #[test]
    fn a_look_at_files_that_have_not_changed_follows_the_clock() {
        let all = vec![
            lasting("first.pem", 2000, 3000),
            lasting("second.pem", 3000, 4000),
        ];
        let certificates = Arc::new(Certificates::new(all));
        let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        let watch = FileWatch::new(&server, [], WatchedFiles::default());
        let now = SystemTime::now();
        let later = now + DAY * (1_500 * 365);
        for (time, unused) in [(now, "second.pem"), (later, "first.pem")] {
            watch.take_up(Look::IfChanged, time);
            let mut warnings = certificates.warnings(time).into_iter();
            let warning = warnings.find(|it| it.kind == WarningKind::Unused);
            assert_eq!(warning.unwrap().label, unused);
        }
    }

    #[test]
    fn reloads_that_come_faster_than_files_are_read_do_not_pile_up() {
        let (sender, signals) = sync_channel(RELOADS_MAX);
        let reload = Reload(sender);
        for _ in 0..2 {
            (0..1000).for_each(|_| reload.now());
            assert_eq!(signals.try_iter().count(), 1);
        }
    }

    #[test]
    fn a_look_that_panics_is_not_the_last_one() {
        let (sender, signals) = sync_channel(RELOADS_MAX);
        let mut own = Some(sender);
        own.iter().for_each(|it| it.send(()).unwrap());
        let mut looks = 0;
        follow(&signals, Duration::ZERO, |look| {
            looks += 1;
            match look {
                Look::Anew => panic!("on purpose"),
                Look::IfChanged => own = None, // the end
            }
        });
        assert_eq!(looks, 2);
    }
}
