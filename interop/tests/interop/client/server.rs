//! The server's end: that of the `h2` crate, whose tasks are polled by the test.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};

use crate::app::pattern;
use crate::wire::Wire;

type Task = Pin<Box<dyn Future<Output = ()>>>;
/// Begins a task for each request.
type Handler = Box<dyn FnMut(Request<RecvStream>, SendResponse<Bytes>) -> Task>;

enum State {
    Handshake(Handshake<Wire, Bytes>),
    Open(Connection<Wire, Bytes>),
    Ended(Result<(), h2::Error>),
}

/// A connection that was accepted.
pub struct Server {
    state: State,
    handler: Handler,
    tasks: Vec<Task>,
}

impl Server {
    pub fn new<F, T>(wire: Wire, builder: &Builder, mut handler: F) -> Self
    where
        F: FnMut(Request<RecvStream>, SendResponse<Bytes>) -> T + 'static,
        T: Future<Output = ()> + 'static,
    {
        Self {
            state: State::Handshake(builder.handshake(wire)),
            handler: Box::new(move |request, respond| -> Task {
                Box::pin(handler(request, respond))
            }),
            tasks: Vec::new(),
        }
    }

    /// Takes in what has come, and lets its tasks go on.
    pub fn step(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let State::Handshake(handshake) = &mut self.state {
            self.state = match Pin::new(handshake).poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Ok(connection)) => State::Open(connection),
                Poll::Ready(Err(error)) => State::Ended(Err(error)),
            };
        }
        self.accept(&mut context);
        self.tasks
            .retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        self.accept(&mut context); // what they have to say is sent
    }

    fn accept(&mut self, context: &mut Context<'_>) {
        while let State::Open(connection) = &mut self.state {
            match connection.poll_accept(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.tasks.push((self.handler)(request, respond));
                }
                Poll::Ready(Some(Err(error))) => self.state = State::Ended(Err(error)),
                Poll::Ready(None) => self.state = State::Ended(Ok(())),
            }
        }
    }

    /// What the `h2` crate lets a server decide while the connection is open.
    pub fn connection(&mut self) -> &mut Connection<Wire, Bytes> {
        match &mut self.state {
            State::Open(connection) => connection,
            _ => panic!("the connection is not open"),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// How it has ended, if it has.
    pub fn ended(&self) -> Option<&Result<(), h2::Error>> {
        match &self.state {
            State::Ended(result) => Some(result),
            _ => None,
        }
    }
}

/// What tasks wait for, until the test opens it.
#[derive(Clone, Default)]
pub struct Gate(Rc<Cell<bool>>);

impl Gate {
    pub fn open(&self) {
        self.0.set(true);
    }

    pub async fn passed(&self) {
        poll_fn(|_| match self.0.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// Content of a response, as far as there is room for it; `None`: the stream was reset.
pub async fn send(stream: &mut SendStream<Bytes>, mut rest: Bytes) -> Option<()> {
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = poll_fn(|context| stream.poll_capacity(context)).await?;
        let piece = rest.split_to(room.ok()?.min(rest.len()));
        stream.send_data(piece, false).ok()?;
    }
    Some(())
}

/// What the paths of most tests respond with: `/bytes/N`, and to others what was sent.
pub async fn serve(request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    assert_eq!(request.headers()["user-agent"], "loadline", "{path}");
    // Whoever gives a request up takes no response.
    let _: Option<()> = match path.strip_prefix("/bytes/") {
        Some(len) => known(len.parse().unwrap(), respond).await,
        None => echo(request.into_body(), respond).await,
    };
}

/// Content whose length is known.
async fn known(len: usize, mut respond: SendResponse<Bytes>) -> Option<()> {
    let head = Response::builder().header("content-length", len);
    let mut stream = respond
        .send_response(head.body(()).unwrap(), len == 0)
        .ok()?;
    if len > 0 {
        let mut content = Bytes::from(pattern(len));
        let last = content.split_off(len - 1);
        send(&mut stream, content).await?;
        stream.send_data(last, true).ok()?;
    }
    Some(())
}

/// Content as it comes, and how much it was in a trailer.
async fn echo(mut body: RecvStream, mut respond: SendResponse<Bytes>) -> Option<()> {
    let mut stream = respond.send_response(Response::new(()), false).ok()?;
    let mut len = 0;
    while let Some(piece) = body.data().await {
        let piece = piece.ok()?;
        len += piece.len();
        body.flow_control().release_capacity(piece.len()).ok()?;
        send(&mut stream, piece).await?;
    }
    stream.send_trailers(sum(len)).ok()
}

/// A trailer that says a length.
pub fn sum(len: usize) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from(len));
    trailers
}
