//! Field blocks to fields.

use super::TABLE_BYTES;
use super::huffman;
use super::table::DynamicTable;

/// Why a block cannot be decoded. Each is a connection error of the type `COMPRESSION_ERROR` (RFC 9113
/// section 4.3), since the dynamic table is then unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// It ends within a field.
    Truncated,
    /// An integer beyond 2^28 (RFC 7541 section 5.1).
    Integer,
    /// No table has an entry of this index (section 2.3.3).
    Index,
    /// A string is not encoded as the code says (section 5.2).
    Huffman,
    /// A size of the dynamic table that is beyond the bound, or stands behind a field (sections 4.2 and
    /// 6.3).
    TableSize,
    /// Its fields are larger than the decoder was made for: a small block can name a large entry of the
    /// table a thousand times (RFC 7541 section 7.3).
    TooLarge,
}

/// Decodes the field blocks of a connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Of the fields of one block, each with 32 bytes more (section 4.1).
    list_bytes_max: usize,
}

/// What a field counts beyond its name and value (section 4.1).
const FIELD_BYTES: usize = 32;

impl Default for Decoder {
    fn default() -> Self {
        Self::within(usize::MAX)
    }
}

impl Decoder {
    /// For blocks whose fields come to this at most, each counted with 32 bytes beyond its name and value.
    #[must_use]
    pub fn within(list_bytes_max: usize) -> Self {
        Self {
            table: DynamicTable::new(TABLE_BYTES),
            list_bytes_max,
        }
    }

    /// Decodes a whole block, and hands out each field, name and value. What is not wanted has to be
    /// decoded, too: it may change the dynamic table. `memory` is for one field at a time.
    ///
    /// # Errors
    /// See [`HpackError`]. The connection cannot go on.
    pub fn decode(
        &mut self,
        block: &[u8],
        memory: &mut Vec<u8>,
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut rest = block;
        let mut may_resize = true;
        let mut list_bytes_left = self.list_bytes_max;
        let mut field = |name: &[u8], value: &[u8]| {
            let bytes = name.len() + value.len() + FIELD_BYTES;
            list_bytes_left = list_bytes_left
                .checked_sub(bytes)
                .ok_or(HpackError::TooLarge)?;
            field(name, value);
            Ok(())
        };
        while let Some(first) = rest.first().copied() {
            match first {
                // Section 6.1.
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    let (name, value) = self.table.get(index).ok_or(HpackError::Index)?;
                    field(name, value)?;
                }
                // Section 6.2.1.
                0x40.. => self.literal(&mut rest, 6, true, memory, &mut field)?,
                // Section 6.3.
                0x20.. => {
                    let size = integer(&mut rest, 5)?;
                    if !may_resize || size > TABLE_BYTES {
                        return Err(HpackError::TableSize);
                    }
                    self.table.resize(size);
                    continue;
                }
                // Sections 6.2.2 and 6.2.3.
                _ => self.literal(&mut rest, 4, false, memory, &mut field)?,
            }
            may_resize = false;
        }
        Ok(())
    }

    /// Bytes of memory that it holds beside itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }

    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix_bits: u8,
        is_indexed: bool,
        memory: &mut Vec<u8>,
        field: &mut impl FnMut(&[u8], &[u8]) -> Result<(), HpackError>,
    ) -> Result<(), HpackError> {
        memory.clear();
        match integer(rest, prefix_bits)? {
            0 => string(rest, memory)?,
            index => {
                let (name, _) = self.table.get(index).ok_or(HpackError::Index)?;
                if !is_indexed {
                    string(rest, memory)?;
                    return field(name, memory);
                }
                memory.extend_from_slice(name);
            }
        }
        let name_len = memory.len();
        string(rest, memory)?;
        let (name, value) = memory.split_at(name_len);
        if is_indexed {
            self.table.insert(name, value);
        }
        field(name, value)
    }
}

/// An integer whose first byte has so many bits for it (section 5.1).
fn integer(rest: &mut &[u8], prefix_bits: u8) -> Result<usize, HpackError> {
    let mask = ((1_u16 << prefix_bits) - 1) as u8;
    let mut next = || {
        let (first, behind) = rest.split_first().ok_or(HpackError::Truncated)?;
        *rest = behind;
        Ok(*first)
    };
    let first = next()? & mask;
    let mut value = usize::from(first);
    if first < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(HpackError::Integer)
}

/// A string (section 5.2), appended.
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_coded = rest.first().is_some_and(|first| *first >= 0x80);
    let len = integer(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(len).ok_or(HpackError::Truncated)?;
    *rest = behind;
    match is_coded {
        true if !huffman::decode(bytes, out) => return Err(HpackError::Huffman),
        true => {}
        false => out.extend_from_slice(bytes),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: Vec<_> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let pairs = hex.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    /// Fields as lines.
    fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<String, HpackError> {
        let mut lines = String::new();
        decoder.decode(block, &mut Vec::new(), |name, value| {
            let text = |bytes| String::from_utf8_lossy(bytes);
            lines += &format!("{}: {}\n", text(name), text(value));
        })?;
        Ok(lines)
    }

    const FIRST: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
    const SECOND: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n\
        cache-control: no-cache\n";
    const THIRD: &str = ":method: GET\n:scheme: https\n:path: /index.html\n\
        :authority: www.example.com\ncustom-key: custom-value\n";

    /// Appendices C.3 and C.4.
    #[test]
    fn requests_of_the_rfc() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            for (block, fields) in blocks.into_iter().zip([FIRST, SECOND, THIRD]) {
                assert_eq!(decode(&mut decoder, &bytes(block)).as_deref(), Ok(fields));
            }
        }
    }

    /// Appendices C.2.1 to C.2.4, and C.5 with a table of 256 bytes, which evicts.
    #[test]
    fn literals_and_evictions_of_the_rfc() {
        let mut decoder = Decoder::default();
        for (block, fields) in [
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                "custom-key: custom-header\n",
            ),
            (
                "040c 2f73 616d 706c 652f 7061 7468",
                ":path: /sample/path\n",
            ),
            (
                "1008 7061 7373 776f 7264 0673 6563 7265 74",
                "password: secret\n",
            ),
            ("82", ":method: GET\n"),
            ("be", "custom-key: custom-header\n"),
        ] {
            assert_eq!(decode(&mut decoder, &bytes(block)).as_deref(), Ok(fields));
        }
        let mut decoder = Decoder::default();
        for (block, fields) in [
            ("3fe1 01", ""),
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
                 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
                 6c65 2e63 6f6d",
                ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
                 location: https://www.example.com\n",
            ),
            (
                "4803 3330 37c1 c0bf",
                ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
                 location: https://www.example.com\n",
            ),
        ] {
            let block = bytes(&block.replace(['\n', ' '], ""));
            assert_eq!(decode(&mut decoder, &block).as_deref(), Ok(fields));
        }
        assert_eq!(
            decode(&mut decoder, &bytes("c2")),
            Err(HpackError::Index),
            "evicted"
        );
    }

    #[test]
    fn what_is_wrong() {
        for (block, error) in [
            ("80", HpackError::Index),
            ("be", HpackError::Index),
            ("7f 01", HpackError::Index),
            ("ff ffff ffff 7f", HpackError::Integer),
            ("ff 80", HpackError::Truncated),
            ("40", HpackError::Truncated),
            ("04", HpackError::Truncated),
            ("04 0361 62", HpackError::Truncated),
            ("04 81ff", HpackError::Huffman),
            ("82 20", HpackError::TableSize),
            ("3fe2 1f", HpackError::TableSize),
        ] {
            let block = bytes(block);
            assert_eq!(
                decode(&mut Decoder::default(), &block),
                Err(error),
                "{block:x?}"
            );
        }
        let sizes = bytes("203f e11f 82");
        assert_eq!(
            decode(&mut Decoder::default(), &sizes).as_deref(),
            Ok(":method: GET\n")
        );
    }

    #[test]
    fn fields_beyond_the_bound() {
        // An entry of 42 bytes, and its name again with an empty value.
        let block = bytes("400a 6375 7374 6f6d 2d6b 6579 00 be 7e 00");
        for (bound, fields) in [(41, None), (126, Some(3)), (125, None)] {
            let mut count = 0;
            let decoded = Decoder::within(bound).decode(&block, &mut Vec::new(), |_, _| count += 1);
            match fields {
                Some(fields) => assert_eq!((decoded, count), (Ok(()), fields)),
                None => assert_eq!(decoded, Err(HpackError::TooLarge)),
            }
        }
    }

    #[test]
    fn every_cut_of_a_block_is_an_error_or_ends_behind_a_field() {
        let block = bytes("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff58 86a8 eb10 649c bf");
        let ends: Vec<_> = (0..=block.len())
            .filter(|len| decode(&mut Decoder::default(), &block[..*len]).is_ok())
            .collect();
        assert_eq!(ends, [0, 1, 2, 3, 17, 25]);
    }
}
