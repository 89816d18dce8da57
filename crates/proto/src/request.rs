//! A request as data: one byte buffer and offsets into it, so that it can be moved freely.

use crate::{Fields, Method};

/// A range of the request's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes of `head` that this names.
    #[must_use]
    pub fn of(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..self.end as usize]
    }

    /// Whether it names nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The version that the client speaks; later minor versions count as 1.1 (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

/// The four forms of a request target (RFC 9112 section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, for CONNECT only
    Authority,
    /// `*`, for OPTIONS only
    Asterisk,
}

macro_rules! field_names {
    ($($variant:ident $name:literal,)*) => {
        /// Fields that the core or the static handler look up. Recognised once, at parsing, so that
        /// a look-up compares one byte.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are the standard's")]
        pub enum FieldName {
            #[default]
            Other,
            $($variant,)*
        }

        impl FieldName {
            /// Recognises a name in any case.
            #[must_use]
            pub fn from_bytes(name: &[u8]) -> Self {
                $(if name.len() == $name.len() && name.eq_ignore_ascii_case($name) {
                    return Self::$variant;
                })*
                Self::Other
            }

            /// The same for a name in lower case, as HTTP/2 has them. Only a valid one is recognised.
            #[inline]
            pub(crate) fn from_lower_case(name: &[u8]) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    _ => Self::Other,
                }
            }

            /// A set of names as a bit mask, for `Request::has_any`.
            #[must_use]
            pub const fn set(names: &[Self]) -> u32 {
                let mut bits = 0;
                let mut index = 0;
                while index < names.len() {
                    bits |= 1 << names[index] as u32;
                    index += 1;
                }
                bits
            }
        }
    };
}

field_names! {
    Host b"host",
    ContentLength b"content-length",
    TransferEncoding b"transfer-encoding",
    Connection b"connection",
    Expect b"expect",
    AcceptEncoding b"accept-encoding",
    Range b"range",
    IfRange b"if-range",
    IfMatch b"if-match",
    IfNoneMatch b"if-none-match",
    IfModifiedSince b"if-modified-since",
    IfUnmodifiedSince b"if-unmodified-since",
    Accept b"accept",
    Cookie b"cookie",
    ContentType b"content-type",
    Origin b"origin",
    Referer b"referer",
    UserAgent b"user-agent",
    Upgrade b"upgrade",
    Authorization b"authorization",
    CacheControl b"cache-control",
}

/// One field line of the head.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name if it is one of those recognised.
    pub known: FieldName,
    /// The name as it came.
    pub name: Span,
    /// The value without surrounding white space.
    pub value: Span,
}

/// The content of a request.
#[derive(Debug, Default)]
pub enum RequestBody {
    /// There is none.
    #[default]
    Empty,
    /// It follows; `len` if the head announced it (else it is chunked). Ask for it with
    /// `Outcome::Collect`.
    Pending {
        /// Bytes that will come.
        len: Option<u64>,
    },
    /// All of it, decoded; what `Collect` asked for.
    Whole(Vec<u8>),
}

/// A request. Everything in it has been checked against RFC 9110 and 9112.
#[derive(Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The version the client speaks.
    pub version: Version,
    /// Which form the target has.
    pub form: TargetForm,
    /// The content.
    pub body: RequestBody,
    /// Fields that came behind the content, if all of it was gathered (`RequestBody::Whole`). An app's task
    /// gets them by its port. They are no part of the head: what has to be known before the content, as
    /// routing and credentials have, is never among them.
    pub trailers: Option<Box<Fields>>,
    /// What the spans are of: the request line and its end, and the text of the fields behind it. What
    /// stands between those is not said: HTTP/1 has its head here, HTTP/2 only names and values.
    pub(crate) head: Vec<u8>,
    pub(crate) target: Span,
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    pub(crate) authority: Span,
    pub(crate) fields: Vec<Field>,
    pub(crate) known: u32,
}

impl Request {
    /// The target as it came.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.target.of(&self.head)
    }

    /// The request line as it came, without its end; what there is of it if it was refused.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        let end = memchr::memchr2(b'\r', b'\n', &self.head).unwrap_or(self.head.len());
        &self.head[..end]
    }

    /// The method's name as it came.
    #[must_use]
    pub fn method_name(&self) -> &[u8] {
        match self.method {
            Method::Other => {
                let line = self.line();
                &line[..memchr::memchr(b' ', line).unwrap_or(line.len())]
            }
            known => known.as_str().as_bytes(),
        }
    }

    /// The path as it came, not decoded: begins with `/` (also in absolute
    /// form), is `*` in asterisk form and empty in authority form.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path.of(&self.head)
    }

    /// What follows the first `?`, not decoded.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|query| query.of(&self.head))
    }

    /// Host and port: from an absolute target, else from the Host field; empty if there is none.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.authority.of(&self.head)
    }

    /// The fields in the order they came.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .iter()
            .map(|field| (field.name.of(&self.head), field.value.of(&self.head)))
    }

    /// The first field of this name.
    #[must_use]
    pub fn field(&self, name: FieldName) -> Option<&[u8]> {
        self.field_values(name).next()
    }

    /// Every value of this name in order: together they are one comma-separated list.
    pub fn field_values(&self, name: FieldName) -> impl Iterator<Item = &[u8]> {
        let present = name != FieldName::Other && self.has_any(FieldName::set(&[name]));
        let fields: &[Field] = if present { &self.fields } else { &[] };
        fields
            .iter()
            .filter(move |field| field.known == name)
            .map(|f| f.value.of(&self.head))
    }

    /// Every value of a name that need not be a known one, the last first.
    pub(crate) fn field_lines_from_the_end(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let lines = self.fields.iter().rev();
        lines
            .filter(move |field| field.name.of(&self.head).eq_ignore_ascii_case(name))
            .map(|field| field.value.of(&self.head))
    }

    /// Whether one of a set of names (see `FieldName::set`) is there: one instruction.
    #[must_use]
    pub fn has_any(&self, set: u32) -> bool {
        self.known & set != 0
    }

    /// Appends a field whose name and value were checked.
    pub(crate) fn push_field(&mut self, known: FieldName, name: &[u8], value: &[u8]) {
        let mut append = |text: &[u8]| {
            let start = self.head.len() as u32; // heads are bounded, far below 4 GiB
            self.head.extend_from_slice(text);
            let end = self.head.len() as u32;
            Span { start, end }
        };
        let field = Field {
            known,
            name: append(name),
            value: append(value),
        };
        self.known |= 1 << known as u32;
        self.fields.push(field);
    }

    /// Becomes a copy of another, without its content.
    pub(crate) fn copy_head(&mut self, other: &Self) {
        self.clear();
        self.method = other.method;
        self.version = other.version;
        self.form = other.form;
        self.head.extend_from_slice(&other.head);
        self.fields.extend_from_slice(&other.fields);
        self.target = other.target;
        self.path = other.path;
        self.authority = other.authority;
        self.query = other.query;
        self.known = other.known;
    }

    /// Empties it for the next request, keeping its memory.
    pub(crate) fn clear(&mut self) {
        // An error before these are parsed must not be answered as the last request was: without
        // content after a HEAD, say.
        self.method = Method::Get;
        self.version = Version::Http11;
        self.form = TargetForm::Origin;
        self.head.clear();
        self.fields.clear();
        self.body = RequestBody::Empty;
        self.trailers = None;
        self.target = Span::default();
        self.path = Span::default();
        self.authority = Span::default();
        self.query = None;
        self.known = 0;
    }
}
