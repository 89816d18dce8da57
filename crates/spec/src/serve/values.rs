//! Values of a server as people type them, beside those that every command has.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use loadline_base::choice;
use loadline_base::choices::{Choice, Probe};

use crate::{ValueError, one_of};

choice! {
    /// How severe a message is.
    LogLevel {
        /// Something failed.
        Error "error",
        /// Something may fail.
        Warn "warn",
        /// What a user wants to know.
        Info "info",
        /// What a developer wants to know.
        Debug "debug",
        /// Everything.
        Trace "trace",
    }
}

/// One of a closed set, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<T>(pub T);

impl<T: Choice> FromStr for Named<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let found = T::CHOICES.iter().find(|choice| choice.text() == text);
        found.copied().map(Self).ok_or_else(|| {
            let names: Vec<&str> = T::CHOICES.iter().map(|choice| choice.text()).collect();
            ValueError::new("unknown", format!("one of {}", names.join(", ")))
        })
    }
}

impl<T: Choice> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

/// Reads one of a closed set; known to the help, to completions and to suggestions.
pub(super) fn named<T: Choice>() -> impl TypedValueParser<Value = Named<T>> {
    one_of(T::CHOICES, T::text).map(Named)
}

/// A text that may hold a password: it is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

as_text!(Secret, |text| Ok(Self(text.to_owned())));

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The name of a file in whatever directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(pub String);

as_text!(FileName, |text| {
    if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) {
        return Err(ValueError::new("not the name of a file", "index.html, say"));
    }
    Ok(Self(text.to_owned()))
});

/// The path of the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPath(pub String);

as_text!(StatusPath, |text| {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let dots = text.split('/').any(|part| part == "." || part == "..");
    if text.len() > 1 && text.starts_with('/') && text.bytes().all(is_plain) && !dots {
        return match page_beside_status(text) {
            Some(page) => Err(ValueError::new(
                format!("this is where {page} would be"),
                "another name, such as /-/status",
            )),
            None => Ok(Self(text.to_owned())),
        };
    }
    Err(ValueError::new(
        "not a path for it",
        "a path of letters, digits and -_.~ such as /-/status",
    ))
});

/// The page in the status page's folder that has this path's name.
fn page_beside_status(path: &str) -> Option<String> {
    let last = path.rsplit('/').next()?;
    if ["live", "live.css", "live.js"].contains(&last) {
        return Some("the live page".to_owned());
    }
    let probe = Probe::ALL.iter().find(|probe| probe.name() == last)?;
    Some(format!("the probe {}", probe.name()))
}

/// Permissions of a file, in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixMode(pub u32);

as_text!(
    UnixMode,
    |text| {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && text.len() >= 3 && !text.starts_with('+') => {
                Ok(Self(mode))
            }
            _ => Err(ValueError::new(
                "not permissions",
                "three octal digits such as 660",
            )),
        }
    },
    |it, f| { write!(f, "{:03o}", it.0) }
);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// A TCP address whose connections speak TLS.
    Https(SocketAddr),
    /// A Unix socket at this path.
    Unix(PathBuf),
}

// `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `https://0.0.0.0:443`, `unix:/run/loadline.sock`.
as_text!(
    Listen,
    |text| {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_address(path);
        }
        match text.strip_prefix("https://") {
            Some(rest) => {
                let address = tcp_address(rest.strip_suffix('/').unwrap_or(rest));
                address.map(Self::Https).ok_or_else(|| {
                    ValueError::new(
                        "not an address",
                        "https://127.0.0.1:8443 or https://0.0.0.0:443",
                    )
                })
            }
            None => tcp_address(text)
                .map(Self::Tcp)
                .ok_or_else(|| hint_for(text)),
        }
    },
    |it, f| {
        match it {
            Self::Tcp(address) => address.fmt(f),
            Self::Https(address) => write!(f, "https://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
);

fn tcp_address(text: &str) -> Option<SocketAddr> {
    let port = |port: &str| port.parse().ok();
    match text.strip_prefix("localhost:").and_then(port) {
        Some(port) => Some((Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().ok(),
    }
}

/// Types of the values of options that were removed: none is right, and the message says what to use.
macro_rules! removed {
    ($($type:ident: $instead:expr;)+) => { $(
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) enum $type {}

        as_text!(
            $type,
            |value| {
                let instead: fn(&str) -> String = $instead;
                Err(ValueError::new("no such option any more", instead(value)))
            },
            |it, _| match *it {}
        );
    )+ };
}

removed! {
    RemovedAccountsProxy: |value| format!(
        "--trust-proxy {value}, or --trust-proxy unix for a proxy on a Unix socket, for accounts, \
         logs and apps alike"
    );
    RemovedAtCapacity: |_| "--capacity-per-loop alone, beyond which connections are closed".to_owned();
}

/// The longest path of a Unix socket: `sun_path` has 108 bytes, the last of them NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

fn unix_address(path: &str) -> Result<Listen, ValueError> {
    match path.len() {
        0 => Err(ValueError::new(
            "the path is missing",
            "unix:/run/loadline.sock",
        )),
        1..=UNIX_PATH_BYTES_MAX => Ok(Listen::Unix(PathBuf::from(path))),
        _ => Err(ValueError::new(
            "the path is too long",
            format!("at most {UNIX_PATH_BYTES_MAX} bytes"),
        )),
    }
}

/// What was probably meant by something that is no address.
fn hint_for(text: &str) -> ValueError {
    const RIGHT: &str =
        "127.0.0.1:8080, [::1]:8080, https://0.0.0.0:443 or unix:/run/loadline.sock";
    const NO_PORT: &str = "the port is missing";
    let bare = text.strip_prefix(':').unwrap_or(text);
    let port_of = |text: &str| text.parse::<u32>().ok();
    match (port_of(bare), text.parse::<IpAddr>()) {
        (Some(port), _) if port <= 65_535 => {
            let right = format!("127.0.0.1:{port} or 0.0.0.0:{port}");
            ValueError::new("the address is missing", right)
        }
        (_, Ok(IpAddr::V6(ip))) => ValueError::new(NO_PORT, format!("[{ip}]:8080")),
        (_, Ok(ip)) => ValueError::new(NO_PORT, format!("{ip}:8080")),
        _ => match text.rsplit_once(':') {
            Some((_, port)) if port_of(port).is_some_and(|port| port > 65_535) => {
                ValueError::new("the port is out of range", "0 to 65535")
            }
            _ => ValueError::new("not an address", RIGHT),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal_digits() {
        assert_eq!("0660".parse(), Ok(UnixMode(0o660)));
        for text in ["", "66", "+66", "1000", "888", "-660"] {
            assert!(text.parse::<UnixMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_status_page_takes_no_other_pages_place() {
        for name in ["status", "-/status", "live/status", "health.json", "lives"] {
            assert!(format!("/{name}").parse::<StatusPath>().is_ok(), "{name}");
        }
        for (name, page) in [
            ("health", "the probe health"),
            ("ready", "the probe ready"),
            ("live", "the live page"),
            ("live.css", "the live page"),
            ("live.js", "the live page"),
        ] {
            let text = format!("/-/{name}");
            let message = text.parse::<StatusPath>().unwrap_err().to_string();
            let expected = format!("this is where {page} would be");
            assert!(message.contains(&expected), "{text}: {message}");
        }
    }

    #[test]
    fn addresses() {
        let tcp = |address: &str| Listen::Tcp(address.parse().unwrap());
        for (text, address) in [
            ("127.0.0.1:80", tcp("127.0.0.1:80")),
            ("localhost:0", tcp("127.0.0.1:0")),
            ("[::1]:65535", tcp("[::1]:65535")),
            ("https://[::]:443", Listen::Https(([0; 8], 443).into())),
            (
                "https://localhost:1/",
                Listen::Https(([127, 0, 0, 1], 1).into()),
            ),
            ("unix:/a/b", Listen::Unix("/a/b".into())),
        ] {
            assert_eq!(text.parse(), Ok(address));
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, part) in [
            ("8080", "right would be 127.0.0.1:8080 or"),
            (":8080", "right would be 127.0.0.1:8080 or"),
            ("127.0.0.1", "right would be 127.0.0.1:8080"),
            ("::1", "right would be [::1]:8080"),
            ("127.0.0.1:65536", "the port is out of range"),
            ("70000", "not an address"),
            ("example.org:80", "not an address"),
            ("300.0.0.1:80", "not an address"),
            (
                "https://example.org",
                "right would be https://127.0.0.1:8443",
            ),
            ("", "not an address"),
            ("unix:", "the path is missing"),
            (&long, "too long"),
        ] {
            let message = text.parse::<Listen>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
