//! The apps: nothing here knows of Loadline.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{DefaultBodyLimit, Multipart, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use axum::{BoxError, Json, Router};
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tower::ServiceBuilder;
use tower_http::limit::RequestBodyLimitLayer;

#[derive(Clone, Serialize)]
struct Todo {
    id: u64,
    text: String,
    completed: bool,
}

#[derive(Deserialize)]
struct CreateTodo {
    text: String,
}

#[derive(Deserialize)]
struct UpdateTodo {
    text: Option<String>,
    completed: Option<bool>,
}

#[derive(Default, Deserialize)]
struct Pagination {
    offset: Option<usize>,
    limit: Option<usize>,
}

type Todos = Arc<RwLock<BTreeMap<u64, Todo>>>;

pub fn todos() -> Router {
    Router::new()
        .route("/todos", get(index).post(create))
        .route("/todos/{id}", patch(update).delete(remove))
        .layer(
            ServiceBuilder::new()
                .layer(HandleErrorLayer::new(|error: BoxError| async move {
                    if error.is::<tower::timeout::error::Elapsed>() {
                        return Ok(StatusCode::REQUEST_TIMEOUT);
                    }
                    Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
                }))
                .timeout(Duration::from_secs(10)),
        )
        .with_state(Todos::default())
}

async fn index(pages: Query<Pagination>, State(todos): State<Todos>) -> Json<Vec<Todo>> {
    let todos = todos.read().unwrap();
    let skipped = todos.values().skip(pages.offset.unwrap_or(0));
    Json(
        skipped
            .take(pages.limit.unwrap_or(usize::MAX))
            .cloned()
            .collect(),
    )
}

async fn create(State(todos): State<Todos>, Json(input): Json<CreateTodo>) -> impl IntoResponse {
    let mut todos = todos.write().unwrap();
    let todo = Todo {
        id: todos.len() as u64 + 1,
        text: input.text,
        completed: false,
    };
    todos.insert(todo.id, todo.clone());
    (StatusCode::CREATED, Json(todo))
}

async fn update(
    Path(id): Path<u64>,
    State(todos): State<Todos>,
    Json(input): Json<UpdateTodo>,
) -> Result<Json<Todo>, StatusCode> {
    let mut todos = todos.write().unwrap();
    let todo = todos.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
    if let Some(text) = input.text {
        todo.text = text;
    }
    if let Some(completed) = input.completed {
        todo.completed = completed;
    }
    Ok(Json(todo.clone()))
}

async fn remove(Path(id): Path<u64>, State(todos): State<Todos>) -> StatusCode {
    match todos.write().unwrap().remove(&id) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

pub fn sse() -> Router {
    Router::new().route("/sse", get(events))
}

/// Three, a moment apart, and then the end.
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = stream::repeat_with(|| Event::default().data("hi!")).take(3);
    let stream = stream.then(|event| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(event)
    });
    Sse::new(stream).keep_alive(
        KeepAlive::new()
            .interval(Duration::from_secs(1))
            .text("alive"),
    )
}

pub fn multipart_form() -> Router {
    Router::new()
        .route("/", get(show_form).post(accept_form))
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(250 << 20))
}

async fn show_form() -> Html<&'static str> {
    Html("<!doctype html><form method=post enctype=multipart/form-data><input type=file name=file>")
}

async fn accept_form(mut multipart: Multipart) -> String {
    let mut said = Vec::new();
    while let Some(field) = multipart.next_field().await.unwrap() {
        let name = field.name().unwrap_or_default().to_owned();
        let file_name = field.file_name().unwrap_or_default().to_owned();
        let content_type = field.content_type().unwrap_or_default().to_owned();
        let len = field.bytes().await.unwrap().len();
        said.push(format!("{name} {file_name} {content_type} {len}"));
    }
    said.join("\n")
}

pub fn stream_to_file(folder: PathBuf) -> Router {
    Router::new()
        .route("/file/{file_name}", post(save))
        .with_state(folder)
}

async fn save(
    State(folder): State<PathBuf>,
    Path(name): Path<String>,
    request: Request,
) -> Result<StatusCode, StatusCode> {
    if name.contains(['/', '\\']) || name.starts_with('.') {
        return Err(StatusCode::BAD_REQUEST);
    }
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    let mut file = tokio::fs::File::create(folder.join(name))
        .await
        .map_err(failed)?;
    let mut content = request.into_body().into_data_stream();
    while let Some(bytes) = content.next().await {
        let bytes = bytes.map_err(|_| StatusCode::BAD_REQUEST)?;
        file.write_all(&bytes).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    Ok(StatusCode::CREATED)
}

type Store = Arc<RwLock<BTreeMap<String, Bytes>>>;

pub fn key_value_store() -> Router {
    let admin = Router::new()
        .route("/keys", delete(delete_all))
        .layer(middleware::from_fn(bearer));
    Router::new()
        .route("/{key}", get(load).post(store))
        .route("/keys", get(keys))
        .nest("/admin", admin)
        .layer(DefaultBodyLimit::max(5_000))
        .layer(
            ServiceBuilder::new()
                .layer(HandleErrorLayer::new(|error: BoxError| async move {
                    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
                }))
                .load_shed()
                .concurrency_limit(1024)
                .timeout(Duration::from_secs(10)),
        )
        .with_state(Store::default())
}

async fn load(Path(key): Path<String>, State(store): State<Store>) -> Result<Bytes, StatusCode> {
    let found = store.read().unwrap().get(&key).cloned();
    found.ok_or(StatusCode::NOT_FOUND)
}

async fn store(Path(key): Path<String>, State(store): State<Store>, bytes: Bytes) {
    store.write().unwrap().insert(key, bytes);
}

async fn keys(State(store): State<Store>) -> String {
    let store = store.read().unwrap();
    store.keys().cloned().collect::<Vec<_>>().join("\n")
}

async fn delete_all(State(store): State<Store>) {
    store.write().unwrap().clear();
}

async fn bearer(request: Request, next: Next) -> Result<Response, StatusCode> {
    let given = request.headers().get(header::AUTHORIZATION);
    match given.is_some_and(|value| value == "Bearer secret") {
        true => Ok(next.run(request).await),
        false => Err(StatusCode::UNAUTHORIZED),
    }
}
