//! Automatic certificates as people get them, from an authority that plays a recorded exchange.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::SystemTime;

use loadline_tls::{Certificate, Profile, TlsClient, TlsClientOptions, Trust};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::player::Played;
use crate::tls::https_address;
use crate::util::{Server, connect, exchange, run, site};

/// An authority that is ready, and a folder with its certificate.
fn authority(fetch: Box<dyn Fn(&str) -> String + Send>) -> (Played, TempDir) {
    let (played, folder) = (Played::start(fetch), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("ca.pem"), played.front.certificate()).unwrap();
    (played, folder)
}

/// The options of a server that asks it.
fn options(played: &Played, folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    [
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "https://127.0.0.1:0",
        "--acme",
        "you@example.org",
        "--acme-domain",
        played.name(),
        "--acme-directory",
        &played.front.url("/dir"),
        "--acme-ca",
        &path("ca.pem"),
        "--acme-dir",
        &path("state"),
    ]
    .map(str::to_owned)
    .into()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// What a server says that does not start, with exit code 2.
fn refusal(all: &[String]) -> String {
    let output = run(&[&["serve"], &words(all)[..]].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn a_certificate_comes_while_plain_requests_are_redirected() {
    let (sender, address) = channel::<SocketAddr>();
    let server_address = OnceLock::new();
    let (played, folder) = authority(Box::new(move |path| {
        let address = server_address.get_or_init(|| address.recv().unwrap());
        let (head, content) = exchange(connect(*address), path);
        format!("{head}\r\n\r\n{content}")
    }));
    let kept = played.keep(&folder.path().join("state"));
    let site = site();
    let mut all = options(&played, folder.path());
    all.extend(["--https-redirect", "--status-path", "/-/status"].map(str::to_owned));
    let server = Server::start_with(site.path(), &words(&all), Stdio::null());
    sender.send(server.address()).unwrap();
    let line = server.line_with("a certificate until");
    assert!(line.contains(played.name()), "{line}");
    let pem = kept.join(format!("{}.pem", played.name()));
    let mode = fs::metadata(&pem).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (head, _) = exchange(server.connect(), "/");
    assert!(head.starts_with("HTTP/1.1 308 "), "{head}");
    drop(server);
    // At the next start it is there from the beginning. The redirect is off, to see the status page.
    all.retain(|it| it != "--https-redirect");
    let server = Server::start_with(site.path(), &words(&all), Stdio::null());
    let status: serde_json::Value = serde_json::from_str(&server.get("/-/status")).unwrap();
    assert_eq!(status["acme"]["names_without_certificate"], 0, "{status:#}");
    assert_eq!(status["tls"]["certificates"], 1);
    assert!(status["acme"]["last_error"].is_string());
    // Another process does not get the same directory.
    let other = refusal(&all);
    assert!(other.contains("another process uses it"), "{other}");
}

/// What a client gets that asks for this name, valid or not.
fn served(address: SocketAddr, name: &str) -> Vec<u8> {
    let client = TlsClient::with(&TlsClientOptions {
        trust: Trust::Anyone,
        profile: Profile::Intermediate,
        certificate: None,
        resumes: false,
        key_exchange: None,
        cipher: None,
    });
    let mut stream = client.unwrap().stream(name, connect(address)).unwrap();
    stream.conn.complete_io(&mut stream.sock).unwrap();
    let chain = stream.conn.peer_certificates().unwrap();
    chain[0].to_vec()
}

#[test]
fn a_certificate_is_renewed_while_the_one_of_before_is_served() {
    let (sender, address) = channel::<SocketAddr>();
    let server_address = OnceLock::new();
    let (played, folder) = authority(Box::new(move |path| {
        let address = server_address.get_or_init(|| address.recv().unwrap());
        let (head, content) = exchange(connect(*address), path);
        format!("{head}\r\n\r\n{content}")
    }));
    let name = played.name();
    let kept = played.keep(&folder.path().join("state"));
    // Two thirds of its life have passed.
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(2045, 1, 1);
    let key = KeyPair::generate().unwrap();
    let old = params.self_signed(&key).unwrap();
    let file = kept.join(format!("{name}.pem"));
    fs::write(&file, key.serialize_pem() + &old.pem()).unwrap();
    let site = site();
    let all = options(&played, folder.path());
    let server = Server::start_with(site.path(), &words(&all), Stdio::null());
    assert_eq!(served(https_address(&server), name), old.der().to_vec());
    sender.send(server.address()).unwrap(); // the authority has waited for it
    server.line_with("a certificate until");
    let pem = fs::read(&file).unwrap();
    let new = Certificate::from_pem(("new", &pem), ("new", &pem)).unwrap();
    assert_ne!(new.der(), &old.der()[..]);
    // The record's certificate ends some day: from then on the one of before stays.
    let is_valid = (new.not_before()..new.not_after()).contains(&SystemTime::now());
    let expected = match is_valid {
        true => new.der(),
        false => &old.der()[..],
    };
    assert_eq!(served(https_address(&server), name), expected);
}

#[test]
fn terms_are_shown_and_agreed_to_by_option() {
    let (played, folder) = authority(Box::new(|_| String::new()));
    let all = options(&played, folder.path());
    let message = refusal(&all);
    assert!(
        message.starts_with("loadline: --acme-agree-to-terms: "),
        "{message}"
    );
    assert!(
        message.contains("terms are at data:text/plain"),
        "{message}"
    );
    let agreed = [&all[..], &["--acme-agree-to-terms".to_owned()]].concat();
    let site = site();
    let server = Server::start_with(site.path(), &words(&agreed), Stdio::null());
    server.line_with("acme: an account at ");
    assert!(
        server.get("/").contains("hello"),
        "files are served meanwhile"
    );
}

#[test]
fn a_state_directory_that_others_can_read_is_refused() {
    let (played, folder) = authority(Box::new(|_| String::new()));
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o750)).unwrap();
    let message = refusal(&options(&played, folder.path()));
    for part in ["--acme-dir: ", "its mode is 750", "chmod 700"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn keys_that_all_users_can_read_are_warned_of_beside_automatic_certificates() {
    let (played, _folder) = authority(Box::new(|_| String::new()));
    let folder = tempfile::tempdir_in("/tmp").unwrap(); // others can enter that
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("ca.pem"), played.front.certificate()).unwrap();
    let keys = ["eab.key", "ticket.key"].map(|name| folder.path().join(name));
    for key in &keys {
        fs::write(key, [b'A'; 80]).unwrap();
        fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let [external, tickets] = keys.map(|key| key.display().to_string());
    let mut all = options(&played, folder.path());
    all.extend(["--acme-agree-to-terms", "--acme-eab-kid", "kid-1"].map(str::to_owned));
    all.extend(["--status-path", "/-/status"].map(str::to_owned));
    all.extend(["--acme-eab-key".to_owned(), external.clone()]);
    all.extend(["--tls-ticket-key".to_owned(), tickets.clone()]);
    let site = site();
    let server = Server::start_with(site.path(), &words(&all), Stdio::null());
    for key in [external, tickets] {
        let right = format!("right would be 600 (chmod 600 {key})");
        let is_warning = |line: &&String| line.contains("WARN") && line.contains(&right);
        assert_eq!(server.start_up.iter().filter(is_warning).count(), 1);
    }
    let status: serde_json::Value = serde_json::from_str(&server.get("/-/status")).unwrap();
    assert_eq!(status["tls"]["keys_readable_by_others"], 2, "{status:#}");
}

#[test]
fn keys_and_logs_in_the_served_directory_are_refused() {
    let site = site();
    let (root, secret) = (site.path().display(), site.path().join("secret"));
    for line in [
        "--acme you@example.org --acme-domain example.org --acme-dir",
        "--tls-cert c.pem --tls-key",
        "--tls self-signed --access-log",
    ] {
        let secret = secret.display();
        let all = format!("{root} --listen https://127.0.0.1:0 {line} {secret}");
        let all: Vec<_> = all.split(' ').map(str::to_owned).collect();
        let message = refusal(&all);
        let part = format!("{secret}: in the directory that is served");
        assert!(message.contains(&part), "{message}");
    }
    assert!(!secret.exists());
}

#[test]
fn what_does_not_fit_is_said_in_one_line() {
    const HTTPS: &str = "--listen https://127.0.0.1:0";
    for (line, parts) in [
        (
            "--acme you@example.org --acme-domain *.example.org",
            &["--acme-domain *.example.org", "DNS-01"][..],
        ),
        ("--acme you", &["--acme you", "you@example.org"]),
        ("--acme you@example.org", &["--acme", "--acme-domain"]),
        ("--acme-domain example.org", &["--acme-domain", "--acme"]),
        (
            "--acme you@example.org --acme-domain example.org --tls self-signed",
            &["excludes"],
        ),
        (
            "--acme you@example.org --acme-domain example.org --tls-client-ca ca.pem",
            &["client certificate", "--listen 0.0.0.0:80"],
        ),
        (
            "--acme you@example.org --acme-domain example.org --acme-eab-kid kid-1",
            &["--acme-eab-kid", "goes with --acme-eab-key"],
        ),
        (
            "--acme you@example.org --acme-domain example.org --acme-eab-key /dev/null",
            &["--acme-eab-key", "goes with --acme-eab-kid"],
        ),
        (
            "--acme-eab-kid kid-1 --acme-eab-key /dev/null",
            &["--acme-eab-kid", "goes with --acme"],
        ),
        (
            "--acme you@example.org --acme-domain example.org --acme-eab-kid k --acme-eab-key /dev/null",
            &["--acme-eab-key: /dev/null: not a key in base64url"],
        ),
        (
            "--acme-directory http://a/dir",
            &["--acme-directory http://a/dir", "https://"],
        ),
        (
            "--acme you@example.org --acme-domain example.org --acme-directory https://a:99999/dir",
            &["--acme-directory: https://a:99999/dir: ", "up to 65535"],
        ),
        (
            "--acme you@example.org --acme-domain example.org --acme-directory https://a:1:2/dir",
            &["--acme-directory: https://a:1:2/dir: "],
        ),
        (
            "--acme you@example.org --acme-domain example.org --acme-directory https://u:p@a/dir",
            &["--acme-directory: https://u:p@a/dir: ", "without a user"],
        ),
    ] {
        let all = format!("{HTTPS} {line}");
        let all: Vec<_> = all.split(' ').map(str::to_owned).collect();
        let message = refusal(&all);
        for part in parts {
            assert!(message.contains(part), "{line}: {message}");
        }
    }
    let all = ["--acme", "a@b.org", "--acme-domain", "b.org"].map(str::to_owned);
    assert!(refusal(&all).contains("no address speaks TLS"));
}
