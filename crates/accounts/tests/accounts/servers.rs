//! Database servers of Debian's packages, started for a test and stopped with it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use loadline_databases::DatabaseKind;
use loadline_databases::{Installed, prepare_folder};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;

/// How long a server may take to answer after its start.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A running server; ends with the value.
pub(crate) struct Server {
    pub(crate) kind: DatabaseKind,
    installed: Installed,
    folder: TempDir,
    child: Option<Child>,
    /// Of 127.0.0.1, where it speaks TLS, too.
    pub(crate) port: u16,
}

/// Statements on one connection, one after the other.
pub(crate) enum Transaction {
    MariaDb(sqlx::MySqlConnection),
    PostgreSql(sqlx::PgConnection),
}

impl Transaction {
    pub(crate) async fn run(&mut self, sql: &'static str) {
        let done = match self {
            Self::MariaDb(connection) => connection.execute(sqlx::raw_sql(sql)).await.map(drop),
            Self::PostgreSql(connection) => connection.execute(sqlx::raw_sql(sql)).await.map(drop),
        };
        done.expect(sql);
    }
}

impl Server {
    /// Makes the files of a new server and starts it.
    pub(crate) async fn start(kind: DatabaseKind) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("accounts-")
            .tempdir()
            .expect("a directory");
        prepare_folder(folder.path()).expect("an owner");
        let mut server = Self {
            kind,
            installed: Installed::find(kind).unwrap_or_else(|missing| panic!("{missing}")),
            folder,
            child: None,
            port: free_port(),
        };
        server.prepare();
        server.make_certificate();
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
        let url = self.installed.url(self.folder.path(), name);
        match self.kind {
            DatabaseKind::MariaDb => url,
            DatabaseKind::PostgreSql => format!("{url}&port={}", self.port), // the socket's name has it
        }
    }

    /// The same by TCP on this machine, as `user`; the certificate is for 127.0.0.1.
    pub(crate) fn url_by_tcp(&self, user: &str, name: &str) -> String {
        let scheme = match self.kind {
            DatabaseKind::MariaDb => "mysql",
            DatabaseKind::PostgreSql => "postgres",
        };
        format!("{scheme}://{user}@127.0.0.1:{}/{name}", self.port)
    }

    /// The certificate that it shows, which nobody else has signed.
    pub(crate) fn certificate(&self) -> String {
        self.folder.path().join("c.pem").display().to_string()
    }

    /// A statement of the server's own administration.
    pub(crate) async fn ask(&self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        match self.kind {
            DatabaseKind::MariaDb => self.mariadb().connect().await?.execute(sql).await.map(drop),
            DatabaseKind::PostgreSql => self
                .postgres()
                .connect()
                .await?
                .execute(sql)
                .await
                .map(drop),
        }
    }

    /// A connection for statements that belong together.
    pub(crate) async fn transaction(&self, database: &str) -> Transaction {
        let connected = "a connection";
        match self.kind {
            DatabaseKind::MariaDb => {
                let connect = self.mariadb().database(database);
                Transaction::MariaDb(connect.connect().await.expect(connected))
            }
            DatabaseKind::PostgreSql => {
                let connect = self.postgres().database(database);
                Transaction::PostgreSql(connect.connect().await.expect(connected))
            }
        }
    }

    /// How many statements wait for the locks of others.
    pub(crate) async fn waiting_for_locks(&self) -> i64 {
        let (database, sql) = match self.kind {
            DatabaseKind::MariaDb => (
                "mysql",
                "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
            ),
            DatabaseKind::PostgreSql => (
                "postgres",
                "SELECT count(*) FROM pg_locks WHERE NOT granted",
            ),
        };
        self.count(database, sql).await
    }

    /// A statement that answers with a number.
    pub(crate) async fn count(&self, database: &str, sql: &str) -> i64 {
        let query = sqlx::AssertSqlSafe(sql.to_owned());
        let count = match self.kind {
            DatabaseKind::MariaDb => {
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
            DatabaseKind::PostgreSql => {
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

    /// A statement that changes something in a database.
    pub(crate) async fn change(&self, database: &str, sql: &str) {
        let query = sqlx::AssertSqlSafe(sql.to_owned());
        let done = match self.kind {
            DatabaseKind::MariaDb => {
                let connect = self.mariadb().database(database);
                let mut connection = connect.connect().await.expect(sql);
                connection.execute(query).await.map(drop)
            }
            DatabaseKind::PostgreSql => {
                let connect = self.postgres().database(database);
                let mut connection = connect.connect().await.expect(sql);
                connection.execute(query).await.map(drop)
            }
        };
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Keeps everybody else from a table until what it returns is dropped.
    pub(crate) async fn lock(&self, database: &str, table: &str) -> Box<dyn Send> {
        let failed = "a lock";
        match self.kind {
            DatabaseKind::MariaDb => {
                let connect = self.mariadb().database(database);
                let mut connection = connect.connect().await.expect(failed);
                let sql = sqlx::AssertSqlSafe(format!("LOCK TABLES {table} WRITE"));
                connection.execute(sql).await.expect(failed);
                Box::new(connection)
            }
            DatabaseKind::PostgreSql => {
                let connect = self.postgres().database(database);
                let mut connection = connect.connect().await.expect(failed);
                connection.execute("BEGIN").await.expect(failed);
                let sql = sqlx::AssertSqlSafe(format!("LOCK TABLE {table}"));
                connection.execute(sql).await.expect(failed);
                Box::new(connection)
            }
        }
    }

    fn mariadb(&self) -> MySqlConnectOptions {
        MySqlConnectOptions::new()
            .socket(self.folder.path().join("sql"))
            .username("root")
            .ssl_mode(MySqlSslMode::Disabled)
    }

    fn postgres(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(self.folder.path())
            .port(self.port)
            .ssl_mode(PgSslMode::Disable)
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
            let may_pass = why.contains("is still in use") && began.elapsed() < TIMEOUT;
            assert!(may_pass, "{:?}: {why}", self.kind);
        }
    }

    /// Waits until the server answers; or ends, or does not in time.
    async fn answers(&mut self, began: Instant) -> Result<(), String> {
        while let Err(error) = self.ask("SELECT 1").await {
            let child = self.child.as_mut();
            let ended = child.and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || began.elapsed() > TIMEOUT {
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
        let words = self.installed.prepare(self.folder.path());
        let output = command(&words).output().expect("setpriv, of util-linux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
    }

    /// A certificate and its key, as the server's user may read them.
    fn make_certificate(&self) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a key");
        let owner = fs::metadata(self.folder.path()).expect("a folder");
        for (name, text) in [
            ("c.pem", made.cert.pem()),
            ("k.pem", made.signing_key.serialize_pem()),
        ] {
            let path = self.folder.path().join(name);
            fs::write(&path, text).expect("a file");
            chown(&path, Some(owner.uid()), Some(owner.gid())).expect("an owner");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        }
    }

    /// The server itself. It writes no file out to the disk: only the process is killed here.
    fn program(&self) -> Command {
        let path = self.folder.path();
        let log = fs::File::create(path.join("log")).expect("a log");
        let mut words = self.installed.serve(path, false);
        let port = self.port;
        let (certificate, key) = (path.join("c.pem"), path.join("k.pem"));
        let (certificate, key) = (certificate.display(), key.display());
        let tls = match self.kind {
            DatabaseKind::MariaDb => format!(
                "--skip-networking=0 --bind-address=127.0.0.1 --port={port} \
                 --ssl-cert={certificate} --ssl-key={key}"
            ),
            DatabaseKind::PostgreSql => format!(
                "-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on -c ssl_cert_file={certificate} \
                 -c ssl_key_file={key}"
            ),
        };
        words.extend(tls.split_ascii_whitespace().map(str::to_owned));
        let mut command = command(&words);
        command.stdout(Stdio::null()).stderr(log);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}
