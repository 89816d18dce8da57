//! A step as the bytes that one user sends.

use std::borrow::Cow;

use loadline_proto::Method;

use super::link::resolve;
use super::script::{Content, Step, has_header};
use super::template::{Escape, Values};
use super::{Script, Setting};

/// The default User-Agent.
const USER_AGENT: &str = concat!("loadline/", env!("CARGO_PKG_VERSION"));

/// What is asked: the step's own request, or where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: Vec<u8>,
    /// Whether it carries the step's content: redirects mostly do not.
    pub(super) has_content: bool,
}

impl Ask {
    /// Without the query.
    pub(super) fn path(&self) -> &[u8] {
        let mut parts = self.target.split(|byte| *byte == b'?');
        parts.next().unwrap_or_default()
    }
}

/// The request of a step. What was captured may be a link of any form, relative to the page before;
/// `None` if it leads elsewhere.
pub(super) fn ask(step: &Step, setting: &Setting, values: &mut Values<'_>) -> Option<Ask> {
    let mut target = Vec::new();
    if step.path.first_text().is_some() {
        target.extend_from_slice(setting.path_prefix.as_bytes());
        step.path.write(values, Escape::Target, &mut target);
    } else {
        let mut link = Vec::new();
        step.path.write(values, Escape::Nothing, &mut link);
        target = resolve(&values.known.page, &setting.origin(), &link)?;
    }
    Some(Ask {
        method: step.method,
        target,
        has_content: true,
    })
}

/// Where a redirect leads (RFC 9110 section 15.4); `None` if the answer is none that can be followed.
pub(super) fn redirected(
    ask: &Ask,
    status: u16,
    location: Option<&[u8]>,
    setting: &Setting,
) -> Option<Ask> {
    let keeps_method = match status {
        307 | 308 => true,
        301 | 302 => ask.method != Method::Post,
        303 => ask.method == Method::Head,
        _ => return None,
    };
    Some(Ask {
        method: if keeps_method {
            ask.method
        } else {
            Method::Get
        },
        target: resolve(&ask.target, &setting.origin(), location?)?,
        has_content: keeps_method && ask.has_content,
    })
}

/// What the request says.
pub(super) fn write(
    ask: &Ask,
    step: &Step,
    (script, setting): (&Script, &Setting),
    now_ns: u64,
    values: &mut Values<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(ask.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(&ask.target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let has = |name: &str| has_header(&step.headers, name);
    if !has("Host") {
        push_field("Host", setting.authority.as_bytes(), &mut out);
    }
    if !has("User-Agent") {
        push_field("User-Agent", USER_AGENT.as_bytes(), &mut out);
    }
    if let Some(credentials) = &setting.authorization
        && !has("Authorization")
    {
        push_field("Authorization", credentials.as_bytes(), &mut out);
    }
    for (name, value) in &step.headers {
        if !ask.has_content && name.eq_ignore_ascii_case("Content-Type") {
            continue;
        }
        let mut text = Vec::new();
        value.write(values, Escape::Field, &mut text);
        push_field(name, text.trim_ascii(), &mut out);
    }
    let is_secure = setting.is_https || script.sends_secure_cookies;
    let jar = &mut values.known.jar;
    jar.write(ask.path(), is_secure, now_ns, &mut out);
    let content = match ask.has_content {
        true => content(&step.content, values),
        false => None,
    };
    // A POST without content says so (RFC 9110 section 8.6).
    let announces = matches!(ask.method, Method::Post | Method::Put | Method::Patch);
    if content.is_some() || announces {
        let len = content.as_ref().map_or(0, |content| content.len());
        push_field("Content-Length", len.to_string().as_bytes(), &mut out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&content.unwrap_or_default());
    out
}

/// The bytes of a step's content, if it has any.
fn content<'s>(content: &'s Content, values: &mut Values<'_>) -> Option<Cow<'s, [u8]>> {
    match content {
        Content::Nothing => None,
        Content::Form(fields) => {
            let mut form = Vec::new();
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    form.push(b'&');
                }
                form.extend_from_slice(name.as_bytes());
                form.push(b'=');
                value.write(values, Escape::Form, &mut form);
            }
            Some(Cow::Owned(form))
        }
        Content::Text(text) => {
            let mut body = Vec::new();
            text.write(values, Escape::Nothing, &mut body);
            Some(Cow::Owned(body))
        }
        Content::File(bytes) => Some(Cow::Borrowed(bytes.as_slice())),
    }
}

fn push_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
