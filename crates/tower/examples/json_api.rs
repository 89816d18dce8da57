//! A JSON API with state, whose responses are compressed, beside files (`--root`).
//!
//! `curl -d '{"text":"milk"}' -H 'content-type: application/json' localhost:8080/api/todos`
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use loadline_apps::{Mounts, StaticFiles, StaticOptions};
use loadline_tower::Tower;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize)]
struct Todo {
    id: u64,
    text: String,
}

#[derive(Deserialize)]
struct NewTodo {
    text: String,
}

type Todos = Arc<Mutex<BTreeMap<u64, Todo>>>;

fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/api/todos", get(list).post(add))
        .route("/api/todos/{id}", get(show).delete(remove))
        .with_state(Todos::default());
    let args = args::Args::parse();
    let files = StaticFiles::new(&args.root, StaticOptions::default())?;
    args.serve(Mounts::new(files).mount("/api", Tower::new(app)?.compressed()))
}

/// Held for some instructions, never across an `await`.
fn locked<T>(todos: &Todos, use_it: impl FnOnce(&mut BTreeMap<u64, Todo>) -> T) -> T {
    use_it(&mut todos.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn list(State(todos): State<Todos>) -> Json<Vec<Todo>> {
    Json(locked(&todos, |todos| todos.values().cloned().collect()))
}

async fn add(State(todos): State<Todos>, Json(new): Json<NewTodo>) -> (StatusCode, Json<Todo>) {
    let todo = locked(&todos, |todos| {
        let id = todos.last_key_value().map_or(1, |(id, _)| id + 1);
        let todo = Todo { id, text: new.text };
        todos.insert(id, todo.clone());
        todo
    });
    (StatusCode::CREATED, Json(todo))
}

async fn show(State(todos): State<Todos>, Path(id): Path<u64>) -> Result<Json<Todo>, StatusCode> {
    let todo = locked(&todos, |todos| todos.get(&id).cloned());
    todo.map(Json).ok_or(StatusCode::NOT_FOUND)
}

async fn remove(State(todos): State<Todos>, Path(id): Path<u64>) -> StatusCode {
    match locked(&todos, |todos| todos.remove(&id)) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}
