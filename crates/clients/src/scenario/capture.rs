//! What a client takes from an answer to use it later.

use std::collections::BTreeMap;

use html5gum::{DefaultEmitter, HtmlString, Spanned, Token, Tokenizer};
use serde::Deserialize;

use super::cookies::Jar;

/// Where in an answer a value is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Capture {
    /// The value of a field of an HTML form, by its name.
    FormField(String),
    /// The content of an HTML `meta` element, by its name.
    Meta(String),
    /// A field of the head.
    Header(String),
    /// A cookie that the client has now.
    Cookie(String),
    /// What stands between two texts in the content, the first time.
    Between(String, String),
}

/// An answer, as far as it was kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) head: &'a [u8],
    pub(super) content: &'a [u8],
    pub(super) jar: &'a Jar,
}

impl Capture {
    /// Whether it needs the content.
    pub(super) const fn is_in_content(&self) -> bool {
        matches!(self, Self::FormField(_) | Self::Meta(_) | Self::Between(..))
    }

    /// The value, if it is there.
    pub(super) fn find(&self, source: &Source<'_>) -> Option<Vec<u8>> {
        match self {
            Self::FormField(name) => form_field(source.content, name),
            Self::Meta(name) => meta(source.content, name),
            Self::Header(name) => header(source.head, name).map(<[u8]>::to_vec),
            Self::Cookie(name) => source.jar.value(name.as_bytes()).map(<[u8]>::to_vec),
            Self::Between(first, second) => {
                let start = find(source.content, first.as_bytes())? + first.len();
                let rest = &source.content[start..];
                let end = find(rest, second.as_bytes())?;
                Some(rest[..end].to_vec())
            }
        }
    }

    /// What it is, for a message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::FormField(name) => format!("form field `{name}`"),
            Self::Meta(name) => format!("meta element `{name}`"),
            Self::Header(name) => format!("header `{name}`"),
            Self::Cookie(name) => format!("cookie `{name}`"),
            Self::Between(first, second) => format!("text between `{first}` and `{second}`"),
        }
    }
}

/// Where `text` first stands in `content`.
pub(super) fn find(content: &[u8], text: &[u8]) -> Option<usize> {
    memchr::memmem::find(content, text)
}

/// The fields of a head that a session has found well-formed.
pub(super) fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// The first field with this name.
pub(crate) fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    fields(head)
        .find(|(one, _)| one.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value)
}

type Attributes = BTreeMap<HtmlString, Spanned<HtmlString, ()>>;

fn attribute<'t>(attributes: &'t Attributes, name: &[u8]) -> Option<&'t [u8]> {
    attributes.get(name).map(|value| value.as_slice())
}

/// A page as tokens: scripts and styles are text, and so not taken for elements.
fn tokens(page: &[u8]) -> impl Iterator<Item = Token> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(page, emitter).flatten()
}

/// The value that a browser would send for the first field with this name: of an `input` that is
/// not a box left empty, a `textarea`, a `select`, or a `button`. Character references are decoded.
fn form_field(page: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut search = Search::Field;
    for token in tokens(page) {
        match (&mut search, token) {
            (Search::Field, Token::StartTag(tag)) => {
                let value = || attribute(&tag.attributes, b"value");
                if attribute(&tag.attributes, b"name") != Some(name.as_bytes()) {
                    continue;
                }
                match tag.name.as_slice() {
                    b"input" if is_sent(&tag.attributes) => {
                        // A box without a value says "on".
                        let default: &[u8] = if is_box(&tag.attributes) { b"on" } else { b"" };
                        return Some(value().unwrap_or(default).to_vec());
                    }
                    b"button" => return Some(value().unwrap_or_default().to_vec()),
                    b"textarea" => search = Search::Text(Vec::new()),
                    b"select" => search = Search::Options(Choice::default()),
                    _ => {}
                }
            }
            (Search::Text(text), Token::String(more)) => text.extend_from_slice(&more),
            (Search::Text(text), Token::EndTag(tag)) if tag.name.as_slice() == b"textarea" => {
                // A line feed right behind the tag is not part of it.
                let text = text.strip_prefix(b"\n").unwrap_or(text);
                return Some(text.to_vec());
            }
            (Search::Options(choice), token) => {
                let is_over = choice.ends_with(&token);
                if is_over {
                    return choice.value.take();
                }
            }
            _ => {}
        }
    }
    None
}

/// What is being looked for.
enum Search {
    Field,
    /// The end of a `textarea`.
    Text(Vec<u8>),
    /// The end of a `select`.
    Options(Choice),
}

/// The option of a `select` that a browser would send: the one selected, or the first.
#[derive(Default)]
struct Choice {
    value: Option<Vec<u8>>,
    is_selected: bool,
    /// In an option that has no value but its text.
    is_text: bool,
}

impl Choice {
    fn ends_with(&mut self, token: &Token) -> bool {
        match token {
            Token::StartTag(tag) if tag.name.as_slice() == b"option" => {
                let is_selected = attribute(&tag.attributes, b"selected").is_some();
                self.end_option();
                if self.value.is_none() || is_selected && !self.is_selected {
                    let value = attribute(&tag.attributes, b"value");
                    self.is_text = value.is_none();
                    self.is_selected = is_selected;
                    self.value = Some(value.unwrap_or_default().to_vec());
                }
            }
            Token::String(text) if self.is_text => {
                if let Some(value) = &mut self.value {
                    value.extend_from_slice(text);
                }
            }
            Token::EndTag(tag) if tag.name.as_slice() == b"option" => self.end_option(),
            Token::EndTag(tag) if tag.name.as_slice() == b"select" => {
                self.end_option();
                return true;
            }
            _ => {}
        }
        false
    }

    fn end_option(&mut self) {
        if std::mem::take(&mut self.is_text)
            && let Some(value) = &mut self.value
        {
            *value = value.trim_ascii().to_vec();
        }
    }
}

fn has_type(attributes: &Attributes, kind: &[u8]) -> bool {
    attribute(attributes, b"type").is_some_and(|value| value.eq_ignore_ascii_case(kind))
}

fn is_box(attributes: &Attributes) -> bool {
    has_type(attributes, b"checkbox") || has_type(attributes, b"radio")
}

/// Boxes are sent if they are checked.
fn is_sent(attributes: &Attributes) -> bool {
    !is_box(attributes) || attribute(attributes, b"checked").is_some()
}

fn meta(page: &[u8], name: &str) -> Option<Vec<u8>> {
    tokens(page).find_map(|token| match token {
        Token::StartTag(tag)
            if tag.name.as_slice() == b"meta"
                && attribute(&tag.attributes, b"name") == Some(name.as_bytes()) =>
        {
            attribute(&tag.attributes, b"content").map(<[u8]>::to_vec)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<!doctype html><meta name="csrf-token" content="m&amp;1">
<script>var s = '<input name="csrf" value="wrong">';</script><!-- <input name=csrf value=wrong> -->
<form><INPUT type=hidden NAME='csrf' value="a&quot;b&#43;c&lt;">
<input name=csrf value=second><input name=none><input name="two words" value=x>
<input type=radio name=size value=s><input type=radio name=size value=m checked>
<input type=checkbox name=off value=1><input type=checkbox name=on checked>
<textarea name=text>
first &amp; <b>last</b>
</textarea><select name=color><option value=r>Red<option selected> Green </option><option value=b>Blue</select>
<select name=first><option>One &lt;1&gt;</option><option value=2>Two</option></select>
<button name=do value=save>Save</button><p name=csrf2 value=no></form>"#;

    fn found(capture: &Capture) -> Option<String> {
        let mut jar = Jar::default();
        let origin = super::super::cookies::Origin {
            host: "h",
            path: b"/",
            now_ns: 0,
            date: std::time::UNIX_EPOCH,
        };
        jar.set(b"sid=s1", &origin);
        let head = b"HTTP/1.1 200 OK\r\nX-Id: 5\r\nLocation:/a:b \r\nx-id: 6\r\n\r\n";
        let source = Source {
            head,
            content: PAGE.as_bytes(),
            jar: &jar,
        };
        let value = capture.find(&source)?;
        Some(String::from_utf8(value).unwrap())
    }

    #[test]
    fn form_fields_as_a_browser_sends_them() {
        for (name, value) in [
            ("csrf", Some("a\"b+c<")),
            ("none", Some("")),
            ("two words", Some("x")),
            ("size", Some("m")),
            ("off", None),
            ("on", Some("on")),
            ("text", Some("first & <b>last</b>\n")),
            ("color", Some("Green")),
            ("first", Some("One <1>")),
            ("do", Some("save")),
            ("csrf2", None),
            ("CSRF", None),
        ] {
            let capture = Capture::FormField(name.to_owned());
            assert_eq!(found(&capture).as_deref(), value, "{name}");
        }
    }

    #[test]
    fn everything_else() {
        let between = |a: &str, b: &str| Capture::Between(a.to_owned(), b.to_owned());
        for (capture, value) in [
            (Capture::Meta("csrf-token".to_owned()), Some("m&1")),
            (Capture::Meta("other".to_owned()), None),
            (Capture::Header("x-ID".to_owned()), Some("5")),
            (Capture::Header("Location".to_owned()), Some("/a:b")),
            (Capture::Header("X".to_owned()), None),
            (Capture::Cookie("sid".to_owned()), Some("s1")),
            (Capture::Cookie("other".to_owned()), None),
            (between("<script>var ", " ="), Some("s")),
            (between("<script>", "</style>"), None),
            (between("nowhere", "<"), None),
        ] {
            assert_eq!(found(&capture).as_deref(), value, "{}", capture.describe());
        }
    }
}
