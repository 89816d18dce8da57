//! Why a client's connection has failed: from the library's errors to a line about the server.

use loadline_proto::{FailureCause, LayerFailure};
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// What an error says of the server.
pub(crate) fn of(error: &Error) -> LayerFailure {
    let (cause, text) = match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::InvalidEmptyPayload
            | InvalidMessage::MessageTooLarge,
        ) => (
            FailureCause::Unfit,
            "it does not speak TLS at this port".to_owned(),
        ),
        Error::PeerIncompatible(why) => (
            FailureCause::Unfit,
            format!("it has no version, cipher suite or key exchange in common with us ({why:?})"),
        ),
        error => (FailureCause::Other, format!("TLS has failed: {error}")),
    };
    LayerFailure { cause, text }
}

fn of_certificate(error: &CertificateError) -> (FailureCause, String) {
    let text = match error {
        // Of an authority with the same name, but another key.
        CertificateError::UnknownIssuer
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            return (
                FailureCause::Authority,
                "its certificate is not signed by a trusted authority".to_owned(),
            );
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented
                .iter()
                .take(NAMES_MAX)
                .map(|it| plain_name(it))
                .collect();
            match names.as_slice() {
                [] => "its certificate has no name in it".to_owned(),
                names => format!("its certificate is for another name: {}", names.join(", ")),
            }
        }
        CertificateError::NotValidForName => "its certificate is for another name".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet".to_owned()
        }
        CertificateError::Other(other) if is_of_authority(other) => {
            "its certificate is for an authority (CA:TRUE), not for a server".to_owned()
        }
        error => format!("its certificate is not accepted: {error}"),
    };
    (FailureCause::Certificate, text)
}

/// Names of a certificate that a message has at most.
const NAMES_MAX: usize = 3;

/// `DnsName("a.example")` as `a.example`.
fn plain_name(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, it)| it.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

fn is_of_authority(other: &OtherError) -> bool {
    matches!(
        other.0.downcast_ref::<webpki::Error>(),
        Some(webpki::Error::CaUsedAsEndEntity)
    )
}

fn of_alert(alert: AlertDescription) -> (FailureCause, String) {
    use AlertDescription as Alert;
    let (cause, text) = match alert {
        Alert::CertificateRequired => (
            FailureCause::ClientCertificate,
            "it asks for a client certificate",
        ),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => (
            FailureCause::ClientCertificate,
            "it does not accept the client certificate",
        ),
        Alert::NoApplicationProtocol => (
            FailureCause::Unfit,
            "it does not speak the version of HTTP that is asked for",
        ),
        Alert::ProtocolVersion
        | Alert::HandshakeFailure
        | Alert::InsufficientSecurity
        | Alert::UnrecognisedName => (FailureCause::Unfit, "it refuses the handshake"),
        _ => (FailureCause::Other, "it ends the connection"),
    };
    (cause, format!("{text} (alert {alert:?})"))
}
