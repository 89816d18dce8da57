//! From the path of a request to a path below the root, and back.

use loadline_proto::Status;

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
    let _ = (path, buffer);
    unimplemented!()
}

/// Appends the path of `relative` (see `SitePath::relative`) percent-encoded, from its leading
/// slash on, with a trailing slash if it is a directory.
pub fn encode(relative: &[u8], directory: bool, out: &mut Vec<u8>) {
    let _ = (relative, directory, out);
    unimplemented!()
}

/// The Location that redirects to the slash form of a directory, keeping the query. It always
/// begins with one slash and a name, so it cannot lead to another host, and holds only visible
/// ASCII, so it cannot end the line.
#[must_use]
pub fn directory_location(relative: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let _ = (relative, query);
    unimplemented!()
}
