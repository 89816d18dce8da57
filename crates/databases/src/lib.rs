//! How database servers are started for a test or a measurement: with the programs of Debian's
//! packages, in a directory of their own, on a unix socket, as a user other than root.
//!
//! It starts nothing itself. It finds the programs and makes their command lines; the caller runs
//! them, and ends what it has started.
//!
//! ```no_run
//! use loadline_databases::{Installed, Kind, make_folder};
//!
//! fn run(words: &[String]) { /* … */ }
//!
//! let postgres = Installed::find(Kind::PostgreSql)?;
//! let folder = make_folder().map_err(|error| error.to_string())?;
//! run(&postgres.prepare(&folder)); // once
//! run(&postgres.serve(&folder, true)); // until it is ended
//! run(&postgres.ask(&folder, &["CREATE DATABASE shop"]));
//! let url = postgres.url(&folder, "shop"); // for `loadline serve --accounts`
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// Who a server runs as where this process is root: servers refuse to be root themselves. Debian has
/// nobody as 65534, and nogroup.
const NOBODY: u32 = 65_534;
/// Directories that are tried before it is given up: others start servers, too.
const FOLDERS_MAX: u32 = 1000;
/// Where Debian has programs, whatever the search path of this process.
const SEARCH_PATH: [&str; 6] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
];
/// Debian keeps the programs of each version of PostgreSQL apart, below this.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// MariaDB, which speaks MySQL's protocol.
    MariaDb,
    /// PostgreSQL.
    PostgreSql,
}

/// The programs of a server that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    kind: Kind,
    /// What makes its files.
    preparer: PathBuf,
    server: PathBuf,
    /// What sends it statements.
    asker: PathBuf,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::PostgreSql];

    /// As a word: "mariadb".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::PostgreSql => "postgresql",
        }
    }

    /// As it is written.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::PostgreSql => "PostgreSQL",
        }
    }

    /// Debian's packages.
    #[must_use]
    pub fn packages(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb-server-core mariadb-client-core",
            Self::PostgreSql => "postgresql",
        }
    }
}

impl Installed {
    /// Looks for the programs of a server; of PostgreSQL those of the newest version.
    ///
    /// # Errors
    /// One line: it is not installed, and what would be.
    pub fn find(kind: Kind) -> Result<Self, String> {
        Self::find_in(kind, &SEARCH_PATH.map(PathBuf::from), Path::new(POSTGRESQL))
    }

    fn find_in(kind: Kind, folders: &[PathBuf], postgresql: &Path) -> Result<Self, String> {
        let found = match kind {
            Kind::MariaDb => together(["mariadb-install-db", "mariadbd", "mariadb"], folders),
            Kind::PostgreSql => {
                let versions = fs::read_dir(postgresql).into_iter().flatten().flatten();
                let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
                versions.sort_by_key(|path| version_of(path));
                let mut newest = versions.iter().rev();
                newest.find_map(|version| {
                    together(["initdb", "postgres", "psql"], &[version.join("bin")])
                })
            }
        };
        let [preparer, server, asker] = found.ok_or_else(|| {
            format!(
                "{} is not installed; right would be: apt install {}",
                kind.title(),
                kind.packages()
            )
        })?;
        Ok(Self {
            kind,
            preparer,
            server,
            asker,
        })
    }

    /// Which it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What prints its version.
    #[must_use]
    pub fn version(&self) -> Vec<String> {
        vec![text(&self.server), "--version".to_owned()]
    }

    /// What makes the files of a new server in a folder that [`make_folder`] has made.
    #[must_use]
    pub fn prepare(&self, folder: &Path) -> Vec<String> {
        let data = text(&folder.join("data"));
        let mut words = as_other(folder, &self.preparer);
        match self.kind {
            Kind::MariaDb => push(
                &mut words,
                &[
                    "--no-defaults",
                    &format!("--datadir={data}"),
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--skip-name-resolve",
                    "--innodb-log-file-size=8M",
                ],
            ),
            Kind::PostgreSql => push(
                &mut words,
                &[
                    "-D",
                    &data,
                    "-A",
                    "trust",
                    "-U",
                    "tester",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "--no-sync",
                ],
            ),
        }
        words
    }

    /// The server itself, in the foreground. One that is not durable may lose what it has promised when
    /// the machine fails, and waits for no disk.
    #[must_use]
    pub fn serve(&self, folder: &Path, is_durable: bool) -> Vec<String> {
        let path = text(folder);
        let data = text(&folder.join("data"));
        let mut words = as_other(folder, &self.server);
        match self.kind {
            Kind::MariaDb => {
                push(
                    &mut words,
                    &[
                        "--no-defaults",
                        &format!("--datadir={data}"),
                        &format!("--socket={path}/sql"),
                        &format!("--pid-file={path}/pid"),
                        "--skip-networking",
                        "--innodb-buffer-pool-size=32M",
                        "--innodb-log-file-size=8M",
                        "--performance-schema=OFF",
                    ],
                );
                if !is_durable {
                    push(
                        &mut words,
                        &[
                            "--innodb-flush-log-at-trx-commit=2",
                            "--innodb-flush-method=fsync",
                        ],
                    );
                }
            }
            Kind::PostgreSql => {
                push(&mut words, &["-D", &data, "-k", &path]);
                push(&mut words, &["-c", "listen_addresses="]);
                push(&mut words, &["-c", "shared_buffers=16MB", "-c", "jit=off"]);
                if !is_durable {
                    push(&mut words, &["-c", "fsync=off"]);
                }
            }
        }
        words
    }

    /// What has a running server carry out statements of its administration, one after the other; fails
    /// with the first that does.
    #[must_use]
    pub fn ask(&self, folder: &Path, statements: &[&str]) -> Vec<String> {
        let path = text(folder);
        let mut words = as_other(folder, &self.asker);
        match self.kind {
            Kind::MariaDb => {
                let socket = format!("--socket={path}/sql");
                push(&mut words, &["--no-defaults", "--user=root", &socket]);
                push(&mut words, &["--execute", &statements.join("; ")]);
            }
            Kind::PostgreSql => {
                push(&mut words, &["--no-psqlrc", "--quiet", "--host", &path]);
                push(&mut words, &["--username", "tester", "postgres"]);
                push(&mut words, &["--set", "ON_ERROR_STOP=1"]);
                for statement in statements {
                    push(&mut words, &["--command", statement]);
                }
            }
        }
        words
    }

    /// The address of one of its databases.
    #[must_use]
    pub fn url(&self, folder: &Path, name: &str) -> String {
        let path = folder.display();
        match self.kind {
            Kind::MariaDb => format!("mysql://root@localhost/{name}?socket={path}/sql"),
            Kind::PostgreSql => format!("postgres://tester@localhost/{name}?host={path}"),
        }
    }
}

/// Makes a folder for one server, below the system's folder for temporary files: its own user has to
/// reach it, and the path of a socket is short. Whoever has it made removes it.
///
/// # Errors
/// It cannot be made, or not be given to the server's user.
pub fn make_folder() -> io::Result<PathBuf> {
    let own = std::process::id();
    for number in 0..FOLDERS_MAX {
        let path = std::env::temp_dir().join(format!("loadline-database-{own}-{number}"));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                prepare_folder(&path)?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives a folder that is there to the user that servers run as.
///
/// # Errors
/// The system refuses.
pub fn prepare_folder(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    match is_root() {
        true => chown(path, Some(NOBODY), Some(NOBODY)),
        false => Ok(()),
    }
}

/// A program that works in the folder, as somebody else if this is root, and ends with the thread that
/// starts it.
fn as_other(folder: &Path, program: &Path) -> Vec<String> {
    let mut words = Vec::new();
    push(&mut words, &["setpriv", "--pdeathsig=KILL"]);
    if is_root() {
        let user = format!("--reuid={NOBODY}");
        let group = format!("--regid={NOBODY}");
        push(&mut words, &[&user, &group, "--clear-groups"]);
    }
    let folder = text(folder);
    let home = format!("HOME={folder}");
    let path = format!("PATH={}", SEARCH_PATH.join(":"));
    push(&mut words, &["--", "env", "-C", &folder, &home, &path]);
    words.push(text(program));
    words
}

/// Programs that are all there, each in the first folder that has it.
fn together(names: [&str; 3], folders: &[PathBuf]) -> Option<[PathBuf; 3]> {
    let [one, two, three] = names.map(|name| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find(|path| path.is_file())
    });
    Some([one?, two?, three?])
}

fn push(words: &mut Vec<String>, more: &[&str]) {
    words.extend(more.iter().map(|word| (*word).to_owned()));
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// "/usr/lib/postgresql/15": 15.
fn version_of(path: &Path) -> u32 {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn what_is_not_installed_is_said_with_its_packages() {
        let folder = tempfile::tempdir().unwrap();
        let of = |kind| Installed::find_in(kind, &[folder.path().into()], folder.path());
        assert_eq!(
            of(Kind::MariaDb).unwrap_err(),
            "MariaDB is not installed; right would be: apt install mariadb-server-core \
             mariadb-client-core"
        );
        assert_eq!(
            of(Kind::PostgreSql).unwrap_err(),
            "PostgreSQL is not installed; right would be: apt install postgresql"
        );
        // Half of it is none.
        touch(&folder.path().join("mariadbd"));
        touch(&folder.path().join("15/bin/postgres"));
        assert!(of(Kind::MariaDb).is_err() && of(Kind::PostgreSql).is_err());
    }

    #[test]
    fn the_newest_whole_version_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["9", "15", "14"] {
            for name in ["initdb", "postgres", "psql"] {
                touch(&folder.path().join(version).join("bin").join(name));
            }
        }
        touch(&folder.path().join("16/bin/psql"));
        let found = Installed::find_in(Kind::PostgreSql, &[], folder.path()).unwrap();
        assert_eq!(found.server, folder.path().join("15/bin/postgres"));
    }

    #[test]
    fn a_folder_is_made_for_each_server() {
        let (one, other) = (make_folder().unwrap(), make_folder().unwrap());
        assert_ne!(one, other);
        let found = fs::metadata(&one).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o755);
        for folder in [one, other] {
            fs::remove_dir(folder).unwrap();
        }
    }
}
