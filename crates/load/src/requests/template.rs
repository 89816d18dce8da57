//! Requests as bytes: a head with what the user wants in it, and a body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use loadline_proto::{Method, Version};
use loadline_spec::ValueError;

/// Who we say we are.
const USER_AGENT: &str = concat!("loadline/", env!("CARGO_PKG_VERSION"));
/// Servers refuse heads beyond 8 to 64 KiB; fields beyond this are a mistake.
const FIELDS_BYTES_MAX: usize = 256 * 1024;

/// A field of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    value: String,
}

/// What requests have in common.
#[derive(Clone, Debug)]
pub struct Template {
    version: Version,
    fields: Vec<Field>,
    authorization: Option<String>,
}

/// What is special about one request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The method.
    pub method: Method,
    /// The target, in origin form.
    pub target: &'a [u8],
    /// What the Host field says, unless the user's fields say it.
    pub authority: &'a str,
    /// `name:password` of the URL, which comes before that of all requests.
    pub user: Option<&'a str>,
    /// The content.
    pub body: &'a [u8],
}

impl Template {
    /// Takes fields as they are typed (`Name: value`), and `name:password` for Basic authentication.
    ///
    /// # Errors
    /// A field that is malformed, or that is the client's own to set; one line says which.
    pub fn new(
        version: Version,
        headers: &[String],
        user: Option<&str>,
    ) -> Result<Self, ValueError> {
        let template = Self {
            version,
            fields: Vec::new(),
            authorization: None,
        };
        let mut template = template.with(headers)?;
        if let Some(user) = user {
            if !user.contains(':') {
                let problem = format!("the user `{user}` has no password");
                return Err(ValueError::new(problem, "NAME:PASSWORD"));
            }
            if template.has("Authorization") {
                return Err("credentials are given twice: as user and as header".into());
            }
            template.authorization = Some(basic(user));
        }
        Ok(template)
    }

    /// The same with further fields, which take the place of those of the same name.
    ///
    /// # Errors
    /// As [`Template::new`].
    pub fn with(&self, headers: &[String]) -> Result<Self, ValueError> {
        let own = headers.iter().map(|header| field(header));
        let own = own.collect::<Result<Vec<Field>, _>>()?;
        let is_replaced = |old: &Field| {
            own.iter()
                .any(|new| new.name.eq_ignore_ascii_case(&old.name))
        };
        let mut fields = self.fields.clone();
        fields.retain(|old| !is_replaced(old));
        fields.extend(own);
        let bytes = fields
            .iter()
            .map(|field| field.name.len() + field.value.len() + 4);
        if bytes.sum::<usize>() > FIELDS_BYTES_MAX {
            let most = FIELDS_BYTES_MAX / 1024;
            return Err(format!("the header fields are longer than {most} KiB").into());
        }
        for single in ["Host", "Authorization"] {
            let same = fields
                .iter()
                .filter(|field| field.name.eq_ignore_ascii_case(single));
            if same.count() > 1 {
                return Err(format!("the header field {single} is given twice").into());
            }
        }
        Ok(Self {
            version: self.version,
            fields,
            authorization: self.authorization.clone(),
        })
    }

    /// The request as it is sent on a connection that stays open, and as the last one of its
    /// connection.
    #[must_use]
    pub fn prepare(&self, ask: &Ask<'_>) -> (Vec<u8>, Vec<u8>) {
        let (keep, last) = match self.version {
            Version::Http10 => ("Connection: keep-alive\r\n", ""),
            Version::Http11 | Version::Http2 => ("", "Connection: close\r\n"),
        };
        (self.write(ask, keep), self.write(ask, last))
    }

    fn write(&self, ask: &Ask<'_>, connection: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + ask.target.len() + ask.body.len());
        let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
        let version: &[u8] = match self.version {
            Version::Http10 => b" HTTP/1.0\r\n",
            Version::Http11 | Version::Http2 => b" HTTP/1.1\r\n",
        };
        push(&[ask.method.as_str().as_bytes(), b" ", ask.target, version]);
        if !self.has("Host") {
            push(&[b"Host: ", ask.authority.as_bytes(), b"\r\n"]);
        }
        if !self.has("User-Agent") {
            push(&[b"User-Agent: ", USER_AGENT.as_bytes(), b"\r\n"]);
        }
        let authorization = match ask.user {
            _ if self.has("Authorization") => None,
            Some(user) => Some(basic(user)),
            None => self.authorization.clone(),
        };
        if let Some(credentials) = authorization {
            push(&[b"Authorization: ", credentials.as_bytes(), b"\r\n"]);
        }
        for Field { name, value } in &self.fields {
            push(&[name.as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
        push(&[connection.as_bytes()]);
        // A method that has content by its nature says so, even when there is none (RFC 9110 8.6).
        if !ask.body.is_empty() || matches!(ask.method, Method::Post | Method::Put | Method::Patch)
        {
            let length = ask.body.len().to_string();
            push(&[b"Content-Length: ", length.as_bytes(), b"\r\n"]);
        }
        push(&[b"\r\n", ask.body]);
        out
    }

    fn has(&self, name: &str) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| field.name.eq_ignore_ascii_case(name))
    }
}

/// Reads a method.
///
/// # Errors
/// It is not one that can be sent; one line says which can.
pub fn method(text: &str) -> Result<Method, ValueError> {
    match Method::from_token(text.as_bytes()) {
        Some(Method::Connect) | None => Err(ValueError::from(format!(
            "`{text}` is not a method that is sent: GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE or \
             PATCH, in capitals"
        ))),
        Some(method) => Ok(method),
    }
}

/// A field as it is typed, checked so that nothing in it can end the line.
fn field(header: &str) -> Result<Field, ValueError> {
    let shown = header.escape_debug();
    let Some((name, value)) = header.split_once(':') else {
        let problem = format!("the header `{shown}` has no colon");
        return Err(ValueError::new(problem, "`Name: value`"));
    };
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        let name = name.escape_debug();
        let problem = format!("the header `{shown}`: `{name}` is not a field name");
        let right = "letters, digits and hyphens before the colon, `Accept-Language: en` say";
        return Err(ValueError::new(problem, right));
    }
    let value = value.trim_matches([' ', '\t']);
    if value
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
    {
        return Err(format!("the header `{shown}` has a control character in it").into());
    }
    let reason = match name.to_ascii_lowercase().as_str() {
        "content-length" => "the length follows from the body",
        "transfer-encoding" => "a body is sent with its length",
        "connection" | "keep-alive" | "proxy-connection" => {
            "how long a connection stays open is chosen by the client's options"
        }
        "te" | "trailer" | "upgrade" => "what it announces is not supported",
        "host" if value.is_empty() => "it is empty",
        _ => {
            return Ok(Field {
                name: name.to_owned(),
                value: value.to_owned(),
            });
        }
    };
    Err(format!("the header field {name} cannot be set: {reason}").into())
}

/// What the Authorization field says of `name:password`.
#[must_use]
pub fn basic(user: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Ask<'_> = Ask {
        method: Method::Get,
        target: b"/a?b",
        authority: "h:81",
        user: None,
        body: b"",
    };

    fn template(
        version: Version,
        headers: &[&str],
        user: Option<&str>,
    ) -> Result<Template, ValueError> {
        let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        Template::new(version, &headers, user)
    }

    fn texts(template: &Template, ask: &Ask<'_>) -> (String, String) {
        let (keep, last) = template.prepare(ask);
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(USER_AGENT, "UA");
        (text(keep), text(last))
    }

    #[test]
    fn both_versions_say_whether_the_connection_stays() {
        let (keep, last) = texts(&template(Version::Http11, &[], None).unwrap(), &GET);
        assert_eq!(
            keep,
            "GET /a?b HTTP/1.1\r\nHost: h:81\r\nUser-Agent: UA\r\n\r\n"
        );
        assert!(last.ends_with("UA\r\nConnection: close\r\n\r\n"), "{last}");
        let (keep, last) = texts(&template(Version::Http10, &[], None).unwrap(), &GET);
        let head = "GET /a?b HTTP/1.0\r\nHost: h:81\r\nUser-Agent: UA\r\n";
        assert_eq!(keep, format!("{head}Connection: keep-alive\r\n\r\n"));
        assert_eq!(last, format!("{head}\r\n"));
    }

    #[test]
    fn a_users_fields_come_before_ours() {
        let fields = ["host:x", "User-agent: me ", "X-Empty:", "A: 1", "a: 2"];
        let template = template(Version::Http11, &fields, None).unwrap();
        assert_eq!(
            texts(&template, &GET).0,
            "GET /a?b HTTP/1.1\r\nhost: x\r\nUser-agent: me\r\nX-Empty: \r\nA: 1\r\na: 2\r\n\r\n"
        );
        let further = template.with(&["A: 3".to_owned()]).unwrap();
        assert!(
            texts(&further, &GET)
                .0
                .ends_with("X-Empty: \r\nA: 3\r\n\r\n")
        );
    }

    #[test]
    fn credentials_of_the_url_come_first() {
        let template = template(Version::Http11, &[], Some("Aladdin:open sesame")).unwrap();
        let own = "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n";
        assert!(texts(&template, &GET).0.contains(own));
        let ask = Ask {
            user: Some("a:b"),
            ..GET
        };
        let (keep, _) = texts(&template, &ask);
        assert!(keep.contains("Authorization: Basic YTpi\r\n") && !keep.contains(own));
        let header = template
            .with(&["authorization: Bearer t".to_owned()])
            .unwrap();
        let (keep, _) = texts(&header, &ask);
        assert_eq!(keep.matches("uthorization").count(), 1);
    }

    #[test]
    fn a_body_has_its_length() {
        let template = template(Version::Http11, &[], None).unwrap();
        for (method, body, length) in [
            (Method::Post, "a=b", "Content-Length: 3\r\n\r\na=b"),
            (Method::Put, "", "Content-Length: 0\r\n\r\n"),
            (Method::Delete, "", "UA\r\n\r\n"),
        ] {
            let body = body.as_bytes();
            let (keep, _) = texts(
                &template,
                &Ask {
                    method,
                    body,
                    ..GET
                },
            );
            assert!(keep.ends_with(length), "{keep}");
        }
    }

    #[test]
    fn what_would_break_the_head_is_refused() {
        for (header, part) in [
            ("no colon", "has no colon; right would be `Name: value`"),
            (": x", "is not a field name"),
            ("A B: x", "is not a field name"),
            ("A\r\nB: x", "is not a field name"),
            ("A: x\r\nB: y", "control character"),
            ("A: x\ny", "control character"),
            ("A: \0", "control character"),
            ("content-length: 5", "cannot be set"),
            ("Connection: close", "cannot be set"),
            ("Transfer-Encoding: chunked", "cannot be set"),
            ("Host:", "empty"),
        ] {
            let refusal = template(Version::Http11, &[header], None)
                .unwrap_err()
                .to_string();
            assert!(refusal.contains(part), "{header:?}: {refusal}");
            assert!(!refusal.contains(['\n', '\r', '\0']), "{refusal:?}");
        }
        assert!(template(Version::Http11, &["Host: a", "host: b"], None).is_err());
        assert!(template(Version::Http11, &["Authorization: a"], Some("a:b")).is_err());
        assert!(template(Version::Http11, &[], Some("ann")).is_err());
        let long = format!("A: {}", "x".repeat(FIELDS_BYTES_MAX));
        assert!(template(Version::Http11, &[&long], None).is_err());
    }

    #[test]
    fn methods_that_are_sent() {
        assert_eq!(method("PATCH"), Ok(Method::Patch));
        for text in ["get", "CONNECT", "BREW", ""] {
            assert!(method(text).is_err(), "{text}");
        }
    }
}
