//! A browser without a window: cookies, forms with their tokens, an address of its own.

#[path = "form_content.rs"]
mod form_content;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::http::header::{COOKIE, HOST, LOCATION, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use form_content::form_content;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use loadline_accounts::Client as Sender;
use tokio::net::TcpSocket;
use tower::ServiceExt as _;

/// The password of users whose password is not what is tested.
pub(crate) const PASSWORD: &str = "wind and tide wait for no one";

/// How the app is reached.
enum Way {
    /// In this process.
    Direct(Router),
    /// By a connection.
    Socket(SendRequest<Body>),
}

/// One user agent.
pub(crate) struct Client {
    way: Way,
    address: IpAddr,
    is_tls: bool,
    pub(crate) cookies: BTreeMap<String, String>,
    /// Cookies that somebody else has set for a longer path: they are sent before its own.
    pub(crate) planted: Vec<(&'static str, String)>,
    /// Fields sent with each request.
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        let field = self.fields.get(name);
        field.map_or("", |value| value.to_str().expect("a field of text"))
    }

    /// Where it sends the browser.
    pub(crate) fn location(&self) -> &str {
        self.field(LOCATION.as_str())
    }

    /// Seconds to wait.
    pub(crate) fn retry_after(&self) -> u64 {
        let text = self.field(RETRY_AFTER.as_str());
        text.parse()
            .unwrap_or_else(|_| panic!("Retry-After: {text}"))
    }

    /// The token that its forms carry.
    pub(crate) fn token(&self) -> String {
        let text = self.text();
        let mark = "name=\"token\" value=\"";
        let (_, rest) = text.split_once(mark).unwrap_or_default();
        rest.split('"').next().unwrap_or_default().to_owned()
    }

    /// Asserts that the page says so.
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(
            self.text().contains(text),
            "no '{text}' in {}: {}",
            self.status,
            self.text()
        );
        self
    }

    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts that it sends the browser there.
    pub(crate) fn leads_to(&self, path: &str) -> &Self {
        self.is(303);
        assert_eq!(self.location(), path);
        self
    }
}

impl Client {
    pub(crate) fn new(router: &Router) -> Self {
        Self::from(router, [127, 0, 0, 1])
    }

    /// From an address.
    pub(crate) fn from(router: &Router, address: impl Into<IpAddr>) -> Self {
        Self::by(Way::Direct(router.clone()), address.into())
    }

    /// By a connection from `source` to `server`.
    pub(crate) async fn connect(server: SocketAddr, source: IpAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind((source, 0).into())
            .expect("an address of this machine");
        let stream = socket.connect(server).await.expect("the server listens");
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("a connection");
        tokio::spawn(connection);
        Self::by(Way::Socket(sender), source)
    }

    fn by(way: Way, address: IpAddr) -> Self {
        Self {
            way,
            address,
            is_tls: false,
            cookies: BTreeMap::new(),
            planted: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// As if the connection were encrypted.
    pub(crate) fn over_tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Answer {
        let (mut head, body) = request.into_parts();
        head.headers
            .insert(HOST, "accounts.test".parse().expect("valid"));
        let own = self.cookies.iter().map(|(name, value)| (&**name, value));
        let planted = self.planted.iter().map(|(name, value)| (*name, value));
        let cookies: Vec<_> = planted
            .chain(own)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !cookies.is_empty() {
            head.headers
                .insert(COOKIE, cookies.join("; ").parse().expect("valid"));
        }
        for (name, value) in &self.fields {
            head.headers.append(*name, value.parse().expect("valid"));
        }
        let mut request = Request::from_parts(head, body);
        let (head, body) = match &mut self.way {
            Way::Direct(router) => {
                request.extensions_mut().insert(Sender {
                    address: Some(self.address),
                    is_secure: self.is_tls,
                });
                let answer = router.clone().oneshot(request).await.expect("valid");
                let (head, body) = answer.into_parts();
                (head, body.collect().await.expect("a body").to_bytes())
            }
            Way::Socket(sender) => {
                let answer = sender.send_request(request).await.expect("an answer");
                let (head, body) = answer.into_parts();
                (head, body.collect().await.expect("a body").to_bytes())
            }
        };
        for field in head.headers.get_all(SET_COOKIE) {
            self.keep(field.to_str().expect("a cookie of text"));
        }
        Answer {
            status: head.status,
            fields: head.headers,
            body: body.into(),
        }
    }

    fn keep(&mut self, field: &str) {
        let pair = field.split(';').next().unwrap_or_default();
        let (name, value) = pair.split_once('=').expect("a name and a value");
        match field.contains("Max-Age=0") {
            true => self.cookies.remove(name),
            false => self.cookies.insert(name.to_owned(), value.to_owned()),
        };
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let request = Request::get(path).body(Body::empty()).expect("valid");
        self.send(request).await
    }

    /// Sends a form as it is, without looking at its page before.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(form_content(fields)))
            .expect("valid");
        self.send(request).await
    }

    /// Loads the page of a form and sends it with its token.
    pub(crate) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let page = self.get(path).await;
        let token = page.token();
        let mut all = vec![("token", token.as_str())];
        all.extend(fields);
        self.post(path, &all).await
    }

    pub(crate) async fn register(&mut self, name: &str, password: &str) -> Answer {
        let fields = [("name", name), ("password", password), ("repeat", password)];
        self.submit("/accounts/register", &fields).await
    }

    pub(crate) async fn log_in(&mut self, name: &str, password: &str) -> Answer {
        let fields = [("name", name), ("password", password)];
        self.submit("/accounts/login", &fields).await
    }

    /// Registers and logs in with [`PASSWORD`].
    pub(crate) async fn enter(&mut self, name: &str) {
        self.register(name, PASSWORD)
            .await
            .leads_to("/accounts/login?after=registered");
        self.log_in(name, PASSWORD)
            .await
            .leads_to("/accounts/member");
    }

    pub(crate) async fn log_out(&mut self) -> Answer {
        let token = self.get("/accounts/").await.token();
        self.post("/accounts/logout", &[("token", &token)]).await
    }

    /// Whether it may see the page behind the login.
    pub(crate) async fn is_in(&mut self) -> bool {
        self.get("/accounts/member").await.status == 200
    }
}
