//! Automatic certificates of `loadline serve`: what is kept where, and what the status page says of them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadline_acme::{
    AcmeError, AcmeOptions, Automatic, ExternalAccount, Method01, Report, Tokens, UnixTime,
    default_state_dir,
};
use loadline_observe::{Figure, Section};
use loadline_proto::Http2;
use loadline_spec::serve::{AcmeSpec, ClientCertificate, LETS_ENCRYPT, Listen, ServeSpec};
use loadline_tls::{Authorities, Certificates};

use crate::failure::Failure;

/// Between two looks at an order, if the authority does not say.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads what there is; `None`: certificates are not automatic.
pub(crate) fn open(
    spec: &ServeSpec,
    certificates: &Arc<Certificates>,
    tokens: &Tokens,
) -> Result<Option<Automatic>, Failure> {
    let acme = &spec.acme;
    let Some(email) = &acme.acme else {
        return Ok(None);
    };
    let trusted = match &acme.acme_ca {
        Some(path) => Authorities::from_file(path),
        None => Authorities::of_system(),
    };
    let mut names: Vec<String> = Vec::new();
    for name in &acme.acme_domain {
        if !names.contains(&name.0) {
            names.push(name.0.clone());
        }
    }
    let directory = acme.acme_directory.as_ref();
    let external = acme.acme_eab_kid.as_ref().zip(acme.acme_eab_key.as_ref());
    let external = external.map(|(id, path)| ExternalAccount::from_file(&id.0, &path.0));
    let external = external.transpose();
    let options = AcmeOptions {
        email: email.0.clone(),
        names,
        directory: directory.map_or_else(|| LETS_ENCRYPT.to_owned(), |it| it.0.clone()),
        trusted: trusted.map_err(|error| Failure::usage(format!("--acme-ca: {error}")))?,
        folder: folder(acme)?,
        terms_agreed: acme.acme_agree_to_terms,
        external_account: external
            .map_err(|error| Failure::usage(format!("--acme-eab-key: {error}")))?,
        methods: methods(spec),
        look_every: LOOK_EVERY,
    };
    let automatic = Automatic::open(options, certificates, tokens).map_err(|error| {
        let option = match error {
            AcmeError::Directory(_) => "--acme-directory",
            AcmeError::Terms(_) | AcmeError::TermsUnknown { .. } => "--acme-agree-to-terms",
            _ => "--acme-dir",
        };
        Failure::usage(format!("{option}: {error}"))
    })?;
    Ok(Some(automatic))
}

/// Where account, keys and certificates are kept.
pub(crate) fn folder(acme: &AcmeSpec) -> Result<PathBuf, Failure> {
    let given = acme.acme_dir.as_ref().map(|path| path.0.clone());
    given.or_else(default_state_dir).ok_or_else(|| {
        Failure::usage(
            "--acme-dir: there is no home directory to keep certificates in; right would be a path",
        )
    })
}

/// What the status page shows.
pub(crate) fn section(report: Option<Arc<Mutex<Report>>>) -> Section {
    Section::new("acme", move || {
        let report = report.as_ref()?.lock();
        let report = report.unwrap_or_else(PoisonError::into_inner);
        let next = report.next.since(UnixTime::now());
        Some(vec![
            Figure::new("certificates_issued", report.issued),
            Figure::gauge("names_without_certificate", report.names_without),
            Figure::gauge("certificates_late", report.late),
            Figure::gauge("failures_in_a_row", report.failures.into()),
            Figure::gauge("next_step_seconds", next.as_secs()),
            Figure::text("last_error", &report.last_error),
        ])
    })
}

/// Whether there is an address of plain HTTP/1.1, which authorities speak.
pub(crate) fn has_plain_http_1(spec: &ServeSpec) -> bool {
    let is_http_2_alone = spec.requests.http2.map(|it| it.0) == Some(Http2::Only);
    let has_plain = spec.listen.iter().any(|it| matches!(it, Listen::Tcp(_)));
    has_plain && !is_http_2_alone
}

/// How an authority can get through: to plain http first, since it costs no handshake.
fn methods(spec: &ServeSpec) -> Vec<Method01> {
    let has_plain = has_plain_http_1(spec);
    let is_optional = spec.tls.tls_client_cert.map(|it| it.0) == Some(ClientCertificate::Optional);
    let asks_all = spec.tls.tls_client_ca.is_some() && !is_optional;
    let http = has_plain.then_some(Method01::Http);
    let has_https = spec.listen.iter().any(|it| matches!(it, Listen::Https(_)));
    let tls = (has_https && !asks_all).then_some(Method01::TlsAlpn);
    http.into_iter().chain(tls).collect()
}
