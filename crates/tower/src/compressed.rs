//! Compression of a service's responses while they stream.
//!
//! It happens where the content is polled: by a worker, or by the connection's own thread. Where a loop polls
//! the service, since there are no workers, responses stay as they are.

mod body;
mod rules;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use loadline_base::MemoryBudget;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::Body;
use body::Encoders;
use rules::Asked;

pub use body::{CompressedBody, CompressedData};

/// An extension of requests to compressed services: an event loop polls them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolledByLoop;

/// A service whose responses are compressed. See [`Tower::compressed`](crate::Tower::compressed).
#[derive(Clone, Debug)]
pub struct Compressed<S> {
    service: S,
    /// Also what may have secrets of one client in it.
    with_credentials: bool,
    encoders: Arc<Encoders>,
}

impl<S> Compressed<S> {
    pub(crate) fn new(service: S, with_credentials: bool) -> Self {
        Self {
            service,
            with_credentials,
            encoders: Arc::default(),
        }
    }

    /// Whose encoders count towards this budget.
    pub(crate) fn within(self, memory: Arc<MemoryBudget>) -> Self {
        Self {
            encoders: Arc::new(Encoders::within(memory)),
            ..self
        }
    }
}

impl<S, B> Service<Request<Body>> for Compressed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    B: http_body::Body,
{
    type Response = Response<CompressedBody<B>>;
    type Error = S::Error;
    type Future = CompressedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_off = request.extensions().get::<PolledByLoop>().is_some();
        let compression = (!is_off).then(|| Compression {
            asked: Asked::of(&request),
            with_credentials: self.with_credentials,
            encoders: Arc::clone(&self.encoders),
        });
        CompressedFuture {
            future: self.service.call(request),
            compression,
        }
    }
}

pin_project! {
    /// The response of a compressed service, on its way.
    pub struct CompressedFuture<F> {
        #[pin]
        future: F,
        compression: Option<Compression>,
    }
}

impl<F, B, E> Future for CompressedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: http_body::Body,
{
    type Output = Result<Response<CompressedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(context));
        Poll::Ready(response.map(|response| match this.compression.take() {
            Some(compression) => compression.apply(response),
            None => response.map(CompressedBody::as_is),
        }))
    }
}

/// How the response to one request may be compressed.
struct Compression {
    asked: Asked,
    with_credentials: bool,
    encoders: Arc<Encoders>,
}

impl Compression {
    fn apply<B: http_body::Body>(self, response: Response<B>) -> Response<CompressedBody<B>> {
        let (mut head, body) = response.into_parts();
        let headers = &mut head.headers;
        let len = self.asked.content_len(headers, body.size_hint().exact());
        if head.status == StatusCode::NOT_MODIFIED {
            self.asked.not_modified(headers);
        }
        if !rules::is_compressible(head.status, headers, len) {
            return Response::from_parts(head, CompressedBody::as_is(body));
        }
        rules::vary_by_coding(headers);
        let coding = self.asked.coding(headers, len, self.with_credentials);
        let body = match coding.token() {
            None => CompressedBody::as_is(body),
            Some(token) if self.asked.is_head => {
                rules::say_coding(headers, token);
                CompressedBody::unsent(body)
            }
            Some(token) => match self.encoders.begin(coding, len) {
                Some(encoding) => {
                    rules::say_coding(headers, token);
                    CompressedBody::encoded(body, encoding)
                }
                None => CompressedBody::as_is(body),
            },
        };
        Response::from_parts(head, body)
    }
}
