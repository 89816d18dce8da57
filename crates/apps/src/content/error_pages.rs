//! The built-in error pages: one file each, small, light or dark as the reader's system is.

use loadline_proto::{ErrorPages, Status};

/// Pages for every error status. Put your own over single ones with `ErrorPages::set`.
#[must_use]
pub fn error_pages() -> ErrorPages {
    ErrorPages::new("text/html; charset=utf-8", page)
}

fn page(status: Status) -> Vec<u8> {
    TEMPLATE
        .replace("{code}", &status.code().to_string())
        .replace("{reason}", status.reason())
        .replace("{advice}", advice(status))
        .into_bytes()
}

/// One sentence for the reader: what happened, and what to do.
fn advice(status: Status) -> &'static str {
    match status {
        Status::BAD_REQUEST => "The browser sent something that cannot be understood.",
        Status::UNAUTHORIZED => "You need to log in to see this.",
        Status::FORBIDDEN => "This is here, but not for you to see.",
        Status::NOT_FOUND => {
            "There is nothing at this address. It may have moved, or the link is wrong."
        }
        Status::METHOD_NOT_ALLOWED => "This can be read, but not be changed.",
        Status::REQUEST_TIMEOUT => "The request took too long to arrive. Please try again.",
        Status::GONE => "This was here once and will not come back.",
        Status::CONTENT_TOO_LARGE => "What was sent is larger than this server takes.",
        Status::URI_TOO_LONG => "The address is longer than this server takes.",
        Status::TOO_MANY_REQUESTS => "Too much at once. Please wait a little and try again.",
        Status::RANGE_NOT_SATISFIABLE => "The part that was asked for lies beyond the end.",
        Status::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "The browser sent too much along with the request; clearing the cookies of this site may help."
        }
        Status::INTERNAL_SERVER_ERROR => "Something went wrong here. It is not your fault.",
        Status::NOT_IMPLEMENTED => "This server does not know how to do that.",
        Status::SERVICE_UNAVAILABLE => {
            "The server is busy right now. Please try again in a moment."
        }
        Status::BAD_GATEWAY | Status::GATEWAY_TIMEOUT => {
            "A server behind this one does not answer. Please try again in a moment."
        }
        other if other.code() >= 500 => "The server could not do what was asked.",
        _ => "The server did not take this request.",
    }
}

/// The mark is a load line, as on the side of a ship.
const TEMPLATE: &str = include_str!("error_pages/page.html");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_small_page_of_its_own() {
        let pages = error_pages();
        let mut titles = Vec::new();
        for status in Status::ALL.iter().filter(|status| status.is_error()) {
            let (content_type, page) = pages.page(*status).unwrap();
            assert_eq!(content_type, "text/html; charset=utf-8");
            assert!(page.len() < 2048, "{status:?}: {} bytes", page.len());
            let text = std::str::from_utf8(page).unwrap();
            let title = format!("<title>{} {}</title>", status.code(), status.reason());
            assert!(text.contains(&title), "{status:?}");
            assert!(text.contains(&format!("<p>{}</p>", advice(*status))));
            assert!(!text.contains("{code}") && !text.contains("{reason}"));
            titles.push(title);
        }
        titles.dedup();
        assert!(titles.len() > 20);
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let text = String::from_utf8(page(Status::NOT_FOUND)).unwrap();
        for outside in ["src=", "url(", "<link", "<script", "http:", "https:"] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert!(text.contains("prefers-color-scheme:dark"));
    }
}
