//! sslyze's check against Mozilla's profiles: nothing but that nobody has signed the certificate.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::h2spec::https_port;
use crate::pairs::{NAME, WithPairs};
use crate::program::{Server, site};
use crate::{ARCHITECTURES, alone, options};

/// Where `./x test --all` puts it.
const INSTALLED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/sslyze/bin/sslyze"
);
/// Seconds that it may take; one is usual.
const TIMEOUT_S: &str = "120";
/// The certificate is made for trying things out.
const EXPECTED: &str = "certificate_path_validation";

#[test]
#[ignore = "long: sslyze under every architecture"]
fn sslyze_finds_mozillas_intermediate_profile_under_every_architecture() {
    let _alone = alone();
    let site = site();
    for (name, _) in ARCHITECTURES {
        let Some(options) = options(name) else {
            continue;
        };
        let pairs = WithPairs::start(site.path(), &options);
        let said = assert_intermediate(&pairs.server, NAME, name);
        for suites in ["TLS_ECDHE_RSA_", "TLS_ECDHE_ECDSA_"] {
            assert!(said.contains(suites), "{name}: no {suites}: {said}");
        }
    }
}

#[test]
#[ignore = "long: sslyze"]
fn sslyze_finds_each_profile_with_a_certificate_for_trying_things_out() {
    let _alone = alone();
    let site = site();
    let https = ["--listen", "https://127.0.0.1:0", "--tls", "self-signed"];
    let server = Server::start_with(site.path(), &https, Stdio::null());
    assert_intermediate(&server, "127.0.0.1", "intermediate");
    let modern = [&https[..], &["--tls-profile", "modern"]].concat();
    let server = Server::start_with(site.path(), &modern, Stdio::null());
    let address = format!("127.0.0.1:{}", https_port(&server));
    let (said, found) = deviations(&address, "modern");
    assert!(is_expected(&found), "{found:#?}");
    // It has looked at what there is.
    assert!(said.contains("TLS_AES_128_GCM_SHA256"), "{said}");
    assert!(!said.contains("TLS_ECDHE_"), "{said}");
}

/// That it differs from the profile by nothing but what is expected; what sslyze said.
fn assert_intermediate(server: &Server, host: &str, name: &str) -> String {
    let address = format!("{host}:{}", https_port(server));
    let (said, found) = deviations(&address, "intermediate");
    assert!(is_expected(&found), "{name}: {found:#?}");
    // A check that finds everything sound would not find what another profile forbids.
    let (_, found) = deviations(&address, "modern");
    let is_forbidden = |it: &String| it.starts_with("tls_versions");
    assert!(found.iter().any(is_forbidden), "{name}: {found:#?}");
    said
}

fn is_expected(found: &[String]) -> bool {
    found.len() == 1 && found[0].starts_with(EXPECTED)
}

/// What sslyze says, and in it how the server differs from a profile of Mozilla's: what is wrong, and a text.
fn deviations(address: &str, profile: &str) -> (String, Vec<String>) {
    assert!(
        Path::new(INSTALLED).exists(),
        "sslyze is missing; install it with: ./x test --all sslyze"
    );
    let output = Command::new("timeout")
        .args([TIMEOUT_S, INSTALLED, "--mozilla_config", profile, address])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some((_, judged)) = said.split_once("Checking results against Mozilla's") else {
        panic!("{output:?}");
    };
    let lines = judged.lines().filter_map(|it| it.trim().strip_prefix("* "));
    let lines = lines.map(str::to_owned).collect();
    (said, lines)
}
