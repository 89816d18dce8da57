//! TLS as people get it: certificates from files that change, one for trying things out, redirects.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use loadline_base::Buffer;
use loadline_proto::Layer as _;
use loadline_tls::{Authorities, Certificate, Profile, TlsClient, TlsClientOptions, Trust};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::util::{Server, architectures, connect, exchange, run, site, until};

/// Writes a certificate for `localhost` and its key.
fn write_pair(folder: &Path) {
    write_pair_for("localhost", folder, |_| {});
}

fn write_pair_for(name: &str, folder: &Path, change: impl FnOnce(&mut CertificateParams)) {
    let key = KeyPair::generate().unwrap();
    let mut certificate = CertificateParams::new([name.to_owned()]).unwrap();
    change(&mut certificate);
    let certificate = certificate.self_signed(&key).unwrap();
    fs::write(folder.join("c.pem"), certificate.pem()).unwrap();
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(folder.join("k.pem")).unwrap();
    file.write_all(key.serialize_pem().as_bytes()).unwrap();
}

/// A server with a certificate in a folder of its own.
fn start(site: &Path, more: &[&str]) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path());
    (start_with(site, &[folder.path()], more), folder)
}

/// A server with the certificates in these folders.
fn start_with(site: &Path, folders: &[&Path], more: &[&str]) -> Server {
    let mut words = vec!["--listen".to_owned(), "https://127.0.0.1:0".into()];
    for folder in folders {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        words.extend(["--tls-cert".into(), path("c.pem")]);
        words.extend(["--tls-key".into(), path("k.pem")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Server::start_with(site, &[&words, more].concat(), Stdio::null())
}

pub(crate) fn https_address(server: &Server) -> SocketAddr {
    let mut words = (server.start_up.iter()).flat_map(|line| line.split_ascii_whitespace());
    let url = words
        .find_map(|word| word.strip_prefix("https://"))
        .unwrap();
    url.trim_end_matches('/').parse().unwrap()
}

fn get_by_https(server: &Server, trusted: &Path, target: &str) -> Option<String> {
    get_at(https_address(server), trusted, target)
}

/// The response to a GET by a client that trusts the certificate in this folder; `None`: it does not
/// trust the server.
fn get_at(address: SocketAddr, trusted: &Path, target: &str) -> Option<String> {
    get_by(&trusting(trusted), address, "localhost", target)
}

/// A client that trusts the certificate in this folder.
fn trusting(folder: &Path) -> TlsClient {
    TlsClient::new(&authorities(folder), Profile::Intermediate).unwrap()
}

fn authorities(folder: &Path) -> Authorities {
    Authorities::from_file(&folder.join("c.pem")).unwrap()
}

/// The same by this client, of the server with this name.
fn get_by(client: &TlsClient, address: SocketAddr, name: &str, target: &str) -> Option<String> {
    let (mut plain, mut out) = (Buffer::default(), Buffer::default());
    let mut layer = client.connect(name, &mut out).unwrap();
    let mut stream = connect(address);
    let mut is_asked = false;
    let mut piece = [0; 4096];
    while !layer.has_ended() {
        if layer.is_open() && !is_asked {
            is_asked = true;
            let request =
                format!("GET {target} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
            layer.send(request.as_bytes(), &mut out);
        }
        let _ = stream.write_all(&out); // the server may have closed by then
        out.clear();
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end without close_notify");
        if layer
            .received(&mut piece[..count], &mut plain, &mut out)
            .is_err()
        {
            return None;
        }
    }
    Some(String::from_utf8(plain.to_vec()).unwrap())
}

/// What the status page says of TLS, at the server's plain address.
fn tls_status(server: &Server) -> serde_json::Value {
    let (_, content) = exchange(server.connect(), "/-/status");
    let page: serde_json::Value = serde_json::from_str(&content).expect(&content);
    page["tls"].clone()
}

/// A plain address with a status page, beside others.
const WITH_STATUS: [&str; 4] = ["--listen", "127.0.0.1:0", "--status-path", "/-/status"];

#[test]
fn a_page_under_every_architecture() {
    let site = site();
    for architecture in architectures() {
        let (server, folder) = start(site.path(), &["--architecture", architecture]);
        let response = get_by_https(&server, folder.path(), "/").unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(response.ends_with("<p>hello</p>"), "{response}");
    }
}

#[test]
fn clients_are_asked_for_a_certificate_and_may_go_without_where_it_is_optional() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let authority = folder.path().join("c.pem");
    let asked = ["--tls-client-ca", authority.to_str().unwrap()];
    for (more, is_served) in [
        (&asked[..], false),
        (
            &[asked[0], asked[1], "--tls-client-cert", "required"],
            false,
        ),
        (&[asked[0], asked[1], "--tls-client-cert", "optional"], true),
    ] {
        let server = start_with(site.path(), &[folder.path()], more);
        let response = get_by_https(&server, folder.path(), "/");
        assert_eq!(response.is_some(), is_served, "{more:?}: {response:?}");
    }
}

#[test]
fn authorities_of_clients_are_taken_up_again_and_a_broken_file_is_logged() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::copy(path("c.pem"), path("ca.pem")).unwrap();
    let authority = path("ca.pem");
    let asked = ["--tls-client-ca", authority.to_str().unwrap()];
    let server = start_with(site.path(), &[folder.path()], &asked);
    let own = Certificate::from_files(&path("c.pem"), &path("k.pem")).unwrap();
    let trusted = authorities(folder.path());
    let with_one = TlsClient::with_certificate(&trusted, Profile::Intermediate, &own).unwrap();
    let are_served = || {
        [&with_one, &trusting(folder.path())].map(|client| {
            let response = get_by(client, https_address(&server), "localhost", "/");
            response.is_some_and(|it| it.starts_with("HTTP/1.1 200 "))
        })
    };
    assert_eq!(are_served(), [true, false]);
    fs::write(&authority, "nothing").unwrap();
    server.signal("HUP");
    let line = server.line_with("authorities of clients of before stay in service");
    assert!(line.contains("ca.pem: no certificate in it"), "{line}");
    assert_eq!(are_served(), [true, false]);
    fs::copy(path("c.pem"), &authority).unwrap();
    server.line_with("authorities of clients taken up again");
    assert_eq!(are_served(), [true, false]);
}

/// By default it would be after ten seconds.
#[test]
fn a_client_that_stops_in_a_handshake_is_closed_after_the_time_that_was_given() {
    let site = site();
    let more = [&WITH_STATUS[..], &["--tls-handshake-timeout", "100ms"]].concat();
    let (server, _folder) = start(site.path(), &more);
    let mut stream = connect(https_address(&server));
    stream.write_all(&[0x16, 3, 1]).unwrap(); // a record begins
    let began = Instant::now();
    let _ = stream.read_to_end(&mut Vec::new());
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let status = tls_status(&server);
    assert_eq!(status["handshakes_timed_out"], 1, "{status}");
}

#[test]
fn a_renewed_certificate_is_taken_up() {
    let site = site();
    let (server, folder) = start(site.path(), &[]);
    let before = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("c.pem"), before.path().join("c.pem")).unwrap();
    assert!(get_by_https(&server, folder.path(), "/").is_some());
    write_pair(folder.path());
    server.line_with("certificates taken up again");
    assert!(get_by_https(&server, folder.path(), "/").is_some());
    assert!(get_by_https(&server, before.path(), "/").is_none());
}

#[test]
fn each_name_gets_its_certificate_with_its_key() {
    let site = site();
    let folders: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let names = ["one.test", "two.test", "*.three.test"];
    for (name, folder) in names.iter().zip(&folders) {
        write_pair_for(name, folder.path(), |_| {});
    }
    let paths: Vec<&Path> = folders.iter().map(TempDir::path).collect();
    let server = start_with(site.path(), &paths, &[]);
    let address = https_address(&server);
    for (asked, own) in [("one.test", 0), ("two.test", 1), ("a.three.test", 2)] {
        for (index, folder) in paths.iter().enumerate() {
            let response = get_by(&trusting(folder), address, asked, "/");
            let is_served = response.is_some_and(|it| it.starts_with("HTTP/1.1 200 "));
            assert_eq!(is_served, index == own, "{asked}, trusting {index}");
        }
    }
}

#[test]
fn a_certificate_that_is_not_valid_is_served_with_a_warning_and_shows_in_the_status() {
    let site = site();
    let (past, future) = (date_time_ymd(2020, 1, 1), date_time_ymd(4020, 1, 1));
    for (from, to, warning) in [
        (date_time_ymd(2019, 1, 1), past, "expired"),
        (future, date_time_ymd(4021, 1, 1), "not valid for another"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_pair_for("localhost", folder.path(), |it| {
            (it.not_before, it.not_after) = (from, to);
        });
        let server = start_with(site.path(), &[folder.path()], &WITH_STATUS);
        let said = server.start_up.iter();
        let mut said = said.filter(|line| line.contains("WARN") && line.contains("c.pem"));
        let line = said.next().expect("a warning");
        assert!(line.contains(warning), "{line}");
        assert_eq!(said.next(), None);
        let status = tls_status(&server);
        assert_eq!(status["certificates_to_renew"], 1, "{status}");
        let left = status["certificate_seconds_left"].as_u64().unwrap();
        assert_eq!(left == 0, warning == "expired", "{status}");
        // It is served all the same, to those who do not look.
        let client = TlsClient::with(&TlsClientOptions {
            trust: Trust::Anyone,
            ..TlsClientOptions::trusting(&authorities(folder.path()), Profile::Intermediate)
        });
        let response = get_by(&client.unwrap(), https_address(&server), "localhost", "/");
        assert!(response.unwrap().starts_with("HTTP/1.1 200 "));
    }
    let (server, _folder) = start(site.path(), &WITH_STATUS);
    let status = tls_status(&server);
    assert_eq!(status["certificates_to_renew"], 0, "{status}");
}

/// Its group may read it, as on Debian: there keys belong to `root:ssl-cert`.
#[test]
fn a_key_that_all_users_can_read_is_warned_of_and_shows_in_the_status() {
    let site = site();
    for (mode, is_warned) in [(0o644, true), (0o604, true), (0o640, false)] {
        let folder = tempfile::tempdir_in("/tmp").unwrap(); // others can enter that
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        write_pair(folder.path());
        let key = folder.path().join("k.pem");
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        // The key of two pairs is one key.
        let server = start_with(site.path(), &[folder.path(); 2], &WITH_STATUS);
        let said = server.start_up.iter();
        let said = said.filter(|line| line.contains("WARN") && line.contains("k.pem"));
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), usize::from(is_warned), "{mode:o}: {said:?}");
        let right = format!("right would be 600 (chmod 600 {})", key.display());
        assert!(said.iter().all(|line| line.contains(&right)), "{said:?}");
        let status = tls_status(&server);
        let count = u64::from(is_warned);
        assert_eq!(status["keys_readable_by_others"], count, "{mode:o}");
    }
}

/// Who has it can resume sessions of others, with the certificates of their clients.
#[test]
fn a_ticket_key_that_all_users_can_read_is_warned_of_and_shows_in_the_status() {
    let site = site();
    for (mode, is_warned) in [(0o644, true), (0o640, false)] {
        let folder = tempfile::tempdir_in("/tmp").unwrap(); // others can enter that
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        write_pair(folder.path());
        let key = folder.path().join("ticket.key");
        fs::write(&key, [1; 80]).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let more = ["--tls-ticket-key", key.to_str().unwrap()];
        let more = [&WITH_STATUS[..], &more].concat();
        let server = start_with(site.path(), &[folder.path()], &more);
        let said = server.start_up.iter();
        let said = said.filter(|line| line.contains("WARN") && line.contains("ticket.key"));
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), usize::from(is_warned), "{mode:o}: {said:?}");
        let right = format!("right would be 600 (chmod 600 {})", key.display());
        assert!(said.iter().all(|line| line.contains(&right)), "{said:?}");
        let status = tls_status(&server);
        let count = u64::from(is_warned);
        assert_eq!(status["keys_readable_by_others"], count, "{mode:o}");
    }
}

/// How often a certificate is renewed under each architecture.
const RENEWALS: u64 = 5;

#[test]
fn a_hang_up_has_certificates_taken_up_and_no_handshake_is_lost() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--latency-goal", "60s"];
        let (server, folder) = start(site.path(), &[&WITH_STATUS[..], &more].concat());
        // Also what has not changed: so this is the signal's doing.
        server.signal("HUP");
        server.line_with("certificates taken up again");
        renew_under_load(&server, folder.path());
        // The last one is served.
        until("the new certificate", || {
            get_by_https(&server, folder.path(), "/")
        });
        let status = tls_status(&server);
        for count in ["handshakes_failed", "handshakes_refused"] {
            assert_eq!(status[count], 0, "{architecture}: {status}");
        }
        let resumed = status["handshakes_resumed"].as_u64();
        assert!(resumed >= Some(RENEWALS), "{architecture}: {status}");
    }
}

/// Renews the certificate again and again while three clients connect, one of which resumes its sessions.
fn renew_under_load(server: &Server, folder: &Path) {
    let address = https_address(server);
    let clients = [true, false, false].map(|resumes| {
        let anyone = TlsClientOptions {
            trust: Trust::Anyone,
            resumes,
            ..TlsClientOptions::trusting(&authorities(folder), Profile::Intermediate)
        };
        (TlsClient::with(&anyone).unwrap(), AtomicUsize::new(0))
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads = clients.each_ref().map(|(client, done)| {
            let over = &over;
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    let response = get_by(client, address, "localhost", "/");
                    assert!(response.unwrap().starts_with("HTTP/1.1 200 "));
                    done.fetch_add(1, SeqCst);
                }
            })
        });
        for _ in 0..RENEWALS {
            write_pair(folder);
            server.signal("HUP");
            server.line_with("certificates taken up again");
            // Of three handshakes two begin after this, so the last one could resume the session of the second.
            let before = clients.each_ref().map(|(_, done)| done.load(SeqCst));
            until("three more responses for each client", || {
                let mut counts = clients.iter().zip(before);
                let is_done = counts.all(|((_, done), count)| done.load(SeqCst) >= count + 3);
                let has_failed = threads.iter().any(|thread| thread.is_finished());
                (is_done || has_failed).then_some(())
            });
        }
        over.store(true, SeqCst);
    });
}

#[test]
fn machines_with_the_same_ticket_key_resume_each_others_sessions() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let key = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        fs::write(&path, [byte; 80]).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (key, other) = (key("ticket.key", 1), key("other.key", 2));
    let client = trusting(folder.path());
    for (more, resumed) in [
        (&["--tls-ticket-key", &key][..], 0),
        (&["--tls-ticket-key", &other, "--tls-ticket-key", &key], 1), // which opens what was sealed before
        (&["--tls-ticket-key", &key], 0),
        (&[], 0),
    ] {
        let more = [&WITH_STATUS[..], more].concat();
        let server = start_with(site.path(), &[folder.path()], &more);
        let response = get_by(&client, https_address(&server), "localhost", "/");
        assert!(response.unwrap().starts_with("HTTP/1.1 200 "));
        let status = tls_status(&server);
        assert_eq!(status["handshakes_resumed"], resumed, "{more:?}: {status}");
    }
}

#[test]
fn a_broken_one_is_logged_and_the_old_one_stays() {
    let site = site();
    let (server, folder) = start(site.path(), &[]);
    fs::write(folder.path().join("k.pem"), "nothing").unwrap();
    server.signal("HUP");
    let line = server.line_with("certificates of before stay in service");
    assert!(line.contains("k.pem: no private key in it"), "{line}");
    assert!(get_by_https(&server, folder.path(), "/").is_some());
}

#[test]
fn each_broken_pair_is_logged_and_what_is_wrong_with_the_others() {
    let site = site();
    let folders = [(), (), ()].map(|()| tempfile::tempdir().unwrap());
    let names = ["one.test", "two.test", "three.test"];
    for (name, folder) in names.iter().zip(&folders) {
        write_pair_for(name, folder.path(), |_| {});
    }
    let paths: Vec<&Path> = folders.iter().map(TempDir::path).collect();
    let server = start_with(site.path(), &paths, &[]);
    let keys = [0, 1].map(|index| paths[index].join("k.pem"));
    for key in &keys {
        fs::write(key, "nothing").unwrap();
    }
    write_pair_for(names[2], paths[2], |it| {
        it.not_before = date_time_ymd(2019, 1, 1);
        it.not_after = date_time_ymd(2020, 1, 1);
    });
    server.signal("HUP");
    for key in &keys {
        let line = server.line_with(key.to_str().unwrap());
        assert!(line.contains("no private key in it"), "{line}");
    }
    let line = server.line_with("expired");
    assert!(line.contains(paths[2].to_str().unwrap()), "{line}");
}

#[test]
fn a_certificate_for_trying_things_out() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let more = ["--tls", "self-signed", "--listen", "https://127.0.0.1:0"];
    let server = Server::start_with(site.path(), &more, Stdio::null());
    server.line_with("the certificate is self-signed");
    // No client trusts it, and one that speaks HTTP gets a response that says so.
    assert!(get_by_https(&server, folder.path(), "/").is_none());
    let mut stream = TcpStream::connect(https_address(&server)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("speaks HTTPS"), "{answer}");
}

#[test]
fn http_leads_to_https() {
    let site = site();
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--https-redirect",
        "--hsts",
        "365",
    ];
    let (server, folder) = start(site.path(), &more);
    let (head, _) = exchange(server.connect(), "/a?b=c");
    let port = https_address(&server).port();
    assert!(head.starts_with("HTTP/1.1 308 "), "{head}");
    let location = format!("\r\nLocation: https://x:{port}/a?b=c\r\n");
    assert!(
        head.contains(&location) && !head.contains("Strict-Transport"),
        "{head}"
    );
    let (head, _) = exchange(server.connect(), "/-/health");
    assert!(
        head.starts_with("HTTP/1.1 200 "),
        "a probe is answered: {head}"
    );
    let response = get_by_https(&server, folder.path(), "/missing").unwrap();
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
    assert!(response.contains("\r\nStrict-Transport-Security: max-age=31536000\r\n"));
}

#[test]
fn accounts_say_transport_security_once() {
    let (site, state) = (site(), tempfile::tempdir().unwrap());
    let accounts = format!("sqlite:{}", state.path().join("accounts.db").display());
    let (server, folder) = start(site.path(), &["--accounts", &accounts, "--hsts", "30"]);
    let response = get_by_https(&server, folder.path(), "/accounts/login").unwrap();
    let response = response.to_lowercase();
    let name = "strict-transport-security: ";
    let fields = response.lines().filter_map(|line| line.strip_prefix(name));
    assert_eq!(fields.collect::<Vec<_>>(), ["max-age=2592000"]);
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pair(one.path());
    write_pair(other.path());
    let path = |folder: &TempDir, name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path(&one, "c.pem"), path(&one, "k.pem"));
    let encrypted = path(&one, "encrypted.pem");
    let pem = fs::read_to_string(&key).unwrap();
    fs::write(&encrypted, pem.replace(" PRIVATE", " ENCRYPTED PRIVATE")).unwrap();
    let decrypt = format!("(openssl pkey -in {encrypted} -out key.pem)");
    for (certificate, key, why) in [
        (
            &certificate,
            &path(&other, "k.pem"),
            "does not belong to the certificate",
        ),
        (&certificate, &encrypted, &decrypt[..]),
        (&path(&one, "missing.pem"), &key, "No such file"),
        (&certificate, &certificate, "no private key in it"),
    ] {
        let listen = ["serve", "--listen", "https://127.0.0.1:0"];
        let files = ["--tls-cert", certificate, "--tls-key", key];
        let output = run(&[&listen[..], &files].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("--tls-cert: ") && message.contains(why),
            "{message}"
        );
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
}

#[test]
fn the_servers_own_pages_by_https() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("c.pem"), path("k.pem"));
    let pages = ["--admin-listen", "https://127.0.0.1:0"];
    let pair = ["--tls-cert", &certificate, "--tls-key", &key];
    let server = Server::start(site.path(), &[&pages[..], &pair].concat());
    let line = server.line_with("status page at https://127.0.0.1:");
    let (_, url) = line.split_once("https://").unwrap();
    let (address, path) = url.split_once('/').unwrap();
    assert_eq!(path, "-/status");
    let address: SocketAddr = address.parse().unwrap();
    let get = |target: &str| get_at(address, folder.path(), target).unwrap();
    assert!(get("/-/health").ends_with("alive\n"));
    let response = get("/-/status");
    let (_, content) = response.split_once("\r\n\r\n").unwrap();
    let page: serde_json::Value = serde_json::from_str(content).expect(content);
    assert_eq!(page["tls"]["handshakes_full"], 0, "none of its own");
    assert_eq!(page["tls"]["certificates"], 1);
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    let plain = TcpStream::connect(address).unwrap();
    assert!(exchange(plain, "/-/health").0.starts_with("HTTP/1.1 400 "));
    // The site has an address of its own, without TLS.
    let (head, content) = exchange(server.connect(), "/");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(content, "<p>hello</p>");
}
