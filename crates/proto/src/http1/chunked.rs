//! The chunked transfer coding (RFC 9112 section 7.1), decoded as it comes.
//!
//! Extensions are checked and ignored, and so are trailers, but for those of a request.

use super::trailers::Trailers;
use crate::ascii::{is_text_byte, is_token_byte};
use crate::{Fault, Fields, Limits};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    SizeStart,
    Size,
    /// White space after the size: an extension must follow.
    SizeBlank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// Decodes one chunked body.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    left: u64,
    line_bytes: usize,
    trailer_bytes: usize,
    is_of_request: bool,
    /// Those of a request, once the first has begun.
    trailers: Option<Box<Trailers>>,
}

impl ChunkedDecoder {
    /// For the content of a request: its trailers are gathered, and those that belong into its head are
    /// refused. (Of an answer all of them are ignored.)
    #[must_use]
    pub fn of_request() -> Self {
        Self {
            is_of_request: true,
            ..Self::default()
        }
    }

    /// Decodes from `input` on, giving each piece of content to `content`; returns how many bytes
    /// were used. After `is_done`, uses none.
    ///
    /// # Errors
    /// 400 for anything that is not in the grammar or beyond 64 bits, and for trailers that a request
    /// may not have; 431 for size lines or trailers beyond the limits.
    pub fn decode(
        &mut self,
        input: &[u8],
        limits: &Limits,
        mut content: impl FnMut(&[u8]),
    ) -> Result<usize, Fault> {
        let mut used = 0;
        while used < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let rest = &input[used..];
                let len = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                content(&rest[..len]);
                self.left -= len as u64;
                used += len;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.step(input[used], limits)?;
            used += 1;
        }
        Ok(used)
    }

    /// Whether the last chunk and the trailers have passed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The trailers of a request, behind its last chunk; `None`: there are none.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        let trailers = self.trailers.take()?;
        Some(Box::new(trailers.into_fields()))
    }

    /// Memory that it holds beside itself.
    pub(crate) fn held_bytes(&self) -> usize {
        self.trailers.as_ref().map_or(0, |it| it.memory_bytes())
    }

    /// Whether a chunk-size line or the trailer section has begun and not ended.
    pub(crate) fn is_in_line(&self) -> bool {
        !matches!(
            self.state,
            State::SizeStart | State::Data | State::DataCr | State::DataLf | State::Done
        )
    }

    fn step(&mut self, byte: u8, limits: &Limits) -> Result<(), Fault> {
        self.count(limits)?;
        self.state = match (self.state, byte) {
            (State::SizeStart | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.add_digit(byte)?;
                State::Size
            }
            (State::Size, b' ' | b'\t') | (State::SizeBlank, b' ' | b'\t') => State::SizeBlank,
            (State::Size | State::SizeBlank, b';') => State::Extension,
            (State::Size | State::Extension, b'\r') => State::SizeLf,
            (State::Extension, _) if is_text_byte(byte) => State::Extension,
            (State::SizeLf, b'\n') => self.begin_data(),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line_bytes = 0;
                State::SizeStart
            }
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                self.keep_trailer(byte);
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                if let Some(trailers) = &mut self.trailers {
                    trailers.end_name(limits)?;
                }
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if is_text_byte(byte) => {
                self.keep_trailer(byte);
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => {
                if let Some(trailers) = &mut self.trailers {
                    trailers.end_line()?;
                }
                State::TrailerStart
            }
            (State::EndLf, b'\n') => State::Done,
            (state, _) => return Err(malformed(state)),
        };
        Ok(())
    }

    fn keep_trailer(&mut self, byte: u8) {
        if self.is_of_request {
            self.trailers.get_or_insert_default().push(byte);
        }
    }

    fn count(&mut self, limits: &Limits) -> Result<(), Fault> {
        match self.state {
            State::SizeStart | State::Size | State::SizeBlank | State::Extension => {
                self.line_bytes += 1;
            }
            State::TrailerStart | State::TrailerName | State::TrailerValue => {
                self.trailer_bytes += 1;
            }
            _ => {}
        }
        if self.line_bytes > limits.chunk_line_bytes_max {
            return Err(Fault::large_fields("a chunk-size line longer than allowed"));
        }
        if self.trailer_bytes > limits.trailer_bytes_max {
            return Err(Fault::large_fields("trailers longer than allowed"));
        }
        Ok(())
    }

    fn add_digit(&mut self, byte: u8) -> Result<(), Fault> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        if self.left >> 60 != 0 {
            return Err(Fault::bad_request("a chunk size beyond 64 bits"));
        }
        self.left = self.left << 4 | u64::from(digit);
        Ok(())
    }

    fn begin_data(&self) -> State {
        if self.left == 0 {
            State::TrailerStart
        } else {
            State::Data
        }
    }
}

fn malformed(state: State) -> Fault {
    Fault::bad_request(match state {
        State::SizeStart => "a chunk size without a digit",
        State::Size | State::SizeBlank | State::Extension | State::SizeLf => {
            "a malformed chunk-size line"
        }
        State::DataCr | State::DataLf => "a chunk that is longer than its size",
        _ => "a malformed trailer",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), Fault> {
        let mut decoder = ChunkedDecoder::default();
        let mut out = Vec::new();
        let used = decoder.decode(input, &Limits::default(), |piece| {
            out.extend_from_slice(piece)
        })?;
        Ok((out, used, decoder.is_done()))
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let input = b"3;a=\"b\"\r\nabc\r\nA ; x\r\n0123456789\r\n0\r\nX: y\r\n\r\nrest";
        let (out, used, done) = decode(input).unwrap();
        assert_eq!((out.as_slice(), done), (&b"abc0123456789"[..], true));
        assert_eq!(&input[used..], b"rest");
    }

    #[test]
    fn what_is_not_in_the_grammar_is_refused() {
        for bad in [
            &b"\r\n"[..],
            b"g\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b" 1\r\n",
            b"1 \r\n",
            b"1\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"1\r\nab\r\n",
            b";\r\n",
            b"0\r\n x: y\r\n",
            b"0\r\nx : y\r\n",
            b"0\r\nx\r\n",
            b"1;a\nb\r\n",
            b"1;a\x00\r\n",
            b"0\r\n\n",
        ] {
            assert!(decode(bad).is_err(), "{:?}", bad.escape_ascii().to_string());
        }
        let overflow = decode(b"10000000000000000\r\n").unwrap_err();
        assert_eq!(overflow.status, Some(Status::BAD_REQUEST));
    }
}
