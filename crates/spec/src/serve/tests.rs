//! A server as words, as a table, and as data: each makes the others.

use super::*;
use crate::tests::{check_forms, check_names, table};
use crate::{fill, names};

/// Every option with a value that is not its default.
const EVERY: &[(&str, &str)] = &[
    ("root", r#""public""#),
    (
        "listen",
        r#"["0.0.0.0:80", "[::1]:81", "https://[::]:443", "unix:/run/a.sock"]"#,
    ),
    ("tls-cert", r#"["a.pem", "b.pem"]"#),
    ("tls-key", r#"["a.key", "b.key"]"#),
    ("tls", r#""self-signed""#),
    ("tls-profile", r#""modern""#),
    ("tls-ticket-key", r#"["ticket.key"]"#),
    ("tls-early-data", "true"),
    ("tls-client-ca", r#""ca.pem""#),
    ("tls-client-cert", r#""optional""#),
    ("tls-handshake-timeout", r#""3s""#),
    ("tls-handshakes-max", "64"),
    ("https-redirect", "true"),
    ("hsts", "365"),
    ("acme", r#""you@example.org""#),
    ("acme-domain", r#"["example.org", "www.example.org"]"#),
    ("acme-agree-to-terms", "true"),
    ("acme-directory", r#""https://acme.example/dir""#),
    ("acme-eab-kid", r#""kid-1""#),
    ("acme-eab-key", r#""eab.key""#),
    ("acme-ca", r#""ca.pem""#),
    ("acme-dir", r#""state""#),
    ("architecture", r#""reactor""#),
    ("loops", "2"),
    ("workers", "0"),
    ("threads", "3"),
    ("worker-pools", r#""per-loop""#),
    ("accept", r#""handoff""#),
    ("balance", r#""least-busy""#),
    ("queue", r#""work-stealing""#),
    ("queue-max", "7"),
    ("socket-io", r#""worker""#),
    ("parse", r#""worker""#),
    ("file-io", r#""sendfile""#),
    ("capacity-per-loop", "9"),
    ("connections-max", "100"),
    ("backlog", "16"),
    ("defer-accept", "false"),
    ("keep-alive", "false"),
    ("idle-timeout", r#""off""#),
    ("proxy-idle-timeout", r#""11m""#),
    ("latency-goal", r#""500ms""#),
    ("fairness", r#""off""#),
    ("http2", r#""only""#),
    ("streams-max", "32"),
    ("head-timeout", r#""1.5s""#),
    ("body-timeout", r#""5s""#),
    ("body-rate-min", "1000"),
    ("write-timeout", r#""7s""#),
    ("write-rate-min", r#""1k""#),
    ("head-max", r#""16k""#),
    ("target-max", "4000"),
    ("fields-max", "50"),
    ("body-max", r#""2M""#),
    ("trust-proxy", r#"["10.0.0.0/8", "unix"]"#),
    ("trust-proxy-field", r#""forwarded""#),
    ("index", r#"["index.htm", "a b.html"]"#),
    ("listing", "true"),
    ("spa", r#""index.html""#),
    ("error-pages", r#""pages""#),
    ("follow-symlinks", "true"),
    ("hidden", "true"),
    ("media-type", r#"[".wasm=application/wasm"]"#),
    ("cache-control", r#"[".css:max-age=3600", "no-cache"]"#),
    ("precompressed", r#""off""#),
    ("compress", r#""off""#),
    ("cache-bytes", r#""1G""#),
    ("cache-entries", "10"),
    ("cache-open-files", "0"),
    ("accounts", r#""sqlite:accounts.db""#),
    ("accounts-pool", "4"),
    ("accounts-pool-min", "0"),
    ("accounts-pool-wait", r#""3s""#),
    ("accounts-hashes", r#""auto""#),
    ("accounts-idle", r#""1h""#),
    ("accounts-session", r#""24h""#),
    ("service-time", r#""200us""#),
    ("service-kind", r#""spin""#),
    ("access-log", r#""-""#),
    ("connection-log", r#""connections.log""#),
    ("log-format", r#""json""#),
    ("status-path", r#""/-/status""#),
    ("admin-listen", r#"["127.0.0.1:9"]"#),
    ("memory-max", r#""64M""#),
    ("socket-buffer", r#""64k""#),
    ("unix-mode", r#""660""#),
    ("drain-delay", r#""1s""#),
    ("grace", r#""1m""#),
    ("log-level", r#""warn""#),
];

#[test]
fn every_option_is_a_field_and_every_field_an_option() {
    let mut options = names::<ServeSpec>();
    for removed in ["accounts-proxy", "at-capacity"] {
        assert!(options.remove(removed)); // takes no value any more
    }
    check_names::<ServeSpec>(EVERY, &options);
}

#[test]
fn words_tables_and_data_say_the_same() {
    // Each alone, and all together.
    for some in EVERY.chunks(1).chain([EVERY]) {
        check_forms::<ServeSpec>(some);
    }
}

/// It was a server that listens nowhere, whose words were those of one that listens at the default.
#[test]
fn an_empty_list_is_an_option_that_is_not_given() {
    for text in ["listen = []", "listen = false"] {
        let spec: ServeSpec = fill(&table(text)).unwrap();
        assert_eq!(spec, ServeSpec::default(), "{text}");
    }
}

#[test]
fn what_is_wrong_is_data() {
    let refused = |text: &str| fill::<ServeSpec>(&table(text)).unwrap_err();
    let error = refused("loops = 0");
    assert_eq!(error.option.as_deref(), Some("loops"));
    assert_eq!(error.error.problem, "out of range");
    for (text, message) in [
        (
            "loopss = 1",
            "--loopss: no such option; right would be loops",
        ),
        (
            r#"queue = "fifo""#,
            "--queue fifo: unknown; right would be one of shared",
        ),
        (
            r#"keep-alive = "maybe""#,
            "--keep-alive maybe: unknown; right would be on or off",
        ),
        ("listen = true", "--listen: the value is missing"),
        ("loops = true", "--loops: the value is missing"),
        (
            r#"accounts-proxy = "unix""#,
            "right would be --trust-proxy unix",
        ),
        (
            r#"at-capacity = "close""#,
            "--at-capacity close: no such option any more; right would be --capacity-per-loop",
        ),
    ] {
        let shown = refused(text).to_string();
        assert!(shown.contains(message), "{text}: {shown}");
    }
}
