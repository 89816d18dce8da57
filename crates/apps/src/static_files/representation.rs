//! One form of a file, ready to be sent: its fields, its validators, its content.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_codings::Coding;
use loadline_proto::Fields;
use xxhash_rust::xxh3::xxh3_64;

use super::options::StaticOptions;
use super::version::{FileVersion, is_young};
use crate::content::multipart::Content;

/// One form of a file: as it is, one of its precompressed neighbours, or made of it here.
#[derive(Clone, Debug)]
pub(super) struct Representation {
    pub(super) coding: Coding,
    pub(super) origin: Origin,
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) media_type: Box<str>,
    pub(super) etag: Box<str>,
    pub(super) modified_seconds: u64,
    pub(super) version: FileVersion,
    /// Of a 200, and of a 206 with one range: Content-Type, then the rest about the content, then what
    /// a 304 repeats.
    pub(super) fields: Fields,
    /// How many of them, the first ones, a 304 does not repeat.
    pub(super) about_content: usize,
}

/// Where the bytes of a representation are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A file: the one asked for, or a neighbour of it.
    File,
    /// Compressed here.
    Made,
}

/// What the fields of a representation say.
pub(super) struct Facts<'f> {
    /// Path of the file below the root, without a neighbour's suffix.
    pub(super) path: &'f [u8],
    pub(super) coding: Coding,
    pub(super) version: FileVersion,
    pub(super) content: Content,
    pub(super) origin: Origin,
    /// There are other forms of it, or may be.
    pub(super) has_variants: bool,
    pub(super) loaded: SystemTime,
}

impl Representation {
    pub(super) fn new(facts: Facts<'_>, options: &StaticOptions) -> Self {
        let (coding, version, content) = (facts.coding, facts.version, facts.content);
        let media_type = options.media_types.of(facts.path);
        let cache_control = options.cache_control_of(facts.path, &media_type);
        let etag = etag(&content, coding, &version, facts.loaded);
        let loaded_seconds = match facts.loaded.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_secs(),
            Err(_) => 0,
        };
        // Never in the future (RFC 9110 section 8.8.2.1).
        let modified_seconds =
            u64::try_from(version.content.modified_ns / 1_000_000_000).unwrap_or(0);
        let modified_seconds = modified_seconds.min(loaded_seconds);

        let mut fields = Fields::default().with("Content-Type", &*media_type);
        if let Some(token) = coding.token() {
            fields.add("Content-Encoding", token);
        }
        fields.add("Accept-Ranges", "bytes");
        fields.add("X-Content-Type-Options", "nosniff"); // the type is known: nobody need guess another
        let about_content = fields.len();
        let modified = UNIX_EPOCH + Duration::from_secs(modified_seconds.min(YEAR_9999));
        fields.add("ETag", &etag);
        fields.add("Last-Modified", httpdate::fmt_http_date(modified));
        if facts.has_variants {
            fields.add("Vary", "Accept-Encoding");
        }
        if let Some(value) = cache_control {
            fields.add("Cache-Control", value);
        }
        fields.shrink_to_fit();
        if matches!(content, Content::Shared(_)) {
            let _ = fields.http2_block(); // made now: the cache counts it once
        }
        let size = match &content {
            Content::Shared(bytes) => bytes.len() as u64,
            Content::File(file) => file.version.size,
        };
        Self {
            coding,
            origin: facts.origin,
            content,
            size,
            media_type: media_type.into(),
            etag: etag.into(),
            modified_seconds,
            version,
            fields,
            about_content,
        }
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
        let text = self.fields.memory_bytes() + self.etag.len() + self.media_type.len();
        match &self.content {
            Content::Shared(bytes) => (text + bytes.len(), 0),
            Content::File(_) => (text, 1),
        }
    }
}

/// The last second that a date in a field can say.
const YEAR_9999: u64 = 253_402_300_799;

/// Content in memory goes by its bytes; a file by its identity, length and times, hashed so that
/// they stay private.
fn etag(content: &Content, coding: Coding, version: &FileVersion, loaded: SystemTime) -> String {
    let variant = coding.suffix().replace('.', "-");
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
