//! What has to be the same on each database, and under many users at once.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_accounts::Accounts;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Client, PASSWORD};
use super::outages;
use super::pools;
use super::servers::{DatabaseKind, Server};
use super::site::{Site, Time, options};

/// A database server, or files in a directory.
enum Databases {
    Files(tempfile::TempDir),
    Server(Box<Server>),
}

impl Databases {
    async fn new_one(&self, name: &str) -> String {
        match self {
            Self::Files(folder) => format!("sqlite:{}/{name}.db", folder.path().display()),
            Self::Server(server) => server.database(name).await,
        }
    }

    /// A statement that answers with a number.
    async fn count(&self, database: &str, sql: &str) -> i64 {
        match self {
            Self::Server(server) => server.count(database, sql).await,
            Self::Files(folder) => {
                let file = folder.path().join(format!("{database}.db"));
                let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
                let mut connection = connect.connect().await.expect(sql);
                let sql = sqlx::AssertSqlSafe(sql.to_owned());
                let count = sqlx::query_scalar(sql).fetch_one(&mut connection).await;
                connection.close().await.expect("an end");
                count.expect("a number")
            }
        }
    }
}

impl Databases {
    /// A statement that changes something.
    async fn change(&self, database: &str, sql: &str) {
        match self {
            Self::Server(server) => server.change(database, sql).await,
            Self::Files(folder) => {
                let file = folder.path().join(format!("{database}.db"));
                let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
                let mut connection = connect.connect().await.expect(sql);
                let text = sqlx::AssertSqlSafe(sql.to_owned());
                connection.execute(text).await.expect(sql);
                connection.close().await.expect("an end");
            }
        }
    }
}

#[tokio::test]
async fn on_sqlite() {
    let folder = tempfile::tempdir().expect("a directory");
    everything(&Databases::Files(folder)).await;
}

#[tokio::test]
async fn on_mariadb() {
    let mut databases = Databases::Server(Box::new(Server::start(DatabaseKind::MariaDb).await));
    everything(&databases).await;
    if let Databases::Server(server) = &mut databases {
        over_tls(server).await;
        pools::grows_and_shrinks(server).await;
        pools::grows_no_further_than_is_granted(server).await;
        outages::all(server).await;
    }
}

#[tokio::test]
async fn on_postgresql() {
    let mut databases = Databases::Server(Box::new(Server::start(DatabaseKind::PostgreSql).await));
    everything(&databases).await;
    if let Databases::Server(server) = &mut databases {
        over_tls(server).await;
        pools::grows_and_shrinks(server).await;
        pools::grows_no_further_than_is_granted(server).await;
        outages::all(server).await;
    }
}

async fn everything(databases: &Databases) {
    several_start_together(databases).await;
    an_older_one_is_brought_up_to_date(databases).await;
    pools::is_there_from_the_start(&databases.new_one("pool").await).await;
    journey(databases).await;
    one_name_at_the_same_moment(databases).await;
    if let Databases::Server(server) = databases {
        a_password_changes_while_somebody_logs_in(server).await;
    }
    a_thousand_users_from_a_thousand_addresses(databases).await;
}

/// With TLS, and not without a certificate that is trusted.
async fn over_tls(server: &Server) {
    server.database("tls").await;
    let (by_tcp, trusting, verified) = match server.kind {
        DatabaseKind::MariaDb => {
            for statement in [
                "CREATE USER 'tls'@'%' REQUIRE SSL",
                "GRANT ALL ON tls.* TO 'tls'@'%'",
            ] {
                server.ask(statement).await.expect(statement);
            }
            let verified = "ssl-mode=VERIFY_IDENTITY";
            (server.url_by_tcp("tls", "tls"), "ssl-ca", verified)
        }
        DatabaseKind::PostgreSql => (
            server.url_by_tcp("tester", "tls"),
            "sslrootcert",
            "sslmode=verify-full",
        ),
    };
    let trusted = format!("{by_tcp}?{verified}&{trusting}={}", server.certificate());
    Site::on(&trusted, |_| ()).await.accounts.close().await;
    let began = Instant::now();
    let untrusted = options(&format!("{by_tcp}?{verified}"), &Time::default());
    let start_timeout = untrusted.start_timeout;
    let Err(error) = Accounts::open(untrusted).await else {
        panic!("nobody has signed its certificate");
    };
    let error = error.to_string();
    assert!(
        error.contains("no TLS with it: ") && error.contains(trusting),
        "{error}"
    );
    assert!(began.elapsed() < start_timeout, "it is not tried again");
}

/// Migrations run once, whoever comes first.
async fn several_start_together(databases: &Databases) {
    let url = databases.new_one("together").await;
    let mut opening = JoinSet::new();
    for _ in 0..6 {
        let options = options(&url, &Time::default());
        opening.spawn(async move { Accounts::open(options).await });
    }
    for accounts in opening.join_all().await {
        accounts
            .unwrap_or_else(|error| panic!("{error}"))
            .close()
            .await;
    }
    let applied = "SELECT count(*) FROM _sqlx_migrations";
    assert_eq!(databases.count("together", applied).await, 2);
}

/// A database of before the second migration: accounts stay, and browsers can be known.
async fn an_older_one_is_brought_up_to_date(databases: &Databases) {
    let url = databases.new_one("older").await;
    let site = Site::on(&url, |_| ()).await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    site.accounts.close().await;
    databases.change("older", "DROP TABLE devices").await;
    let applied = "DELETE FROM _sqlx_migrations WHERE version = 2";
    databases.change("older", applied).await;
    let site = Site::on(&url, |_| ()).await;
    let mut again = Client::new(&site.router);
    again.cookies = client.cookies;
    assert!(again.is_in().await);
    again.log_out().await.is(303);
    again.log_in("ada", PASSWORD).await.is(303);
    let devices = "SELECT count(*) FROM devices";
    assert_eq!(databases.count("older", devices).await, 1);
    site.accounts.close().await;
}

/// Everything that one user does.
async fn journey(databases: &Databases) {
    let url = databases.new_one("journey").await;
    let site = Site::on(&url, |_| ()).await;
    let mut client = Client::new(&site.router);
    client
        .register("Straße", PASSWORD)
        .await
        .leads_to("/accounts/login?after=registered");
    client
        .register("STRASSE", PASSWORD)
        .await
        .is(409)
        .says("is taken");
    client
        .log_in("strasse", "not the one")
        .await
        .is(403)
        .says("is wrong");
    client
        .log_in("nobody", PASSWORD)
        .await
        .is(403)
        .says("is wrong");
    client
        .log_in("strasse", PASSWORD)
        .await
        .leads_to("/accounts/member");
    client
        .get("/accounts/member")
        .await
        .is(200)
        .says("<strong id=\"user\">Straße</strong>");
    client.get("/accounts/picture").await.is(200);
    let mut other = Client::new(&site.router);
    other.log_in("Straße", PASSWORD).await.is(303);
    let new = "пароль, and long enough \u{1f6df}";
    let fields = [("current", PASSWORD), ("password", new), ("repeat", new)];
    client
        .submit("/accounts/password", &fields)
        .await
        .leads_to("/accounts/member?after=password");
    assert!(client.is_in().await && !other.is_in().await);
    client.log_out().await.leads_to("/accounts/?after=logout");
    client
        .get("/accounts/member")
        .await
        .leads_to("/accounts/login");
    client.log_in("Straße", PASSWORD).await.is(403);
    client.log_in("Straße", new).await.is(303);
    site.time.pass(Duration::from_secs(120));
    assert!(client.is_in().await, "the time of use is written");
    for number in 0..21 {
        site.time.pass(Duration::from_secs(1));
        other
            .log_in("Straße", new)
            .await
            .leads_to("/accounts/member");
        if number < 20 {
            other.cookies.clear();
        }
    }
    for table in ["sessions", "devices"] {
        let rows = format!("SELECT count(*) FROM {table}");
        assert_eq!(databases.count("journey", &rows).await, 20, "{table}");
    }
    let newest = "SELECT max(created_ms) FROM devices";
    let before = databases.count("journey", newest).await;
    site.time.pass(Duration::from_secs(1));
    other.log_out().await.is(303);
    other.log_in("Straße", new).await.is(303); // known: its row is renewed
    assert_eq!(databases.count("journey", newest).await, before + 1000);
    let rows = "SELECT count(*) FROM devices";
    assert_eq!(databases.count("journey", rows).await, 20);
    other
        .submit("/accounts/delete", &[("current", new)])
        .await
        .leads_to("/accounts/?after=deleted");
    for table in ["users", "sessions", "devices"] {
        let rows = format!("SELECT count(*) FROM {table}");
        assert_eq!(databases.count("journey", &rows).await, 0, "{table}");
    }
    site.accounts.close().await;
}

/// Of those who want a name at the same moment, one gets it.
async fn one_name_at_the_same_moment(databases: &Databases) {
    let url = databases.new_one("moment").await;
    // Two servers on one database, as behind a balancer.
    let sites = [Site::on(&url, |_| ()).await, Site::on(&url, |_| ()).await];
    for round in 0..10_u8 {
        let mut tries = JoinSet::new();
        for number in 0..16_u8 {
            let site = &sites[usize::from(number % 2)];
            let mut client = Client::from(&site.router, [10, 0, round, number]);
            let token = client.get("/accounts/register").await.token();
            let name = format!("{}{round}", if number < 8 { "Ada" } else { "aDA" });
            tries.spawn(async move {
                let fields = [
                    ("token", token.as_str()),
                    ("name", name.as_str()),
                    ("password", PASSWORD),
                    ("repeat", PASSWORD),
                ];
                client
                    .post("/accounts/register", &fields)
                    .await
                    .status
                    .as_u16()
            });
        }
        let mut statuses = tries.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses[0], 303);
        assert!(
            statuses[1..].iter().all(|status| *status == 409),
            "{statuses:?}"
        );
    }
    assert_eq!(
        databases
            .count("moment", "SELECT count(*) FROM users")
            .await,
        10
    );
    for site in sites {
        site.accounts.close().await;
    }
}

/// A login with the old password, verified before the change and noted after it, is none.
async fn a_password_changes_while_somebody_logs_in(server: &Server) {
    let url = server.database("changes").await;
    let site = Site::on(&url, |_| ()).await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let mut change = server.transaction("changes").await;
    for statement in [
        "BEGIN",
        "UPDATE users SET password_hash = 'another'",
        "DELETE FROM sessions",
        "DELETE FROM devices",
    ] {
        change.run(statement).await;
    }
    let mut other = Client::from(&site.router, [10, 0, 0, 1]);
    let mut login = tokio::spawn(async move { other.log_in("ada", PASSWORD).await.status });
    let waits = async {
        while server.waiting_for_locks().await == 0 {
            // MariaDB answers from memory whoever asks again within 100 ms.
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    tokio::select! {
        status = &mut login => panic!("it did not wait for the change: {status:?}"),
        () = waits => (),
    }
    change.run("COMMIT").await;
    assert_eq!(login.await.expect("a response"), 403);
    for table in ["sessions", "devices"] {
        let rows = format!("SELECT count(*) FROM {table}");
        assert_eq!(server.count("changes", &rows).await, 0, "{table}");
    }
    site.accounts.close().await;
}

/// Nothing is lost, doubled or refused; and every connection to the database is one of the pool's.
async fn a_thousand_users_from_a_thousand_addresses(databases: &Databases) {
    const USERS: u32 = 1000;
    let url = databases.new_one("thousand").await;
    let site = Site::on(&url, |_| ()).await;
    let server = site.listen().await;
    let at_once = Arc::new(Semaphore::new(100)); // descriptors, where the limit is low
    let mut users = JoinSet::new();
    for number in 0..USERS {
        let at_once = Arc::clone(&at_once);
        let source = IpAddr::V4(Ipv4Addr::from(
            u32::from(Ipv4Addr::new(127, 1, 0, 1)) + number,
        ));
        users.spawn(async move {
            let _one = at_once.acquire().await;
            let mut client = Client::connect(server, source).await;
            client.enter(&format!("user{number}")).await;
            let page = client.get("/accounts/member").await;
            page.is(200)
                .says(&format!("<strong id=\"user\">user{number}</strong>"));
        });
    }
    while let Some(user) = users.join_next().await {
        user.unwrap_or_else(|error| panic!("{error}"));
    }
    let rows = "SELECT count(*) FROM users";
    assert_eq!(databases.count("thousand", rows).await, i64::from(USERS));
    let distinct = "SELECT count(DISTINCT user_id) FROM sessions";
    assert_eq!(
        databases.count("thousand", distinct).await,
        i64::from(USERS)
    );
    let counters = site.accounts.counters();
    assert_eq!(
        (counters.registered, counters.logins),
        (USERS.into(), USERS.into())
    );
    assert_eq!(
        (
            counters.throttled,
            counters.database_failures,
            counters.pool_refused
        ),
        (0, 0, 0)
    );
    let bounds = 1..=counters.pool_size_max;
    assert!(bounds.contains(&counters.connections), "{counters:?}");
    site.accounts.close().await;
    assert_eq!(site.accounts.counters().connections, 0);
    Client::new(&site.router)
        .get("/accounts/login")
        .await
        .is(200); // asks nothing of the database
    Client::new(&site.router)
        .log_in("user1", PASSWORD)
        .await
        .is(503);
}
