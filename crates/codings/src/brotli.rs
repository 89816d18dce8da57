//! Brotli (RFC 7932) as a writer, by its makers' own encoder.

use std::io::{self, Write};

use compu::encoder::{BrotliC, BrotliOptions, BrotliQuality, EncodeOp, EncodeStatus, Encoder};

/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 16 << 10;

/// By number.
const LEVELS: [BrotliQuality; 12] = [
    BrotliQuality::Q0,
    BrotliQuality::Q1,
    BrotliQuality::Q2,
    BrotliQuality::Q3,
    BrotliQuality::Q4,
    BrotliQuality::Q5,
    BrotliQuality::Q6,
    BrotliQuality::Q7,
    BrotliQuality::Q8,
    BrotliQuality::Q9,
    BrotliQuality::Q10,
    BrotliQuality::Q11,
];

/// Writes what it is given to `W` as one brotli stream, with a window of 4 MiB at most.
#[allow(
    missing_debug_implementations,
    reason = "the library's encoder has none"
)]
pub struct BrotliWriter<W> {
    encoder: BrotliC,
    piece: Box<[u8]>,
    writer: W,
}

impl<W: Write> BrotliWriter<W> {
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn new(level: u8, writer: W) -> io::Result<Self> {
        let quality = LEVELS[usize::from(level).min(LEVELS.len() - 1)];
        let options = BrotliOptions::new().quality(quality);
        let encoder = BrotliC::new(options).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            encoder,
            piece: vec![0; PIECE_BYTES].into(),
            writer,
        })
    }

    pub(crate) fn get_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// Writes the end.
    ///
    /// # Errors
    /// `W` failed, or there is no memory.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.encode(&[], EncodeOp::Finish)?;
        Ok(self.writer)
    }

    fn encode(&mut self, mut input: &[u8], operation: EncodeOp) -> io::Result<()> {
        loop {
            let done = self.encoder.encode(input, &mut self.piece, operation);
            let written = self.piece.len() - done.output_remain;
            self.writer.write_all(&self.piece[..written])?;
            input = &input[input.len() - done.input_remain..];
            match done.status {
                EncodeStatus::Error => return Err(io::ErrorKind::OutOfMemory.into()),
                EncodeStatus::Finished => return Ok(()),
                EncodeStatus::Continue if input.is_empty() => return Ok(()),
                EncodeStatus::Continue | EncodeStatus::NeedOutput => {}
            }
        }
    }
}

impl<W: Write> Write for BrotliWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.encode(bytes, EncodeOp::Process)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encode(&[], EncodeOp::Flush)?;
        self.writer.flush()
    }
}
