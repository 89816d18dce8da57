//! Apps of the shape of axum's own examples (todos, sse, multipart-form, stream-to-file,
//! key-value-store) under every architecture. What differs from there is the line that serves.

mod apps;

use axum::Router;
use loadline_server::{Server, ServerHandle};
use loadline_tower::Tower;

use crate::client::Client;
use crate::fixture::connect;
use crate::model::Model;

every_model! {
    todos,
    sse,
    multipart_form,
    stream_to_file,
    key_value_store,
}

/// In place of `axum::serve(listener, app)`.
fn serve(app: Router, model: Model) -> (ServerHandle, Client) {
    let server = Server::new(Tower::new(app).unwrap()).options(model.options());
    let server = server.listen(([127, 0, 0, 1], 0)).start().unwrap();
    let client = connect(server.tcp_address().unwrap());
    (server, client)
}

fn end(server: ServerHandle, client: Client) {
    drop(client);
    server.drain();
    assert!(server.wait().unwrap().is_clean());
}

fn request(client: &mut Client, line: &str, content_type: &str, content: &str) -> (u16, String) {
    let len = content.len();
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: h\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n\r\n{content}"
    ));
    let answer = client.answer();
    (answer.status, String::from_utf8(answer.body).unwrap())
}

pub fn todos(model: Model) {
    let (server, mut client) = serve(apps::todos(), model);
    let json = |client: &mut Client, line: &str, content: &str| {
        request(client, line, "application/json", content)
    };
    let (status, todo) = json(&mut client, "POST /todos", r#"{"text":"milk"}"#);
    assert_eq!(
        (status, &*todo),
        (201, r#"{"id":1,"text":"milk","completed":false}"#)
    );
    let (status, todo) = json(&mut client, "PATCH /todos/1", r#"{"completed":true}"#);
    assert_eq!(
        (status, &*todo),
        (200, r#"{"id":1,"text":"milk","completed":true}"#)
    );
    assert_eq!(json(&mut client, "PATCH /todos/7", "{}").0, 404);
    assert_eq!(json(&mut client, "POST /todos", "{").0, 400);
    let (_, all) = json(&mut client, "GET /todos?offset=0&limit=5", "");
    assert_eq!(all, r#"[{"id":1,"text":"milk","completed":true}]"#);
    assert_eq!(json(&mut client, "DELETE /todos/1", "").0, 204);
    assert_eq!(json(&mut client, "DELETE /todos/1", "").0, 404);
    end(server, client);
}

pub fn sse(model: Model) {
    let (server, mut client) = serve(apps::sse(), model);
    client.send("GET /sse HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut text = Vec::new();
    while text.windows(9).filter(|part| part == b"data: hi!").count() < 3 {
        text.extend(client.bytes(1));
    }
    assert!(
        String::from_utf8(text)
            .unwrap()
            .contains("content-type: text/event-stream")
    );
    end(server, client);
}

pub fn multipart_form(model: Model) {
    let (server, mut client) = serve(apps::multipart_form(), model);
    assert!(client.get("/", "").body.starts_with(b"<!doctype html>"));
    let content = format!(
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
         Content-Type: text/plain\r\n\r\n{}\r\n--B--\r\n",
        "x".repeat(200_000)
    );
    let (status, said) = request(
        &mut client,
        "POST /",
        "multipart/form-data; boundary=B",
        &content,
    );
    assert_eq!((status, &*said), (200, "file a.txt text/plain 200000"));
    end(server, client);
}

pub fn stream_to_file(model: Model) {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut client) = serve(apps::stream_to_file(folder.path().to_owned()), model);
    let content = "0123456789".repeat(30_000);
    let (status, _) = request(&mut client, "POST /file/a.txt", "text/plain", &content);
    assert_eq!(status, 201);
    assert!(std::fs::read(folder.path().join("a.txt")).unwrap() == content.as_bytes());
    assert_eq!(
        request(&mut client, "POST /file/..%2Fb", "text/plain", "x").0,
        400
    );
    end(server, client);
}

pub fn key_value_store(model: Model) {
    let (server, mut client) = serve(apps::key_value_store(), model);
    let text = "text/plain";
    assert_eq!(request(&mut client, "GET /one", text, "").0, 404);
    assert_eq!(request(&mut client, "POST /one", text, "1").0, 200);
    assert_eq!(
        request(&mut client, "POST /two", text, &"2".repeat(6000)).0,
        413
    );
    assert_eq!(
        request(&mut client, "GET /one", text, ""),
        (200, "1".to_owned())
    );
    assert_eq!(client.get("/keys", "").body, b"one");
    assert_eq!(request(&mut client, "DELETE /admin/keys", text, "").0, 401);
    client.send("DELETE /admin/keys HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer secret\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.get("/keys", "").body, b"");
    end(server, client);
}
