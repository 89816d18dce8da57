//! From the path of a request to a path below the root, and back.
//!
//! Not a look at the file system: whether links leave the root is checked when the file is opened. What
//! comes out here is safe to hand to `openat2` relative to the root. The rules:
//!
//! | in the request | here | why |
//! |---|---|---|
//! | `%2e`, `%41` | decoded, once | `%252e` is the name `%2e`, never a dot |
//! | `%`, `%4`, `%zz` | 400 | not RFC 3986 |
//! | `%00`, raw control characters, space, `\`, `#` | 400 | no path may hold them |
//! | `%2f`, `%5c` | 404 | no file name holds a slash; a backslash is a slash to some browsers and proxies, so a name with one would be two resources |
//! | `.`, `..`, also encoded | removed (RFC 3986 section 5.2.4) | as every browser does before it asks |
//! | `..` above the root | 400 | no browser sends it: an attack |
//! | `a//b` | `a/b` | as the file system has it |

use loadline_proto::Status;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// Not a path by RFC 3986, or one that climbs above the root.
    Malformed,
    /// Well formed, but nothing here can have that name.
    NoSuchName,
}

impl PathError {
    /// The status that answers it.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Malformed => Status::BAD_REQUEST,
            Self::NoSuchName => Status::NOT_FOUND,
        }
    }
}

/// A path below the root, decoded: never absolute, no component is empty, `.` or `..`, no NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitePath<'b> {
    relative: &'b [u8],
    directory_like: bool,
    hidden: bool,
}

impl<'b> SitePath<'b> {
    /// Components joined by single slashes, without one at either end; empty for the root itself.
    #[must_use]
    pub fn relative(&self) -> &'b [u8] {
        self.relative
    }

    /// Whether only a directory can be meant: the root, or a trailing slash, `/.` or `/..`.
    #[must_use]
    pub fn is_directory_like(&self) -> bool {
        self.directory_like
    }

    /// Whether a component begins with a dot; a leading `.well-known` (RFC 8615) does not count.
    #[must_use]
    pub fn has_hidden_component(&self) -> bool {
        self.hidden
    }
}

/// Decodes the path of a request (`Request::path`) into `buffer`, whose memory is reused: once it
/// has grown to the longest path, nothing allocates.
///
/// # Errors
/// If it is not a path, climbs above the root, or names what no file here can be called.
pub fn decode<'b>(path: &[u8], buffer: &'b mut Vec<u8>) -> Result<SitePath<'b>, PathError> {
    buffer.clear();
    buffer.reserve(path.len());
    let segments = match path.split_first() {
        None => &[],
        Some((b'/', rest)) => rest,
        Some(_) => return Err(PathError::Malformed),
    };
    let mut directory_like = false;
    let (mut has_empty, mut has_dotted) = (false, false);
    let mut segments = segments.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let start = buffer.len();
        decode_segment(segment, buffer)?;
        match &buffer[start..] {
            b"." => {
                buffer.truncate(start);
                directory_like |= is_last;
                continue;
            }
            b".." => {
                buffer.truncate(start);
                remove_last_segment(buffer)?;
                directory_like |= is_last;
                continue;
            }
            b"" if is_last => directory_like = true,
            b"" => has_empty = true,
            [b'.', ..] => has_dotted = true,
            _ => {}
        }
        if !is_last {
            buffer.push(b'/');
        }
    }
    if has_empty {
        // Only now: `..` takes back an empty segment as it does any other.
        buffer.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
        if buffer.first() == Some(&b'/') {
            buffer.remove(0);
        }
    }
    if buffer.last() == Some(&b'/') {
        buffer.pop();
    }
    Ok(SitePath {
        relative: buffer,
        directory_like,
        hidden: has_dotted && has_hidden(buffer),
    })
}

fn decode_segment(segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut bytes = segment.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = bytes.next().and_then(hex_digit);
                let low = bytes.next().and_then(hex_digit);
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(PathError::Malformed);
                };
                match high << 4 | low {
                    0 => return Err(PathError::Malformed),
                    b'/' | b'\\' => return Err(PathError::NoSuchName),
                    decoded => out.push(decoded),
                }
            }
            0..=b' ' | 0x7f | b'\\' | b'#' | b'?' => return Err(PathError::Malformed),
            plain => out.push(plain),
        }
    }
    Ok(())
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Takes back the segment before a `..`; every one in `buffer` ends in a slash.
fn remove_last_segment(buffer: &mut Vec<u8>) -> Result<(), PathError> {
    let Some((_, before)) = buffer.split_last() else {
        return Err(PathError::Malformed);
    };
    let kept = before.iter().rposition(|byte| *byte == b'/');
    buffer.truncate(kept.map_or(0, |slash| slash + 1));
    Ok(())
}

fn has_hidden(relative: &[u8]) -> bool {
    let mut components = relative.split(|byte| *byte == b'/').enumerate();
    components
        .any(|(index, name)| name.first() == Some(&b'.') && !(index == 0 && name == b".well-known"))
}

/// What a path segment cannot hold as it is: all but `pchar` (RFC 3986 section 3.3).
const PATH_ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// What a query that came in may not take along into a field: what could end the line or the query.
const QUERY_ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// Appends the path of `relative` (see `SitePath::relative`) percent-encoded, from its leading
/// slash on, with a trailing slash if it is a directory.
pub fn encode(relative: &[u8], directory: bool, out: &mut Vec<u8>) {
    out.push(b'/');
    if relative.is_empty() {
        return;
    }
    for piece in percent_encode(relative, PATH_ESCAPED) {
        out.extend_from_slice(piece.as_bytes());
    }
    if directory {
        out.push(b'/');
    }
}

/// The Location that redirects to the slash form of a directory, keeping the query. It always
/// begins with one slash and a name, so it cannot lead to another host, and holds only visible
/// ASCII, so it cannot end the line.
#[must_use]
pub fn directory_location(relative: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let query_len = query.map_or(0, |query| query.len() + 1);
    let mut out = Vec::with_capacity(relative.len() + 2 + query_len);
    encode(relative, true, &mut out);
    if let Some(query) = query {
        out.push(b'?');
        for piece in percent_encode(query, QUERY_ESCAPED) {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::PathError::{Malformed, NoSuchName};
    use super::*;

    #[test]
    fn table_of_paths() {
        // Path, relative, only a directory can be meant.
        for (path, relative, directory) in [
            ("", "", true),
            ("/", "", true),
            ("/index.html", "index.html", false),
            ("/a/b/", "a/b", true),
            ("/a%20b/%C3%A4", "a b/ä", false),
            ("/caf\u{e9}", "caf\u{e9}", false),
            ("/%41%5a%7E", "AZ~", false),
            ("/a;b=c,d:e@f!$&'()*+", "a;b=c,d:e@f!$&'()*+", false),
            ("/100%25", "100%", false),
            ("/%0a", "\n", false),
            // Once: what decodes to an escape stays text.
            ("/%252e%252e/%252fetc", "%2e%2e/%2fetc", false),
            ("/%2500", "%00", false),
            // Dot segments, in every spelling; the examples of RFC 3986 section 5.2.4 and 5.4.
            ("/a/b/c/./../../g", "a/g", false),
            ("/mid/content=5/../6", "mid/6", false),
            ("/b/c/.", "b/c", true),
            ("/b/c/..", "b", true),
            ("/b/c/../..", "", true),
            ("/b/./c/%2e/d", "b/c/d", false),
            ("/b/%2e%2E/c", "c", false),
            ("/b/.%2e/c", "c", false),
            ("/a/../", "", true),
            ("/...", "...", false),
            ("/..a/b..", "..a/b..", false),
            ("/g;x=1/../y", "y", false),
            // Empty segments vanish, but `..` takes one back as it does any other.
            ("//", "", true),
            ("//evil.example", "evil.example", false),
            ("/a//b///c", "a/b/c", false),
            ("/a//../b", "a/b", false),
            ("//..", "", true),
            ("///a//", "a", true),
            ("/./", "", true),
            ("/.//a", "a", false),
        ] {
            let mut buffer = b"left over".to_vec();
            let decoded = decode(path.as_bytes(), &mut buffer).expect(path);
            assert_eq!(decoded.relative(), relative.as_bytes(), "{path}");
            assert_eq!(decoded.is_directory_like(), directory, "{path}");
        }
    }

    #[test]
    fn table_of_refusals() {
        for (path, error) in [
            ("/..", Malformed),
            ("/../etc/passwd", Malformed),
            ("/a/../..", Malformed),
            ("/a/b/../../../c", Malformed),
            ("/%2e%2e/x", Malformed),
            ("/.%2E/x", Malformed),
            ("/./..", Malformed),
            ("/%", Malformed),
            ("/%4", Malformed),
            ("/%4/", Malformed),
            ("/%zz", Malformed),
            ("/%-1", Malformed),
            ("/%+1", Malformed),
            ("/a%", Malformed),
            ("/%%41", Malformed),
            ("/%00", Malformed),
            ("/a%00.html", Malformed),
            ("/a\0", Malformed),
            ("/a b", Malformed),
            ("/a\tb", Malformed),
            ("/a\r\nb", Malformed),
            ("/a\x7f", Malformed),
            ("/a#b", Malformed),
            ("/a\\b", Malformed),
            ("/..\\..\\x", Malformed),
            ("a", Malformed),
            ("*", Malformed),
            ("http://x/", Malformed),
            ("/a%2fb", NoSuchName),
            ("/%2F", NoSuchName),
            ("/..%2f..%2fetc/passwd", NoSuchName),
            ("/a%5cb", NoSuchName),
            ("/..%5C..%5Cx", NoSuchName),
        ] {
            let mut buffer = Vec::new();
            assert_eq!(decode(path.as_bytes(), &mut buffer), Err(error), "{path}");
        }
        assert_eq!(Malformed.status(), Status::BAD_REQUEST);
        assert_eq!(NoSuchName.status(), Status::NOT_FOUND);
    }

    #[test]
    fn hidden_components() {
        for (path, hidden) in [
            ("/", false),
            ("/.git/config", true),
            ("/%2egit", true),
            ("/a/.htaccess", true),
            ("/a/.b/c", true),
            ("/...", true),
            ("/a.b/c.", false),
            ("/.well-known/acme-challenge/x", false),
            ("//.well-known/x", false),
            ("/.well-known", false),
            ("/.well-known/.secret", true),
            ("/a/.well-known/x", true),
            ("/.well-knownx", true),
            ("/.git/../a", false),
        ] {
            let mut buffer = Vec::new();
            let decoded = decode(path.as_bytes(), &mut buffer).expect(path);
            assert_eq!(decoded.has_hidden_component(), hidden, "{path}");
        }
    }

    #[test]
    fn locations_stay_on_this_host_and_on_one_line() {
        for (path, query, location) in [
            ("/a", None, "/a/"),
            ("/a", Some(""), "/a/?"),
            ("/a/b", Some("x=1&y=%20/?"), "/a/b/?x=1&y=%20/?"),
            ("//evil.example", None, "/evil.example/"),
            ("///a/..//evil.example", None, "/evil.example/"),
            ("/a%0d%0aSet-Cookie:x", None, "/a%0D%0ASet-Cookie:x/"),
            ("/a", Some("\r\nX: y\0#z"), "/a/?%0D%0AX:%20y%00%23z"),
            ("/%252e", None, "/%252e/"),
            ("/a%3Fb%23c", None, "/a%3Fb%23c/"),
            ("/\u{e4} ".trim_end(), Some("\u{e4}"), "/%C3%A4/?%C3%A4"),
        ] {
            let mut buffer = Vec::new();
            let decoded = decode(path.as_bytes(), &mut buffer).expect(path);
            let made = directory_location(decoded.relative(), query.map(str::as_bytes));
            assert_eq!(String::from_utf8_lossy(&made), location, "{path}");
        }
        assert_eq!(directory_location(b"", None), b"/");
    }

    #[test]
    fn a_long_path_costs_no_second_buffer() {
        let mut buffer = Vec::with_capacity(8192);
        let address = buffer.as_ptr();
        let climbing = "/a".repeat(2000) + &"/..".repeat(1300);
        let decoded = decode(climbing.as_bytes(), &mut buffer).unwrap();
        assert_eq!(decoded.relative().len(), 700 * 2 - 1);
        assert_eq!(buffer.as_ptr(), address);
    }

    /// Paths made of what matters, so that cases meet that random bytes never would.
    fn paths() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => proptest::sample::select(vec![
                "/", "/", "//", ".", "..", "/../", "%2e", "%2E%2e", "%2f", "%5C", "%00", "%25", "\\",
                "a", "b", "%61", "%", "%c3%a4", ".well-known", " ",
            ])
            .prop_map(|piece| piece.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
            let mut path = b"/".to_vec();
            path.extend(pieces.concat());
            path
        })
    }

    /// Names that a file can have and a request can ask for.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 1..12).prop_filter("no name", |name| {
            name != b"." && name != b".." && !name.iter().any(|b| matches!(b, 0 | b'/' | b'\\'))
        })
    }

    proptest! {
        #[test]
        fn what_comes_out_stays_below_the_root(path in paths()) {
            let mut buffer = Vec::new();
            if let Ok(decoded) = decode(&path, &mut buffer) {
                let relative = decoded.relative();
                prop_assert!(relative.len() < path.len());
                for name in relative.split(|byte| *byte == b'/') {
                    prop_assert!(!name.is_empty() || relative.is_empty());
                    prop_assert!(name != b"." && name != b"..");
                    prop_assert!(!name.contains(&0) && !name.contains(&b'\\'));
                }
                // What it means does not change on the way through a redirect.
                let (mut again, mut location) = (Vec::new(), Vec::new());
                encode(relative, decoded.is_directory_like(), &mut location);
                prop_assert_eq!(decode(&location, &mut again), Ok(decoded));
            }
        }

        #[test]
        fn every_name_survives_the_round_trip(
            names in proptest::collection::vec(names(), 0..5),
            directory: bool,
            query in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)),
        ) {
            let relative = names.join(&b'/');
            let (mut location, mut buffer) = (Vec::new(), Vec::new());
            encode(&relative, directory, &mut location);
            let decoded = decode(&location, &mut buffer).unwrap();
            prop_assert_eq!(decoded.relative(), &relative[..]);
            prop_assert_eq!(decoded.is_directory_like(), directory || relative.is_empty());
            let location = directory_location(&relative, query.as_deref());
            prop_assert!(location.iter().all(|byte| matches!(byte, b'!'..=b'~')));
            prop_assert!(location[0] == b'/' && !matches!(location.get(1), Some(b'/' | b'\\')));
        }
    }
}
