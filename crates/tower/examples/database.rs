//! An app on a pool of database connections: a guest book on SQLite, in the file `guests.db`.
//!
//! `curl -d name=Ada localhost:8080/guests`
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Form, Json, Router};
use loadline_tower::Tower;
use serde::Deserialize;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

/// Connections: as many requests ask at once; the others wait for one.
const POOL_SIZE: u32 = 8;

#[derive(Deserialize)]
struct Guest {
    name: String,
}

fn main() -> std::io::Result<()> {
    let args = args::Args::parse();
    // The pool lives in the runtime within which the app will be polled.
    let pool = loadline_tower::runtime()?
        .block_on(open())
        .map_err(std::io::Error::other)?;
    let app = Router::new()
        .route("/guests", get(list).post(add))
        .with_state(pool);
    args.serve(Tower::new(app)?)
}

async fn open() -> sqlx::Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename("guests.db")
        .create_if_missing(true);
    let pool = SqlitePoolOptions::new()
        .max_connections(POOL_SIZE)
        .connect_with(options)
        .await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS guests (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        .execute(&pool)
        .await?;
    Ok(pool)
}

async fn list(State(pool): State<SqlitePool>) -> Result<Json<Vec<String>>, StatusCode> {
    let names = sqlx::query_scalar("SELECT name FROM guests ORDER BY id DESC LIMIT 100");
    names.fetch_all(&pool).await.map(Json).map_err(failed)
}

async fn add(
    State(pool): State<SqlitePool>,
    Form(guest): Form<Guest>,
) -> Result<StatusCode, StatusCode> {
    let insert = sqlx::query("INSERT INTO guests (name) VALUES (?)").bind(guest.name);
    insert.execute(&pool).await.map_err(failed)?;
    Ok(StatusCode::CREATED)
}

fn failed(error: sqlx::Error) -> StatusCode {
    eprintln!("the database: {error}");
    StatusCode::SERVICE_UNAVAILABLE
}
