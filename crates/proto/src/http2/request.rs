//! From decoded fields to a request (RFC 9113 sections 8.2 and 8.3).
//!
//! Fields join the request as they are decoded, each byte checked once. What HTTP/1 refuses in a head of the
//! same fields is refused here with the same answer, and a handler sees no difference. What HTTP/2 calls
//! malformed comes first, wherever it stands.

use super::field::{check_name, check_value, is_of_connection};
use crate::ascii::is_token_byte;
use crate::http1::{self, HeadFacts, forwarded, is_text, target_end};
use crate::request::{Span, Version};
use crate::{Fault, FieldName, Limits, Method, Request, Security, Status};

/// What a field counts in a list of fields beside its name and value (section 6.5.2).
const FIELD_BYTES: usize = 32;
/// Of the version in the request line, which a log shows.
const VERSION: &[u8] = b" HTTP/2.0\r\n";

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// It is malformed: a stream error of the type `PROTOCOL_ERROR` (section 8.1.1).
    Malformed(&'static str),
    /// It is refused with an answer.
    Refused(Fault),
}

use RequestError::Malformed;

/// Over what a request has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CameOver<'a> {
    /// A trusted proxy's connection, which says nothing of its client's.
    Proxy,
    /// A connection in plain text.
    Plain,
    /// One whose bytes are encrypted.
    Secure(&'a Security),
}

/// Collects the fields of one request. To be used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct RequestFields {
    /// Values of the pseudo-fields, and what they are of.
    pseudo: Vec<u8>,
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    /// Cookies that came in several fields are one (section 8.2.3).
    cookie: Vec<u8>,
    cookie_has_control: bool,
    /// The size of the list so far, which bounds cookies in many fields.
    list_bytes: usize,
    count: usize,
    has_regular: bool,
    /// A field that names a proxy's client could not be kept: the last one counts, and others may be the client's own.
    has_lost_client: bool,
    /// Why it is malformed, or larger than allowed.
    error: Option<RequestError>,
    /// Why it is refused if it is neither: what HTTP/1 would say first.
    fault: Option<Fault>,
}

impl RequestFields {
    /// Another request begins.
    pub(crate) fn begin(&mut self) {
        let (mut pseudo, mut cookie) = (
            std::mem::take(&mut self.pseudo),
            std::mem::take(&mut self.cookie),
        );
        pseudo.clear();
        cookie.clear();
        *self = Self {
            pseudo,
            cookie,
            ..Self::default()
        };
    }

    /// One more field. What is wrong is remembered: the rest of its block has to be decoded all the same.
    pub(crate) fn add(
        &mut self,
        name: &[u8],
        value: &[u8],
        request: &mut Request,
        limits: &Limits,
    ) {
        if self.error.is_none() {
            let Err(error) = self.try_add(name, value, request, limits) else {
                return;
            };
            self.error = Some(error);
        }
        if matches!(self.error, Some(Malformed(_))) {
            self.keep_if_forwarded(name, value, request, limits);
        }
    }

    /// The size of the list of fields, as the limit on heads counts it; of one that is refused, of its beginning.
    pub(crate) fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// All fields have come.
    ///
    /// # Errors
    /// It is no request, or one that is refused.
    pub(crate) fn end(
        &mut self,
        came_over: CameOver<'_>,
        request: &mut Request,
        limits: &Limits,
    ) -> Result<HeadFacts, RequestError> {
        request.version = Version::Http2;
        if let Some(error) = self.error {
            if !self.has_regular {
                // The response to HEAD has no content, also if it is an error.
                let method = self.method.map(|span| span.of(&self.pseudo));
                request.method = method.and_then(Method::from_token).unwrap_or_default();
            }
            if self.has_lost_client && matches!(error, Malformed(_)) {
                request.fields.clear();
            }
            return Err(error);
        }
        if !self.has_regular {
            self.write_line(request, limits)?;
        }
        let filled = match self.fault {
            Some(fault) => Err(fault),
            None => self.push_cookie(request, limits),
        };
        let facts = filled.and_then(|()| http1::facts(request));
        let facts = facts.map_err(RequestError::Refused)?;
        match came_over {
            CameOver::Proxy => {}
            CameOver::Plain => self.check_scheme(b"http")?,
            CameOver::Secure(security) => {
                self.check_scheme(b"https")?;
                check_host_of(security, request)?;
            }
        }
        Ok(HeadFacts {
            // Frames say whether there is content, not fields.
            expects_continue: request.field_values(FieldName::Expect).next().is_some(),
            ..facts
        })
    }

    fn try_add(
        &mut self,
        name: &[u8],
        value: &[u8],
        request: &mut Request,
        limits: &Limits,
    ) -> Result<(), RequestError> {
        self.list_bytes += name.len() + value.len() + FIELD_BYTES;
        let (pseudo, known) = (name.strip_prefix(b":"), FieldName::from_lower_case(name));
        // As in HTTP/1, where a cookie is one field, and the request line none.
        let is_counted = match known {
            FieldName::Cookie => self.cookie.is_empty(),
            _ => pseudo.is_none(),
        };
        self.count += usize::from(is_counted);
        if self.list_bytes > limits.head_bytes_max || self.count > limits.fields_max {
            let status = Status::REQUEST_HEADER_FIELDS_TOO_LARGE;
            let fault = Fault::limit(status, "more or larger fields than allowed");
            return Err(RequestError::Refused(fault));
        }
        let is_text = check_value(value).map_err(Malformed)?;
        if let Some(pseudo) = pseudo {
            return self.add_pseudo(pseudo, value);
        }
        if known == FieldName::Other {
            check_name(name).map_err(Malformed)?;
        }
        if is_of_connection(name) || name == b"te" && value != b"trailers" {
            return Err(Malformed("a field that belongs to a connection of HTTP/1"));
        }
        if !self.has_regular {
            self.write_line(request, limits)?;
            self.has_regular = true;
        }
        match known {
            FieldName::Host if value.is_empty() => return Err(Malformed("an empty Host")),
            FieldName::Host if self.authority.is_some() => return self.check_host(value),
            FieldName::Cookie => {
                if !self.cookie.is_empty() {
                    self.cookie.extend_from_slice(b"; ");
                }
                self.cookie.extend_from_slice(value);
                self.cookie_has_control |= !is_text;
            }
            _ if self.fault.is_none() => {
                self.fault = push_field(known, (name, value), is_text, request, limits).err();
                self.has_lost_client |=
                    self.fault.is_some() && forwarded::is_field_of_a_proxy(name);
            }
            _ => self.keep_if_forwarded(name, value, request, limits),
        }
        Ok(())
    }

    /// A malformed request counts for the client that a proxy names, before what is wrong or behind it.
    #[cold]
    fn keep_if_forwarded(
        &mut self,
        name: &[u8],
        value: &[u8],
        request: &mut Request,
        limits: &Limits,
    ) {
        let has_room = request.fields.len() < limits.fields_max
            && request.head.len() + name.len() + value.len() <= limits.head_bytes_max;
        match forwarded::is_field_of_a_proxy(name) {
            true if has_room && check_value(value) == Ok(true) => {
                request.push_field(FieldName::from_bytes(name), name, value);
            }
            is_of_proxy => self.has_lost_client |= is_of_proxy,
        }
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), RequestError> {
        if self.has_regular {
            return Err(Malformed("a pseudo-field behind a field"));
        }
        let place = match name {
            b"method" => &mut self.method,
            b"scheme" => &mut self.scheme,
            b"authority" if value.is_empty() => return Err(Malformed("an empty authority")),
            b"authority" => &mut self.authority,
            b"path" => &mut self.path,
            _ => return Err(Malformed("an unknown pseudo-field")),
        };
        let start = self.pseudo.len() as u32; // bounded by the list's size
        self.pseudo.extend_from_slice(value);
        let end = self.pseudo.len() as u32;
        match place.replace(Span { start, end }) {
            Some(_) => Err(Malformed("a pseudo-field came twice")),
            None => Ok(()),
        }
    }

    /// Writes the request line and the Host field, once all pseudo-fields have come.
    fn write_line(&mut self, request: &mut Request, limits: &Limits) -> Result<(), RequestError> {
        let of = |span: Option<Span>| span.map(|span| span.of(&self.pseudo));
        let method = of(self.method).ok_or(Malformed("no method"))?;
        if method.is_empty() || !method.iter().copied().all(is_token_byte) {
            return Err(Malformed("the method is no token"));
        }
        let is_connect = method == b"CONNECT";
        let target = match (is_connect, of(self.path), of(self.scheme)) {
            (true, None, None) => {
                of(self.authority).ok_or(Malformed("CONNECT without authority"))?
            }
            (true, _, _) => return Err(Malformed("CONNECT with a path or a scheme")),
            (false, Some(path), Some(_)) => path,
            (false, _, _) => return Err(Malformed("no path or no scheme")),
        };
        let is_path = target.first() == Some(&b'/') || target == b"*" || is_connect;
        let others = &target[target_end(target, 0)..];
        if !is_path || others.iter().any(|byte| matches!(byte, 0..=b' ' | 0x7f)) {
            return Err(Malformed("the path is none"));
        }
        let mut head = std::mem::take(&mut request.head);
        head.extend_from_slice(method);
        head.push(b' ');
        let start = head.len() as u32; // bounded by the list's size
        head.extend_from_slice(target);
        let end = head.len() as u32;
        head.extend_from_slice(VERSION);
        let parsed = http1::parse_method(method, method).and_then(|method| {
            request.method = method;
            match others {
                [] => http1::parse_target(&head, Span { start, end }, request, limits),
                _ => Err(Fault::bad_request(
                    "the target holds a byte that a URI may not",
                )),
            }
        });
        request.head = head;
        let pushed = parsed.and_then(|()| match of(self.authority) {
            Some(host) => push_field(
                FieldName::Host,
                (b"host", host),
                is_text(host),
                request,
                limits,
            ),
            None => Ok(()),
        });
        self.fault = pushed.err();
        Ok(())
    }

    /// All cookies as one field, behind the others.
    fn push_cookie(&self, request: &mut Request, limits: &Limits) -> Result<(), Fault> {
        // The last of them may have been empty.
        let cookie = self.cookie.strip_suffix(b" ").unwrap_or(&self.cookie);
        match cookie {
            [] => Ok(()),
            cookie => push_field(
                FieldName::Cookie,
                (b"cookie", cookie),
                !self.cookie_has_control,
                request,
                limits,
            ),
        }
    }

    /// Both say where the request goes (section 8.3.1).
    fn check_host(&self, host: &[u8]) -> Result<(), RequestError> {
        let authority = self.authority.map(|span| span.of(&self.pseudo));
        match authority {
            Some(authority) if !authority.eq_ignore_ascii_case(host) => {
                Err(Malformed("Host differs from the authority"))
            }
            _ => Ok(()),
        }
    }

    /// Of another scheme it is another resource (RFC 9110 section 7.4).
    fn check_scheme(&self, expected: &[u8]) -> Result<(), RequestError> {
        match self.scheme.map(|span| span.of(&self.pseudo)) {
            Some(scheme) if !scheme.eq_ignore_ascii_case(expected) => {
                let text = "a target of another scheme than the connection's";
                Err(RequestError::Refused(Fault::peer(
                    Status::MISDIRECTED_REQUEST,
                    text,
                )))
            }
            _ => Ok(()),
        }
    }
}

/// What is for a host that nobody here has a certificate for was meant for another server: clients use a
/// connection for several names (RFC 9113 section 9.1.1).
fn check_host_of(security: &Security, request: &Request) -> Result<(), RequestError> {
    match security.is_for_authority(request.authority()) {
        true => Ok(()),
        false => Err(RequestError::Refused(Fault::peer(
            Status::MISDIRECTED_REQUEST,
            "a host that no certificate of this server is for",
        ))),
    }
}

/// Adds a field to the request, if HTTP/1 would take its line.
fn push_field(
    known: FieldName,
    (name, value): (&[u8], &[u8]),
    is_text: bool,
    request: &mut Request,
    limits: &Limits,
) -> Result<(), Fault> {
    if request.fields.len() == limits.fields_max {
        return Err(Fault::large_fields("more fields than allowed"));
    }
    if !is_text {
        return Err(Fault::bad_request("a control character in the head"));
    }
    request.push_field(known, name, value);
    Ok(())
}

#[cfg(test)]
mod as_http1;

#[cfg(test)]
mod tests {
    use super::*;

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "example.org"),
        (":path", "/a?b"),
    ];

    pub(super) fn request(fields: &[(&str, &str)]) -> Result<(Request, HeadFacts), RequestError> {
        let (mut request, limits) = (Request::default(), Limits::default());
        let mut all = RequestFields::default();
        all.begin();
        for (name, value) in fields {
            all.add(name.as_bytes(), value.as_bytes(), &mut request, &limits);
        }
        let facts = all.end(CameOver::Plain, &mut request, &limits)?;
        Ok((request, facts))
    }

    fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        [&GET[..], more].concat()
    }

    fn malformed(fields: &[(&str, &str)]) -> bool {
        matches!(request(fields), Err(Malformed(_)))
    }

    fn status(fields: &[(&str, &str)]) -> Option<Status> {
        match request(fields) {
            Err(RequestError::Refused(fault)) => fault.status,
            _ => None,
        }
    }

    #[test]
    fn a_request_is_what_http_1_would_have_sent() {
        let (request, facts) = request(&with(&[
            ("user-agent", "x"),
            ("cookie", "a=b"),
            ("content-length", "3"),
            ("cookie", "c=d"),
        ]))
        .unwrap();
        assert_eq!(request.line(), b"GET /a?b HTTP/2.0");
        assert_eq!(
            (request.method, request.version),
            (Method::Get, Version::Http2)
        );
        assert_eq!(
            (request.path(), request.query()),
            (&b"/a"[..], Some(&b"b"[..]))
        );
        assert_eq!(request.authority(), b"example.org");
        assert_eq!(request.field(FieldName::Cookie), Some(&b"a=b; c=d"[..]));
        assert_eq!(request.field(FieldName::Host), Some(&b"example.org"[..]));
        assert_eq!(facts.framing, http1::Framing::Length(3));
    }

    #[test]
    fn host_takes_the_place_of_an_authority_and_may_repeat_it() {
        let mut fields = with(&[("host", "EXAMPLE.org")]);
        let (both, _) = request(&fields).unwrap();
        assert_eq!(both.field_values(FieldName::Host).count(), 1);
        fields.remove(2);
        let (host, _) = request(&fields).unwrap();
        assert_eq!(host.authority(), b"EXAMPLE.org");
        fields.pop();
        assert_eq!(status(&fields), Some(Status::BAD_REQUEST), "neither");
        assert!(malformed(&with(&[("host", "example.com")])));
    }

    /// Sections 8.2.1, 8.2.2, 8.3 and 8.3.1.
    #[test]
    fn what_is_malformed() {
        for more in [
            ("Accept", "*/*"),
            ("", "a"),
            ("a b", "c"),
            ("a:", "c"),
            ("a", " b"),
            ("a", "b\t"),
            ("a", "b\r\nc: d"),
            ("a", "b\0"),
            ("connection", "close"),
            ("proxy-connection", "close"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            (":method", "GET"),
            (":status", "200"),
            (":other", "1"),
        ] {
            assert!(malformed(&with(&[more])), "{more:?}");
        }
        assert!(malformed(&with(&[("a", "b"), (":protocol", "c")])));
        for left_out in [0, 1, 3] {
            let mut fields = with(&[]);
            fields.remove(left_out);
            assert!(malformed(&fields), "{left_out}");
            fields.push(("accept", "*/*"));
            assert!(malformed(&fields), "{left_out}");
        }
        for (at, value) in [
            (0, ""),
            (0, "G ET"),
            (2, ""),
            (3, ""),
            (3, "a"),
            (3, "/ b"),
            (3, "http://a/"),
        ] {
            let mut fields = with(&[]);
            fields[at].1 = value;
            assert!(malformed(&fields), "{value}");
        }
        let mut fields = with(&[("host", "")]);
        fields.remove(2);
        assert!(malformed(&fields), "an empty Host");
        assert!(request(&with(&[("te", "trailers")])).is_ok());
    }

    #[test]
    fn targets_of_other_methods() {
        let connect = [(":method", "CONNECT"), (":authority", "example.org:443")];
        let (request_, _) = request(&connect).unwrap();
        assert_eq!(request_.target(), b"example.org:443");
        assert!(malformed(&[connect[0], connect[1], (":path", "/")]));
        assert!(malformed(&connect[..1]));
        let mut options = with(&[]);
        options[0].1 = "OPTIONS";
        options[3].1 = "*";
        assert_eq!(request(&options).unwrap().0.target(), b"*");
        options[0].1 = "GET";
        assert_eq!(status(&options), Some(Status::BAD_REQUEST));
    }

    #[test]
    fn what_is_refused_with_an_answer() {
        let mut fields = with(&[]);
        fields[1].1 = "https";
        assert_eq!(status(&fields), Some(Status::MISDIRECTED_REQUEST));
        let large = "x".repeat(32 << 10);
        assert_eq!(
            status(&[&GET[..], &[("a", &large)]].concat()),
            Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE)
        );
        let many = vec![("a", "b"); 101];
        assert_eq!(
            status(&[&GET[..], &many].concat()),
            Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE)
        );
        let long = format!("/{}", "x".repeat(8000));
        let mut fields = GET;
        fields[3].1 = &long;
        assert_eq!(status(&fields), Some(Status::URI_TOO_LONG));
        assert_eq!(
            status(&with(&[("content-length", "1"), ("content-length", "2")])),
            Some(Status::BAD_REQUEST)
        );
    }

    /// Browsers send each cookie in a field of its own, which used up the number of fields.
    #[test]
    fn a_cookie_counts_as_one_field_and_pseudo_fields_as_none() {
        let mut fields = with(&[("cookie", "a=b"); 200]);
        fields.extend([("a", "b"); 98]);
        let (whole, _) = request(&fields).unwrap();
        assert_eq!(whole.fields().count(), 100, "with Host");
        assert_eq!(whole.field_values(FieldName::Cookie).count(), 1);
        fields.push(("a", "b"));
        let too_many = Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(status(&fields), too_many);
        assert_eq!(status(&with(&[("cookie", "a=b"); 1_000])), too_many);
    }
}
