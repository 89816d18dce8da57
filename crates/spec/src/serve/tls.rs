//! How a server speaks TLS.

use clap::ValueHint;
use loadline_base::choice;

use super::values::{Named, named};
use crate::field::Preset;
use crate::spec;
use crate::values::{AnyTime, Count, FilePath, OnOff};

choice! {
    /// Where a certificate comes from that no file has.
    CertificateSource {
        /// It is made at the start.
        SelfSigned "self-signed",
    }
}

choice! {
    /// Which clients are served.
    TlsProfile {
        /// TLS 1.2 and 1.3.
        Intermediate "intermediate",
        /// TLS 1.3 alone.
        Modern "modern",
    }
}

choice! {
    /// Whether a client has to show a certificate.
    ClientCertificate {
        /// It may.
        Optional "optional",
        /// Without one there is no connection.
        Required "required",
    }
}

impl TlsSpec {
    /// Whether there is a certificate, so that addresses may be of https.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.tls.is_some() || !self.tls_cert.is_empty()
    }
}

spec! {
    /// How a server speaks TLS.
    #[command(next_help_heading = "TLS")]
    pub struct TlsSpec {
        /// A certificate in PEM for https addresses, followed by its authority's; may be given several
        /// times, each with its --tls-key. A client gets the one for the name that it asks for, or the
        /// first. Files are read again when they change, and on SIGHUP.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub tls_cert: Vec<FilePath>,

        /// The private key of a certificate, in PEM and not encrypted: one for each --tls-cert, in the
        /// same order.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub tls_key: Vec<FilePath>,

        /// Make a certificate at startup, for trying things out: browsers warn of it. Without
        /// --listen the server is at https://127.0.0.1:8443.
        #[arg(long, value_name = "SOURCE", value_parser = named::<CertificateSource>())]
        pub tls: Option<Named<CertificateSource>>,

        /// Which clients are served, by Mozilla's profiles: intermediate is TLS 1.2 and 1.3, modern is
        /// only TLS 1.3 [default: intermediate].
        #[arg(long, value_name = "PROFILE", value_parser = named::<TlsProfile>())]
        pub tls_profile: Option<Named<TlsProfile>>,

        /// A file of 32 or more random bytes that seals session tickets; machines with the same file
        /// resume each other's sessions. May be given several times: the first one seals, the others
        /// open what was sealed before. Without it keys are random, and change every 12 hours.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub tls_ticket_key: Vec<FilePath>,

        /// Serve GET, HEAD and OPTIONS requests that come before the handshake is done: on or off. An
        /// attacker can send such a request again; apps see Early-Data: 1.
        #[arg(long, value_name = "on|off", default_value = "off")]
        pub tls_early_data: OnOff,

        /// Ask clients for a certificate that one of these authorities (in PEM) has signed. Apps see its
        /// subject.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub tls_client_ca: Option<FilePath>,

        /// Whether a client has to show a certificate [default: required].
        #[arg(long, value_name = "HOW", value_parser = named::<ClientCertificate>())]
        pub tls_client_cert: Option<Named<ClientCertificate>>,

        /// Time allowed for a handshake.
        #[arg(long, value_name = "TIME", default_value = "10s")]
        pub tls_handshake_timeout: Preset<AnyTime>,

        /// The most handshakes that are computed or wait for a worker; further ones end at once.
        #[arg(long, value_name = "N", default_value = "512")]
        pub tls_handshakes_max: Preset<Count<1, 100_000>>,

        /// Redirect requests to http addresses to the first https address.
        #[arg(long)]
        pub https_redirect: bool,

        /// Tell browsers to use only https for this number of days (Strict-Transport-Security); 365 is
        /// usual. 0 ends it. Without it, only the pages of accounts say so, for a year.
        #[arg(long, value_name = "DAYS")]
        pub hsts: Option<Count<0, 3650>>,
    }
}
