//! TLS from files, for a server that is built in code: what is opened is served, and taken up again when it
//! changes.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use loadline_proto::{Context, Protocol, Session, SessionConfig, SharedProtocol};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::{Handle, Signals};

use crate::{
    CertificateFiles, CertificatePair, ClientAuthorityFile, FileWatch, HandshakeCounts, Reload,
    TicketFiles, TlsError, TlsOptions, TlsServer, WatchedFiles,
};

/// The files of a TLS listener. Opened, they are for `loadline_server::Server::listen_tls`, whose
/// documentation has a whole program.
///
/// ```no_run
/// use loadline_tls::{Profile, TlsFiles, TlsOptions};
///
/// let options = TlsOptions {
///     profile: Profile::Modern,
///     ..TlsOptions::default()
/// };
/// let tls = TlsFiles::new("c.pem", "k.pem")
///     .and("other-c.pem", "other-k.pem")
///     .options(options)
///     .open()?;
/// # Ok::<(), loadline_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pairs: Vec<CertificatePair>,
    options: TlsOptions,
    ticket_keys: Vec<PathBuf>,
    client_ca: Option<ClientCa>,
    reloads_on_hang_up: bool,
}

#[derive(Clone, Debug)]
struct ClientCa {
    path: PathBuf,
    is_optional: bool,
}

impl TlsFiles {
    /// A certificate, followed by those of its authority, and its private key, both in PEM.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let it = Self {
            pairs: Vec::new(),
            options: TlsOptions::default(),
            ticket_keys: Vec::new(),
            client_ca: None,
            reloads_on_hang_up: true,
        };
        it.and(certificate, key)
    }

    /// One more certificate and its key. Clients get the one for the name that they ask for, and the first one
    /// if there is none for it.
    #[must_use]
    pub fn and(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.pairs.push(CertificatePair {
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// Everything that is not in files.
    #[must_use]
    pub fn options(mut self, options: TlsOptions) -> Self {
        self.options = options;
        self
    }

    /// Keys of tickets that several machines share, in place of those in the options. The first one encrypts.
    #[must_use]
    pub fn ticket_keys(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.ticket_keys = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Clients have to show a certificate of an authority in this file, whatever the options say of them.
    #[must_use]
    pub fn client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(ClientCa {
            path: path.into(),
            is_optional: false,
        });
        self
    }

    /// Clients may show a certificate of an authority in this file, whatever the options say of them.
    #[must_use]
    pub fn optional_client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(ClientCa {
            path: path.into(),
            is_optional: true,
        });
        self
    }

    /// Whether the signal SIGHUP has all files read again, `true` by default. Then it never again ends the
    /// process, as it otherwise does when its terminal closes, not even once these files are no longer served.
    #[must_use]
    pub fn reload_on_hang_up(mut self, reloads: bool) -> Self {
        self.reloads_on_hang_up = reloads;
        self
    }

    /// Reads the files. From now on they are looked at every two seconds, on a thread of its own, and files
    /// that have changed are taken up. What is taken up, what cannot be used, and certificates that expire
    /// soon are logged (`tracing`).
    ///
    /// # Errors
    /// A file cannot be read or used, the options exclude each other, or a thread or the handler of the signal
    /// cannot be had. The message is one line; it names the file.
    pub fn open(self) -> Result<TlsFromFiles, TlsError> {
        let mut options = self.options;
        if options.early_data && !self.ticket_keys.is_empty() {
            return Err(TlsError::EarlyData("ticket keys"));
        }
        let certificates = CertificateFiles::load(self.pairs)?;
        let tickets = match self.ticket_keys.is_empty() {
            true => None,
            false => Some(TicketFiles::load(self.ticket_keys)?),
        };
        if let Some(files) = &tickets {
            options.tickets = Arc::clone(files.tickets());
        }
        let load = |it: ClientCa| ClientAuthorityFile::load(it.path, it.is_optional);
        let client_authorities = self.client_ca.map(load).transpose()?;
        if let Some(file) = &client_authorities {
            options.client_certificates = file.certificates().clone();
        }
        let server = TlsServer::new(certificates.certificates(), &options)?;
        let files = WatchedFiles {
            certificates: Some(certificates),
            tickets,
            client_authorities,
        };
        let watch = FileWatch::new(&server, [], files);
        watch.warn();
        let reload = watch.start().map_err(TlsError::Unwatched)?;
        let hang_ups = self.reloads_on_hang_up.then(|| on_hang_up(reload.clone()));
        let hang_ups = hang_ups.transpose().map_err(TlsError::Unwatched)?;
        Ok(TlsFromFiles {
            server,
            watching: Arc::new(Watching { reload, hang_ups }),
        })
    }
}

/// Has files read again at each SIGHUP, until the handle is closed.
fn on_hang_up(reload: Reload) -> io::Result<Handle> {
    let mut signals = Signals::new([SIGHUP])?;
    let handle = signals.handle();
    let obey = move || signals.forever().for_each(|_| reload.now());
    let builder = std::thread::Builder::new().name("hang-ups".into());
    builder.spawn(obey)?;
    Ok(handle)
}

/// A TLS server whose files are looked after until the last clone of it, and of the protocol that was made
/// of it, is dropped. Then the threads that did so end. Several listeners may have a clone each.
#[derive(Clone, Debug)]
pub struct TlsFromFiles {
    server: TlsServer,
    watching: Arc<Watching>,
}

#[derive(Debug)]
struct Watching {
    reload: Reload,
    hang_ups: Option<Handle>,
}

impl TlsFromFiles {
    /// What became of handshakes.
    #[must_use]
    pub fn counts(&self) -> HandshakeCounts {
        self.server.counts()
    }

    /// Has all files read again at once, as SIGHUP does.
    pub fn reload(&self) {
        self.watching.reload.now();
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.hang_ups.iter().for_each(Handle::close);
    }
}

impl SharedProtocol for TlsFromFiles {
    fn session(
        &self,
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Box<dyn Session> {
        self.server.session(config, peer, cx)
    }
}

impl From<TlsFromFiles> for Protocol {
    fn from(tls: TlsFromFiles) -> Self {
        Self::Shared(Arc::new(tls))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;
    use std::time::{Duration, Instant};

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn the_threads_end_if_what_was_opened_is_dropped_before_it_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["c.pem", "k.pem"].map(|name| folder.path().join(name));
        let own = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        fs::write(&certificate, params.self_signed(&own).unwrap().pem()).unwrap();
        fs::write(&key, own.serialize_pem()).unwrap();
        let tls = TlsFiles::new(certificate, key).open().unwrap();
        let certificates = Arc::downgrade(tls.server.certificates());
        drop(Protocol::from(tls));
        let deadline = Instant::now() + Duration::from_secs(20);
        // The thread that looks at files holds them; the one that waits for signals keeps that one running.
        while certificates.strong_count() > 0 {
            assert!(Instant::now() < deadline, "the threads go on");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
