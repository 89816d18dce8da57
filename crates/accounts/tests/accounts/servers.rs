//! Database servers of Debian's packages, started for a test and stopped with it: in a directory of
//! their own, on a unix socket, as somebody who is not root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;

/// How long a server may take to answer after its start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    MariaDb,
    PostgreSql,
}

/// A running server; ends with the value.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    folder: TempDir,
    child: Option<Child>,
}

impl Server {
    /// Makes the files of a new server and starts it.
    pub(crate) async fn start(kind: Kind) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("accounts-")
            .tempdir()
            .expect("a directory");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        if let Some((user, group)) = other_user() {
            chown(folder.path(), Some(user), Some(group)).expect("an owner");
        }
        let mut server = Self {
            kind,
            folder,
            child: None,
        };
        server.prepare();
        server.run().await;
        server
    }

    /// The address of a new, empty database.
    pub(crate) async fn database(&self, name: &str) -> String {
        self.ask(&format!("CREATE DATABASE {name}"))
            .await
            .expect("a new database");
        self.url(name)
    }

    pub(crate) fn url(&self, name: &str) -> String {
        let path = self.folder.path().display();
        match self.kind {
            Kind::MariaDb => format!("mysql://root@localhost/{name}?socket={path}/sql"),
            Kind::PostgreSql => format!("postgres://tester@localhost/{name}?host={path}"),
        }
    }

    /// A statement of the server's own administration.
    pub(crate) async fn ask(&self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        match self.kind {
            Kind::MariaDb => self.mariadb().connect().await?.execute(sql).await.map(drop),
            Kind::PostgreSql => self
                .postgres()
                .connect()
                .await?
                .execute(sql)
                .await
                .map(drop),
        }
    }

    /// A statement that answers with a number.
    pub(crate) async fn count(&self, database: &str, sql: &str) -> i64 {
        let query = sqlx::AssertSqlSafe(sql.to_owned());
        let count = match self.kind {
            Kind::MariaDb => {
                let mut connection = self
                    .mariadb()
                    .database(database)
                    .connect()
                    .await
                    .expect(sql);
                let count = sqlx::query_scalar(query).fetch_one(&mut connection).await;
                connection.close().await.expect(sql);
                count
            }
            Kind::PostgreSql => {
                let mut connection = self
                    .postgres()
                    .database(database)
                    .connect()
                    .await
                    .expect(sql);
                let count = sqlx::query_scalar(query).fetch_one(&mut connection).await;
                connection.close().await.expect(sql);
                count
            }
        };
        count.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn mariadb(&self) -> MySqlConnectOptions {
        MySqlConnectOptions::new()
            .socket(self.folder.path().join("sql"))
            .username("root")
    }

    fn postgres(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(self.folder.path())
            .username("tester")
            .database("postgres")
    }

    /// Ends it as a power failure would, its files left as they are.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a signal");
            child.wait().expect("its end");
        }
    }

    /// Starts it, on the files that are there, and waits until it answers.
    pub(crate) async fn run(&mut self) {
        let began = Instant::now();
        loop {
            self.child = Some(self.program().spawn().expect("setpriv, of util-linux"));
            let Err(why) = self.answers(began).await else {
                return;
            };
            // PostgreSQL does not start before the last process of the one that was killed is gone.
            let may_pass = why.contains("is still in use") && began.elapsed() < PATIENCE;
            assert!(may_pass, "{:?}: {why}", self.kind);
        }
    }

    /// Waits until the server answers; or ends, or does not in time.
    async fn answers(&mut self, began: Instant) -> Result<(), String> {
        while let Err(error) = self.ask("SELECT 1").await {
            let child = self.child.as_mut();
            let ended = child.and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || began.elapsed() > PATIENCE {
                let log = fs::read(self.folder.path().join("log")).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                return Err(format!("{error}, {ended:?}; it said:\n{log}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await; // it announces itself nowhere else
        }
        Ok(())
    }

    /// What a new server has to find.
    fn prepare(&self) {
        let data = self.folder.path().join("data");
        let mut command = match self.kind {
            Kind::MariaDb => {
                let mut command = self.as_other("mariadb-install-db");
                command
                    .arg("--no-defaults")
                    .arg(format!("--datadir={}", data.display()));
                command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
                command.args(["--skip-name-resolve", "--innodb-log-file-size=8M"]);
                command
            }
            Kind::PostgreSql => {
                let mut command = self.as_other(postgres_program("initdb"));
                command.arg("-D").arg(data);
                command.args([
                    "-A",
                    "trust",
                    "-U",
                    "tester",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "--no-sync",
                ]);
                command
            }
        };
        let output = command.output().expect("setpriv, of util-linux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{command:?}: {said}; {}",
            self.missing()
        );
    }

    fn missing(&self) -> &'static str {
        match self.kind {
            Kind::MariaDb => "needs Debian's mariadb-server-core and mariadb-client-core",
            Kind::PostgreSql => "needs Debian's postgresql",
        }
    }

    /// The server itself. It writes no file out to the disk: only the process is killed here.
    fn program(&self) -> Command {
        let path = self.folder.path();
        let data = path.join("data");
        let mut command = match self.kind {
            Kind::MariaDb => {
                let mut command = self.as_other("mariadbd");
                command
                    .arg("--no-defaults")
                    .arg(format!("--datadir={}", data.display()));
                command.arg(format!("--socket={}/sql", path.display()));
                command.arg(format!("--pid-file={}/pid", path.display()));
                command.args(["--skip-networking", "--innodb-flush-log-at-trx-commit=2"]);
                command.args(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"]);
                command.args(["--innodb-flush-method=fsync", "--performance-schema=OFF"]);
                command
            }
            Kind::PostgreSql => {
                let mut command = self.as_other(postgres_program("postgres"));
                command.arg("-D").arg(data).arg("-k").arg(path);
                command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
                command.args(["-c", "shared_buffers=16MB", "-c", "jit=off"]);
                command
            }
        };
        let log = fs::File::create(path.join("log")).expect("a log");
        command.stdout(Stdio::null()).stderr(log);
        command
    }

    /// A program that runs as somebody else if this is root (servers refuse to be), and ends with the
    /// thread that started it.
    fn as_other(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL");
        if let Some((user, group)) = other_user() {
            command
                .arg(format!("--reuid={user}"))
                .arg(format!("--regid={group}"));
            command.arg("--clear-groups");
        }
        command.arg("--").arg(program.as_ref());
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Debian has nobody as 65534, and nogroup.
fn other_user() -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    let own = fs::metadata("/proc/self").expect("a process").uid();
    (own == 0).then_some((65_534, 65_534))
}

/// Debian keeps the programs of each version apart: the newest.
fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let programs = versions.map(|version| version.path().join("bin").join(name));
    let mut found: Vec<PathBuf> = programs.filter(|program| program.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}
