//! Fields of an answer as data: names and values in one buffer, laid out as HTTP/1 sends them.
//!
//! ```text
//!   text    Content-Type: text/html\r\nVary: Accept-Encoding\r\n
//!   lines   12, 9                      4, 15                      lengths of name and value
//! ```
//!
//! HTTP/1 sends the text as it is, in one copy; HTTP/2 sends fields that are kept as a block that was made
//! once. Everybody else iterates over pairs, without parsing.

use std::sync::OnceLock;

use crate::ascii::{is_text_byte, is_token_byte};
use crate::hpack;

const COLON: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

/// Lengths of one field's name and value.
#[derive(Clone, Copy, Debug)]
struct Line {
    name_len: u16,
    value_len: u32,
}

impl Line {
    fn len(self) -> usize {
        self.name_len as usize + COLON.len() + self.value_len as usize + LINE_END.len()
    }
}

/// Header or trailer fields, in order. Names and values are checked when they are added.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    text: Vec<u8>,
    lines: Vec<Line>,
    has_date: bool,
    has_server: bool,
    has_transport_security: bool,
    /// What HTTP/2 sends, once that was asked for.
    block: OnceLock<Box<[u8]>>,
}

impl Fields {
    /// Adds a field. Control characters in the value become spaces, and white space around it is
    /// dropped (RFC 9110 section 5.5).
    ///
    /// The name has to be a token (RFC 9110 section 5.1). It is the program's own: a wrong one fails
    /// a debug build, and is left out of the answer in a release build.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let is_added = self.try_add(name.as_bytes(), value.as_ref());
        debug_assert!(is_added, "{name:?} is no field");
    }

    /// The same for a field that a peer has sent; `false`: it is none, and is left out.
    pub(crate) fn try_add(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.block.take();
        let value = trimmed(value);
        let is_token = !name.is_empty() && name.iter().copied().all(is_token_byte);
        let lens = (u16::try_from(name.len()), u32::try_from(value.len()));
        let (true, (Ok(name_len), Ok(value_len))) = (is_token, lens) else {
            return false;
        };
        let start = self.text.len() + name.len() + COLON.len();
        self.text
            .reserve(name.len() + value.len() + COLON.len() + LINE_END.len());
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(COLON);
        self.text.extend_from_slice(value);
        let value = &mut self.text[start..];
        for byte in value {
            *byte = if is_text_byte(*byte) { *byte } else { b' ' };
        }
        self.text.extend_from_slice(LINE_END);
        self.lines.push(Line {
            name_len,
            value_len,
        });
        self.note(name);
        true
    }

    /// The same with one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.add(name, value);
        self
    }

    /// Adds the fields of `other`, but for its first `skipped` ones.
    pub fn append(&mut self, other: &Self, skipped: usize) {
        self.block.take();
        let skipped = skipped.min(other.lines.len());
        let (before, lines) = other.lines.split_at(skipped);
        let start: usize = before.iter().map(|line| line.len()).sum();
        self.text.extend_from_slice(&other.text[start..]);
        self.lines.extend_from_slice(lines);
        for (name, _) in other.iter().skip(skipped) {
            self.note(name);
        }
    }

    /// Removes all fields of this name; says whether there were any.
    pub fn remove(&mut self, name: &str) -> bool {
        self.block.take();
        let count = self.lines.len();
        let mut start = 0;
        let text = &mut self.text;
        self.lines.retain(|line| {
            let is_it =
                text[start..start + line.name_len as usize].eq_ignore_ascii_case(name.as_bytes());
            match is_it {
                true => drop(text.drain(start..start + line.len())),
                false => start += line.len(),
            }
            !is_it
        });
        self.has_date &= !name.eq_ignore_ascii_case(DATE);
        self.has_server &= !name.eq_ignore_ascii_case(SERVER);
        self.has_transport_security &= !name.eq_ignore_ascii_case(TRANSPORT_SECURITY);
        self.lines.len() < count
    }

    /// Adds a field in place of all of this name, behind the others.
    pub fn replace(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.add(name, value);
    }

    /// Removes all of them, keeping their memory.
    pub fn clear(&mut self) {
        self.block.take();
        self.text.clear();
        self.lines.clear();
        self.has_date = false;
        self.has_server = false;
        self.has_transport_security = false;
    }

    /// The first value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.iter();
        let found = fields.find(|(this, _)| this.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.text;
        self.lines.iter().map(move |line| {
            let (field, behind) = rest.split_at(line.len());
            rest = behind;
            let (name, value) = field.split_at(line.name_len as usize);
            (name, &value[COLON.len()..][..line.value_len as usize])
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// All of them as HTTP/1 sends them: lines, each ending in CRLF.
    #[inline]
    #[must_use]
    pub fn http1_lines(&self) -> &[u8] {
        &self.text
    }

    /// All of them as HTTP/2 sends them, without its dynamic table: a part of a field block (RFC 7541)
    /// that is the same for every connection. Made at the first call, and kept.
    #[inline]
    #[must_use]
    pub fn http2_block(&self) -> &[u8] {
        self.block
            .get_or_init(|| hpack::literals(self.iter()).into())
    }

    /// Bytes of memory that they hold.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let block = self.block.get().map_or(0, |block| block.len());
        self.text.capacity() + self.lines.capacity() * size_of::<Line>() + block
    }

    /// Gives memory back that is not needed, where they are kept for long.
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.lines.shrink_to_fit();
    }

    /// Whether there is a Date.
    #[inline]
    pub(crate) fn has_date(&self) -> bool {
        self.has_date
    }

    /// Whether there is a Server.
    #[inline]
    pub(crate) fn has_server(&self) -> bool {
        self.has_server
    }

    /// Whether there is a Strict-Transport-Security: a second one is not allowed (RFC 6797 section 7.1).
    #[inline]
    pub(crate) fn has_transport_security(&self) -> bool {
        self.has_transport_security
    }

    /// Remembers which of the fields that the session adds are there already.
    fn note(&mut self, name: &[u8]) {
        self.has_date |= name.eq_ignore_ascii_case(DATE.as_bytes());
        self.has_server |= name.eq_ignore_ascii_case(SERVER.as_bytes());
        self.has_transport_security |= name.eq_ignore_ascii_case(TRANSPORT_SECURITY.as_bytes());
    }
}

const DATE: &str = "Date";
const SERVER: &str = "Server";
const TRANSPORT_SECURITY: &str = "Strict-Transport-Security";

/// A value without white space and control characters around it.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_seen = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    let start = value.iter().position(is_seen).unwrap_or(value.len());
    let end = value.iter().rposition(is_seen).map_or(start, |at| at + 1);
    &value[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(fields: &Fields) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let pairs = fields.iter();
        pairs
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    fn three() -> Fields {
        let fields = Fields::default().with("A", "1").with("Set-Cookie", "b=2");
        fields.with("set-cookie", "c=3")
    }

    #[test]
    fn pairs_and_lines_say_the_same() {
        let fields = three();
        let all = [("A", "1"), ("Set-Cookie", "b=2"), ("set-cookie", "c=3")];
        assert_eq!(pairs(&fields), all);
        let lines = b"A: 1\r\nSet-Cookie: b=2\r\nset-cookie: c=3\r\n";
        assert_eq!(fields.http1_lines(), lines);
        assert_eq!(fields.get("SET-COOKIE"), Some(&b"b=2"[..]));
        assert_eq!(fields.get("Set"), None);
        assert_eq!((fields.len(), fields.is_empty()), (3, false));
    }

    #[test]
    fn no_value_ends_its_line() {
        for (value, sent) in [
            ("a\r\nB: c", "a  B: c"),
            ("\0a\x0b\x7fb\tc", "a  b\tc"),
            ("  \t a b \r\n", "a b"),
            ("\x01", ""),
            ("", ""),
        ] {
            let fields = Fields::default().with("A", value).with("Z", "1");
            assert_eq!(pairs(&fields), [("A", sent), ("Z", "1")], "{value:?}");
            let lines = format!("A: {sent}\r\nZ: 1\r\n");
            assert_eq!(fields.http1_lines(), lines.as_bytes(), "{value:?}");
        }
        let beyond_ascii = Fields::default().with("A", b"\xe9\xff");
        assert_eq!(beyond_ascii.get("a"), Some(&b"\xe9\xff"[..]));
    }

    #[test]
    fn names_are_tokens() {
        let longest = "a".repeat(1 << 16);
        for name in ["", "A:", "A B", "A\r\nB", "\u{e9}", &longest] {
            let added = std::panic::catch_unwind(|| Fields::default().with(name, "1"));
            assert_eq!(added.is_err(), cfg!(debug_assertions), "{name:?}");
            assert!(added.is_ok_and(|fields| fields.is_empty()) || cfg!(debug_assertions));
        }
    }

    #[test]
    fn removed_and_replaced_by_name() {
        let mut fields = three();
        assert!(!fields.remove("B"));
        assert!(fields.remove("SET-COOKIE"));
        assert_eq!(pairs(&fields), [("A", "1")]);
        let mut fields = three();
        fields.replace("a", "4");
        let all = [("Set-Cookie", "b=2"), ("set-cookie", "c=3"), ("a", "4")];
        assert_eq!(pairs(&fields), all);
        let lines = b"Set-Cookie: b=2\r\nset-cookie: c=3\r\na: 4\r\n";
        assert_eq!(fields.http1_lines(), lines);
    }

    #[test]
    fn a_part_of_others() {
        let mut fields = Fields::default().with("Z", "0");
        fields.append(&three(), 1);
        let all = [("Z", "0"), ("Set-Cookie", "b=2"), ("set-cookie", "c=3")];
        assert_eq!(pairs(&fields), all);
        fields.append(&three(), 3);
        fields.append(&three(), 4);
        assert_eq!(pairs(&fields), all);
        fields.clear();
        fields.append(&three(), 0);
        assert_eq!(fields.http1_lines(), three().http1_lines());
    }

    #[test]
    fn a_date_and_a_server_are_noticed() {
        let both = |fields: &Fields| (fields.has_date(), fields.has_server());
        let mut fields = three().with("date", "now").with("SERVER", "own");
        assert_eq!(both(&fields), (true, true));
        let mut appended = Fields::default();
        appended.append(&fields, 4);
        assert_eq!(both(&appended), (false, true));
        fields.remove("Date");
        assert_eq!(both(&fields), (false, true));
        fields.replace("Server", "other");
        assert_eq!(both(&fields), (false, true));
        fields.clear();
        assert_eq!(both(&fields), (false, false));
    }
}
