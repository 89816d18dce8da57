//! The page that goes with an error status, made ready at start.

use std::sync::Arc;

use crate::Status;

/// Content of error answers, by status. The texts come from outside (the apps have good-looking
/// ones); here they are only kept.
#[derive(Clone, Debug)]
pub struct ErrorPages {
    content_type: &'static str,
    pages: Vec<(Status, Arc<[u8]>)>,
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
    pub fn new(content_type: &'static str, page: impl Fn(Status) -> Vec<u8>) -> Self {
        let errors = Status::ALL
            .iter()
            .copied()
            .filter(|status| status.is_error());
        let pages = errors
            .map(|status| (status, Arc::from(page(status))))
            .collect();
        Self {
            content_type,
            pages,
        }
    }

    /// Content type and content for a status; `None` if it has no page.
    #[must_use]
    pub fn page(&self, status: Status) -> Option<(&'static str, &Arc<[u8]>)> {
        let (_, page) = self.pages.iter().find(|(of, _)| *of == status)?;
        Some((self.content_type, page))
    }
}
