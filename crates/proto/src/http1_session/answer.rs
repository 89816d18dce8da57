//! From a handler's answer to output: error pages, encoding, counting.

use super::encode::{self, After};
use crate::error_pages::fill_error_page;
use crate::progress::Progress;
use crate::{Body, Context, Exchange, SessionConfig};

/// Puts the answer of `exchange` into the output of `progress`, unless the handler has done so;
/// returns whether the connection stays open after it.
pub(crate) fn take_over(
    exchange: &mut Exchange,
    progress: &mut Progress,
    draining: bool,
    config: &SessionConfig,
    cx: &mut Context<'_>,
) -> bool {
    cx.counters.answer_to(exchange);
    let response = &mut exchange.response;
    let persist = exchange.persist && !response.close;
    if let Body::Encoded { len } = response.body {
        progress.content_len = len;
        return persist; // as its head says: a drain that began since then closes it when idle
    }
    fill_error_page(response, &config.error_pages);
    let persist = persist && !progress.is_last(draining);
    let after = After::new(persist, exchange.promised_s);
    progress.content_len = encode::answer(
        exchange,
        after,
        &mut progress.output,
        &mut progress.segments,
        &config.limits,
        cx,
    );
    persist
}
