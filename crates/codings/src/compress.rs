//! Content codings that are made here, gzip, zstd and brotli: an encoder for each, behind one `Write`.
//!
//! The same content at the same level always gives the same bytes. Levels were chosen by measurement
//! (docs/decisions/0074; `./x bench compression` repeats it).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::stream::raw::CParameter;

use crate::brotli::BrotliWriter;
use crate::encoding::Coding;

/// For whom something is compressed, which decides how hard it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A client waits, and the next one waits for its own.
    EachTime,
    /// A client waits, and it is kept.
    OnTheFly,
    /// Nobody waits, and it is kept.
    Ahead,
}

impl Effort {
    /// The level of a coding that is made here.
    #[must_use]
    pub fn level(self, coding: Coding) -> i32 {
        match (self, coding) {
            (Self::EachTime, Coding::Gzip) => 4,
            (Self::EachTime, Coding::Zstd) => 3,
            (Self::EachTime, Coding::Brotli) => 4,
            (Self::OnTheFly, Coding::Gzip) => 6,
            (Self::OnTheFly, Coding::Zstd) => 6,
            (Self::Ahead, Coding::Gzip) => 9,
            // The highest whose window browsers have to take, 8 MiB (RFC 9659).
            (Self::Ahead, Coding::Zstd) => 19,
            (Self::OnTheFly, Coding::Brotli) => 5,
            (Self::Ahead, Coding::Brotli) => 11,
            (_, Coding::Identity) => 0,
        }
    }
}

/// How zstd compresses a stream: as its own table has it for 128 KiB. Its defaults for a length that is not
/// known take 3 MB for each stream.
const ZSTD_STREAM: [CParameter; 3] = [
    CParameter::WindowLog(17),
    CParameter::HashLog(16),
    CParameter::ChainLog(15),
];

/// Longer content is a stream to zstd.
const ZSTD_WHOLE_BYTES_MAX: u64 = 1 << 17;

/// Writes what it is given to `W` in a content coding.
#[allow(
    missing_debug_implementations,
    reason = "the libraries' encoders have none"
)]
pub enum Encoder<W: Write> {
    /// RFC 1952, without a time and a name.
    Gzip(GzEncoder<W>),
    /// RFC 8878, in one frame.
    Zstd(zstd::stream::write::Encoder<'static, W>),
    /// RFC 7932.
    Brotli(BrotliWriter<W>),
}

impl<W: Write> Encoder<W> {
    /// An encoder for content of `len` bytes.
    ///
    /// # Errors
    /// It is `Coding::Identity`, or there is no memory.
    pub fn new(coding: Coding, level: i32, len: u64, writer: W) -> io::Result<Self> {
        let positive = u8::try_from(level).unwrap_or(0);
        Ok(match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(writer, Compression::new(positive.into()))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(writer, level)?;
                encoder.set_pledged_src_size(Some(len))?; // it takes no more memory than that needs
                Self::Zstd(encoder)
            }
            Coding::Brotli => Self::Brotli(BrotliWriter::new(positive, writer)?),
            Coding::Identity => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    /// An encoder for content that is compressed each time it is asked for, while it streams; of `len` bytes,
    /// if that is known. What it takes of memory is [`stream_bytes`]: brotli keeps the last 8 MiB of the content,
    /// so others are better for what is long.
    ///
    /// # Errors
    /// It is `Coding::Identity`, or there is no memory.
    pub fn for_stream(coding: Coding, len: Option<u64>, writer: W) -> io::Result<Self> {
        let level = Effort::EachTime.level(coding);
        let is_long = len.is_none_or(|len| len > ZSTD_WHOLE_BYTES_MAX);
        if coding != Coding::Zstd || !is_long {
            return Self::new(coding, level, len.unwrap_or_default(), writer);
        }
        let mut encoder = zstd::stream::write::Encoder::new(writer, level)?;
        for parameter in ZSTD_STREAM {
            encoder.set_parameter(parameter)?;
        }
        Ok(Self::Zstd(encoder))
    }

    /// What it writes to.
    pub fn get_mut(&mut self) -> &mut W {
        match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
        }
    }

    /// Writes the end.
    ///
    /// # Errors
    /// `W` failed.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Brotli(encoder) => encoder.finish(),
        }
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Gzip(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
            Self::Brotli(encoder) => encoder,
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}

/// zlib-rs has two windows (64 KiB), their links (64 KiB), heads of chains (128 KiB), output and symbols
/// (112 KiB), and its state (16 KiB); flate2 has 32 KiB of output.
const GZIP_STREAM_BYTES: u64 = 416 << 10;

/// `ZSTD_estimateCStreamSize` with `ZSTD_STREAM`: tables (384 KiB), window and a block (256 KiB), its output (128 KiB),
/// its literals and sequences (480 KiB), and its state (32 KiB). Its crate has 32 KiB of output. The table for 128 KiB is as large.
const ZSTD_STREAM_BYTES: u64 = 1312 << 10;

/// `BrotliEncoderEstimatePeakMemoryUsage` at level 4: a table (512 KiB) and the commands of a block (384 KiB).
const BROTLI_STREAM_BYTES: u64 = 1 << 20;

/// The same, for each byte of content: itself (1), commands (2), output (2, of which less than half is used), and
/// histograms (1).
const BROTLI_BYTES_PER_BYTE: u64 = 5;

/// Brotli keeps no more of the content.
const BROTLI_CONTENT_BYTES_MAX: u64 = 8 << 20;

/// About what an encoder of [`Encoder::for_stream`] takes of memory, computed from what the libraries allocate.
#[must_use]
pub fn stream_bytes(coding: Coding, len: Option<u64>) -> u64 {
    let content = len.unwrap_or(u64::MAX).min(BROTLI_CONTENT_BYTES_MAX);
    match coding {
        Coding::Identity => 0,
        Coding::Gzip => GZIP_STREAM_BYTES,
        Coding::Zstd => ZSTD_STREAM_BYTES,
        Coding::Brotli => BROTLI_STREAM_BYTES + BROTLI_BYTES_PER_BYTE * content,
    }
}

/// Passes bytes on as long as they are fewer than `bytes_max`, and remembers what went wrong.
#[derive(Debug)]
pub struct Smaller<W> {
    writer: W,
    bytes: u64,
    bytes_max: u64,
    error: Option<io::Error>,
}

impl<W: Write> Smaller<W> {
    /// For less than `bytes_max` bytes.
    pub fn new(writer: W, bytes_max: u64) -> Self {
        Self {
            writer,
            bytes: 0,
            bytes_max,
            error: None,
        }
    }

    /// What was written, and how long it is; `None` if it got too long.
    ///
    /// # Errors
    /// The writer's.
    pub fn end(self) -> io::Result<Option<(W, u64)>> {
        match self.error {
            Some(error) => Err(error),
            None => Ok((self.bytes < self.bytes_max).then_some((self.writer, self.bytes))),
        }
    }
}

impl<W: Write> Write for Smaller<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        // What comes after a failure, or is too much, goes nowhere: `end` says it.
        if self.error.is_none() && self.bytes < self.bytes_max {
            self.error = self.writer.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `content` in a coding; `None` if it gets no smaller by it.
#[must_use]
pub fn compress(content: &[u8], coding: Coding, effort: Effort) -> Option<Vec<u8>> {
    let len = content.len() as u64;
    let smaller = Smaller::new(Vec::new(), len);
    let mut encoder = Encoder::new(coding, effort.level(coding), len, smaller).ok()?;
    encoder.write_all(content).ok()?;
    let (bytes, _) = encoder.finish().ok()?.end().ok()??;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decoded(bytes: &[u8], coding: Coding) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Gzip => {
                let mut decoder = flate2::read::GzDecoder::new(bytes);
                decoder.read_to_end(&mut content).unwrap();
            }
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(bytes).unwrap();
                decoder.window_log_max(23).unwrap(); // 8 MiB: more need nobody take (RFC 9659)
                decoder.read_to_end(&mut content).unwrap();
            }
            Coding::Brotli => {
                let mut encoded = bytes;
                brotli_decompressor::BrotliDecompress(&mut encoded, &mut content).unwrap();
                assert!(encoded.is_empty(), "bytes behind the end");
            }
            Coding::Identity => panic!("nothing to decode"),
        }
        content
    }

    /// Text in which little comes again as it was.
    fn text(len: usize) -> Vec<u8> {
        let words = (0_u64..).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9) % 0xffff));
        let mut text: Vec<u8> = words
            .take(len / 3 + 1)
            .flat_map(String::into_bytes)
            .collect();
        text.truncate(len);
        text
    }

    #[test]
    fn what_is_compressed_is_smaller_the_same_each_time_and_comes_out_as_it_was() {
        for len in [200, 1024, 70_000, 1 << 20] {
            let content = text(len);
            for coding in Coding::COMPRESSED {
                for effort in [Effort::OnTheFly, Effort::Ahead] {
                    if effort == Effort::Ahead && len > 70_000 {
                        continue; // takes seconds
                    }
                    let compressed = compress(&content, coding, effort).unwrap();
                    assert!(compressed.len() < len, "{coding:?} of {len}");
                    assert!(
                        decoded(&compressed, coding) == content,
                        "{coding:?} of {len}"
                    );
                    assert!(compress(&content, coding, effort).unwrap() == compressed);
                }
            }
        }
    }

    #[test]
    fn a_window_is_one_that_decoders_have_to_take() {
        let content: Vec<u8> = text(1 << 20).repeat(20);
        let mut encoder = Encoder::new(Coding::Zstd, 19, content.len() as u64, Vec::new()).unwrap();
        if let Encoder::Zstd(encoder) = &mut encoder {
            // As many bytes, looked at as fast as they can be.
            encoder
                .set_parameter(CParameter::Strategy(zstd::zstd_safe::Strategy::ZSTD_fast))
                .unwrap();
        }
        encoder.write_all(&content).unwrap();
        assert!(decoded(&encoder.finish().unwrap(), Coding::Zstd) == content);
    }

    type Decode = Box<dyn FnMut(&[u8]) -> Vec<u8>>;

    /// Passes on what was flushed, decoded.
    fn decoder(coding: Coding) -> Decode {
        match coding {
            Coding::Gzip => {
                let mut decoder = flate2::write::GzDecoder::new(Vec::new());
                Box::new(move |bytes| {
                    decoder.write_all(bytes).unwrap();
                    decoder.flush().unwrap();
                    std::mem::take(decoder.get_mut())
                })
            }
            Coding::Zstd => {
                let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
                decoder.window_log_max(17).unwrap();
                Box::new(move |bytes| {
                    decoder.write_all(bytes).unwrap();
                    decoder.flush().unwrap();
                    std::mem::take(decoder.get_mut())
                })
            }
            _ => {
                // It passes on only what fits into its buffer.
                let mut decoder = brotli_decompressor::DecompressorWriter::new(Vec::new(), 1 << 20);
                Box::new(move |bytes| {
                    decoder.write_all(bytes).unwrap();
                    std::mem::take(decoder.get_mut())
                })
            }
        }
    }

    #[test]
    fn what_was_flushed_can_be_read_at_once() {
        let content = text(300_000);
        for coding in Coding::COMPRESSED {
            for len in [None, Some(content.len() as u64)] {
                let mut encoder = Encoder::for_stream(coding, len, Vec::new()).unwrap();
                let mut decode = decoder(coding);
                let (first, second) = content.split_at(200_000);
                let mut bytes_out = 0;
                for piece in first.chunks(99_999).chain(second.chunks(30_001)) {
                    encoder.write_all(piece).unwrap();
                    encoder.flush().unwrap();
                    let bytes = std::mem::take(encoder.get_mut());
                    bytes_out += bytes.len();
                    assert!(decode(&bytes) == piece, "{coding:?}, {len:?}");
                }
                let end = encoder.finish().unwrap();
                assert!(decode(&end).is_empty(), "{coding:?}, {len:?}");
                assert!(bytes_out * 10 < content.len() * 9, "{coding:?}, {len:?}");
            }
        }
    }

    /// What fills the buffer between encoder and writer: text in which nothing comes again, three quarters of it
    /// when compressed. gzip kept the end of it (flate2 before 1.1.11).
    #[test]
    fn what_was_flushed_can_be_read_at_once_however_little_smaller_it_gets() {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = noise(400_000).into_iter();
        let content: Vec<u8> = digits.map(|it| ALPHABET[usize::from(it & 63)]).collect();
        for coding in Coding::COMPRESSED {
            for piece_len in [32 << 10, 44 << 10, 60_000, 64 << 10] {
                let mut encoder = Encoder::for_stream(coding, None, Vec::new()).unwrap();
                let mut decode = decoder(coding);
                for piece in content.chunks(piece_len) {
                    encoder.write_all(piece).unwrap();
                    encoder.flush().unwrap();
                    let bytes = std::mem::take(encoder.get_mut());
                    assert!(decode(&bytes) == piece, "{coding:?}, {piece_len}");
                }
            }
        }
    }

    /// What nothing makes smaller.
    fn noise(len: usize) -> Vec<u8> {
        let byte = |place: usize| xxhash_rust::xxh3::xxh3_64(&place.to_le_bytes()) as u8;
        (0..len).map(byte).collect()
    }

    #[test]
    fn what_gets_no_smaller_is_not_made() {
        for coding in Coding::COMPRESSED {
            for content in [&noise(5000)[..], b"", b"a"] {
                assert_eq!(
                    compress(content, coding, Effort::OnTheFly),
                    None,
                    "{coding:?}"
                );
            }
        }
    }

    #[test]
    fn a_writer_that_fails_is_found_out_with_every_coding() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for coding in Coding::COMPRESSED {
            let content = text(100_000);
            let writer = Smaller::new(Full, 100_000);
            let mut encoder = Encoder::new(coding, 1, 100_000, writer).unwrap();
            encoder.write_all(&content).unwrap();
            let error = encoder.finish().unwrap().end().err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{coding:?}");
        }
    }
}
