//! Status codes and their reason phrases (RFC 9110 section 15).

/// A status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal,)*) => {
        impl Status {
            $(
                #[doc = concat!(stringify!($code), " ", $reason)]
                pub const $name: Self = Self($code);
            )*

            /// The reason phrase; empty for a code that is not in the table.
            #[must_use]
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }

            /// The status line in front of its fields, for the codes in the table.
            #[must_use]
            pub fn line(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),)*
                    _ => None,
                }
            }

            /// Every status in the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

statuses! {
    100 CONTINUE "Continue",
    200 OK "OK",
    201 CREATED "Created",
    202 ACCEPTED "Accepted",
    204 NO_CONTENT "No Content",
    206 PARTIAL_CONTENT "Partial Content",
    301 MOVED_PERMANENTLY "Moved Permanently",
    302 FOUND "Found",
    303 SEE_OTHER "See Other",
    304 NOT_MODIFIED "Not Modified",
    307 TEMPORARY_REDIRECT "Temporary Redirect",
    308 PERMANENT_REDIRECT "Permanent Redirect",
    400 BAD_REQUEST "Bad Request",
    401 UNAUTHORIZED "Unauthorized",
    403 FORBIDDEN "Forbidden",
    404 NOT_FOUND "Not Found",
    405 METHOD_NOT_ALLOWED "Method Not Allowed",
    406 NOT_ACCEPTABLE "Not Acceptable",
    408 REQUEST_TIMEOUT "Request Timeout",
    409 CONFLICT "Conflict",
    410 GONE "Gone",
    411 LENGTH_REQUIRED "Length Required",
    412 PRECONDITION_FAILED "Precondition Failed",
    413 CONTENT_TOO_LARGE "Content Too Large",
    414 URI_TOO_LONG "URI Too Long",
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type",
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable",
    417 EXPECTATION_FAILED "Expectation Failed",
    421 MISDIRECTED_REQUEST "Misdirected Request",
    422 UNPROCESSABLE_CONTENT "Unprocessable Content",
    425 TOO_EARLY "Too Early",
    426 UPGRADE_REQUIRED "Upgrade Required",
    429 TOO_MANY_REQUESTS "Too Many Requests",
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large",
    500 INTERNAL_SERVER_ERROR "Internal Server Error",
    501 NOT_IMPLEMENTED "Not Implemented",
    502 BAD_GATEWAY "Bad Gateway",
    503 SERVICE_UNAVAILABLE "Service Unavailable",
    504 GATEWAY_TIMEOUT "Gateway Timeout",
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported",
}

impl Status {
    /// The status with this code; `None` outside 100..=999.
    #[must_use]
    pub fn new(code: u16) -> Option<Self> {
        (100..=999).contains(&code).then_some(Self(code))
    }

    /// The code as a number.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0
    }

    /// Whether it is a 4xx or 5xx.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.0 >= 400
    }

    /// Whether an answer with this status never has content (RFC 9110 section 6.4.1).
    #[must_use]
    pub fn has_no_content(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}
