//! What the owner of a site can decide about its static files.

use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use loadline_base::MemoryBudget;
use loadline_proto::Limits;

use crate::content::media_type::{MediaTypes, TypePattern, is_plain};
use crate::file_cache::CacheLimits;

/// How static files are served. The default is safe to show to the world.
#[derive(Clone, Debug)]
pub struct StaticOptions {
    /// Names looked for in a directory, best first.
    pub index: Vec<String>,
    /// Whether a directory without an index file is shown as a page.
    pub listing: bool,
    /// The page (below the root, such as `index.html`) that answers, with 200, for what is not
    /// there: for applications that route in the browser. A missing file whose extension says that
    /// it is no page (a script, an image) stays a 404.
    pub spa_fallback: Option<String>,
    /// Whether symbolic links may lead out of the root.
    pub follow_symlinks: bool,
    /// Whether components that begin with a dot are served. (`/.well-known/` always is.)
    pub hidden: bool,
    /// Whether `.br`, `.zst` and `.gz` neighbours of a file are sent to clients that accept them. A
    /// neighbour older than its file (in whole seconds if its time is in those) is stale and is left alone.
    pub precompressed: bool,
    /// Whether text is compressed on the fly for clients that accept it, by a blocking step, and kept in
    /// the cache. Where event loops carry out blocking steps, nothing is compressed: to be turned off there, since
    /// it costs such steps.
    pub compress: bool,
    /// Media types by extension.
    pub media_types: MediaTypes,
    /// Values for Cache-Control; the first rule that fits a file decides.
    pub cache_control: Vec<CacheControlRule>,
    /// Content up to this length is copied straight behind its head: the session's own bound
    /// (`Limits::inline_body_bytes_max`).
    pub inline_bytes_max: usize,
    /// Content up to this length is kept in memory; longer files are kept open and sent from there.
    /// 256 KiB: a copy of that takes about as long as opening and sending a file does.
    pub memory_bytes_max: u64,
    /// The bounds of the cache.
    pub cache: CacheLimits,
    /// Where the memory is counted that compressing takes meanwhile: none begins while it is short. Content
    /// in the cache is not counted, which has bounds of its own.
    pub memory: Option<Arc<MemoryBudget>>,
    /// The time of day; for tests.
    pub wall_clock: fn() -> SystemTime,
    /// Called before each step that may wait for the file system, with the path that it is about;
    /// for tests, which have it wait.
    pub before_looking: fn(&[u8]),
}

impl Default for StaticOptions {
    fn default() -> Self {
        Self {
            index: vec!["index.html".to_owned()],
            listing: false,
            spa_fallback: None,
            follow_symlinks: false,
            hidden: false,
            precompressed: true,
            compress: true,
            media_types: MediaTypes::default(),
            cache_control: Vec::new(),
            inline_bytes_max: Limits::default().inline_body_bytes_max,
            memory_bytes_max: 256 << 10,
            cache: CacheLimits::default(),
            memory: None,
            wall_clock: SystemTime::now,
            before_looking: |_| (),
        }
    }
}

impl StaticOptions {
    /// The Cache-Control of a file of this path and media type.
    #[must_use]
    pub fn cache_control_of(&self, path: &[u8], media_type: &str) -> Option<&str> {
        let fits = |rule: &&CacheControlRule| rule.fits(path, media_type);
        self.cache_control
            .iter()
            .find(fits)
            .map(|rule| &*rule.value)
    }
}

/// One `[WHAT:]VALUE` of Cache-Control: `max-age=3600` for every file, `.css:max-age=3600` for an
/// extension, `text/html:no-cache` for a media type, `image/*:max-age=86400` for a family of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheControlRule {
    files: Files,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Files {
    All,
    /// With its dot, in lower case.
    Extension(String),
    Types(TypePattern),
}

impl CacheControlRule {
    fn fits(&self, path: &[u8], media_type: &str) -> bool {
        match &self.files {
            Files::All => true,
            Files::Extension(extension) => {
                path.len() >= extension.len()
                    && path[path.len() - extension.len()..]
                        .eq_ignore_ascii_case(extension.as_bytes())
            }
            Files::Types(types) => types.fits(media_type),
        }
    }
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not [WHAT:]VALUE, with WHAT an extension (.css), a media type (text/html) \
     or a family of them (image/*), and VALUE directives such as max-age=3600"
)]
pub struct InvalidCacheControl(String);

impl FromStr for CacheControlRule {
    type Err = InvalidCacheControl;

    fn from_str(rule: &str) -> Result<Self, InvalidCacheControl> {
        let invalid = || InvalidCacheControl(rule.to_owned());
        let (files, value) = match rule.split_once(':') {
            None => (Files::All, rule),
            Some((what, value)) => (files_of(what.trim()).ok_or_else(invalid)?, value),
        };
        let value = value.trim();
        let is_directive = |part: &str| {
            let part = part.trim();
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part.chars().all(|c| matches!(c, ' '..='~'))
        };
        if !value.split(',').all(is_directive) {
            return Err(invalid());
        }
        Ok(Self {
            files,
            value: value.to_owned(),
        })
    }
}

fn files_of(what: &str) -> Option<Files> {
    let what = what.to_ascii_lowercase();
    if what == "*" || what == "*/*" {
        return Some(Files::All);
    }
    if let Some(extension) = what.strip_prefix('.') {
        return is_plain(extension).then_some(Files::Extension(what));
    }
    what.parse().ok().map(Files::Types)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(rules: &[&str], path: &str, media_type: &str) -> Option<String> {
        let options = StaticOptions {
            cache_control: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..StaticOptions::default()
        };
        let value = options.cache_control_of(path.as_bytes(), media_type);
        value.map(str::to_owned)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = [
            ".min.js:max-age=31536000, immutable",
            "text/html: no-cache",
            "image/*:max-age=86400",
            "max-age=60",
        ];
        let table = [
            (
                "a/app.min.js",
                "text/javascript",
                "max-age=31536000, immutable",
            ),
            (
                "a/APP.MIN.JS",
                "text/javascript",
                "max-age=31536000, immutable",
            ),
            ("index.html", "text/html; charset=utf-8", "no-cache"),
            ("logo.svg", "image/svg+xml", "max-age=86400"),
            ("app.js", "text/javascript", "max-age=60"),
        ];
        for (path, media_type, expected) in table {
            assert_eq!(
                value(&rules, path, media_type).as_deref(),
                Some(expected),
                "{path}"
            );
        }
        assert_eq!(value(&rules[..3], "app.js", "text/javascript"), None);
    }

    #[test]
    fn what_is_not_a_rule_is_refused_by_name() {
        for bad in [
            "",
            "css:max-age=1",
            ".css:",
            "a:b:c",
            "text/:x",
            "max-age=1\r\nX: y",
            "=1",
        ] {
            let error = bad.parse::<CacheControlRule>().unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("'{bad}'")),
                "{error}"
            );
        }
    }
}
