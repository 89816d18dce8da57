//! From a link, as an answer has it, to a target on the same host (RFC 3986 section 5.2).

use percent_encoding::{CONTROLS, percent_encode};
use url::{Position, Url};

/// The target that `link` means on a page at `base` (a path, perhaps with a query) of `origin`;
/// `None` if it leads to another host or is not for HTTP.
pub(super) fn resolve(base: &[u8], origin: &str, link: &[u8]) -> Option<Vec<u8>> {
    // Bytes beyond ASCII stay what they are, whatever character set they are in.
    let ascii = |bytes| percent_encode(bytes, CONTROLS).to_string();
    let base = Url::parse(&format!("{origin}{}", ascii(base))).ok()?;
    let url = base.join(&ascii(link.trim_ascii())).ok()?;
    let is_here = url.origin() == base.origin();
    is_here.then(|| url[Position::BeforePath..Position::AfterQuery].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_scheme_is_another_host() {
        let here = resolve(b"/", "https://h", b"https://h:443/a");
        assert_eq!(here.as_deref(), Some(&b"/a"[..]));
        assert_eq!(resolve(b"/", "https://h", b"http://h/a"), None);
    }

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
            let resolved = resolve(b"/shop/cart/view?id=1", "http://h:80", link.as_bytes());
            let resolved =
                resolved.map_or_else(|| "-".to_owned(), |bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(resolved, target, "{link}");
        }
    }
}
