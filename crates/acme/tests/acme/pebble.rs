//! Pebble, the test server of Let's Encrypt, as a process of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use loadline_tls::Authorities;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::front::{Answer, forward};
use crate::{dns, go_program};

/// What is built.
const MODULE: &str = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1";

/// What its module asks for.
const GO_MINOR: u32 = 24;

/// How long it may take to start. Far more than it does take.
const GRACE: Duration = Duration::from_secs(30);

pub struct Pebble {
    child: Child,
    address: SocketAddr,
    management: SocketAddr,
    certificate: String,
    _folder: TempDir,
}

/// What makes it difficult.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Before each validation, at random, seconds.
    pub sleep_s: u32,
    /// Of good nonces.
    pub nonces_rejected_percent: u32,
    /// Names that are refused.
    pub blocked: Vec<String>,
    /// The key of an account, in base64url and by its identifier, without which nobody gets one.
    pub external_key: Option<(String, String)>,
}

impl Pebble {
    /// Starts one that validates names at these ports.
    pub fn start(http_port: u16, tls_port: u16, trouble: &Trouble) -> Self {
        let program = go_program::build("pebble", MODULE, GO_MINOR);
        // Ports that were free a moment ago may not be any more.
        (0..5)
            .find_map(|_| Self::try_start(&program, http_port, tls_port, trouble))
            .expect("Pebble listens")
    }

    fn try_start(program: &Path, http: u16, tls: u16, trouble: &Trouble) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("c.pem"), certificate.pem()).unwrap();
        fs::write(path("k.pem"), key.serialize_pem()).unwrap();
        let [address, management] = free_addresses();
        let external_keys: BTreeMap<_, _> = trouble.external_key.iter().cloned().collect();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": address,
            "managementListenAddress": management,
            "certificate": path("c.pem"),
            "privateKey": path("k.pem"),
            "httpPort": http,
            "tlsPort": tls,
            "domainBlocklist": trouble.blocked,
            "externalAccountBindingRequired": trouble.external_key.is_some(),
            "externalAccountMACKeys": external_keys,
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "six days", "validityPeriod": 6 * 24 * 3600 } },
        }});
        fs::write(path("config.json"), config.to_string()).unwrap();
        let mut command = Command::new(program);
        command.arg("-config").arg(path("config.json"));
        command.args(["-dnsserver", &dns::start().to_string()]);
        command.env("PEBBLE_VA_SLEEPTIME", trouble.sleep_s.to_string());
        let percent = trouble.nonces_rejected_percent.to_string();
        command.env("PEBBLE_WFE_NONCEREJECT", percent);
        command.env("PEBBLE_AUTHZREUSE", "0");
        for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy); // it would validate names through it
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let _ = lines.any(|line| line.is_ok_and(|line| line.contains("directory available")));
        thread::spawn(move || lines.for_each(drop));
        // It says so before it listens, and does not say when it does.
        let is_up = [address, management]
            .iter()
            .all(|address| is_listening(&mut child, *address));
        let it = Self {
            child,
            address,
            management,
            certificate: certificate.pem(),
            _folder: folder,
        };
        is_up.then_some(it)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who signs the certificate of Pebble's own server.
    pub fn trusted(&self) -> Authorities {
        Authorities::from_pem("Pebble", self.certificate.as_bytes()).unwrap()
    }

    /// The same as a file has it.
    #[allow(dead_code, reason = "tests of the program use it")]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Who signs the certificates that it issues.
    pub fn root(&self) -> Authorities {
        let request = b"GET /roots/0 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let root: Answer = forward(self.management, &self.trusted(), request).unwrap();
        Authorities::from_pem("Pebble's root", &root.content).unwrap()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_listening(child: &mut Child, address: SocketAddr) -> bool {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() && began.elapsed() < GRACE {
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Two that differ.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}
