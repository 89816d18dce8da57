//! A line of an access log: which request was it, and when.

use std::borrow::Cow;

use super::json;
use super::logged::{LogLine, request_line};
use super::time::LogTime;

/// Reads a line, without its line end: a JSON object if it begins as one, else the common log format
/// (and whatever begins like it: combined, with a virtual host in front, with further fields).
///
/// # Errors
/// The line contains no request; why, as the rest of a sentence.
pub fn parse(line: &[u8]) -> Result<LogLine<'_>, &'static str> {
    match line.trim_ascii_start() {
        [] => Err("it is empty"),
        object @ [b'{', ..] => json::parse(object),
        text => parse_common(text),
    }
}

/// `host ident user [time] "request" status bytes ...`
fn parse_common(line: &[u8]) -> Result<LogLine<'_>, &'static str> {
    let (time, rest) = bracketed_time(line).ok_or("it has no [time]")?;
    let quoted = quoted(rest).ok_or("it has no request in quotes")?;
    let (method, target) = match unescaped(quoted).ok_or("its escapes are broken")? {
        Cow::Borrowed(request) => request_line(request)?,
        Cow::Owned(request) => {
            let (method, target) = request_line(&request)?;
            (method, Cow::Owned(target.into_owned()))
        }
    };
    Ok(LogLine {
        method,
        target,
        time: Some(time),
    })
}

/// The first brackets with a time in them (user names can have brackets too), and what follows.
fn bracketed_time(line: &[u8]) -> Option<(LogTime, &[u8])> {
    const BRACKETS_MAX: usize = 8;
    let mut rest = line;
    for _ in 0..BRACKETS_MAX {
        let open = rest.iter().position(|byte| *byte == b'[')?;
        rest = &rest[open + 1..];
        let Some(close) = rest.iter().position(|byte| *byte == b']') else {
            continue;
        };
        if let Some(time) = LogTime::parse(&rest[..close]) {
            return Some((time, &rest[close + 1..]));
        }
    }
    None
}

/// What stands in the first quotes; a backslash takes the meaning from what follows it.
fn quoted(line: &[u8]) -> Option<&[u8]> {
    let begin = line.iter().position(|byte| *byte == b'"')? + 1;
    let mut end = begin;
    while *line.get(end)? != b'"' {
        end += if line[end] == b'\\' { 2 } else { 1 };
    }
    Some(&line[begin..end])
}

/// Takes the escapes away that Apache, nginx and Loadline write: `\"`, `\\`, `\x0a`, `\n`.
fn unescaped(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.contains(&b'\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'x' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    (digit()? << 4 | digit()?) as u8
                }
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'v' => 11,
                b'f' => 12,
                literal => literal,
            },
            _ => byte,
        });
    }
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use loadline_proto::Method;

    use super::*;

    const TIME: &str = "[10/Oct/2000:13:55:36 -0700]";

    fn target(line: &str) -> Result<String, &'static str> {
        let parsed = parse(line.as_bytes())?;
        let target = String::from_utf8_lossy(&parsed.target).into_owned();
        Ok(format!(
            "{} {target}",
            parsed.method.map_or("?", Method::as_str)
        ))
    }

    #[test]
    fn common_and_what_begins_like_it() {
        let table = r#"
127.0.0.1 - frank TIME "GET /a.gif HTTP/1.0" 200 2326 => GET /a.gif
::1 - - TIME "HEAD / HTTP/1.1" 304 - "-" "curl" => HEAD /
h:443 1.2.3.4 - - TIME "GET /b?c=d HTTP/2.0" 200 1 => GET /b?c=d
1.2.3.4 - a[b]"c TIME "POST /p HTTP/1.1" 200 1 => POST /p
1.2.3.4 - - TIME "GET http://h:8/x?y HTTP/1.1" 200 1 => GET /x?y
1.2.3.4 - - TIME "GET HTTPS://h?y HTTP/1.1" 200 1 => GET /?y
1.2.3.4 - - TIME "GET http://h HTTP/1.1" 200 1 => GET /
1.2.3.4 - - TIME "PROPFIND /x HTTP/1.1" 200 1 => ? /x
1.2.3.4 - - TIME "GET /a\"b\x22\\c\xc3\xa4 HTTP/1.1" 200 1 => GET /a"b"\cä
  1.2.3.4 - - TIME "GET / HTTP/1.1" => GET /"#;
        for row in table.lines().skip(1) {
            let (line, expected) = row.split_once(" => ").unwrap();
            let line = line.replace("TIME", TIME);
            assert_eq!(target(&line).as_deref(), Ok(expected), "{line}");
            let time = parse(line.as_bytes()).unwrap().time.unwrap();
            assert_eq!(time.unix_ns, 971_211_336_000_000_000);
        }
    }

    #[test]
    fn lines_without_a_request() {
        for (line, part) in [
            ("", "empty"),
            ("  ", "empty"),
            ("hello", "no [time]"),
            (
                r#"h - - [10/Oct/2000:13:55:36] "GET / HTTP/1.1""#,
                "no [time]",
            ),
            ("h - - TIME", "no request in quotes"),
            (r#"h - - TIME "GET / HTTP/1.1"#, "no request in quotes"),
            (r#"h - - TIME "GET / HTTP/1.1\"#, "no request in quotes"),
            (r#"h - - TIME "-" 400 0"#, "is no request"),
            (r#"h - - TIME "" 400 0"#, "is no request"),
            (r#"h - - TIME "GET /cut-in-the-mid" 200 0"#, "is no request"),
            (r#"h - - TIME "\x16\x03\x01" 400 0"#, "is no request"),
            (r#"h - - TIME "\x1 / HTTP/1.1" 400 0"#, "escapes"),
            (r#"h - - TIME "GET /a b HTTP/1.1" 400 0"#, "blank"),
            (r#"h - - TIME "GET /a\r\nX:y HTTP/1.1" 400 0"#, "control"),
            (r#"h - - TIME "OPTIONS * HTTP/1.1" 200 0"#, "no path"),
            (r#"h - - TIME "CONNECT h:443 HTTP/1.1" 200 0"#, "no path"),
            (r#"h - - TIME "G\x01T / HTTP/1.1" 200 0"#, "method"),
        ] {
            let refusal = target(&line.replace("TIME", TIME)).unwrap_err();
            assert!(refusal.contains(part), "{line}: {refusal}");
        }
    }
}
