//! Why an authority was asked in vain: what its library says, sorted by what is to be done.

use std::time::Duration;

use instant_acme::{Error, Problem};

use crate::Reason;
use crate::error::{AcmeError, HttpError};

/// The longest message of an authority that is passed on, in characters.
const MESSAGE_LEN_MAX: usize = 400;

/// Why there is no certificate this time.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: Why,
    /// In one line.
    pub(crate) message: String,
    /// Whether the order can be gone on with.
    pub(crate) keeps_order: bool,
    /// The authority has answered with nothing to go on with, and may do so without end.
    pub(crate) is_answered: bool,
    pub(crate) retry_after: Option<Duration>,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// To wait.
    Failed(Reason),
    /// To make another account: the authority does not know this one.
    AccountLost,
    /// To order anew: the authority does not know the order.
    OrderLost,
}

impl Failed {
    /// Of an authority that has refused, in our words.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Why::Failed(Reason::Refused), message)
    }

    pub(crate) fn new(why: Why, message: impl Into<String>) -> Self {
        Self {
            why,
            message: one_line(&message.into()),
            keeps_order: why == Why::Failed(Reason::Unreachable),
            is_answered: false,
            retry_after: None,
        }
    }

    /// A file of one name cannot be read or written: nothing is wrong with the others.
    pub(crate) fn of_file(error: AcmeError) -> Self {
        Self {
            keeps_order: true,
            ..Self::refused(error.to_string())
        }
    }

    /// It goes on with the order.
    pub(crate) fn not_yet() -> Self {
        Self {
            keeps_order: true,
            is_answered: true,
            ..Self::refused("the authority has not finished the order yet")
        }
    }
}

/// Without the files that all names share nothing goes on. They are waited for as an authority is.
impl From<AcmeError> for Failed {
    fn from(error: AcmeError) -> Self {
        Self::new(Why::Failed(Reason::Unreachable), error.to_string())
    }
}

impl From<HttpError> for Failed {
    fn from(error: HttpError) -> Self {
        Self::new(Why::Failed(Reason::Unreachable), error.to_string())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let why = match &error {
            Error::Api(problem) => of_problem(problem),
            Error::Other(inner) if inner.downcast_ref::<HttpError>().is_none() => {
                Why::Failed(Reason::Refused)
            }
            Error::Crypto | Error::KeyRejected | Error::Unsupported(_) => {
                Why::Failed(Reason::Refused)
            }
            _ => Why::Failed(Reason::Unreachable), // a response that no authority gives
        };
        let message = match &error {
            Error::Api(problem) if kind(problem) == "externalAccountRequired" => format!(
                "{}: it issues certificates only to holders of an account with it (external account \
                 binding)",
                said(problem)
            ),
            Error::Api(problem) => said(problem),
            error => error.to_string(),
        };
        let is_answered = match &error {
            Error::Json(_) | Error::Str(_) => true,
            Error::Other(inner) => {
                let http = inner.downcast_ref();
                matches!(http, Some(HttpError::Status { status, .. }) if *status < 500)
            }
            _ => false,
        };
        Self {
            keeps_order: matches!(why, Why::Failed(Reason::Unreachable | Reason::RateLimited)),
            is_answered,
            ..Self::new(why, message)
        }
    }
}

/// By the types of RFC 8555 section 6.7.
fn of_problem(problem: &Problem) -> Why {
    match kind(problem) {
        "accountDoesNotExist" => Why::AccountLost,
        "rateLimited" => Why::Failed(Reason::RateLimited),
        // The library has tried three nonces: an authority that takes none is not well.
        "badNonce" | "serverInternal" => Why::Failed(Reason::Unreachable),
        _ if problem.status.is_some_and(|it| it >= 500) => Why::Failed(Reason::Unreachable),
        _ => Why::Failed(Reason::Refused),
    }
}

/// `badNonce` of `urn:ietf:params:acme:error:badNonce`.
fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.rsplit(':').next().unwrap_or_default()
}

/// An authority's own words.
pub(crate) fn said(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_default();
    for sub in &problem.subproblems {
        text.push_str(&format!("; {sub}"));
    }
    match &problem.r#type {
        Some(kind) => format!("{text} ({kind})"),
        None => text,
    }
}

fn one_line(text: &str) -> String {
    let plain = |it: char| if it.is_control() { ' ' } else { it };
    text.chars().map(plain).take(MESSAGE_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Failed {
        Error::Api(serde_json::from_str(json).unwrap()).into()
    }

    #[test]
    fn problems_by_what_is_to_be_done() {
        let kind = |name: &str| format!(r#"{{"type":"urn:ietf:params:acme:error:{name}"}}"#);
        for (json, why) in [
            (kind("accountDoesNotExist"), Why::AccountLost),
            (kind("rateLimited"), Why::Failed(Reason::RateLimited)),
            (kind("badNonce"), Why::Failed(Reason::Unreachable)),
            (kind("rejectedIdentifier"), Why::Failed(Reason::Refused)),
            (r#"{"status":503}"#.into(), Why::Failed(Reason::Unreachable)),
            (r#"{"status":403}"#.into(), Why::Failed(Reason::Refused)),
            ("{}".into(), Why::Failed(Reason::Refused)),
        ] {
            assert_eq!(problem(&json).why, why, "{json}");
        }
    }

    #[test]
    fn a_page_in_place_of_a_problem_is_an_answer_unless_the_authority_has_failed() {
        for (status, expected) in [(404, true), (403, true), (500, false), (503, false)] {
            let host = "a.example".to_owned();
            let failed = Failed::from(Error::Other(Box::new(HttpError::Status { host, status })));
            assert_eq!(failed.why, Why::Failed(Reason::Unreachable));
            assert_eq!((failed.is_answered, failed.keeps_order), (expected, true));
        }
    }

    #[test]
    fn what_an_authority_says_is_one_line() {
        let said = problem("{\"detail\":\"no\\n\\u001b[31mway\",\"type\":\"t\"}").message;
        assert_eq!(said, "no  [31mway (t)");
        let long = problem(&format!("{{\"detail\":\"{}\"}}", "x".repeat(5000))).message;
        assert_eq!(long.len(), MESSAGE_LEN_MAX);
    }
}
