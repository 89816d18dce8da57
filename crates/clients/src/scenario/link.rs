//! From a link, as an answer has it, to a target on the same host (RFC 3986 section 5.2).

use super::template::push_target;

/// The target that `link` means on a page at `base` (a path, perhaps with a query) of `authority`;
/// `None` if it leads to another host or is not for HTTP.
pub(super) fn resolve(base: &[u8], authority: &str, link: &[u8]) -> Option<Vec<u8>> {
    let link = link.trim_ascii();
    let link = link.split(|byte| *byte == b'#').next().unwrap_or_default();
    let link = match scheme_len(link) {
        Some(len) if link[..len].eq_ignore_ascii_case(b"http:") => &link[len..],
        Some(_) => return None,
        None => link,
    };
    let mut target = Vec::with_capacity(base.len() + link.len());
    if let Some(rest) = link.strip_prefix(b"//") {
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
        let (host, path) = rest.split_at(end.unwrap_or(rest.len()));
        if !host.eq_ignore_ascii_case(authority.as_bytes()) {
            return None;
        }
        push_path(path, &mut target);
        return Some(target);
    }
    let (path, _) = split_query(base);
    match link.first() {
        None => push_target(base, &mut target),
        Some(b'/') => push_path(link, &mut target),
        Some(b'?') => {
            push_target(path, &mut target);
            push_target(link, &mut target);
        }
        Some(_) => {
            let folder = path
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(0, |slash| slash + 1);
            push_path(&[&path[..folder], link].concat(), &mut target);
        }
    }
    Some(target)
}

/// A path and its query, with the question mark.
pub(super) fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|byte| *byte == b'?') {
        Some(mark) => (&target[..mark], Some(&target[mark..])),
        None => (target, None),
    }
}

/// How long the scheme is, with its colon.
fn scheme_len(link: &[u8]) -> Option<usize> {
    let end = link
        .iter()
        .position(|byte| matches!(byte, b':' | b'/' | b'?'))?;
    (link[end] == b':' && link[0].is_ascii_alphabetic()).then_some(end + 1)
}

/// Writes an absolute path and its query without `.` and `..` (section 5.2.4).
fn push_path(target: &[u8], out: &mut Vec<u8>) {
    let (path, query) = split_query(target);
    let mut kept: Vec<&[u8]> = Vec::new();
    let segments = path.strip_prefix(b"/").unwrap_or(path);
    let mut ends_in_folder = false;
    for segment in segments.split(|byte| *byte == b'/') {
        ends_in_folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"." => {}
            b".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    if kept.last().is_some_and(|last| last.is_empty()) {
        kept.pop();
    }
    for segment in &kept {
        out.push(b'/');
        push_target(segment, out);
    }
    if ends_in_folder || kept.is_empty() {
        out.push(b'/');
    }
    push_target(query.unwrap_or_default(), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_every_form() {
        for (link, target) in [
            ("/", "/"),
            ("/a/b?c=d#e", "/a/b?c=d"),
            ("x", "/shop/cart/x"),
            ("x/", "/shop/cart/x/"),
            ("./x?y", "/shop/cart/x?y"),
            ("../x", "/shop/x"),
            ("../../../x", "/x"),
            ("..", "/shop/"),
            (".", "/shop/cart/"),
            ("?page=2", "/shop/cart/view?page=2"),
            ("", "/shop/cart/view?id=1"),
            ("#top", "/shop/cart/view?id=1"),
            ("http://h:80/a", "/a"),
            ("HTTP://H:80", "/"),
            ("//h:80?q", "/?q"),
            (" /a b\r\n", "/a%20b"),
            ("/a//b/./../c", "/a//c"),
            ("x:y/z", "-"),
            ("a/b:c", "/shop/cart/a/b:c"),
            ("https://h:80/a", "-"),
            ("http://other/a", "-"),
            ("//other/a", "-"),
            ("mailto:me@h", "-"),
            ("javascript:void(0)", "-"),
        ] {
            let resolved = resolve(b"/shop/cart/view?id=1", "h:80", link.as_bytes());
            let resolved =
                resolved.map_or_else(|| "-".to_owned(), |bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(resolved, target, "{link}");
        }
    }
}
