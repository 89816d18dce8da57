//! A handler that answers with the request.

use loadline_proto::{Body, Context, Exchange, Outcome, RequestBody};

/// Answers every request with its method, target and content; collects what content there is.
pub fn echo(exchange: &mut Exchange, _cx: &mut Context<'_>) -> Outcome {
    if matches!(exchange.request.body, RequestBody::Pending { .. }) {
        return Outcome::Collect {
            bytes_max: u64::MAX,
        };
    }
    echo_blocking(exchange);
    Outcome::Ready
}

/// The same as a blocking step.
pub fn echo_blocking(exchange: &mut Exchange) {
    let mut body = format!("{} ", exchange.request.method.as_str()).into_bytes();
    body.extend_from_slice(exchange.request.target());
    if let RequestBody::Whole(content) = &exchange.request.body {
        body.push(b' ');
        body.extend_from_slice(content);
    }
    exchange.response.field("Content-Type", "text/plain");
    exchange.response.body = Body::Bytes(body);
}
