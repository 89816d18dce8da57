//! How database servers are started for a test or a measurement: with the programs of Debian's
//! packages, in a directory of their own, on a unix socket, as a user other than root.
//!
//! It starts nothing itself. It finds the programs and makes their command lines; the caller runs
//! them, and ends what it has started.
//!
//! ```no_run
//! use loadline_databases::{DatabaseKind, Installed, make_folder};
//!
//! fn run(words: &[String]) { /* … */ }
//!
//! let postgres = Installed::find(DatabaseKind::PostgreSql)?;
//! let folder = make_folder()?;
//! run(&postgres.prepare(&folder)); // once
//! run(&postgres.serve(&folder, true)); // until it is ended
//! run(&postgres.ask(&folder, &["CREATE DATABASE shop"]));
//! let url = postgres.url(&folder, "shop"); // for `loadline serve --accounts`
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Debian keeps the programs of each version of PostgreSQL apart, below this.
const POSTGRESQL_VERSIONS: &str = "/usr/lib/postgresql";

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatabaseKind {
    /// MariaDB, which speaks MySQL's protocol.
    MariaDb,
    /// PostgreSQL.
    PostgreSql,
}

/// The programs of a server that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    kind: DatabaseKind,
    /// What makes its files.
    preparer: PathBuf,
    server: PathBuf,
    /// What sends it statements.
    asker: PathBuf,
}

/// What there is to know of a kind. In words of a command line `{folder}` is the server's folder.
struct Facts {
    name: &'static str,
    title: &'static str,
    /// Debian's.
    packages: &'static str,
    /// Makes its files, is the server, sends it statements.
    programs: [&'static str; 3],
    prepare: &'static str,
    serve: &'static str,
    /// Beside that, for a server that waits for no disk.
    volatile: &'static str,
    ask: &'static str,
    url: &'static str,
}

const MARIADB: Facts = Facts {
    name: "mariadb",
    title: "MariaDB",
    packages: "mariadb-server-core mariadb-client-core",
    programs: ["mariadb-install-db", "mariadbd", "mariadb"],
    prepare: "--no-defaults --datadir={folder}/data --auth-root-authentication-method=normal \
              --skip-test-db --skip-name-resolve --innodb-log-file-size=8M",
    serve: "--no-defaults --datadir={folder}/data --socket={folder}/sql --pid-file={folder}/pid \
            --skip-networking --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
            --performance-schema=OFF",
    volatile: "--innodb-flush-log-at-trx-commit=2 --innodb-flush-method=fsync",
    ask: "--no-defaults --user=root --socket={folder}/sql",
    url: "mysql://root@localhost/{name}?socket={folder}/sql",
};

const POSTGRESQL: Facts = Facts {
    name: "postgresql",
    title: "PostgreSQL",
    packages: "postgresql",
    programs: ["initdb", "postgres", "psql"],
    prepare: "-D {folder}/data -A trust -U tester -E UTF8 --locale=C --no-sync",
    serve: "-D {folder}/data -k {folder} -c listen_addresses= -c shared_buffers=16MB -c jit=off",
    volatile: "-c fsync=off",
    ask: "--no-psqlrc --quiet --host {folder} --username tester postgres --set ON_ERROR_STOP=1",
    url: "postgres://tester@localhost/{name}?host={folder}",
};

impl DatabaseKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::PostgreSql];

    fn facts(self) -> &'static Facts {
        match self {
            Self::MariaDb => &MARIADB,
            Self::PostgreSql => &POSTGRESQL,
        }
    }

    /// As a word: "mariadb".
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// As it is written.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.facts().title
    }
}

impl Installed {
    /// Looks for the programs of a server; of PostgreSQL those of the newest version.
    ///
    /// # Errors
    /// It is not installed.
    pub fn find(kind: DatabaseKind) -> Result<Self, NotInstalled> {
        let folders: Vec<PathBuf> = SEARCH_PATH.split(':').map(PathBuf::from).collect();
        Self::find_in(kind, &folders, Path::new(POSTGRESQL_VERSIONS))
    }

    fn find_in(
        kind: DatabaseKind,
        folders: &[PathBuf],
        postgresql: &Path,
    ) -> Result<Self, NotInstalled> {
        let programs = kind.facts().programs;
        let found = match kind {
            DatabaseKind::MariaDb => together(programs, folders),
            DatabaseKind::PostgreSql => {
                let versions = fs::read_dir(postgresql).into_iter().flatten().flatten();
                let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
                versions.sort_by_key(|path| version_of(path));
                let mut newest = versions.iter().rev();
                newest.find_map(|version| together(programs, &[version.join("bin")]))
            }
        };
        let [preparer, server, asker] = found.ok_or(NotInstalled(kind))?;
        Ok(Self {
            kind,
            preparer,
            server,
            asker,
        })
    }

    /// Which it is.
    #[must_use]
    pub fn kind(&self) -> DatabaseKind {
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
        as_other(folder, &self.preparer, self.kind.facts().prepare)
    }

    /// The server itself, in the foreground. One that is not durable may lose what it has promised when
    /// the machine fails, and waits for no disk.
    #[must_use]
    pub fn serve(&self, folder: &Path, is_durable: bool) -> Vec<String> {
        let facts = self.kind.facts();
        let mut words = as_other(folder, &self.server, facts.serve);
        if !is_durable {
            words.extend(filled(facts.volatile, folder));
        }
        words
    }

    /// What has a running server carry out statements of its administration, one after the other; fails
    /// with the first that does.
    #[must_use]
    pub fn ask(&self, folder: &Path, statements: &[&str]) -> Vec<String> {
        let mut words = as_other(folder, &self.asker, self.kind.facts().ask);
        match self.kind {
            DatabaseKind::MariaDb => words.extend(["--execute".to_owned(), statements.join("; ")]),
            DatabaseKind::PostgreSql => {
                for statement in statements {
                    words.extend(["--command".to_owned(), (*statement).to_owned()]);
                }
            }
        }
        words
    }

    /// The address of one of its databases.
    #[must_use]
    pub fn url(&self, folder: &Path, name: &str) -> String {
        let url = self.kind.facts().url.replace("{name}", name);
        url.replace("{folder}", &text(folder))
    }
}

/// A kind of server that is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not installed; right would be: apt install {}", .0.title(), .0.facts().packages)]
pub struct NotInstalled(pub DatabaseKind);

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

/// A program with its options, which works in the folder, as somebody else if this is root, and ends
/// with the thread that starts it.
fn as_other(folder: &Path, program: &Path, options: &str) -> Vec<String> {
    let mut words = vec!["setpriv".to_owned(), "--pdeathsig=KILL".to_owned()];
    if is_root() {
        let user = format!("--reuid={NOBODY} --regid={NOBODY} --clear-groups");
        words.extend(filled(&user, folder));
    }
    words.extend(filled("-- env -C {folder} HOME={folder}", folder));
    words.push(format!("PATH={SEARCH_PATH}"));
    words.push(text(program));
    words.extend(filled(options, folder));
    words
}

/// The words of a text, the folder in place of its placeholder.
fn filled(words: &str, folder: &Path) -> impl Iterator<Item = String> {
    let folder = text(folder);
    let words = words.split_ascii_whitespace();
    words.map(move |word| word.replace("{folder}", &folder))
}

/// Programs that are all there, each in the first folder that has it.
fn together(names: [&str; 3], folders: &[PathBuf]) -> Option<[PathBuf; 3]> {
    let [one, two, three] = names.map(|name| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find(|path| path.is_file())
    });
    Some([one?, two?, three?])
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
            of(DatabaseKind::MariaDb).unwrap_err().to_string(),
            "MariaDB is not installed; right would be: apt install mariadb-server-core \
             mariadb-client-core"
        );
        assert_eq!(
            of(DatabaseKind::PostgreSql).unwrap_err().to_string(),
            "PostgreSQL is not installed; right would be: apt install postgresql"
        );
        // Half of it is none.
        touch(&folder.path().join("mariadbd"));
        touch(&folder.path().join("15/bin/postgres"));
        assert!(of(DatabaseKind::MariaDb).is_err() && of(DatabaseKind::PostgreSql).is_err());
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
        let found = Installed::find_in(DatabaseKind::PostgreSql, &[], folder.path()).unwrap();
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
