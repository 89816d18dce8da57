//! Fields that every answer has: what a browser may do with these pages. And the field of requests that may
//! be copies.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::App;
use super::visitor::Visitor;

const FIELDS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"), // for browsers that do not know frame-ancestors
    // Not no-referrer: with that, browsers send `Origin: null` with forms.
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
    // Nobody on the way compresses a page with a secret and with what a client has sent: its length would
    // tell the secret piece by piece (BREACH).
    (header::CACHE_CONTROL, "no-store, no-transform"),
];

pub(super) async fn secure(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let fields = response.headers_mut();
    for (name, value) in FIELDS {
        fields
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    // Only where the request came by TLS, for the host it came for.
    if visitor.is_secure
        && let Ok(transport) =
            HeaderValue::try_from(format!("max-age={}", app.options.hsts_max_age_s))
    {
        fields.insert(header::STRICT_TRANSPORT_SECURITY, transport);
    }
    response
}

/// A proxy marks what came before its client's handshake was done: anybody may have recorded it and send it
/// again (RFC 8470). So it changes nothing here, and is to be sent again after the handshake.
pub(super) async fn refuse_early(request: Request, next: Next) -> Response {
    let is_early = request.headers().contains_key("early-data");
    match is_early && !request.method().is_safe() {
        true => StatusCode::TOO_EARLY.into_response(),
        false => next.run(request).await,
    }
}
