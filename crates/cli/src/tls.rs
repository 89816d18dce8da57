//! TLS of `loadline serve`: certificates from files, of an authority or made here, taken up again when they
//! change, and what the status page says of them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use loadline_acme::{Automatic, Report, Tokens};
use loadline_observe::{Figure, Section};
use loadline_spec::serve::{ClientCertificate, Listen, RequestSpec, TlsProfile, TlsSpec};
use loadline_tls::{
    Certificate, CertificateFiles, CertificatePair, Certificates, ClientAuthorityFile, Profile,
    TicketFiles, Tickets, TlsError, TlsOptions, TlsServer, Warning, WarningKind, key_file_warning,
    self_signed,
};

use crate::acme;
use crate::failure::Failure;
use crate::flags::high::Plan;

/// A day in seconds.
const DAY_S: u64 = 24 * 3600;

/// How often files of certificates are looked at: a renewal is in service before anybody waits for it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two warnings of the same kind for the same certificate.
const WARN_EVERY: Duration = Duration::from_secs(DAY_S);
/// After a panic the pause is so many times as long: the same bytes would panic again.
const AFTER_PANIC: u32 = 30;

/// TLS of a server.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) server: TlsServer,
    /// For the server's own pages: with handshakes and counts of its own, so that they respond whatever the
    /// site has to do.
    pub(crate) admin: Option<TlsServer>,
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    files: Arc<Mutex<Files>>,
    /// The certificate was made here.
    is_self_signed: bool,
    automatic: Option<OfAuthority>,
}

/// Certificates that an authority gives.
#[derive(Clone)]
struct OfAuthority {
    tokens: Tokens,
    report: Arc<Mutex<Report>>,
    /// Of the key of an external account, which is read at the start only.
    key_warning: Option<Warning>,
    /// Until its thread is started.
    waiting: Arc<Mutex<Option<Automatic>>>,
}

/// What it was read from.
struct Files {
    certificates: Option<CertificateFiles>,
    tickets: Option<TicketFiles>,
    client_authorities: Option<ClientAuthorityFile>,
    warned: Warned,
}

/// Which warnings were given, and when.
#[derive(Default)]
struct Warned(HashMap<(String, WarningKind), SystemTime>);

/// Has certificates taken up again at once.
#[derive(Clone)]
pub(crate) struct Reload(Sender<()>);

impl Tls {
    /// Reads certificates and keys; `None`: no address speaks TLS.
    pub(crate) fn open(plan: &Plan) -> Result<Option<Self>, Failure> {
        let spec = &plan.flags.tls;
        let of_pages = &plan.flags.running.admin_listen;
        let addresses = plan.flags.listen.iter().chain(of_pages);
        let addresses: Vec<SocketAddr> = addresses.filter_map(https).collect();
        if addresses.is_empty() {
            return Ok(None);
        }
        let of_files = of_files(spec)?;
        let certificates = match &of_files {
            Some(files) => Arc::clone(files.certificates()),
            None if spec.tls.is_some() => {
                let certificate = self_signed(&names(&addresses));
                let certificate = certificate.map_err(|error| refused("--tls", &error))?;
                Arc::new(Certificates::new(vec![certificate]))
            }
            None => Arc::default(), // those of an authority
        };
        let tickets = match spec.tls_ticket_key.is_empty() {
            true => None,
            false => {
                let paths = spec.tls_ticket_key.iter().map(|path| path.0.clone());
                let files = TicketFiles::load(paths.collect());
                Some(files.map_err(|error| refused("--tls-ticket-key", &error))?)
            }
        };
        let client_authorities = client_authorities(spec)?;
        let clients = client_authorities.as_ref();
        let options = options(spec, &plan.flags.requests, tickets.as_ref(), clients);
        let server = || {
            let server = TlsServer::new(&certificates, &options);
            server.map_err(|error| refused("--tls-client-ca", &error))
        };
        let has_admin = of_pages.iter().any(|listen| https(listen).is_some());
        let tokens = Tokens::default();
        let automatic = acme::open(&plan.flags, &certificates, &tokens)?;
        let external_key = plan.flags.acme.acme_eab_key.as_ref();
        let key_warning = external_key.and_then(|it| key_file_warning(&it.0, "the HMAC key"));
        let tls = Self {
            server: server()?,
            admin: has_admin.then(server).transpose()?,
            automatic: automatic.map(|it| OfAuthority::new(it, tokens, key_warning)),
            certificates,
            tickets: options.tickets,
            is_self_signed: spec.tls.is_some(),
            files: Arc::new(Mutex::new(Files {
                certificates: of_files,
                tickets,
                client_authorities,
                warned: Warned::default(),
            })),
        };
        tls.warn(&mut tls.files().warned, SystemTime::now());
        if let Some(warning) = tls.external_key_warning() {
            tracing::warn!("{warning}");
        }
        Ok(Some(tls))
    }

    /// Looks after the files, on a thread of its own, until the process ends.
    pub(crate) fn look_after(&self) -> io::Result<Reload> {
        let (sender, signals) = channel();
        let tls = self.clone();
        let take_up = move |look| tls.take_up(look, SystemTime::now());
        let look_after = move || follow(&signals, LOOK_EVERY, take_up);
        let builder = std::thread::Builder::new().name("certificates".into());
        builder.spawn(look_after)?;
        let automatic = self.automatic.as_ref();
        if let Some(automatic) = automatic.and_then(OfAuthority::take) {
            automatic.start()?;
        }
        Ok(Reload(sender))
    }

    /// Responses to an authority's challenges over HTTP.
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.automatic.as_ref().map(|it| it.tokens.clone())
    }

    /// How it stands with an authority.
    pub(crate) fn report(&self) -> Option<Arc<Mutex<Report>>> {
        self.automatic.as_ref().map(|it| Arc::clone(&it.report))
    }

    /// What the status page shows.
    pub(crate) fn section(tls: Option<&Self>) -> Section {
        let tls = tls.cloned();
        Section::new("tls", move || {
            let tls = tls.as_ref()?;
            let counts = tls.server.counts();
            let now = SystemTime::now();
            let all = tls.certificates.all();
            let left = all.iter().map(|it| it.not_after().duration_since(now));
            let least = left.map(Result::unwrap_or_default).min();
            let least_s = least.map_or(0, |left| left.as_secs());
            let warned = all.iter().filter(|it| it.warning(now).is_some());
            let of_tickets = tls.tickets.key_warnings();
            let readable = all.iter().filter_map(Certificate::key_warning);
            let readable = readable
                .chain(&of_tickets)
                .chain(tls.external_key_warning());
            let readable: HashSet<&str> = readable.map(|it| it.label.as_str()).collect();
            Some(vec![
                Figure::new("handshakes_full", counts.full),
                Figure::new("handshakes_resumed", counts.resumed),
                Figure::new("handshakes_failed", counts.failed),
                Figure::new("handshakes_refused", counts.refused),
                Figure::new("handshakes_timed_out", counts.timed_out),
                Figure::new("plaintext_connections", counts.plaintext),
                Figure::new("truncated_connections", counts.truncated),
                Figure::gauge("certificates", all.len() as u64),
                Figure::gauge("certificates_to_renew", warned.count() as u64),
                Figure::gauge("certificate_seconds_left", least_s),
                Figure::gauge("keys_readable_by_others", readable.len() as u64),
            ])
        })
    }

    /// What is said at the start.
    pub(crate) fn text(&self) -> &'static str {
        let report = self.automatic.as_ref().map(|it| it.report.lock());
        let report = report.map(|it| it.unwrap_or_else(PoisonError::into_inner));
        match report {
            Some(report) if report.names_without > 0 => {
                "loadline: some names have no certificate: their handshakes fail until the \
                 authority has issued one\n"
            }
            _ if self.is_self_signed => {
                "loadline: the certificate is self-signed: clients warn of it, or accept it with \
                 an option such as curl --insecure\n"
            }
            _ => "",
        }
    }

    fn external_key_warning(&self) -> Option<&Warning> {
        self.automatic.as_ref()?.key_warning.as_ref()
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the files, takes up what they have, and says what is wrong with what is in service.
    fn take_up(&self, look: Look, now: SystemTime) {
        let mut files = self.files();
        let Files {
            certificates,
            tickets,
            client_authorities,
            warned,
        } = &mut *files;
        let (certificates, tickets) = (certificates.as_mut(), tickets.as_mut());
        let clients = client_authorities.as_mut();
        let servers: Vec<&TlsServer> = iter::once(&self.server).chain(&self.admin).collect();
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
        self.warn(warned, now);
    }

    fn warn(&self, warned: &mut Warned, now: SystemTime) {
        let mut warnings = self.tickets.key_warnings();
        // Certificates that are about to be renewed need no warning.
        if self.automatic.is_none() {
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

impl OfAuthority {
    fn new(automatic: Automatic, tokens: Tokens, key_warning: Option<Warning>) -> Self {
        Self {
            tokens,
            report: automatic.report(),
            key_warning,
            waiting: Arc::new(Mutex::new(Some(automatic))),
        }
    }

    fn take(&self) -> Option<Automatic> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.take()
    }
}

impl Reload {
    pub(crate) fn now(&self) {
        let _ = self.0.send(()); // there is nobody only at the end
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

/// An address that speaks TLS.
pub(crate) fn https(listen: &Listen) -> Option<SocketAddr> {
    match listen {
        Listen::Https(address) => Some(*address),
        Listen::Tcp(_) | Listen::Unix(_) => None,
    }
}

/// Certificates in files, if there are any.
fn of_files(spec: &TlsSpec) -> Result<Option<CertificateFiles>, Failure> {
    if spec.tls_cert.is_empty() {
        return Ok(None);
    }
    let pairs = spec.tls_cert.iter().zip(&spec.tls_key);
    let pairs = pairs.map(|(certificate, key)| CertificatePair {
        certificate: certificate.0.clone(),
        key: key.0.clone(),
    });
    let files = CertificateFiles::load(pairs.collect());
    Ok(Some(files.map_err(|error| refused("--tls-cert", &error))?))
}

/// The authorities of client certificates, if clients are asked.
fn client_authorities(spec: &TlsSpec) -> Result<Option<ClientAuthorityFile>, Failure> {
    let Some(path) = &spec.tls_client_ca else {
        return Ok(None);
    };
    let is_optional = spec.tls_client_cert.map(|it| it.0) == Some(ClientCertificate::Optional);
    let file = ClientAuthorityFile::load(path.0.clone(), is_optional);
    let file = file.map_err(|error| refused("--tls-client-ca", &error))?;
    Ok(Some(file))
}

fn options(
    spec: &TlsSpec,
    requests: &RequestSpec,
    tickets: Option<&TicketFiles>,
    clients: Option<&ClientAuthorityFile>,
) -> TlsOptions {
    let defaults = TlsOptions::default();
    TlsOptions {
        profile: match spec.tls_profile.map(|it| it.0) {
            Some(TlsProfile::Modern) => Profile::Modern,
            Some(TlsProfile::Intermediate) | None => Profile::Intermediate,
        },
        tickets: tickets.map_or(defaults.tickets, |files| Arc::clone(files.tickets())),
        client_certificates: clients
            .map(|it| it.certificates().clone())
            .unwrap_or_default(),
        early_data: spec.tls_early_data.0,
        handshakes_max: spec.tls_handshakes_max.get(),
        handshakes_shared: requests.fairness.0,
        http2: requests.http2.map(|it| it.0).unwrap_or_default(),
        hsts_max_age_s: hsts_max_age_s(spec),
    }
}

/// `max-age` of `Strict-Transport-Security`, if it was given.
pub(crate) fn hsts_max_age_s(spec: &TlsSpec) -> Option<u64> {
    spec.hsts.map(|days| days.get() as u64 * DAY_S)
}

/// What a certificate for trying things out is for.
fn names(addresses: &[SocketAddr]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".into(), "::1".into()];
    for address in addresses {
        let name = address.ip().to_string();
        if !address.ip().is_unspecified() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn refused(option: &str, error: &TlsError) -> Failure {
    Failure::usage(format!("{option}: {error}"))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::flags::serve_spec;

    fn options_of(line: &str) -> TlsOptions {
        let spec = serve_spec(line).unwrap();
        options(&spec.tls, &spec.requests, None, None)
    }

    #[test]
    fn options_are_what_was_given() {
        let given = options_of(
            "--tls-profile modern --tls-handshakes-max 7 --tls-early-data on --fairness off \
             --http2 only --hsts 2",
        );
        assert_eq!(given.profile, Profile::Modern);
        assert_eq!(given.handshakes_max, 7);
        assert!(given.early_data && !given.handshakes_shared);
        assert_eq!(given.http2, loadline_proto::Http2::Only);
        assert_eq!(given.hsts_max_age_s, Some(2 * DAY_S));
        let defaults = options_of("");
        assert_eq!(defaults.profile, Profile::Intermediate);
        assert_eq!(
            defaults.handshakes_max,
            TlsOptions::default().handshakes_max
        );
        assert!(!defaults.early_data && defaults.handshakes_shared);
        assert_eq!(defaults.hsts_max_age_s, None);
    }

    #[test]
    fn a_certificate_that_expires_meanwhile_is_warned_of_once_and_then_each_day() {
        let (day, second) = (Duration::from_secs(DAY_S), Duration::from_secs(1));
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
        let options = TlsOptions::default();
        let tls = Tls {
            server: TlsServer::new(&certificates, &options).unwrap(),
            admin: None,
            certificates: Arc::clone(&certificates),
            tickets: options.tickets,
            files: Arc::new(Mutex::new(Files {
                certificates: None,
                tickets: None,
                client_authorities: None,
                warned: Warned::default(),
            })),
            is_self_signed: false,
            automatic: None,
        };
        let now = SystemTime::now();
        let later = now + Duration::from_secs(1_500 * 365 * DAY_S);
        for (time, unused) in [(now, "second.pem"), (later, "first.pem")] {
            tls.take_up(Look::IfChanged, time);
            let mut warnings = certificates.warnings(time).into_iter();
            let warning = warnings.find(|it| it.kind == WarningKind::Unused);
            assert_eq!(warning.unwrap().label, unused);
        }
    }

    #[test]
    fn a_look_that_panics_is_not_the_last_one() {
        let (sender, signals) = channel();
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
