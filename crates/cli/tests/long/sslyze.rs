//! sslyze's check against Mozilla's intermediate profile: nothing but that nobody has signed the certificate.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::h2spec::https_port;
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
    assert!(
        Path::new(INSTALLED).exists(),
        "sslyze is missing; install it with: ./x test --all sslyze"
    );
    let site = site();
    for (name, _) in ARCHITECTURES {
        let Some(options) = options(name) else {
            continue;
        };
        let https = ["--listen", "https://127.0.0.1:0", "--tls", "self-signed"];
        let options = [&options[..], &https].concat();
        let server = Server::start_with(site.path(), &options, Stdio::null());
        let found = deviations(https_port(&server), "intermediate");
        let expected = found.len() == 1 && found[0].starts_with(EXPECTED);
        assert!(expected, "{name}: {found:#?}");
        // A check that finds everything sound would not find what another profile forbids.
        let found = deviations(https_port(&server), "modern");
        let is_forbidden = |it: &String| it.starts_with("tls_versions");
        assert!(found.iter().any(is_forbidden), "{name}: {found:#?}");
    }
}

/// How the server differs from a profile of Mozilla's: what is wrong, and a text.
fn deviations(port: u16, profile: &str) -> Vec<String> {
    let output = Command::new("timeout")
        .args([TIMEOUT_S, INSTALLED, "--mozilla_config", profile])
        .arg(format!("127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let Some((_, judged)) = said.split_once("Checking results against Mozilla's") else {
        panic!("{output:?}");
    };
    let lines = judged.lines().filter_map(|it| it.trim().strip_prefix("* "));
    lines.map(str::to_owned).collect()
}
