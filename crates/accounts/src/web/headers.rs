//! Fields that every answer has: what a browser may do with these pages.

use axum::Extension;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

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
    (header::CACHE_CONTROL, "no-store"),
];

/// A year, as ASVS 3.4.1 asks for; only where the request came by TLS, for the host it came for.
const TRANSPORT: &str = "max-age=31536000";

pub(super) async fn secure(
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
    if visitor.is_secure {
        let transport = HeaderValue::from_static(TRANSPORT);
        fields.insert(header::STRICT_TRANSPORT_SECURITY, transport);
    }
    response
}
