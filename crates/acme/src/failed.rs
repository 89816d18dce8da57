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
    /// Whether the order can be gone on with. One that is lost can, if its certificate may exist.
    pub(crate) keeps_order: bool,
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
            ..Self::refused("the authority has not finished the order yet")
        }
    }

    /// By what the library says, and the status of the response.
    pub(crate) fn of(error: &Error, status: Option<u16>) -> Self {
        let why = match error {
            Error::Api(problem) => of_problem(problem, status),
            Error::Other(inner) if inner.downcast_ref::<HttpError>().is_none() => {
                Why::Failed(Reason::Refused)
            }
            Error::Crypto | Error::KeyRejected | Error::Unsupported(_) => {
                Why::Failed(Reason::Refused)
            }
            _ => Why::Failed(Reason::Unreachable), // a response that no authority gives
        };
        let message = match error {
            Error::Api(problem) if kind(problem) == "externalAccountRequired" => format!(
                "{}: it issues certificates only to holders of an account with it (external account \
                 binding)",
                said(problem)
            ),
            Error::Api(problem) => said(problem),
            error => error.to_string(),
        };
        Self {
            keeps_order: matches!(why, Why::Failed(Reason::Unreachable | Reason::RateLimited)),
            ..Self::new(why, message)
        }
    }

    /// The same where no authority would respond so, but to a request about one name's order: nothing is wrong
    /// with the others.
    pub(crate) fn of_order(self) -> Self {
        match self.why {
            Why::Failed(Reason::Unreachable) => Self {
                why: Why::Failed(Reason::Refused),
                ..self
            },
            _ => self,
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

/// By the types of RFC 8555 section 6.7. A problem need not repeat the status (RFC 9457 section 3.1.2).
fn of_problem(problem: &Problem, status: Option<u16>) -> Why {
    match kind(problem) {
        "accountDoesNotExist" => Why::AccountLost,
        "rateLimited" => Why::Failed(Reason::RateLimited),
        // The library has tried three nonces: an authority that takes none is not well.
        "badNonce" | "serverInternal" => Why::Failed(Reason::Unreachable),
        _ if status.is_some_and(|it| it >= 500) => Why::Failed(Reason::Unreachable),
        _ => Why::Failed(Reason::Refused),
    }
}

/// Whether an authority has said it: gateways have types of problems, too, or none.
pub(crate) fn is_of_authority(problem: &Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.starts_with("urn:ietf:params:acme:")
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

    fn problem(json: &str, status: u16) -> Failed {
        Failed::of(
            &Error::Api(serde_json::from_str(json).unwrap()),
            Some(status),
        )
    }

    #[test]
    fn problems_by_what_is_to_be_done() {
        let kind = |name: &str| format!(r#"{{"type":"urn:ietf:params:acme:error:{name}"}}"#);
        for (json, status, why) in [
            (kind("accountDoesNotExist"), 400, Why::AccountLost),
            (kind("rateLimited"), 429, Why::Failed(Reason::RateLimited)),
            (kind("rateLimited"), 503, Why::Failed(Reason::RateLimited)),
            (kind("badNonce"), 400, Why::Failed(Reason::Unreachable)),
            (
                kind("rejectedIdentifier"),
                403,
                Why::Failed(Reason::Refused),
            ),
            ("{}".into(), 403, Why::Failed(Reason::Refused)),
            // What is at fault is in the status of the response, whatever is in the problem.
            ("{}".into(), 503, Why::Failed(Reason::Unreachable)),
            (kind("malformed"), 500, Why::Failed(Reason::Unreachable)),
            (
                r#"{"status":503}"#.into(),
                403,
                Why::Failed(Reason::Refused),
            ),
        ] {
            assert_eq!(problem(&json, status).why, why, "{json}, {status}");
        }
    }

    #[test]
    fn problems_of_an_authority_and_of_others() {
        for (json, expected) in [
            (r#"{"type":"urn:ietf:params:acme:error:malformed"}"#, true),
            (r#"{"type":"about:blank","title":"Not Found"}"#, false),
            (r#"{"message":"no route"}"#, false),
        ] {
            let problem = serde_json::from_str(json).unwrap();
            assert_eq!(is_of_authority(&problem), expected, "{json}");
        }
    }

    #[test]
    fn a_page_about_an_order_is_a_failure_of_its_name_that_keeps_it() {
        let host = "a.example".to_owned();
        let error = Error::Other(Box::new(HttpError::Status { host, status: 403 }));
        let failed = Failed::of(&error, Some(403));
        assert_eq!(failed.why, Why::Failed(Reason::Unreachable));
        let failed = failed.of_order();
        assert_eq!(failed.why, Why::Failed(Reason::Refused));
        assert!(failed.keeps_order);
    }

    #[test]
    fn what_an_authority_says_is_one_line() {
        let said = problem("{\"detail\":\"no\\n\\u001b[31mway\",\"type\":\"t\"}", 403).message;
        assert_eq!(said, "no  [31mway (t)");
        let long = format!("{{\"detail\":\"{}\"}}", "x".repeat(5000));
        let long = problem(&long, 403).message;
        assert_eq!(long.len(), MESSAGE_LEN_MAX);
    }
}
