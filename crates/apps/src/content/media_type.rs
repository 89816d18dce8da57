//! The media type of a file by the extension of its name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// Media types by extension: a maintained table, and what the options put over it.
#[derive(Clone, Debug, Default)]
pub struct MediaTypes {
    overrides: HashMap<Box<str>, Box<str>>,
}

/// An override that is not an extension and a media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOverride;

impl fmt::Display for InvalidOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an extension and a media type, such as `txt` and `text/plain`")
    }
}

impl std::error::Error for InvalidOverride {}

/// For what has no known extension: nothing that a browser would run or show (RFC 9110 section
/// 8.3 lets it guess only if there is no type at all).
const UNKNOWN: &str = "application/octet-stream";

/// Where the table says nothing, or says what browsers no longer expect.
const CORRECTIONS: &[(&str, &str)] = &[
    ("mjs", "text/javascript"), // RFC 9239
    ("cjs", "text/javascript"),
    ("ico", "image/x-icon"), // the name that every browser and server uses
    ("br", "application/x-brotli"),
];

impl MediaTypes {
    /// The table alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `extension` (with or without its dot, any case) mean `media_type`, taken as it is.
    ///
    /// # Errors
    /// If either is not what it should be: a media type is `type/subtype`, with or without
    /// parameters.
    pub fn set(&mut self, extension: &str, media_type: &str) -> Result<(), InvalidOverride> {
        let extension = extension.strip_prefix('.').unwrap_or(extension);
        let is_extension = !extension.is_empty() && !extension.contains(['.', '/', '\0']);
        if !is_extension || !is_media_type(media_type) {
            return Err(InvalidOverride);
        }
        let extension = extension.to_ascii_lowercase();
        self.overrides.insert(extension.into(), media_type.into());
        Ok(())
    }

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
            // XML, SVG and JSON name their character set themselves, or may have only one.
            Some(text) if text.starts_with("text/") => Cow::Owned(format!("{text}; charset=utf-8")),
            Some(other) => Cow::Borrowed(other),
            None => Cow::Borrowed(UNKNOWN),
        }
    }
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

/// `type/subtype` and parameters that can stand in a field (RFC 9110 section 8.3.1).
fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| {
        let is_token_char = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        !part.is_empty() && part.bytes().all(is_token_char)
    };
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let Some((kind, subtype)) = essence.trim_end().split_once('/') else {
        return false;
    };
    is_token(kind) && is_token(subtype) && parameters.bytes().all(|c| matches!(c, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_what_a_site_is_made_of() {
        let types = MediaTypes::new();
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
            ("site.tar.zst", "application/zstd"),
        ] {
            assert_eq!(types.of(name.as_bytes()), media_type, "{name}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let types = MediaTypes::new();
        for name in [
            "", "README", ".html", "a/.js", "a.html/b", "name.", "a.", ".", "x.nosuch", "x.ht ml",
        ] {
            assert_eq!(types.of(name.as_bytes()), UNKNOWN, "{name}");
        }
        assert_eq!(types.of(b"x.\xff\xfe"), UNKNOWN);
    }

    #[test]
    fn an_override_is_taken_as_it_is() {
        let mut types = MediaTypes::new();
        types.set(".TXT", "text/plain; charset=iso-8859-1").unwrap();
        types.set("nosuch", "application/x-such").unwrap();
        types.set("html", "text/html").unwrap();
        assert_eq!(types.of(b"a.txt"), "text/plain; charset=iso-8859-1");
        assert_eq!(types.of(b"a.NoSuch"), "application/x-such");
        assert_eq!(types.of(b"a.html"), "text/html");
        assert_eq!(types.of(b"a.htm"), "text/html; charset=utf-8");
    }

    #[test]
    fn bad_overrides() {
        for (extension, media_type) in [
            ("", "text/plain"),
            (".", "text/plain"),
            ("a.b", "text/plain"),
            ("a/b", "text/plain"),
            ("txt", ""),
            ("txt", "text"),
            ("txt", "/plain"),
            ("txt", "text/"),
            ("txt", "text/a/b"),
            ("txt", "text /plain"),
            ("txt", "text/plain\r\nX: y"),
            ("txt", "text/plain; charset=\r\nX: y"),
        ] {
            let set = MediaTypes::new().set(extension, media_type);
            assert_eq!(set, Err(InvalidOverride), "{extension:?} {media_type:?}");
        }
    }
}
