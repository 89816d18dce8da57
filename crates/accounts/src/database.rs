//! Which database it is, from the text that a person types.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// A database: `sqlite:PATH`, `mysql://USER:PASSWORD@HOST/NAME`, `postgres://USER:PASSWORD@HOST/NAME`.
#[derive(Clone)]
pub struct Database {
    pub(crate) backend: Backend,
    shown: String,
}

#[derive(Clone)]
pub(crate) enum Backend {
    Sqlite(PathBuf),
    MySql(Box<MySqlConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

/// What is wrong with the text, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DatabaseError(String);

impl Database {
    /// The file, if it is one of SQLite. Beside it there are two more while it is open, with the same
    /// name and `-wal` and `-shm` at its end.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Sqlite(path) => Some(path),
            _ => None,
        }
    }
}

impl FromStr for Database {
    type Err = DatabaseError;

    fn from_str(text: &str) -> Result<Self, DatabaseError> {
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        match scheme {
            "sqlite" => sqlite(rest),
            "mysql" | "mariadb" => mysql(rest),
            "postgres" | "postgresql" => postgres(rest),
            _ => Err(DatabaseError(
                "not a database; right would be sqlite:FILE, mysql://USER:PASSWORD@HOST/NAME or \
                 postgres://USER:PASSWORD@HOST/NAME"
                    .to_owned(),
            )),
        }
    }
}

fn sqlite(rest: &str) -> Result<Database, DatabaseError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path.contains(['?', '\0']) || path.ends_with('/') || path == ":memory:" {
        return Err(DatabaseError(
            "not the path of a file; right would be sqlite:accounts.db or sqlite:/var/lib/NAME.db"
                .to_owned(),
        ));
    }
    Ok(Database {
        shown: format!("sqlite:{path}"),
        backend: Backend::Sqlite(path.into()),
    })
}

/// A database of a server, by the options of its driver: both have the same getters, and no trait.
macro_rules! of_server {
    ($scheme:literal, $rest:expr, $options:ty, $backend:path, $modes:path) => {{
        use $modes as Modes;
        let text = format!("{}:{}", $scheme, $rest);
        let options = <$options>::from_str(&text).map_err(unreadable)?;
        let address = ServerAddress {
            scheme: $scheme,
            host: options.get_host().to_owned(),
            port: options.get_port(),
            socket: options.get_socket().cloned(),
            name: named(options.get_database())?,
        };
        let asked = asked_mode($rest);
        let options = match (address.is_local(), asked) {
            (true, None) => options.ssl_mode(Modes::DISABLED),
            (false, None) => options.ssl_mode(Modes::VERIFIED),
            (false, Some(mode)) if !Modes::is_certain(options.get_ssl_mode()) => {
                return Err(address.uncertain(mode, Modes::NAMES));
            }
            (_, Some(_)) => options,
        };
        Ok(Database {
            shown: address.to_string(),
            backend: $backend(Box::new(options)),
        })
    }};
}

/// Names of a driver's modes of TLS.
struct ModeNames {
    option: &'static str,
    verified: &'static str,
    disabled: &'static str,
}

struct MySqlModes;

impl MySqlModes {
    const DISABLED: MySqlSslMode = MySqlSslMode::Disabled;
    const VERIFIED: MySqlSslMode = MySqlSslMode::VerifyIdentity;
    const NAMES: ModeNames = ModeNames {
        option: "ssl-mode",
        verified: "VERIFY_IDENTITY",
        disabled: "DISABLED",
    };

    /// Whether it says without doubt if connections are encrypted.
    fn is_certain(mode: MySqlSslMode) -> bool {
        !matches!(mode, MySqlSslMode::Preferred)
    }
}

struct PgModes;

impl PgModes {
    const DISABLED: PgSslMode = PgSslMode::Disable;
    const VERIFIED: PgSslMode = PgSslMode::VerifyFull;
    const NAMES: ModeNames = ModeNames {
        option: "sslmode",
        verified: "verify-full",
        disabled: "disable",
    };

    /// Whether it says without doubt if connections are encrypted.
    fn is_certain(mode: PgSslMode) -> bool {
        !matches!(mode, PgSslMode::Allow | PgSslMode::Prefer)
    }
}

fn mysql(rest: &str) -> Result<Database, DatabaseError> {
    of_server!(
        "mysql",
        rest,
        MySqlConnectOptions,
        Backend::MySql,
        MySqlModes
    )
}

fn postgres(rest: &str) -> Result<Database, DatabaseError> {
    of_server!(
        "postgres",
        rest,
        PgConnectOptions,
        Backend::Postgres,
        PgModes
    )
}

/// What a URL says about TLS, if it says something: `prefer` of `?sslmode=prefer`.
fn asked_mode(rest: &str) -> Option<&str> {
    let (_, query) = rest.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let is_mode = |(name, _): &(&str, &str)| matches!(*name, "sslmode" | "ssl-mode");
    pairs.find(is_mode).map(|(_, mode)| mode)
}

/// The driver's own words could repeat what was typed, with the password in it: only the kind is shown.
fn unreadable(_: sqlx::Error) -> DatabaseError {
    DatabaseError(
        "cannot be read; right would be SCHEME://USER:PASSWORD@HOST:PORT/NAME, with % codes for \
         special characters of the password"
            .to_owned(),
    )
}

fn named(name: Option<&str>) -> Result<String, DatabaseError> {
    name.filter(|name| !name.is_empty())
        .map(str::to_owned)
        .ok_or_else(|| {
            DatabaseError("names no database; right would be a name after the host: /NAME".into())
        })
}

/// Where a server is, without what must not be shown.
struct ServerAddress {
    scheme: &'static str,
    host: String,
    port: u16,
    socket: Option<PathBuf>,
    name: String,
}

impl ServerAddress {
    /// Whether nobody is between: a socket, or this machine.
    fn is_local(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        let is_loopback = |host: &str| {
            let address = host.parse::<std::net::IpAddr>();
            address.is_ok_and(|address| address.is_loopback())
        };
        self.socket.is_some() || host.starts_with('/') || host == "localhost" || is_loopback(host)
    }

    /// Refuses to send accounts over a network in the clear, unless that was asked for.
    fn uncertain(&self, mode: &str, names: ModeNames) -> DatabaseError {
        let ModeNames {
            option,
            verified,
            disabled,
        } = names;
        DatabaseError(format!(
            "{} is another machine, and with {option}={mode} connections may not be encrypted; right \
             would be {option}={verified}, which is the default, or {option}={disabled} if the network \
             between is trusted",
            self.host
        ))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(socket) => write!(f, "{} at {}", self.scheme, socket.display())?,
            None => write!(f, "{}://{}:{}", self.scheme, self.host, self.port)?,
        }
        write!(f, "/{}", self.name)
    }
}

/// Without user and password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Without user and password.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_shown_without_their_passwords() {
        for (text, shown) in [
            ("sqlite:accounts.db", "sqlite:accounts.db"),
            ("sqlite:///var/lib/a.db", "sqlite:/var/lib/a.db"),
            (
                "mysql://me:secret@127.0.0.1/app",
                "mysql://127.0.0.1:3306/app",
            ),
            (
                "mariadb://me:secret@localhost:33/app",
                "mysql://localhost:33/app",
            ),
            (
                "postgres://me:secret@[::1]/app",
                "postgres://[::1]:5432/app",
            ),
            (
                "postgresql://me:secret@db.example/app?sslmode=disable",
                "postgres://db.example:5432/app",
            ),
        ] {
            let database: Database = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(database.to_string(), shown);
            assert!(!format!("{database:?}").contains("secret"));
        }
    }

    #[test]
    fn connections_to_another_machine_are_encrypted_unless_asked_otherwise() {
        for (text, mode) in [
            ("postgres://me@db.example/app", "VerifyFull"),
            (
                "postgres://me@10.1.2.3/app?sslrootcert=ca.pem",
                "VerifyFull",
            ),
            ("postgres://me@db.example/app?sslmode=verify-ca", "VerifyCa"),
            ("postgres://me@db.example/app?sslmode=disable", "Disable"),
            ("postgres://me@127.0.0.1/app", "Disable"),
            ("postgres://me@localhost/app?sslmode=require", "Require"),
            (
                "postgres://me@localhost/app?host=/run/postgresql",
                "Disable",
            ),
            ("mysql://me@db.example/app", "VerifyIdentity"),
            ("mysql://me@db.example/app?ssl-mode=REQUIRED", "Required"),
            ("mysql://me@db.example/app?ssl-mode=DISABLED", "Disabled"),
            ("mysql://me@[::1]/app", "Disabled"),
        ] {
            let database: Database = text.parse().unwrap();
            let found = match &database.backend {
                Backend::Postgres(options) => format!("{:?}", options.get_ssl_mode()),
                Backend::MySql(options) => format!("{:?}", options.get_ssl_mode()),
                Backend::Sqlite(_) => String::new(),
            };
            assert_eq!(found, mode, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, expected) in [
            ("accounts.db", "sqlite:FILE"),
            ("oracle://x", "sqlite:FILE"),
            ("sqlite:", "path of a file"),
            ("sqlite::memory:", "path of a file"),
            ("sqlite:a.db?mode=ro", "path of a file"),
            ("mysql://me:secret@127.0.0.1", "names no database"),
            ("mysql://me:secret@:x/y", "cannot be read"),
            (
                "postgres://me:secret@db.example/app?sslmode=prefer",
                "right would be sslmode=verify-full",
            ),
            (
                "mysql://me:secret@10.1.2.3/app?ssl-mode=PREFERRED",
                "right would be ssl-mode=VERIFY_IDENTITY",
            ),
        ] {
            let said = text.parse::<Database>().unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
