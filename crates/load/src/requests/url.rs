//! URLs as people type them, taken apart: where to connect, what to ask for, with which credentials.

use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use http::Uri;
use loadline_spec::ValueError;
use percent_encoding::percent_decode_str;

/// A URL of HTTP, with or without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether it is reached by TLS.
    pub is_https: bool,
    /// The host's name or address, an IPv6 address without brackets.
    pub host: String,
    /// The port; 80 if the URL has none, or 443 of https.
    pub port: u16,
    /// What the Host field says: the host, and the port unless it is that of the scheme.
    pub authority: String,
    /// The target in origin form: the path and the query.
    pub target: String,
    /// `name:password` of `http://name:password@host/`, percent-decoded.
    pub user: Option<String>,
}

/// How long the addresses of a host with several are tried before one is chosen.
const TRIAL_MAX: Duration = Duration::from_secs(1);

impl Url {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// It is not an absolute URL of HTTP; one line says why and what would be right.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let shown = text.escape_debug();
        let Some((scheme, rest)) = text.split_once("://") else {
            let rest = text.strip_prefix("http:").unwrap_or(text);
            let rest = rest.trim_start_matches('/');
            let place = if rest.is_empty() { "host/" } else { rest }.escape_debug();
            let problem = format!("URL without scheme: `{shown}`; did you mean `http://{place}`?");
            return Err(problem.into());
        };
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            let problem = format!("`{shown}`: the scheme is not supported, only http and https");
            return Err(problem.into());
        }
        if let Some(wrong) = text.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(ValueError::from(format!(
                "`{shown}`: `{}` may not stand in a URL; in a path it is written percent-encoded",
                wrong.escape_debug()
            )));
        }
        if rest.is_empty() || rest.starts_with(['/', '?', '#']) {
            return Err(no_host(text));
        }
        let uri: Uri = text.parse().map_err(|_| {
            ValueError::new(
                format!("`{text}` is not a URL"),
                "http://HOST:PORT/PATH?QUERY",
            )
        })?;
        Self::from_uri(text, &uri, is_https)
    }

    fn from_uri(text: &str, uri: &Uri, is_https: bool) -> Result<Self, ValueError> {
        let default_port = if is_https { 443 } else { 80 };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let bracketed = uri.host().unwrap_or("");
        if bracketed.is_empty() {
            return Err(no_host(text));
        }
        let port_text = place[bracketed.len()..].trim_start_matches(':');
        let port = match port_text {
            "" => default_port,
            digits => match digits.parse() {
                Ok(port) if port > 0 => port,
                _ => {
                    let problem = format!("`{text}`: the port is `{port_text}`");
                    return Err(ValueError::new(problem, "1 to 65535"));
                }
            },
        };
        let inner = bracketed
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if inner.is_some_and(|host| !matches!(host.parse(), Ok(IpAddr::V6(_)))) {
            return Err(format!("`{text}`: `{bracketed}` is not an IPv6 address").into());
        }
        let host = inner.unwrap_or(bracketed);
        if host.contains(['[', ']']) {
            return Err(format!("`{text}`: `{host}` is not a host").into());
        }
        let target = match uri.path_and_query().map_or("/", |target| target.as_str()) {
            query if query.starts_with('?') => format!("/{query}"),
            target => target.to_owned(),
        };
        Ok(Self {
            is_https,
            host: host.to_owned(),
            port,
            authority: match port == default_port {
                true => bracketed.to_owned(),
                false => format!("{bracketed}:{port}"),
            },
            target,
            user: user.map(decoded).transpose()?,
        })
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        match self.is_https {
            true => "https",
            false => "http",
        }
    }

    /// The address behind the host: of several, the first that takes a connection (`localhost` is
    /// often both `::1` and `127.0.0.1`, with a server on one of them), else the first.
    ///
    /// # Errors
    /// The name is not known.
    pub fn resolve(&self) -> Result<SocketAddr, ValueError> {
        let unknown = |reason: &dyn fmt::Display| {
            ValueError::from(format!("cannot find the host `{}`: {reason}", self.host))
        };
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut addresses = Vec::new();
        for address in found.map_err(|error| unknown(&error))? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        match addresses[..] {
            [] => Err(unknown(&"it has no address")),
            [only] => Ok(only),
            [first, ..] => {
                let answers =
                    |address: &&SocketAddr| TcpStream::connect_timeout(address, TRIAL_MAX).is_ok();
                Ok(addresses.iter().find(answers).copied().unwrap_or(first))
            }
        }
    }
}

fn no_host(text: &str) -> ValueError {
    ValueError::new(
        format!("`{text}`: the host is missing"),
        "http://127.0.0.1:8080/, say",
    )
}

fn decoded(user: &str) -> Result<String, ValueError> {
    let decoded = percent_decode_str(user).decode_utf8();
    let decoded = decoded
        .map_err(|_| ValueError::from(format!("`{user}`: credentials that are not UTF-8")))?;
    Ok(match decoded.contains(':') {
        true => decoded.into_owned(),
        false => format!("{decoded}:"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for row in [
            "http://127.0.0.1:8080/ 127.0.0.1 8080 127.0.0.1:8080 /",
            "http://example.org example.org 80 example.org /",
            "HTTP://example.org:80/a?b=c example.org 80 example.org /a?b=c",
            "http://h/a%20b/?q#part h 80 h /a%20b/?q",
            "http://h?q h 80 h /?q",
            "http://h:/x h 80 h /x",
            "http://[::1]:8080/x ::1 8080 [::1]:8080 /x",
            "http://[::1] ::1 80 [::1] /",
            "http://h//a//b h 80 h //a//b",
            "http://h/a:b@c h 80 h /a:b@c",
            "https://h h 443 h /",
            "HTTPS://h:443/x h 443 h /x",
            "https://h:80/x h 80 h:80 /x",
            "http://h:443/x h 443 h:443 /x",
        ] {
            let (text, parts) = row.split_once(' ').unwrap();
            let url = Url::parse(text).unwrap();
            let found = format!("{} {} {} {}", url.host, url.port, url.authority, url.target);
            assert_eq!(found, parts);
            assert_eq!(url.user, None, "{text}");
            assert_eq!(url.is_https, text.to_lowercase().starts_with("https"));
        }
    }

    #[test]
    fn credentials_are_decoded() {
        let user = |text: &str| Url::parse(text).unwrap().user.unwrap();
        assert_eq!(user("http://ann:secret@h/"), "ann:secret");
        assert_eq!(user("http://a%40b:p%3Aq@h:81/"), "a@b:p:q");
        assert_eq!(user("http://ann@h/"), "ann:");
        assert_eq!(Url::parse("http://ann:x@h:81/").unwrap().authority, "h:81");
    }

    #[test]
    fn what_is_no_url_is_refused_in_a_line_that_helps() {
        for (text, part) in [
            ("127.0.0.1:8080/", "did you mean `http://127.0.0.1:8080/`?"),
            ("//h/x", "did you mean `http://h/x`?"),
            ("http:/h/x", "did you mean `http://h/x`?"),
            ("http:h:80/x", "did you mean `http://h:80/x`?"),
            ("", "URL without scheme"),
            ("ftp://h/", "the scheme is not supported"),
            ("http://", "host is missing"),
            ("http:///x", "host is missing"),
            ("http://:80/", "host is missing"),
            ("http://h:0/", "port"),
            ("http://h:99999/", "port"),
            ("http://h:x/", "port"),
            ("http://[1]/", "IPv6"),
            ("http://[@]a/", "not a host"),
            ("http://h/ä", "`ä` may not stand"),
            ("http://h/a b", "` ` may not stand"),
            ("http://h/a\r\nX: y", "`\\r` may not stand"),
            ("http://a%ff@h/", "UTF-8"),
        ] {
            let refusal = Url::parse(text).unwrap_err().to_string();
            assert!(refusal.contains(part), "{text}: {refusal}");
            assert!(!refusal.contains('\n'), "{refusal}");
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_is_a_url_or_not(text in r"http://[\[\]a-z0-9:@/?#%.\\-]{0,20}|.{0,20}") {
            if let Ok(url) = Url::parse(&text) {
                proptest::prop_assert!(url.target.starts_with('/') && url.port > 0);
                let again = Url::parse(&format!("http://{}{}", url.authority, url.target));
                let without = Url { user: None, ..url };
                proptest::prop_assert_eq!(again, Ok(without));
            }
        }
    }

    #[test]
    fn addresses_need_no_resolver() {
        let url = Url::parse("http://127.0.0.3:81/").unwrap();
        assert_eq!(url.resolve(), Ok(([127, 0, 0, 3], 81).into()));
        let url = Url::parse("http://[::1]:81/").unwrap();
        assert_eq!(url.resolve().map(|address| address.is_ipv6()), Ok(true));
    }
}
