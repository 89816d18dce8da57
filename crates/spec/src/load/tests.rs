//! A load as words, as a table, and as data: each makes the others.

use proptest::prelude::*;

use super::*;
use crate::tests::{check_forms, check_names, read, table};
use crate::{fill, names};

/// A load of plain words.
fn typed(options: &str) -> LoadSpec {
    let words = options.split_ascii_whitespace().map(str::to_owned);
    read(std::iter::once("http://127.0.0.1:9/".to_owned()).chain(words))
}

/// Every option with a value that is not its default.
const EVERY: &[(&str, &str)] = &[
    ("url", "\"http://localhost:80/a?b\""),
    ("connections", "7"),
    ("streams", "8"),
    ("duration", "\"90s\""),
    ("requests", "12"),
    ("requests-per-connection", "3"),
    ("new-connection", "true"),
    ("think", "\"1.5ms\""),
    ("no-coalescing", "true"),
    ("warm-up", "\"1s\""),
    ("timeout", "\"5s\""),
    ("close-on-timeout", "true"),
    ("deadline", "\"250ms\""),
    ("latency-goal", "\"100ms\""),
    ("rate", "0.25"),
    ("arrivals", "\"constant\""),
    ("schedule", "\"per-connection\""),
    ("steps", "\"100..2.5k/100\""),
    ("step-duration", "\"1m\""),
    ("ramp", "\"0..1k\""),
    ("burst", "\"1s/4s\""),
    ("burst-base", "50"),
    ("overflow", "\"drop\""),
    ("retries", "3"),
    ("retry-pause", "\"50ms\""),
    ("retry-after-max", "\"2s\""),
    ("urls", "\"list.txt\""),
    ("method", "\"PUT\""),
    ("header", "[\"A: b\", \"C: d e\"]"),
    ("body", "\"--a=b\""),
    ("body-file", "\"a b.bin\""),
    ("user", "\"me:secret\""),
    ("http", "\"1.0\""),
    ("http2", "true"),
    ("http2-share", "\"50%\""),
    ("replay", "\"access.log\""),
    ("replay-timing", "0.1"),
    ("replay-all-methods", "true"),
    ("cacert", "\"ca.pem\""),
    ("insecure", "true"),
    ("cert", "\"c.pem\""),
    ("key", "\"k.pem\""),
    ("tls-resume", "\"on\""),
    ("tls-key-exchange", "\"p256\""),
    ("tls-cipher", "\"aes-256-gcm\""),
    ("expect-status", "\"200,304\""),
    ("expect-length", "\"1M\""),
    ("expect-sha256", "\"ab\""),
    ("content-sample", "1"),
    ("scenario", "\"shop.toml\""),
    ("users", "5"),
    ("source-per-client", "true"),
    ("player", "\"5Mbps\""),
    ("players", "6"),
    ("idle-connections", "8"),
    ("idle-request", "true"),
    ("slow-readers", "\"200@10KB/s\""),
    ("slow-heads", "\"100@1B/s\""),
    ("slow-bodies", "\"1@10B/s\""),
    ("vanishing", "9"),
    ("threads", "2"),
    ("processes", "3"),
    ("cpus", "\"0,2-3\""),
    ("spin", "true"),
    ("sources", "\"127.0.0.2-127.0.0.9,10.0.0.1\""),
    ("seed", "42"),
    ("server-pid", "1234"),
    ("step-figures", "true"),
    ("link-rate", "\"10Mbps\""),
    ("link-delay", "\"20ms\""),
    ("link-loss", "\"0.5%\""),
    ("watch", "[\"db=12\", \"x=13\"]"),
];

#[test]
fn every_option_is_a_field_and_every_field_an_option() {
    check_names::<LoadSpec>(EVERY, &names::<LoadSpec>());
}

proptest! {
    #[test]
    fn words_tables_and_data_say_the_same(
        some in proptest::sample::subsequence(EVERY, 0..EVERY.len())
    ) {
        check_forms::<LoadSpec>(&some);
    }
}

#[test]
fn false_is_an_option_that_is_not_given() {
    let spec: LoadSpec = fill(&table("spin = false\nrate = false")).unwrap();
    assert_eq!(spec, LoadSpec::default());
}

#[test]
fn what_is_wrong_is_data() {
    let refused = |text: &str| fill::<LoadSpec>(&table(text)).unwrap_err();
    let error = refused("rate = \"fast\"");
    assert_eq!(error.option.as_deref(), Some("rate"));
    assert_eq!(error.value.as_deref(), Some("fast"));
    assert_eq!(error.error.problem, "not a rate");
    assert_eq!(
        error.to_string(),
        "--rate fast: not a rate; right would be requests a second: 5000, 20k or 0.5"
    );
    for (text, message) in [
        ("loops = 1", "--loops: no such option"),
        (
            "warm_upp = \"1s\"",
            "no such option; right would be warm-up",
        ),
        ("connections = -1", "--connections -1: out of range"),
        ("connections = [\"1\", \"2\"]", "given more than once"),
        ("connections = true", "--connections: the value is missing"),
        ("spin = \"yes\"", "it takes no value; right would be true"),
        (
            "http = \"0.9\"",
            "--http 0.9: unknown; right would be 1.0 or 1.1",
        ),
    ] {
        let shown = refused(text).to_string();
        assert!(shown.contains(message), "{text}: {shown}");
    }
    let unfit = typed("--burst 1s/1s").check().unwrap_err();
    assert_eq!(unfit.option.as_deref(), Some("burst"));
    assert_eq!(unfit.to_string(), "--burst: it goes with --rate");
}
