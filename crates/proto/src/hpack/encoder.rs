//! Fields to field blocks.

use super::TABLE_BYTES;
use super::huffman;
use super::table::{DynamicTable, STATIC};

/// What becomes of a field in the dynamic tables of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// It is kept, and costs a byte or two when it is sent again.
    Kept,
    /// It is not: it hardly comes again.
    Not,
    /// It is not, and no proxy on the way may do so: a secret, whose value could be guessed by the
    /// size of what is sent (RFC 7541 section 7.1.3).
    Never,
}

/// Encodes the field blocks of a connection, in their order.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// The smallest size since the last block, if it was changed (section 4.2).
    resized: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: DynamicTable::new(TABLE_BYTES),
            resized: None,
        }
    }
}

impl Encoder {
    /// The peer's `SETTINGS_HEADER_TABLE_SIZE`: no more than this is used.
    pub fn resize(&mut self, size: usize) {
        let size = size.min(TABLE_BYTES);
        if size == self.table.size_max() {
            return;
        }
        self.table.resize(size);
        self.resized = Some(self.resized.map_or(size, |smallest| smallest.min(size)));
    }

    /// A block begins.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some(smallest) = self.resized.take() else {
            return;
        };
        if smallest < self.table.size_max() {
            integer(smallest, 0x20, 5, out);
        }
        integer(self.table.size_max(), 0x20, 5, out);
    }

    /// One field; its name is in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let name_index = find_static(name);
        if indexing != Indexing::Never
            && let Some(index) = find_value(name_index, name, value)
        {
            return integer(index, 0x80, 7, out);
        }
        match indexing {
            Indexing::Kept => {
                if let Some(index) = self.table.find(name, value) {
                    return integer(index, 0x80, 7, out);
                }
                integer(name_index, 0x40, 6, out);
                self.table.insert(name, value);
            }
            Indexing::Not => integer(name_index, 0, 4, out),
            Indexing::Never => integer(name_index, 0x10, 4, out),
        }
        if name_index == 0 {
            string(name, out);
        }
        string(value, out);
    }

    /// The same if it is in a table, and nothing if it is not.
    pub(crate) fn indexed(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) -> bool {
        let index = self.table.find(name, value);
        if let Some(index) = index {
            integer(index, 0x80, 7, out);
        }
        index.is_some()
    }

    /// How many entries the dynamic table has had: while it stays, so do their indexes.
    pub(crate) fn inserted(&self) -> u64 {
        self.table.inserted()
    }

    /// Whether the next block has to begin with another size of the table.
    pub(crate) fn is_resized(&self) -> bool {
        self.resized.is_some()
    }

    /// Bytes of memory that it holds beside itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }
}

/// Fields as literals that no table keeps, or as static entries: a part of any block, of any connection.
pub(crate) fn literals<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        literal(&name.to_ascii_lowercase(), value, &mut out);
    }
    out
}

/// One of them; its name is in lower case.
fn literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let name_index = find_static(name);
    let is_secret = is_secret(name);
    if let Some(index) = find_value(name_index, name, value).filter(|_| !is_secret) {
        return integer(index, 0x80, 7, out);
    }
    integer(name_index, if is_secret { 0x10 } else { 0 }, 4, out);
    if name_index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// Whether values of this name are worth guessing.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    matches!(name, b"set-cookie" | b"authorization" | b"www-authenticate")
}

/// The longest name of a static entry.
const NAME_LEN_MAX: usize = 27;
/// Names of one length, at most.
const SAME_LEN_MAX: usize = 8;

/// First entries of each name, by its length; 0: no more.
const BY_LEN: [[u8; SAME_LEN_MAX]; NAME_LEN_MAX + 1] = by_len();

const fn by_len() -> [[u8; SAME_LEN_MAX]; NAME_LEN_MAX + 1] {
    let mut all = [[0; SAME_LEN_MAX]; NAME_LEN_MAX + 1];
    let mut index = 1;
    let mut before: &[u8] = b"";
    while index <= STATIC.len() {
        let name = STATIC[index - 1].0.as_bytes();
        if !is_same(name, before) {
            let of_len = &mut all[name.len()];
            let mut at = 0;
            while of_len[at] != 0 {
                at += 1;
            }
            of_len[at] = index as u8;
        }
        before = name;
        index += 1;
    }
    all
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len()
}

/// The index of the first static entry with this name; 0: there is none.
fn find_static(name: &[u8]) -> usize {
    let of_len = BY_LEN.get(name.len()).into_iter().flatten();
    let mut indexes = of_len.map(|index| usize::from(*index));
    let found = indexes.find(|index| *index == 0 || STATIC[index - 1].0.as_bytes() == name);
    found.unwrap_or(0)
}

/// The index of the static entry with this value, among those with this name.
fn find_value(first: usize, name: &[u8], value: &[u8]) -> Option<usize> {
    let entries = &STATIC[first.checked_sub(1)?..];
    let mut same = entries
        .iter()
        .take_while(|(this, _)| this.as_bytes() == name);
    let found = same.position(|(_, this)| this.as_bytes() == value);
    found.map(|at| first + at)
}

/// An integer behind the pattern of its first byte (section 5.1).
fn integer(value: usize, pattern: u8, prefix_bits: u8, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix_bits) - 1;
    if value < mask {
        return out.push(pattern | value as u8);
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A string (section 5.2), whichever way is shorter.
fn string(string: &[u8], out: &mut Vec<u8>) {
    let coded_len = huffman::encoded_len(string);
    if coded_len < string.len() {
        integer(coded_len, 0x80, 7, out);
        huffman::encode(string, out);
    } else {
        integer(string.len(), 0, 7, out);
        out.extend_from_slice(string);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn encode(encoder: &mut Encoder, fields: &[(&str, &str)], indexing: Indexing) -> Vec<u8> {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
        }
        block
    }

    /// Appendix C.6, but that the table is larger and evicts nothing, and that a string is coded only if that is
    /// shorter.
    #[test]
    fn responses_of_the_rfc() {
        let mut encoder = Encoder::default();
        let first = [
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ];
        let block = encode(&mut encoder, &first, Indexing::Kept);
        assert_eq!(
            hex(&block),
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
             6e919d29ad171863c78f0b97c8e9ae82ae43d3"
        );
        let mut second = first;
        second[0].1 = "307";
        let block = encode(&mut encoder, &second, Indexing::Kept);
        assert_eq!(hex(&block), "4803333037c1c0bf");
    }

    #[test]
    fn what_is_not_kept_is_sent_again() {
        let mut encoder = Encoder::default();
        for indexing in [Indexing::Not, Indexing::Never] {
            let block = |encoder: &mut _| encode(encoder, &[("set-cookie", "a=b")], indexing);
            let first = block(&mut encoder);
            assert_eq!(block(&mut encoder), first);
            assert_eq!(
                first[0] & 0xf0,
                [0, 0x10][usize::from(indexing == Indexing::Never)]
            );
        }
        let get = encode(&mut encoder, &[(":method", "GET")], Indexing::Never);
        assert_eq!(get[0], 0x12, "a literal, though the table has it");
        let method = encode(&mut encoder, &[(":method", "PUT")], Indexing::Not);
        assert_eq!(method[0], 2, "the first of the name");
    }

    #[test]
    fn sizes_of_the_table_are_said_before_the_next_block() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let field = [("name", "value")];
        let mut decoded = |block: &[u8]| decoder.decode(block, &mut Vec::new(), |_, _| ()).unwrap();
        decoded(&encode(&mut encoder, &field, Indexing::Kept));
        encoder.resize(4096);
        assert_eq!(hex(&encode(&mut encoder, &field, Indexing::Kept)), "be");
        encoder.resize(0);
        encoder.resize(100);
        let block = encode(&mut encoder, &field, Indexing::Kept);
        assert_eq!(block[..3], [0x20, 0x3f, 100 - 31], "emptied, then 100");
        assert_ne!(block[3], 0xbe);
        decoded(&block);
        encoder.resize(1 << 30);
        let block = encode(&mut encoder, &field, Indexing::Kept);
        assert_eq!(block[..3], [0x3f, 0xe1, 0x1f], "no more than 4096");
        decoded(&block);
        let block = encode(&mut encoder, &[], Indexing::Kept);
        assert_eq!(block, [], "once is enough");
    }

    /// Both ends keep the same table, whatever comes.
    #[test]
    fn a_decoder_has_what_was_encoded() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (random >> 33) % below
        };
        for round in 0..2_000 {
            if next(50) == 0 {
                encoder.resize(next(5_000) as usize);
            }
            let fields: Vec<(Vec<u8>, Vec<u8>)> = (0..next(12))
                .map(|_| {
                    let (name, _) = STATIC[next(61) as usize];
                    let name = match next(3) {
                        0 => format!("x-{}", next(40)),
                        _ => name.to_owned(),
                    };
                    let value = (0..next(60)).map(|_| next(256) as u8).collect();
                    let value = if next(2) == 0 {
                        value
                    } else {
                        b"again".to_vec()
                    };
                    (name.into_bytes(), value)
                })
                .collect();
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &fields {
                let indexing = [Indexing::Kept, Indexing::Not, Indexing::Never][next(3) as usize];
                encoder.field(name, value, indexing, &mut block);
            }
            let mut decoded = Vec::new();
            let result = decoder.decode(&block, &mut Vec::new(), |name, value| {
                decoded.push((name.to_vec(), value.to_vec()));
            });
            assert_eq!(result, Ok(()), "round {round}");
            assert_eq!(decoded, fields, "round {round}");
        }
    }
}
