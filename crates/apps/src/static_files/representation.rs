//! One form of a file, ready to be sent: its field lines, its validators, its content.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use super::options::StaticOptions;
use super::version::{FileVersion, is_young};
use crate::content::encoding::Coding;
use crate::content::multipart::Content;

/// One form of a file: as it is, or one of its precompressed neighbours.
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) coding: Coding,
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) media_type: Box<str>,
    pub(super) etag: Box<str>,
    pub(super) modified_seconds: u64,
    version: FileVersion,
    /// Ready lines: Content-Type, then the rest about the content, then what a 304 repeats.
    lines: Box<[u8]>,
    media_type_end: usize,
    content_end: usize,
}

/// What the lines of a representation say.
pub(super) struct Facts<'f> {
    /// Path of the file below the root, without a neighbour's suffix.
    pub(super) path: &'f [u8],
    pub(super) coding: Coding,
    pub(super) version: FileVersion,
    pub(super) content: Content,
    pub(super) has_variants: bool,
    pub(super) loaded: SystemTime,
}

impl Representation {
    pub(super) fn new(facts: Facts<'_>, options: &StaticOptions) -> Self {
        let Facts {
            path,
            coding,
            version,
            content,
            has_variants,
            loaded,
        } = facts;
        let media_type = options.media_types.of(path);
        let cache_control = options.cache_control_of(path, &media_type);
        let etag = etag(&content, coding, &version, loaded);
        let loaded_seconds = match loaded.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_secs(),
            Err(_) => 0,
        };
        // Never in the future (RFC 9110 section 8.8.2.1).
        let modified_seconds =
            u64::try_from(version.content.modified_ns / 1_000_000_000).unwrap_or(0);
        let modified_seconds = modified_seconds.min(loaded_seconds);

        let mut lines = format!("Content-Type: {media_type}\r\n");
        let media_type_end = lines.len();
        if let Some(token) = coding.token() {
            let _ = write!(lines, "Content-Encoding: {token}\r\n");
        }
        lines.push_str("Accept-Ranges: bytes\r\n");
        let content_end = lines.len();
        let modified = UNIX_EPOCH + Duration::from_secs(modified_seconds.min(YEAR_9999));
        let modified = httpdate::fmt_http_date(modified);
        let _ = write!(lines, "ETag: {etag}\r\nLast-Modified: {modified}\r\n");
        if has_variants {
            lines.push_str("Vary: Accept-Encoding\r\n");
        }
        if let Some(value) = cache_control {
            let _ = write!(lines, "Cache-Control: {value}\r\n");
        }
        let size = match &content {
            Content::Shared(bytes) => bytes.len() as u64,
            Content::File(file) => file.version.size,
        };
        Self {
            coding,
            content,
            size,
            media_type: media_type.into(),
            etag: etag.into(),
            modified_seconds,
            version,
            lines: lines.into_bytes().into(),
            media_type_end,
            content_end,
        }
    }

    /// The lines of a 200, and of a 206 with one range.
    #[inline]
    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// The same without Content-Type, for a 206 with several ranges.
    pub(super) fn lines_without_media_type(&self) -> &[u8] {
        &self.lines[self.media_type_end..]
    }

    /// What a 304 says.
    pub(super) fn lines_not_modified(&self) -> &[u8] {
        &self.lines[self.content_end..]
    }

    /// The content, if it is in memory.
    #[inline]
    pub(super) fn memory(&self) -> Option<&Arc<[u8]>> {
        match &self.content {
            Content::Shared(bytes) => Some(bytes),
            Content::File(_) => None,
        }
    }

    /// Whether the file behind it, if it is held open, is as it was.
    pub(super) fn file_holds(&self) -> bool {
        match &self.content {
            Content::Shared(_) => true,
            Content::File(file) => self.version.is_of(&file.fd),
        }
    }

    /// Bytes of memory that it takes, and descriptors.
    pub(super) fn held(&self) -> (usize, usize) {
        let lines = self.lines.len() + self.etag.len() + self.media_type.len();
        match &self.content {
            Content::Shared(bytes) => (lines + bytes.len(), 0),
            Content::File(_) => (lines, 1),
        }
    }
}

/// The last second that a date in a field can say.
const YEAR_9999: u64 = 253_402_300_799;

/// Content in memory goes by its bytes; a file by its identity, length and times, hashed so that
/// they are nobody's business.
fn etag(content: &Content, coding: Coding, version: &FileVersion, loaded: SystemTime) -> String {
    let variant = match coding {
        Coding::Identity => "",
        Coding::Gzip => "-gz",
        Coding::Zstd => "-zst",
        Coding::Brotli => "-br",
    };
    match content {
        Content::Shared(bytes) => format!("\"{:016x}{variant}\"", xxh3_64(bytes)),
        Content::File(_) => {
            let mut facts = [0; 32];
            let numbers = [
                version.inode,
                version.content.size,
                version.content.modified_ns as u64,
                version.changed_ns as u64,
            ];
            for (slot, number) in facts.chunks_exact_mut(8).zip(numbers) {
                slot.copy_from_slice(&number.to_le_bytes());
            }
            let weak = if is_young(version, loaded) { "W/" } else { "" };
            format!("{weak}\"f{:016x}{variant}\"", xxh3_64(&facts))
        }
    }
}
