//! Which content gets smaller by compression, by its media type and its length.

/// Less is not compressed: it goes in one packet in any case.
pub const BYTES_MIN: u64 = 1 << 10;

/// Types that compress although their names do not say that they are text.
const TEXT_LIKE: &[&str] = &[
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/json5",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-tex",
    "application/x-web-app-manifest+json",
    "application/xml",
    "application/yaml",
    "font/collection",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
    "model/obj",
];

/// Whether content of this type gets smaller by compression: text, and what is made like text. What
/// is compressed already (pictures, films, `woff2`, archives) does not.
#[must_use]
pub fn is_text_like(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.starts_with("text/")
        || ["+json", "+xml", "+yaml"]
            .iter()
            .any(|end| essence.ends_with(*end))
        || TEXT_LIKE.contains(&&*essence)
}

/// A media type without its parameters, in lower case.
#[must_use]
pub fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_like_text_by_its_name() {
        for (media_type, expected) in [
            ("Text/X-Such; a=b", true),
            ("application/vnd.such+JSON; v=1", true),
            ("application/JSON ;charset=utf-8", true),
            ("textual/x", false),
            ("+json", true),
            ("", false),
            ("é", false),
        ] {
            assert_eq!(is_text_like(media_type), expected, "{media_type}");
        }
    }
}
