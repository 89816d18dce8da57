//! From a handler's answer to output: error pages, encoding, counting.

use crate::http1::encode;
use crate::progress::Progress;
use crate::{Body, Exchange, Method, SessionConfig, Turn};

/// Encodes the answer of `exchange` into the output of `progress`; returns whether the connection
/// stays open after it.
pub(crate) fn take_over(
    exchange: &mut Exchange,
    progress: &mut Progress,
    last: bool,
    config: &SessionConfig,
    turn: &mut Turn<'_>,
) -> bool {
    turn.counters.answer(exchange.response.status);
    let mut persist = exchange.persist && !exchange.response.close;
    if matches!(exchange.response.body, Body::Encoded) {
        let is_head = exchange.request.method == Method::Head;
        progress.content_len = exchange
            .response
            .stated_len
            .filter(|_| !is_head)
            .unwrap_or(0);
        if persist && last {
            // The drain began after the head was encoded, before it left.
            let was_kept = exchange.says_keep_alive();
            encode::insert_close(&mut exchange.output, exchange.lent_bytes, was_kept);
            persist = false;
        }
    } else {
        // What was encoded before the handler thought better of it (a panic, a full queue): one
        // request gets one answer.
        exchange.output.truncate(exchange.lent_bytes);
        persist &= !last;
        fill_error_page(exchange, config);
        let limits = &config.limits;
        let segments = &mut progress.segments;
        progress.content_len = encode::answer(exchange, persist, limits, segments, turn);
    }
    progress.output = std::mem::take(&mut exchange.output);
    persist
}

/// An error without content gets the page of its status.
fn fill_error_page(exchange: &mut Exchange, config: &SessionConfig) {
    let response = &mut exchange.response;
    if !response.status.is_error() || !matches!(response.body, Body::Empty) {
        return;
    }
    if let Some((content_type, page)) = config.error_pages.page(response.status) {
        response.field("Content-Type", content_type);
        response.body = Body::Shared {
            bytes: std::sync::Arc::clone(page),
            start: 0,
            end: page.len(),
        };
    }
}
