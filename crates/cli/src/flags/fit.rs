//! Which options of a server fit together. What does not is refused in one line that says what would be
//! right.

use loadline_proto::{AccessFormat, Http2};
use loadline_server::{
    Accept, Architecture, Balance, Parsing, Queue, ServerOptions, SocketIo, WorkerPools,
};
use loadline_spec::rules::{self, Rule, unfit};
use loadline_spec::serve::{ClientCertificate, Listen, RunningSpec, ServeSpec};
use loadline_spec::values::Auto;
use loadline_spec::{SpecError, Table, given};

use crate::acme::has_plain_http_1;

use Architecture::{Proactor, Reactor, ThreadPerConnection, ThreadPool};

const LOOPS: &[Architecture] = &[Reactor, Proactor];

/// Options that some architectures alone have a use for.
const FITS: &[(&str, &[Architecture])] = &[
    ("loops", LOOPS),
    ("workers", LOOPS),
    ("threads", &[ThreadPool]),
    ("worker-pools", LOOPS),
    ("accept", LOOPS),
    ("balance", LOOPS),
    ("queue", LOOPS),
    ("queue-max", &[Reactor, Proactor, ThreadPool]),
    ("socket-io", &[Reactor]),
    ("parse", LOOPS),
    ("file-io", LOOPS),
    ("capacity-per-loop", LOOPS),
    (
        "connections-max",
        &[Reactor, Proactor, ThreadPerConnection, ThreadPool],
    ),
];

/// Names with automatic certificates: orders for all of them are within the limits of authorities.
const ACME_NAMES_MAX: usize = 100;

/// What holds of every server.
const RULES: &[Rule] = &[
    Rule::Needs("proxy-idle-timeout", &["trust-proxy"], "--trust-proxy"),
    Rule::Needs("trust-proxy-field", &["trust-proxy"], "--trust-proxy"),
    Rule::Needs("service-kind", &["service-time"], "--service-time"),
    Rule::OneOf(&["tls-cert", "tls", "acme"]),
    Rule::Needs("tls-cert", &["tls-key"], "--tls-key"),
    Rule::Needs("tls-key", &["tls-cert"], "--tls-cert"),
    Rule::Needs("tls-client-cert", &["tls-client-ca"], "--tls-client-ca"),
    Rule::Needs("acme", &["acme-domain"], "--acme-domain"),
    Rule::Needs("acme-domain", &["acme"], "--acme"),
    Rule::Needs("acme-agree-to-terms", &["acme"], "--acme"),
    Rule::Needs("acme-directory", &["acme"], "--acme"),
    Rule::Needs("acme-eab-kid", &["acme"], "--acme"),
    Rule::Needs("acme-eab-kid", &["acme-eab-key"], "--acme-eab-key"),
    Rule::Needs("acme-eab-key", &["acme-eab-kid"], "--acme-eab-kid"),
    Rule::Needs("acme-ca", &["acme"], "--acme"),
    Rule::Needs("acme-dir", &["acme"], "--acme"),
    Rule::Needs("accounts-pool", &["accounts"], "--accounts"),
    Rule::Needs("accounts-pool-min", &["accounts"], "--accounts"),
    Rule::Needs("accounts-pool-wait", &["accounts"], "--accounts"),
    Rule::Needs("accounts-hashes", &["accounts"], "--accounts"),
    Rule::Needs("accounts-idle", &["accounts"], "--accounts"),
    Rule::Needs("accounts-session", &["accounts"], "--accounts"),
];

/// Refuses the first options that do not fit together, or not the architecture.
pub(super) fn check(spec: &ServeSpec, architecture: Architecture) -> Result<(), SpecError> {
    let given = given(spec);
    rules::check(RULES, &given)?;
    check_tls(spec, &given)?;
    check_hsts(spec)?;
    check_idle(spec, &given)?;
    refuse_foreign(&given, architecture)
}

/// Options of TLS that do nothing without it.
const OF_TLS: &[&str] = &[
    "tls-cert",
    "tls",
    "acme",
    "tls-profile",
    "tls-ticket-key",
    "tls-client-ca",
    "tls-early-data",
    "tls-handshakes-max",
    "tls-handshake-timeout",
    "https-redirect",
];

/// An https address needs a certificate, and a certificate an https address.
fn check_tls(spec: &ServeSpec, given: &Table) -> Result<(), SpecError> {
    const RIGHT: &str = "--tls-cert FILE --tls-key FILE, --acme EMAIL --acme-domain NAME, or --tls \
                         self-signed to try things out";
    let is_https = |listen: &&Listen| matches!(listen, Listen::Https(_));
    let tls = &spec.tls;
    let of_site = spec.listen.iter().find(is_https).map(|it| ("listen", it));
    let of_pages = || spec.running.admin_listen.iter().find(is_https);
    let first = of_site.or_else(|| of_pages().map(|it| ("admin-listen", it)));
    let Some((option, address)) = first else {
        return match rules::first_of(given, OF_TLS) {
            Some(option) => Err(SpecError::new(
                option,
                "no address speaks TLS",
                "--listen https://127.0.0.1:8443",
            )),
            None => Ok(()),
        };
    };
    if tls.tls_cert.is_empty() && tls.tls.is_none() && spec.acme.acme.is_none() {
        let error = SpecError::new(option, "there is no certificate", RIGHT);
        return Err(error.with_value(address));
    }
    if tls.tls_early_data.0 {
        let excluded = rules::first_of(given, &["tls-ticket-key", "tls-client-ca"]);
        if let Some(option) = excluded {
            let why = "it excludes --tls-early-data".to_owned();
            return Err(SpecError::new(option, why, "one of them"));
        }
    }
    let (certificates, keys) = (tls.tls_cert.len(), tls.tls_key.len());
    if certificates != keys {
        let problem = format!("{certificates} certificates and {keys} keys");
        let right = "a --tls-key for each --tls-cert, in the same order";
        return Err(SpecError::new("tls-key", problem, right));
    }
    check_acme(spec)?;
    if tls.https_redirect && of_site.is_none() {
        let problem = "there is no https address to lead to";
        let right = "--listen https://0.0.0.0:443";
        return Err(SpecError::new("https-redirect", problem, right));
    }
    if tls.https_redirect && !spec.listen.iter().any(|it| matches!(it, Listen::Tcp(_))) {
        let problem = "there is no http address to be redirected";
        let right = "--listen 0.0.0.0:80";
        return Err(SpecError::new("https-redirect", problem, right));
    }
    Ok(())
}

/// Responses say it over TLS, and pages of accounts to clients of a proxy that speaks TLS.
fn check_hsts(spec: &ServeSpec) -> Result<(), SpecError> {
    let has_https = (spec.listen.iter()).any(|it| matches!(it, Listen::Https(_)));
    let has_proxy = spec.accounts.accounts.is_some() && !spec.proxy.trust_proxy.is_empty();
    if spec.tls.hsts.is_none() || has_https || has_proxy {
        return Ok(());
    }
    let problem = "no address of the site speaks TLS";
    let right = "--listen https://0.0.0.0:443, or --accounts with --trust-proxy";
    Err(SpecError::new("hsts", problem, right))
}

/// Options of a protocol or a kind of address that is not there.
fn check_idle(spec: &ServeSpec, given: &Table) -> Result<(), SpecError> {
    let http2 = spec.requests.http2.map(|it| it.0);
    if http2 == Some(Http2::Off) && given.contains_key("streams-max") {
        let error = SpecError::new("streams-max", "no streams with --http2 off", "one of them");
        return Err(error.with_value(*spec.requests.streams_max));
    }
    let mut addresses = spec.listen.iter().chain(&spec.running.admin_listen);
    let has_unix = addresses.any(|it| matches!(it, Listen::Unix(_)));
    if let Some(mode) = spec.running.unix_mode.filter(|_| !has_unix) {
        let problem = "no address is a Unix socket";
        let right = "--listen unix:/run/loadline.sock";
        return Err(SpecError::new("unix-mode", problem, right).with_value(mode));
    }
    Ok(())
}

/// An authority has to get through to this server, and not too often.
fn check_acme(spec: &ServeSpec) -> Result<(), SpecError> {
    let names = &spec.acme.acme_domain;
    if names.len() > ACME_NAMES_MAX {
        let problem = format!("{} names", names.len());
        let right = format!("at most {ACME_NAMES_MAX}: each has a certificate of its own");
        return Err(SpecError::new("acme-domain", problem, right));
    }
    let asks_all = spec.tls.tls_client_ca.is_some()
        && spec.tls.tls_client_cert.map(|it| it.0) != Some(ClientCertificate::Optional);
    let has_plain = has_plain_http_1(spec);
    let has_https = (spec.listen.iter()).any(|it| matches!(it, Listen::Https(_)));
    if spec.acme.acme.is_some() && !has_plain && (asks_all || !has_https) {
        let problem = match asks_all {
            true => {
                "the authority has no client certificate to show, and no address speaks plain HTTP/1.1"
            }
            false => "the site has no address at which the authority could reach it",
        };
        let right = match spec.requests.http2.map(|it| it.0) {
            Some(Http2::Only) => {
                "--listen 0.0.0.0:80, without --http2 only, which refuses HTTP/1.1"
            }
            _ => "--listen 0.0.0.0:80 as well",
        };
        return Err(SpecError::new("acme", problem, right));
    }
    Ok(())
}

/// Refuses options that the architecture has no use for: they would silently do nothing.
fn refuse_foreign(given: &Table, architecture: Architecture) -> Result<(), SpecError> {
    for (option, useful) in FITS {
        let Some(value) = given.get(*option) else {
            continue;
        };
        if !useful.contains(&architecture) {
            let useful: Vec<_> = useful.iter().map(|useful| useful.name()).collect();
            let why = format!(
                "--architecture {} has no use for it; it goes with {}",
                architecture.name(),
                in_words(&useful),
            );
            return Err(unfit(option, why).with_value(value.text().unwrap_or_default()));
        }
    }
    Ok(())
}

fn in_words(names: &[&str]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        _ => names.concat(),
    }
}

/// Refuses options that go with another choice than the one made.
pub(super) fn check_chosen(flags: &ServeSpec, options: &ServerOptions) -> Result<(), SpecError> {
    if let Some(balance) = flags.architecture.balance
        && options.accept != Accept::Handoff
        && options.balance != Balance::Adaptive
    {
        let problem = format!("with --accept {} no loop hands over", options.accept.name());
        return Err(SpecError::new("balance", problem, "--accept handoff").with_value(balance));
    }
    if let Auto::Given(most) = &*flags.connections.connections_max
        && options.architecture == ThreadPool
        && options.latency_goal.is_none()
    {
        let problem = "a pool without a latency goal accepts what its --queue-max allows";
        let error = SpecError::new("connections-max", problem, "--latency-goal 1s");
        return Err(error.with_value(most));
    }
    if options.blocks_on_loops() {
        let (queue, pools, io) = (options.queue, options.worker_pools, options.socket_io);
        let parse = options.parse;
        let chosen = [
            ("queue", queue.name(), queue == Queue::WorkStealing),
            ("worker-pools", pools.name(), pools == WorkerPools::PerLoop),
            ("socket-io", io.name(), io == SocketIo::Worker),
            ("parse", parse.name(), parse == Parsing::Worker),
        ];
        if let Some((option, value, _)) = chosen.iter().find(|(.., is_idle)| *is_idle) {
            let error = SpecError::new(option, "there are no workers", "--workers 1 or more");
            return Err(error.with_value(value));
        }
    }
    check_parse(flags, options)?;
    refuse_logs(&flags.running)?;
    let mut listen = flags.listen.clone();
    while let Some(address) = listen.pop() {
        let fixed = !matches!(&address, Listen::Tcp(tcp) | Listen::Https(tcp) if tcp.port() == 0);
        if fixed && listen.contains(&address) {
            let error = unfit("listen", "given twice; once is enough".to_owned());
            return Err(error.with_value(address));
        }
    }
    Ok(())
}

/// Workers parse HTTP/1 without TLS; where they read, they parse in any case.
fn check_parse(flags: &ServeSpec, options: &ServerOptions) -> Result<(), SpecError> {
    let Some(parse) = flags.architecture.parse else {
        return Ok(());
    };
    let mut listen = flags.listen.iter();
    let (problem, right) = if options.socket_io == SocketIo::Worker {
        let problem = "with --socket-io worker workers parse what they read";
        (problem, "to leave it out")
    } else if parse.0 == Parsing::Loop {
        return Ok(());
    } else if flags.requests.http2.map(|it| it.0) == Some(Http2::Only) {
        let problem = "workers parse HTTP/1, and with --http2 only there is none";
        (problem, "--parse loop")
    } else if listen.any(|it| matches!(it, Listen::Https(_))) {
        ("loops parse what comes over TLS", "--parse loop")
    } else {
        return Ok(());
    };
    Err(SpecError::new("parse", problem, right).with_value(parse))
}

/// Refuses logs that would do nothing, or tear each other's lines apart.
fn refuse_logs(running: &RunningSpec) -> Result<(), SpecError> {
    let has_access = running.access_log.is_some();
    if let Some(format) = running.log_format {
        let is_json = format.0 == AccessFormat::Json;
        let right = match is_json {
            true => "--access-log or --connection-log",
            false => "--access-log",
        };
        let has_log = has_access || (is_json && running.connection_log.is_some());
        if !has_log {
            let why = format!("there is no log of that form; it goes with {right}");
            return Err(unfit("log-format", why).with_value(format));
        }
    }
    if let Some(path) = &running.connection_log
        && running.access_log == running.connection_log
    {
        let problem = "the access log goes there";
        let error = SpecError::new("connection-log", problem, "a file of its own");
        return Err(error.with_value(path));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    #[test]
    fn rules_name_options_that_there_are() {
        let names = loadline_spec::names::<ServeSpec>();
        let of_rules = RULES.iter().flat_map(|rule| rule.options());
        let fits = FITS.iter().map(|(option, _)| *option);
        for option in of_rules.chain(fits) {
            assert!(names.contains(option), "{option}");
        }
    }

    /// `balance` is about `--accept handoff`, and says that instead.
    #[test]
    fn the_help_names_the_architectures_that_an_option_is_for() {
        let command = ServeSpec::augment_args(clap::Command::new("serve"));
        for (name, useful) in FITS.iter().filter(|(name, _)| *name != "balance") {
            let mut all = command.get_arguments();
            let option = all.find(|option| option.get_long() == Some(*name));
            let help = option.and_then(clap::Arg::get_help).unwrap().to_string();
            let words: Vec<&str> = help.split(&['(', ')', ',', ' '][..]).collect();
            for architecture in Architecture::ALL {
                let is_named = words.contains(&architecture.name());
                assert_eq!(is_named, useful.contains(architecture), "{name}: {help}");
            }
        }
    }
}
