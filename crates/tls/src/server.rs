//! A server of TLS: what can be chosen, and the protocol of its listeners.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use loadline_proto::{
    ClientKey, Context, Http2, Layered, Protocol, ServerSession, Session, SessionConfig,
    SharedProtocol,
};
use rustls::ServerConfig;
use rustls::server::{NoClientAuth, NoServerSessionStorage};

use crate::certificates::{ACME_TLS_ALPN, HTTP_2_ALPN};
use crate::counters::Counters;
use crate::handshake_permits::HandshakePermits;
use crate::server_sessions::ServerSessions;
use crate::shared::{Configs, Shared};
use crate::tickets::TicketsOfServer;
use crate::{
    Certificates, ClientCertificates, HandshakeCounts, Profile, Tickets, TlsError, TlsLayer,
};

/// Handshakes that are computed or wait for it, at most: 512 of some 0.3 ms each are done before their
/// clients' patience ends, on one CPU.
pub const HANDSHAKES_MAX: usize = 512;

/// Sessions without a ticket (TLS 1.2) that are remembered: some hundred bytes each.
const SESSIONS_MAX: usize = 1024;

/// Sessions that are remembered where early data is served: some hundred bytes each, two for each
/// connection.
const EARLY_SESSIONS_MAX: usize = 8192;

/// What may come before the handshake is done: some requests.
const EARLY_BYTES_MAX: u32 = 16 << 10;

/// What can be chosen about TLS besides certificates.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Versions and cipher suites.
    pub profile: Profile,
    /// How sessions are resumed.
    pub tickets: Arc<Tickets>,
    /// Whether clients show certificates.
    pub client_certificates: ClientCertificates,
    /// Whether HTTP/2 is offered, before HTTP/1.1 (ALPN).
    pub http2: Http2,
    /// Handshakes that are computed or wait for it; further ones end at once.
    pub handshakes_max: usize,
    /// Whether the last quarter of them is for clients that have few.
    pub handshakes_shared: bool,
    /// Whether safe requests are served that come before the handshake is done. Then sessions are in
    /// memory, each for one use, and there are no tickets. Not together with client certificates.
    pub early_data: bool,
    /// `max-age` of `Strict-Transport-Security`, in seconds; `None`: it is not sent.
    pub hsts_max_age_s: Option<u64>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            tickets: Arc::new(Tickets::rotating()),
            client_certificates: ClientCertificates::default(),
            http2: Http2::On,
            handshakes_max: HANDSHAKES_MAX,
            handshakes_shared: true,
            early_data: false,
            hsts_max_age_s: None,
        }
    }
}

/// A server of TLS: what its connections share.
#[derive(Clone, Debug)]
pub struct TlsServer {
    shared: Arc<Shared>,
    options: TlsOptions,
}

impl TlsServer {
    /// Serves these certificates, whatever they are at the time.
    ///
    /// # Errors
    /// The options contradict each other, or the authorities of clients cannot be used.
    pub fn new(certificates: &Arc<Certificates>, options: &TlsOptions) -> Result<Self, TlsError> {
        let configs = configs(certificates, options)?;
        let shared = Shared {
            configs: RwLock::new(Arc::new(configs)),
            certificates: Arc::clone(certificates),
            handshake_permits: HandshakePermits::new(
                options.handshakes_max,
                options.handshakes_shared,
            ),
            counters: Counters::default(),
            response_lines: match options.hsts_max_age_s {
                Some(max_age_s) => hsts(max_age_s).into_bytes().into(),
                None => Arc::default(),
            },
        };
        Ok(Self {
            shared: Arc::new(shared),
            options: options.clone(),
        })
    }

    /// Asks the clients of further handshakes for these certificates. Connections that are open stay, and so do
    /// sessions if these are the certificates of before.
    ///
    /// # Errors
    /// The authorities cannot be used; those of before stay.
    pub fn replace_client_certificates(&self, new: &ClientCertificates) -> Result<(), TlsError> {
        if new.are_those_of(&self.shared.configs().client_certificates) {
            return Ok(()); // new configs would have forgotten the sessions without tickets
        }
        let options = TlsOptions {
            client_certificates: new.clone(),
            ..self.options.clone()
        };
        let new = Arc::new(configs(&self.shared.certificates, &options)?);
        let mut current = (self.shared.configs)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = new;
        Ok(())
    }

    /// For a listener.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        Protocol::Shared(Arc::new(self.clone()))
    }

    /// What became of handshakes.
    #[must_use]
    pub fn counts(&self) -> HandshakeCounts {
        self.shared.counters.counts()
    }

    pub(crate) fn certificates(&self) -> &Arc<Certificates> {
        &self.shared.certificates
    }

    /// By which sessions are resumed.
    #[must_use]
    pub fn tickets(&self) -> &Arc<Tickets> {
        &self.options.tickets
    }

    /// A server's end of a new connection with this client.
    #[must_use]
    pub fn accept(&self, client: ClientKey) -> TlsLayer {
        TlsLayer::server(&self.shared, client)
    }
}

fn configs(certificates: &Arc<Certificates>, options: &TlsOptions) -> Result<Configs, TlsError> {
    let provider = options.profile.provider();
    let verifier = options.client_certificates.verifier(&provider)?;
    if options.early_data && verifier.is_some() {
        return Err(TlsError::EarlyData("client certificates"));
    }
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(options.profile.versions())?
        .with_client_cert_verifier(verifier.clone().unwrap_or_else(|| Arc::new(NoClientAuth)));
    let mut config = builder.with_cert_resolver(Arc::clone(certificates) as Arc<_>);
    let http1 = [b"http/1.1", &b"http/1.0"[..]];
    let protocols = match options.http2 {
        Http2::On => [&[HTTP_2_ALPN], &http1[..]].concat(),
        Http2::Off => http1.to_vec(),
        Http2::Only => vec![HTTP_2_ALPN],
    };
    let all = protocols.into_iter().chain([ACME_TLS_ALPN]);
    config.alpn_protocols = all.map(<[u8]>::to_vec).collect();
    config.ignore_client_order = true;
    config.session_storage = Arc::new(ServerSessions::new(SESSIONS_MAX));
    if options.early_data {
        // What is taken out of the memory at its first use cannot be used again.
        config.session_storage = Arc::new(ServerSessions::new(EARLY_SESSIONS_MAX));
        config.max_early_data_size = EARLY_BYTES_MAX;
        config.send_half_rtt_data = true;
    } else {
        config.ticketer = Arc::new(TicketsOfServer {
            tickets: Arc::clone(&options.tickets),
            context: options.client_certificates.ticket_context(),
            are_accepted: true,
        });
    }
    let config = Arc::new(config);
    Ok(Configs {
        without_resumption: match &verifier {
            Some(_) => Arc::new(without_resumption(&config, options)),
            None => Arc::clone(&config),
        },
        client_certificates: options.client_certificates.clone(),
        config,
        verifier,
    })
}

/// Sessions of before do not go on, and new ones may later. Where clients are asked for certificates there is
/// no early data.
fn without_resumption(config: &ServerConfig, options: &TlsOptions) -> ServerConfig {
    let mut config = config.clone();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Arc::new(TicketsOfServer {
        tickets: Arc::clone(&options.tickets),
        context: options.client_certificates.ticket_context(),
        are_accepted: false,
    });
    config
}

impl SharedProtocol for TlsServer {
    fn session(
        &self,
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Box<dyn Session> {
        let http = ServerSession::over_layer(config, peer, cx);
        let client = match peer {
            // Trusted proxies stand for many clients.
            Some(peer) if !config.trusted_proxies.trusts(Some(peer)) => ClientKey::of(peer.ip()),
            _ => ClientKey::NOBODY,
        };
        Box::new(Layered::new(self.accept(client), http, config, cx))
    }
}

fn hsts(max_age_s: u64) -> String {
    format!("Strict-Transport-Security: max-age={max_age_s}\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_sessions_are_remembered_as_the_manual_says() {
        for (early_data, max) in [(false, 1_024_u32), (true, 8_192)] {
            let options = TlsOptions {
                early_data,
                ..TlsOptions::default()
            };
            let configs = configs(&Arc::default(), &options).unwrap();
            let sessions = &configs.config.session_storage;
            let id = |number: u32| number.to_be_bytes();
            for number in 0..=max {
                assert!(sessions.put(id(number).to_vec(), Vec::new()));
            }
            assert_eq!(sessions.get(&id(0)), None);
            assert!((1..=max).all(|number| sessions.get(&id(number)).is_some()));
        }
    }
}
