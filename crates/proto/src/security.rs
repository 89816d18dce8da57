//! What is known of a connection whose bytes are encrypted.

use std::sync::Arc;

/// What is known of a connection whose bytes are encrypted: the same for each of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// The version of TLS: "TLSv1.3".
    pub version: &'static str,
    /// Whether client and server have agreed on HTTP/2 (ALPN "h2").
    pub is_http2: bool,
    /// The name that the client has asked for (SNI).
    pub server_name: Option<Arc<str>>,
    /// The names that the server's certificates are for, wildcards included.
    pub names: Arc<[String]>,
    /// The client has shown a certificate, signed by an authority that the server trusts.
    pub has_client_certificate: bool,
    /// Who that says the client is, by RFC 4514: "CN=ada,O=Example". `None`: it has shown none, or one that
    /// is not as RFC 5280 has it, with a serial number of more than 20 bytes for instance.
    pub client_subject: Option<Arc<str>>,
    /// What was received has come before the handshake was done: somebody may have recorded it and send
    /// it again.
    pub is_early: bool,
    /// Field lines that responses have over this connection alone, each with its line end:
    /// `Strict-Transport-Security`.
    pub response_lines: Arc<[u8]>,
}

impl Security {
    /// Whether a request for this host may come over the connection: the client has asked for that name,
    /// or a certificate is for it. What a client sends over another origin's connection may not be for
    /// this server (RFC 9110 section 15.5.20). Nothing is known where the client has asked for no name.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let Some(asked) = &self.server_name else {
            return true;
        };
        let [asked, host] = [asked, host].map(|it| it.strip_suffix('.').unwrap_or(it));
        let is_same = |name: &str| name.eq_ignore_ascii_case(host);
        is_same(asked) || self.names.iter().any(|name| matches(name, host))
    }

    /// The same for a request's authority: a host, perhaps with a port.
    pub(crate) fn is_for_authority(&self, authority: &[u8]) -> bool {
        let asked = self.server_name.as_deref().map(str::as_bytes);
        // As a rule the name is written as it was asked for, and without a port.
        let is_known = asked.is_none_or(|asked| asked == authority);
        is_known || str::from_utf8(authority).is_ok_and(|it| self.is_for(host_of(it)))
    }
}

/// Whether a certificate's name is for a host: a wildcard stands for one label (RFC 9525 section 6.3).
fn matches(name: &str, host: &str) -> bool {
    let Some(rest) = name.strip_prefix("*.") else {
        return name.eq_ignore_ascii_case(host);
    };
    let parent = host.split_once('.').map(|(_, parent)| parent);
    parent.is_some_and(|parent| parent.eq_ignore_ascii_case(rest))
}

/// The host of an authority: without its port, and without the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_connection() {
        let names = ["example.org".to_owned(), "*.example.net".to_owned()];
        let mut security = Security {
            server_name: Some("WWW.example.com".into()),
            names: names.into(),
            ..Security::default()
        };
        for (host, is_for) in [
            ("www.example.com", true),
            ("www.example.com.", true),
            ("Example.org", true),
            ("a.example.net", true),
            ("A.EXAMPLE.NET.", true),
            ("example.net", false),
            ("a.b.example.net", false),
            ("example.com", false),
            ("www.example.org", false),
            ("", false),
        ] {
            assert_eq!(security.is_for(host), is_for, "{host}");
        }
        security.server_name = Some("www.example.com.".into()); // RFC 6066 section 3 has no such dot
        assert!(security.is_for("www.example.com"));
        assert!(security.is_for("www.example.com."));
        security.server_name = Some("www.example.com".into());
        for (authority, is_for) in [
            ("www.example.com", true),
            ("WWW.example.com:8443", true),
            ("a.example.net:443", true),
            ("www.example.org", false),
            ("www.example.org:443", false),
            ("[::1]:443", false),
            ("", false),
        ] {
            assert_eq!(
                security.is_for_authority(authority.as_bytes()),
                is_for,
                "{authority}"
            );
        }
        assert!(!security.is_for_authority(b"www.example.com\xff"));
        security.server_name = None;
        assert!(security.is_for("anything") && security.is_for_authority(b"[::1]:443"));
    }
}
