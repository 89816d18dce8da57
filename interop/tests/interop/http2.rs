//! An axum app, asked by the `h2` crate.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use loadline_tower::Tower;
use tokio::task::JoinHandle;

use crate::app::{Shared, pattern, router};
use crate::model::Model;
use crate::served::{Over, Served, eventually, run};

every_model! {
    many_streams_at_once,
    content_in_both_directions_at_once,
    many_uploads_at_once,
    a_client_of_small_windows_and_no_table,
    trailers_both_ways,
    leave_to_send_content,
    heads_without_content,
    fields_of_several_frames,
    resets_drop_the_apps_futures,
    an_app_that_breaks_off,
    a_drain_finishes_what_has_begun,
}

/// Runs a case in plain text and over TLS.
fn both(model: Model, case: impl AsyncFn(App)) {
    for over in Over::BOTH {
        let shared = Arc::<Shared>::default();
        let app = Tower::new(router(Arc::clone(&shared))).unwrap();
        let served = Arc::new(Served::start(model, over, app));
        run(case(App {
            served: Arc::clone(&served),
            shared: Arc::clone(&shared),
        }));
        drop(Arc::into_inner(served).expect("nobody else has it"));
        assert_eq!(shared.hanging.load(SeqCst), 0, "a future left behind");
    }
}

struct App {
    served: Arc<Served>,
    shared: Arc<Shared>,
}

/// A connection.
struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl App {
    async fn connect(&self) -> Client {
        self.connect_as(&Builder::new()).await
    }

    async fn connect_as(&self, builder: &Builder) -> Client {
        let bytes = self.served.connect().await;
        let (requests, connection) = builder.handshake::<_, Bytes>(bytes).await.unwrap();
        Client {
            requests,
            connection: tokio::spawn(connection),
        }
    }

    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(self.served.url(path))
    }
}

impl Client {
    /// Sends the head of a request, whose content follows.
    async fn begin(
        &mut self,
        request: http::request::Builder,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        self.send(request, false).await
    }

    /// A request without content.
    async fn get(&mut self, request: http::request::Builder) -> Response<RecvStream> {
        let (response, _) = self.send(request, true).await;
        response.await.unwrap()
    }

    async fn send(
        &mut self,
        request: http::request::Builder,
        is_end: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        poll_fn(|context| self.requests.poll_ready(context))
            .await
            .unwrap();
        let request = request.body(()).unwrap();
        self.requests.send_request(request, is_end).unwrap()
    }
}

/// Sends content as the windows allow.
async fn send_content(stream: &mut SendStream<Bytes>, content: &[u8]) {
    let mut rest = Bytes::copy_from_slice(content);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = poll_fn(|context| stream.poll_capacity(context)).await;
        let room = room.expect("the stream is open").unwrap();
        let piece = rest.split_to(room.min(rest.len()));
        stream.send_data(piece, false).unwrap();
    }
}

/// All content of a response, and its trailers.
async fn content(response: Response<RecvStream>) -> (Vec<u8>, Option<HeaderMap>) {
    let mut body = response.into_body();
    let mut content = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        content.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    (content, body.trailers().await.unwrap())
}

/// More than the server takes at once: the client waits with the rest.
fn many_streams_at_once(model: Model) {
    both(model, async |app| {
        const COUNT: usize = 300;
        let mut builder = Builder::new();
        builder.initial_max_send_streams(100); // until it knows the server's settings, as hyper does
        let mut client = app.connect_as(&builder).await;
        let lengths = (0..COUNT).map(|n| n * n % 70_001);
        let mut tasks = Vec::new();
        for len in lengths {
            let path = match len % 2 {
                0 => format!("/known/{len}"),
                _ => format!("/unknown/{len}"),
            };
            let (response, _) = client.send(app.request("GET", &path), true).await;
            tasks.push(tokio::spawn(async move {
                let response = response.await.unwrap();
                assert_eq!(response.status(), 200);
                assert!(content(response).await.0 == pattern(len), "{path}");
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn content_in_both_directions_at_once(model: Model) {
    both(model, async |app| {
        const LEN: usize = 2_000_003;
        let mut client = app.connect().await;
        let sent = Arc::new(pattern(LEN));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let (response, mut stream) = client.begin(app.request("POST", "/echo")).await;
            let to_send = Arc::clone(&sent);
            tokio::spawn(async move {
                send_content(&mut stream, &to_send).await;
                stream.send_data(Bytes::new(), true).unwrap();
            });
            let sent = Arc::clone(&sent);
            tasks.push(tokio::spawn(async move {
                assert!(content(response.await.unwrap()).await.0 == *sent);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Together they are more than the connection's window, and none is complete before all have begun.
fn many_uploads_at_once(model: Model) {
    both(model, async |app| {
        const LEN: usize = 60_000;
        for len in [None, Some(LEN)] {
            let mut client = app.connect().await;
            let mut streams = Vec::new();
            for _ in 0..12 {
                let mut asked = app.request("POST", "/swallow");
                if let Some(len) = len {
                    asked = asked.header("content-length", len);
                }
                streams.push(client.begin(asked).await);
            }
            for _ in 0..LEN / 1_000 {
                for (_, stream) in &mut streams {
                    send_content(stream, &[b'x'; 1_000]).await;
                }
            }
            for (response, mut stream) in streams {
                stream.send_data(Bytes::new(), true).unwrap();
                let response = response.await.unwrap();
                assert_eq!(response.status(), 200);
                assert_eq!(content(response).await.0, LEN.to_string().as_bytes());
            }
            drop(client.requests);
            client.connection.await.unwrap().unwrap(); // a sequential server goes on
        }
    });
}

/// It takes little at a time, and wants nothing to be remembered.
fn a_client_of_small_windows_and_no_table(model: Model) {
    both(model, async |app| {
        const LEN: usize = 100_000;
        let mut builder = Builder::new();
        builder.initial_window_size(1_000).header_table_size(0);
        let mut client = app.connect_as(&builder).await;
        for path in ["/known/100000", "/unknown/100000"] {
            let response = client.get(app.request("GET", path)).await;
            assert_eq!(response.headers()["server"], "Loadline");
            assert!(content(response).await.0 == pattern(LEN), "{path}");
        }
    });
}

fn trailers_both_ways(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        let asked = app
            .request("GET", "/form/trailers")
            .header("te", "trailers");
        let (all, trailers) = content(client.get(asked).await).await;
        assert_eq!(all, b"content");
        assert_eq!(trailers.unwrap()["x-sum"], "7");
        let asked = app
            .request("GET", "/form/trailers-alone")
            .header("te", "trailers");
        let (all, trailers) = content(client.get(asked).await).await;
        assert_eq!(
            (&all[..], &trailers.unwrap()["x-sum"]),
            (&b""[..], &"0".parse().unwrap())
        );
        let (all, trailers) = content(client.get(app.request("GET", "/form/trailers")).await).await;
        assert_eq!((&all[..], trailers), (&b"content"[..], None));
        let (response, mut stream) = client.begin(app.request("POST", "/saw")).await;
        send_content(&mut stream, b"12345").await;
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "5".parse().unwrap())]);
        stream.send_trailers(trailers).unwrap();
        let (said, _) = content(response.await.unwrap()).await;
        assert!(said.ends_with(b"content 12345\ntrailer x-sum: 5\n"));
    });
}

fn leave_to_send_content(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        for framing in [None, Some("5")] {
            let mut asked = app
                .request("POST", "/swallow")
                .header("expect", "100-continue");
            if let Some(len) = framing {
                asked = asked.header("content-length", len);
            }
            let (mut response, mut stream) = client.begin(asked).await;
            let interim = poll_fn(|context| response.poll_informational(context)).await;
            assert_eq!(interim.unwrap().unwrap().status(), 100);
            send_content(&mut stream, b"12345").await;
            stream.send_data(Bytes::new(), true).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(content(response).await.0, b"5");
        }
    });
}

fn heads_without_content(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        for (method, path, status, len) in [
            ("HEAD", "/known/1000", 200, Some("1000")),
            ("HEAD", "/unknown/1000", 200, None),
            ("GET", "/status/204", 204, None),
            ("GET", "/status/304", 304, None),
            ("GET", "/form/empty", 200, Some("0")),
            ("POST", "/form/empty", 405, None),
            ("GET", "/no/such/thing", 404, None),
            ("CONNECTED", "/hello", 405, None),
        ] {
            let response = client.get(app.request(method, path)).await;
            assert_eq!(response.status(), status, "{method} {path}");
            if let Some(len) = len {
                assert_eq!(response.headers()["content-length"], len, "{method} {path}");
            }
            let (content, trailers) = content(response).await;
            if method == "HEAD" || [204, 304].contains(&status) {
                assert_eq!(content, b"", "{method} {path}");
            }
            assert_eq!(trailers, None);
        }
    });
}

/// More than a frame holds, and more than is taken.
fn fields_of_several_frames(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        let value = |len| "v".repeat(len);
        let asked = app.request("GET", "/saw").header("x-long", value(24_000));
        let response = client.get(asked).await;
        assert_eq!(response.status(), 200);
        let said = String::from_utf8(content(response).await.0).unwrap();
        assert!(said.contains(&format!("x-long: {}\n", value(24_000))));
        let asked = app.request("GET", "/saw").header("x-long", value(33_000));
        assert_eq!(client.get(asked).await.status(), 431);
        // Cookies come one by one.
        let asked = app
            .request("GET", "/saw")
            .header("cookie", "a=1")
            .header("cookie", "b=2");
        let said = content(client.get(asked).await).await.0;
        assert!(
            String::from_utf8(said)
                .unwrap()
                .contains("\ncookie: a=1; b=2\n")
        );
        assert_eq!(
            content(client.get(app.request("GET", "/hello")).await)
                .await
                .0,
            b"hello"
        );
    });
}

fn resets_drop_the_apps_futures(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        let hanging = |count| {
            let shared = Arc::clone(&app.shared);
            async move { eventually("so many hang", || shared.hanging.load(SeqCst) == count).await }
        };
        let (before_head, mut first) = client.begin(app.request("POST", "/hang")).await;
        let (late, mut second) = client.begin(app.request("GET", "/hang-late")).await;
        let mut late = late.await.unwrap().into_body();
        assert_eq!(late.data().await.unwrap().unwrap(), "begun");
        hanging(2).await;
        first.send_reset(Reason::CANCEL);
        hanging(1).await;
        second.send_reset(Reason::CANCEL);
        hanging(0).await;
        assert!(before_head.await.is_err());
        // Who loses interest resets, too.
        let (response, _) = client
            .send(app.request("GET", "/unknown/9000000"), true)
            .await;
        drop(response.await.unwrap());
        let (response, _) = client.send(app.request("GET", "/hang"), true).await;
        hanging(1).await;
        drop(response);
        hanging(0).await;
        assert_eq!(
            content(client.get(app.request("GET", "/hello")).await)
                .await
                .0,
            b"hello"
        );
    });
}

fn an_app_that_breaks_off(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        for path in ["/panic", "/form/fails-first"] {
            assert_eq!(
                client.get(app.request("GET", path)).await.status(),
                500,
                "{path}"
            );
        }
        for path in [
            "/form/fails-late",
            "/form/short",
            "/form/long",
            "/form/none-of-it",
        ] {
            let response = client.get(app.request("GET", path)).await;
            assert_eq!(response.status(), 200, "{path}");
            let mut body = response.into_body();
            let error = loop {
                match body.data().await.expect("no end") {
                    Ok(piece) => body.flow_control().release_capacity(piece.len()).unwrap(),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{path}");
        }
        assert_eq!(
            content(client.get(app.request("GET", "/hello")).await)
                .await
                .0,
            b"hello"
        );
    });
}

/// GOAWAY says that nothing new is begun; what has begun ends as it would have.
fn a_drain_finishes_what_has_begun(model: Model) {
    both(model, async |app| {
        let mut client = app.connect().await;
        let (response, mut stream) = client.begin(app.request("POST", "/echo")).await;
        send_content(&mut stream, b"before").await;
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "before");
        app.served.drain();
        // The client learns of it.
        let refused = loop {
            match poll_fn(|context| client.requests.poll_ready(context)).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(refused.is_go_away() && refused.is_remote(), "{refused:?}");
        assert_eq!(refused.reason(), Some(Reason::NO_ERROR));
        send_content(&mut stream, b" and after").await;
        stream.send_data(Bytes::new(), true).unwrap();
        let mut after = Vec::new();
        while let Some(piece) = body.data().await {
            after.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(after, b" and after");
        client.connection.await.unwrap().unwrap();
    });
}
