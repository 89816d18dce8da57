//! TLS of `loadline serve`: certificates from files, of an authority or made here, taken up again when they
//! change, and what the status page says of them.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use loadline_acme::{Automatic, Report, Tokens};
use loadline_observe::{Figure, Section};
use loadline_spec::serve::{ClientCertificate, Listen, RequestSpec, TlsProfile, TlsSpec};
use loadline_tls::{
    Certificate, CertificateFiles, CertificatePair, Certificates, ClientAuthorityFile, FileWatch,
    Profile, Reload, TicketFiles, TlsError, TlsOptions, TlsServer, Warning, WatchedFiles,
    key_file_warning, self_signed,
};

use crate::acme;
use crate::failure::Failure;
use crate::flags::high::Plan;

/// A day in seconds.
const DAY_S: u64 = 24 * 3600;

/// TLS of a server.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) server: TlsServer,
    /// For the server's own pages: with handshakes and counts of its own, so that they respond whatever the
    /// site has to do.
    pub(crate) admin: Option<TlsServer>,
    certificates: Arc<Certificates>,
    watch: FileWatch,
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
        let files = WatchedFiles {
            certificates: of_files,
            tickets,
            client_authorities,
        };
        let (server, admin) = (server()?, has_admin.then(server).transpose()?);
        // A certificate that is about to be renewed needs no warning.
        let watch = FileWatch::new(&server, &admin, files).warns(automatic.is_none());
        watch.warn();
        let external_key = plan.flags.acme.acme_eab_key.as_ref();
        let key_warning = external_key.and_then(|it| key_file_warning(&it.0, "the HMAC key"));
        if let Some(warning) = &key_warning {
            tracing::warn!("{warning}");
        }
        Ok(Some(Self {
            server,
            admin,
            certificates,
            watch,
            is_self_signed: spec.tls.is_some(),
            automatic: automatic.map(|it| OfAuthority::new(it, tokens, key_warning)),
        }))
    }

    /// Looks after the files, on a thread of its own, until the process ends.
    pub(crate) fn look_after(&self) -> io::Result<Reload> {
        let reload = self.watch.start()?;
        let automatic = self.automatic.as_ref();
        if let Some(automatic) = automatic.and_then(OfAuthority::take) {
            automatic.start()?;
        }
        Ok(reload)
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
            let of_tickets = tls.server.tickets().key_warnings();
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
}
