//! Request methods (RFC 9110 section 9, RFC 5789).

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// Any other token; `Request::method_name` has it. For apps alone: whatever else a handler makes
    /// of it is answered with 501.
    Other,
}

impl Method {
    /// The method by its name, which is case-sensitive; `None` if it is none of RFC 9110 and 5789.
    #[must_use]
    pub fn from_token(token: &[u8]) -> Option<Self> {
        Some(match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => return None,
        })
    }

    /// Whether it asks for nothing but an answer (RFC 9110 section 9.2.1), as far as it is served here.
    #[must_use]
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options)
    }

    /// The name on the wire; of `Other` nothing.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other => "",
        }
    }
}
