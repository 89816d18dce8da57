//! Answers as bytes.

use loadline_base::Buffer;

use crate::{Request, Status, Turn};

pub(crate) fn borrowed(
    _output: &mut Buffer,
    _request: &Request,
    _persist: bool,
    _status: Status,
    _fields: &[u8],
    _content: &[u8],
    _turn: &Turn<'_>,
) {
}
