//! The page that goes with an error status, made ready at start.

use std::sync::Arc;

use crate::{Body, Fields, Response, Status};

/// Content of error answers, by status. The texts come from outside (the apps have good-looking
/// ones); here they are only kept.
#[derive(Clone, Debug)]
pub struct ErrorPages {
    /// By status.
    pages: Vec<ErrorPage>,
}

#[derive(Clone, Debug)]
struct ErrorPage {
    status: Status,
    content_type: Arc<str>,
    content: Arc<[u8]>,
    /// What is said of it.
    fields: Fields,
}

impl ErrorPage {
    fn new(status: Status, content_type: Arc<str>, content: Arc<[u8]>) -> Self {
        Self {
            status,
            fields: Fields::default().with("Content-Type", content_type.as_bytes()),
            content_type,
            content,
        }
    }
}

impl ErrorPages {
    /// Plain one-line texts.
    #[must_use]
    pub fn plain() -> Self {
        Self::new("text/plain; charset=utf-8", |status| {
            format!("{} {}\n", status.code(), status.reason()).into_bytes()
        })
    }

    /// A page for every error status, made by `page`.
    #[must_use]
    pub fn new(content_type: &str, page: impl Fn(Status) -> Vec<u8>) -> Self {
        let content_type: Arc<str> = Arc::from(content_type);
        let errors = Status::ALL
            .iter()
            .copied()
            .filter(|status| status.is_error());
        let pages = errors
            .map(|status| {
                ErrorPage::new(status, Arc::clone(&content_type), Arc::from(page(status)))
            })
            .collect();
        Self { pages }
    }

    /// Puts a page of your own in place of the one for `status`.
    ///
    /// # Panics
    /// If the status is no error, or the content type has characters that cannot stand in a field.
    pub fn set(&mut self, status: Status, content_type: &str, content: impl Into<Arc<[u8]>>) {
        assert!(status.is_error(), "{} is no error", status.code());
        let printable = |byte: u8| (b' '..=b'~').contains(&byte);
        assert!(content_type.bytes().all(printable), "{content_type:?}");
        let page = ErrorPage::new(status, Arc::from(content_type), content.into());
        match self.position(status) {
            Ok(at) => self.pages[at] = page,
            Err(at) => self.pages.insert(at, page),
        }
    }

    /// Content type and content for a status; `None` if it has no page.
    #[must_use]
    pub fn page(&self, status: Status) -> Option<(&str, &Arc<[u8]>)> {
        let page = self.of(status)?;
        Some((&page.content_type, &page.content))
    }

    fn of(&self, status: Status) -> Option<&ErrorPage> {
        self.pages.get(self.position(status).ok()?)
    }

    /// Where its page is, or belongs.
    fn position(&self, status: Status) -> Result<usize, usize> {
        self.pages.binary_search_by_key(&status, |page| page.status)
    }
}

/// An error without content gets the page of its status.
pub(crate) fn fill_error_page(response: &mut Response, pages: &ErrorPages) {
    if !response.status.is_error() || !matches!(response.body, Body::Empty) {
        return;
    }
    if let Some(page) = pages.of(response.status) {
        response.fields.append(&page.fields, 0);
        response.body = Body::Shared {
            bytes: Arc::clone(&page.content),
            start: 0,
            end: page.content.len(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_your_own_replaces_the_built_in_one_alone() {
        let mut pages = ErrorPages::plain();
        assert_eq!(
            &**pages.page(Status::NOT_FOUND).unwrap().1,
            b"404 Not Found\n"
        );
        pages.set(Status::NOT_FOUND, "text/html", b"<p>gone".to_vec());
        pages.set(Status::NOT_FOUND, "image/png", b"picture".to_vec());
        let (content_type, content) = pages.page(Status::NOT_FOUND).unwrap();
        assert_eq!((content_type, &**content), ("image/png", &b"picture"[..]));
        let (content_type, _) = pages.page(Status::BAD_REQUEST).unwrap();
        assert_eq!(content_type, "text/plain; charset=utf-8");
    }

    #[test]
    fn only_errors_have_pages() {
        let pages = ErrorPages::plain();
        for status in Status::ALL {
            assert_eq!(
                pages.page(*status).is_some(),
                status.is_error(),
                "{status:?}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "200 is no error")]
    fn a_page_for_a_success_is_a_bug() {
        ErrorPages::plain().set(Status::OK, "text/html", Vec::new());
    }

    #[test]
    #[should_panic(expected = "text/html")]
    fn a_content_type_cannot_end_its_line() {
        ErrorPages::plain().set(Status::NOT_FOUND, "text/html\r\nX: y", Vec::new());
    }
}
