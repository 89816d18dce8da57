//! The media type of a file by the extension of its name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use loadline_codings::essence;

/// Media types by extension: a maintained table, and what the options put over it, at first nothing.
#[derive(Clone, Debug, Default)]
pub struct MediaTypes {
    overrides: HashMap<Box<str>, Box<str>>,
}

/// One `EXT=TYPE`: `.wasm=application/wasm`, `txt=text/plain; charset=iso-8859-1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypeRule {
    /// Without its dot, in lower case.
    extension: Box<str>,
    media_type: Box<str>,
}

/// What is not an extension and a media type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not EXT=TYPE, with EXT one extension (.wasm) and TYPE a media type \
     (application/wasm, or text/plain; charset=iso-8859-1)"
)]
pub struct InvalidMediaTypeRule(String);

impl FromStr for MediaTypeRule {
    type Err = InvalidMediaTypeRule;

    /// The extension has its dot or not, in any case; the media type has parameters or not. Text
    /// without a character set of its own is UTF-8, as in the table.
    fn from_str(rule: &str) -> Result<Self, InvalidMediaTypeRule> {
        let invalid = || InvalidMediaTypeRule(rule.to_owned());
        let (extension, media_type) = rule.split_once('=').ok_or_else(invalid)?;
        let (extension, media_type) = (extension.trim(), media_type.trim());
        let bare = extension.strip_prefix('.').unwrap_or(extension);
        let is_in_names =
            |c: char| !matches!(c, '.' | '/') && !c.is_whitespace() && !c.is_control();
        if bare.is_empty() || !bare.chars().all(is_in_names) || !is_media_type(media_type) {
            return Err(invalid());
        }
        Ok(Self {
            extension: bare.to_ascii_lowercase().into(),
            media_type: with_charset(media_type).into(),
        })
    }
}

impl FromIterator<MediaTypeRule> for MediaTypes {
    /// The table, and over it these; of two for one extension the last.
    fn from_iter<I: IntoIterator<Item = MediaTypeRule>>(rules: I) -> Self {
        let pair = |rule: MediaTypeRule| (rule.extension, rule.media_type);
        Self {
            overrides: rules.into_iter().map(pair).collect(),
        }
    }
}

/// For what has no known extension: nothing that a browser would run or show (RFC 9110 section
/// 8.3 lets it guess only if there is no type at all).
const UNKNOWN: &str = "application/octet-stream";

/// Where the table says nothing, or says what browsers no longer expect.
const CORRECTIONS: &[(&str, &str)] = &[
    ("mjs", "text/javascript"), // RFC 9239
    ("cjs", "text/javascript"),
    ("ico", "image/x-icon"), // the name that every browser and server uses
    ("br", "application/x-brotli"),
    ("svgz", "application/gzip"), // without a Content-Encoding it is no SVG that a browser can show
];

impl MediaTypes {
    /// The Content-Type for a file of this name or path; text says that it is UTF-8.
    #[must_use]
    pub fn of(&self, name: &[u8]) -> Cow<'_, str> {
        let Some(extension) = extension(name) else {
            return Cow::Borrowed(UNKNOWN);
        };
        let extension = extension.to_ascii_lowercase();
        if let Some(media_type) = self.overrides.get(&*extension) {
            return Cow::Borrowed(media_type);
        }
        let corrected = CORRECTIONS.iter().find(|(of, _)| *of == extension);
        let media_type = corrected.map_or_else(
            || new_mime_guess::from_ext(&extension).first_raw(),
            |(_, media_type)| Some(*media_type),
        );
        match media_type {
            Some(media_type) => with_charset(media_type),
            None => Cow::Borrowed(UNKNOWN),
        }
    }
}

/// A media type, or a family of them: `image/svg+xml`, `font/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePattern(String);

/// What is not a media type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a media type (image/svg+xml) or a family of them (font/*)")]
pub struct InvalidTypePattern(String);

impl FromStr for TypePattern {
    type Err = InvalidTypePattern;

    fn from_str(text: &str) -> Result<Self, InvalidTypePattern> {
        match text.split_once('/') {
            Some((family, kind)) if is_plain(family) && (kind == "*" || is_plain(kind)) => {
                Ok(Self(text.to_ascii_lowercase()))
            }
            _ => Err(InvalidTypePattern(text.to_owned())),
        }
    }
}

impl TypePattern {
    /// Whether a media type, with or without parameters, is one of it.
    pub(crate) fn fits(&self, media_type: &str) -> bool {
        let essence = essence(media_type);
        match self.0.strip_suffix('*') {
            Some(family) => essence.starts_with(family),
            None => essence == self.0,
        }
    }
}

/// Whether it is a name as media types and extensions have them (RFC 6838 section 4.2).
pub(crate) fn is_plain(name: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || "!#$&^_.+-".contains(c);
    !name.is_empty() && name.chars().all(is_of_names)
}

/// What follows the last dot of the last component; a dot in front makes a hidden file, no extension.
fn extension(path: &[u8]) -> Option<&str> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let extension = name.get(dot + 1..).filter(|rest| !rest.is_empty())?;
    if dot == 0 {
        return None;
    }
    std::str::from_utf8(extension).ok()
}

/// Text says that it is UTF-8, unless it says what else it is. XML, SVG and JSON name their
/// character set themselves, or may have only one.
fn with_charset(media_type: &str) -> Cow<'_, str> {
    let lower = media_type.to_ascii_lowercase();
    let mut parameters = lower.split(';').skip(1);
    let says_it = parameters.any(|parameter| parameter.trim_start().starts_with("charset="));
    if lower.starts_with("text/") && !says_it {
        Cow::Owned(format!("{media_type}; charset=utf-8"))
    } else {
        Cow::Borrowed(media_type)
    }
}

/// `type/subtype` and parameters `name=value` (RFC 9110 section 8.3.1). A value in quotes has none
/// of what would have to be escaped or could be taken for the end of it.
fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| {
        let is_token_char = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        !part.is_empty() && part.bytes().all(is_token_char)
    };
    let is_quoted = |value: &str| {
        let inner = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        let is_plain = |c: u8| matches!(c, b' '..=b'~') && !matches!(c, b'"' | b'\\');
        inner.is_some_and(|inner| inner.bytes().all(is_plain))
    };
    let is_parameter = |parameter: &str| {
        let pair = parameter.trim_matches(' ').split_once('=');
        pair.is_some_and(|(name, value)| is_token(name) && (is_token(value) || is_quoted(value)))
    };
    let mut parts = text.split(';');
    let essence = parts.next().unwrap_or_default().trim_end_matches(' ');
    let kinds = essence.split_once('/');
    kinds.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
        && parts.all(is_parameter)
}

#[cfg(test)]
mod tests {
    use loadline_codings::is_text_like;

    use super::*;

    #[test]
    fn table_of_what_a_site_is_made_of() {
        let types = MediaTypes::default();
        for (name, media_type) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.c/INDEX.HTM", "text/html; charset=utf-8"),
            ("site.css", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("app.min.js", "text/javascript; charset=utf-8"),
            ("read.me.txt", "text/plain; charset=utf-8"),
            ("notes.md", "text/markdown; charset=utf-8"),
            ("table.csv", "text/csv; charset=utf-8"),
            ("captions.vtt", "text/vtt; charset=utf-8"),
            ("app.wasm", "application/wasm"),
            ("data.json", "application/json"),
            ("app.js.map", "application/json"),
            ("site.webmanifest", "application/manifest+json"),
            ("feed.xml", "application/xml"),
            ("feed.atom", "application/atom+xml"),
            ("page.xhtml", "application/xhtml+xml"),
            ("paper.pdf", "application/pdf"),
            ("logo.svg", "image/svg+xml"),
            ("photo.jpg", "image/jpeg"),
            ("photo.png", "image/png"),
            ("photo.avif", "image/avif"),
            ("photo.webp", "image/webp"),
            ("favicon.ico", "image/x-icon"),
            ("font.woff2", "font/woff2"),
            ("font.ttf", "font/ttf"),
            ("sound.wav", "audio/wav"),
            ("sound.mp3", "audio/mpeg"),
            ("sound.ogg", "audio/ogg"),
            ("sound.flac", "audio/flac"),
            ("film.mp4", "video/mp4"),
            ("film.webm", "video/webm"),
            ("site.tar.gz", "application/gzip"),
            ("logo.svgz", "application/gzip"),
            ("site.tar.zst", "application/zstd"),
        ] {
            assert_eq!(types.of(name.as_bytes()), media_type, "{name}");
        }
    }

    #[test]
    fn what_is_like_text_compresses_and_what_is_compressed_does_not() {
        let types = MediaTypes::default();
        for (names, expected) in [
            (
                "a.html a.css a.js a.mjs a.json a.js.map a.xml a.svg a.txt a.md a.csv a.wasm a.ttf a.otf \
                 a.ico a.atom a.rss a.webmanifest a.xhtml a.vtt a.ics",
                true,
            ),
            (
                "a.png a.jpg a.webp a.avif a.gif a.woff a.woff2 a.mp4 a.mp3 a.zip a.gz a.br a.zst a.pdf \
                 a.svgz a.nosuch README a.exe",
                false,
            ),
        ] {
            for name in names.split_ascii_whitespace() {
                let media_type = types.of(name.as_bytes());
                assert_eq!(is_text_like(&media_type), expected, "{name}: {media_type}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let types = MediaTypes::default();
        for name in [
            "", "README", ".html", "a/.js", "a.html/b", "name.", "a.", ".", "x.nosuch", "x.ht ml",
        ] {
            assert_eq!(types.of(name.as_bytes()), UNKNOWN, "{name}");
        }
        assert_eq!(types.of(b"x.\xff\xfe"), UNKNOWN);
    }

    fn with(rules: &[&str]) -> MediaTypes {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn rules_stand_over_the_table_and_text_is_utf_8_unless_it_says_otherwise() {
        let types = with(&[
            ".TXT=text/plain; charset=iso-8859-1",
            "nosuch=application/x-such",
            ".md = Text/X-Markdown;variant=GFM",
            "csv=text/csv; header=\"present here\" ; CHARSET=utf-16",
            "html=text/html",
            "js=application/javascript",
            "twice=a/one",
            ".Twice=a/two",
        ]);
        for (name, media_type) in [
            ("a.txt", "text/plain; charset=iso-8859-1"),
            ("a.NoSuch", "application/x-such"),
            ("a.md", "Text/X-Markdown;variant=GFM; charset=utf-8"),
            (
                "a.csv",
                "text/csv; header=\"present here\" ; CHARSET=utf-16",
            ),
            ("a.html", "text/html; charset=utf-8"),
            ("a.js", "application/javascript"),
            ("a.twice", "a/two"),
            ("a.htm", "text/html; charset=utf-8"),
            ("txt", UNKNOWN),
        ] {
            assert_eq!(types.of(name.as_bytes()), media_type, "{name}");
        }
    }

    #[test]
    fn what_is_not_a_rule_is_refused_by_name() {
        for bad in [
            "",
            ".wasm",
            "=text/plain",
            ".=text/plain",
            "a.b=text/plain",
            "a/b=text/plain",
            "a b=text/plain",
            "txt=",
            "txt=text",
            "txt=/plain",
            "txt=text/",
            "txt=text/a/b",
            "txt=text /plain",
            "txt=text/plain;",
            "txt=text/plain; charset",
            "txt=text/plain; charset=",
            "txt=text/plain; a=\"b\"c\"",
            "txt=text/plain, text/html",
            "txt=text/plain\r\nX: y",
            "txt=text/plain; charset=\r\nX: y",
            "txt=text/plain; a=\"\r\nX: y\"",
        ] {
            let error = bad.parse::<MediaTypeRule>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{bad}'")), "{error}");
        }
    }
}
