//! The static and the dynamic table (RFC 7541 sections 2.3 and 4, appendix A).

use std::collections::VecDeque;

/// What an entry counts beside its name and value (section 4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// Appendix A; its first entry has the index 1.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Names and values that were sent before, the newest first. Empty, it holds no memory.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Names and values of the entries in the order in which they came, perhaps behind those of entries
    /// that are gone.
    bytes: Vec<u8>,
    /// The newest in front.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
    inserted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u16,
    name_len: u16,
    value_len: u16,
}

/// Three tables: where an entry begins, of which each has less than one, fits into 16 bits.
const _: () = assert!(3 * super::TABLE_BYTES <= u16::MAX as usize);

impl Entry {
    fn size(self) -> usize {
        usize::from(self.name_len) + usize::from(self.value_len) + ENTRY_BYTES
    }
}

impl DynamicTable {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            size_max,
            inserted: 0,
        }
    }

    /// How many entries there have been.
    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Another bound; entries beyond it go (section 4.3).
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.inserted += 1; // what has gone has gone
        self.evict(0);
    }

    /// Adds an entry; others go to make room. One that is larger than the table empties it (section
    /// 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.inserted += 1;
        let size = name.len() + value.len() + ENTRY_BYTES;
        self.evict(size);
        if size > self.size_max {
            return;
        }
        let more = name.len() + value.len();
        if self.bytes.len() + more > 2 * self.size_max {
            self.compact();
        }
        let entry = Entry {
            start: self.bytes.len() as u16,
            name_len: name.len() as u16,
            value_len: value.len() as u16,
        };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_front(entry);
        self.size += size;
    }

    /// An entry by its index in both tables together (section 2.3.3).
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        if let Some((name, value)) = STATIC.get(index.checked_sub(1)?) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(index - 1 - STATIC.len())?;
        Some(self.pair(*entry))
    }

    /// The index of an entry with this name and value.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        let mut entries = self.entries.iter();
        let found = entries.position(|entry| self.pair(*entry) == (name, value));
        found.map(|at| at + 1 + STATIC.len())
    }

    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    fn pair(&self, entry: Entry) -> (&[u8], &[u8]) {
        let (name, value) = self.bytes[usize::from(entry.start)..].split_at(entry.name_len.into());
        (name, &value[..entry.value_len.into()])
    }

    /// Makes room for an entry of this size.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.size_max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Drops the bytes of entries that are gone.
    fn compact(&mut self) {
        let gone = self
            .entries
            .back()
            .map_or(self.bytes.len(), |oldest| oldest.start.into());
        self.bytes.drain(..gone);
        for entry in &mut self.entries {
            entry.start -= gone as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entry_follows_the_static_ones() {
        let mut table = DynamicTable::new(100);
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(1), Some((&b":authority"[..], &b""[..])));
        assert_eq!(table.get(61), Some((&b"www-authenticate"[..], &b""[..])));
        assert_eq!(table.get(62), None);
        assert_eq!(table.held_bytes(), 0);
        table.insert(b"a", b"1");
        table.insert(b"b", b"2");
        assert_eq!(table.get(62), Some((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(63), Some((&b"a"[..], &b"1"[..])));
        assert_eq!(
            (table.find(b"a", b"1"), table.find(b"a", b"2")),
            (Some(63), None)
        );
        table.insert(b"c", b"3");
        assert_eq!(table.get(64), None, "the oldest has made room");
        table.resize(40);
        assert_eq!(table.get(62), Some((&b"c"[..], &b"3"[..])));
        assert_eq!(table.get(63), None);
        table.insert(b"name", b"value that is too large for it");
        assert_eq!(table.get(62), None);
    }

    #[test]
    fn memory_is_bounded_however_many_come() {
        let mut table = DynamicTable::new(4096);
        for number in 0..10_000_u32 {
            let value = "v".repeat(number as usize % 500);
            table.insert(format!("name-{number}").as_bytes(), value.as_bytes());
            let (name, newest) = table.get(62).unwrap();
            assert_eq!(name, format!("name-{number}").as_bytes());
            assert_eq!(newest, value.as_bytes());
            assert!(table.size <= 4096 && table.bytes.len() <= 2 * 4096);
        }
        let oldest = table.entries.len() + STATIC.len();
        assert!(table.get(oldest).unwrap().0.starts_with(b"name-9"));
    }
}
