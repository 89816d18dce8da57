//! The built-in error pages.

use loadline_proto::{ErrorPages, Status};

/// Pages for every error status. Put your own over single ones with `ErrorPages::set`.
#[must_use]
pub fn error_pages() -> ErrorPages {
    ErrorPages::new("text/html; charset=utf-8", page)
}

fn page(status: Status) -> Vec<u8> {
    let _ = status;
    unimplemented!()
}
