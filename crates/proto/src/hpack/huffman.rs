//! The Huffman code of field strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: the lengths of its codes say what they are. Decoding takes four bits at a time
//! through a table of the code's tree, so that no byte of input is looked at bit by bit.

/// The length of each byte's code in bits, and of the end of a string, which is never sent.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Of the symbol that ends a string: its beginning, all ones, fills the last byte.
const END: usize = 256;
const LENGTH_MAX: u8 = 30;
/// Inner nodes of the tree, one less than it has leaves.
const NODES: usize = 256;
/// Fill bits are fewer than a byte.
const FILL_MAX: usize = 7;

static CODES: [u32; 257] = codes();
static STEPS: [[Step; 16]; NODES] = steps();
/// Whether a string may end at a node: so many ones lead to it that they can be fill bits.
static ENDS: [bool; NODES] = ends();

/// What four bits lead to from a node of the tree.
#[derive(Clone, Copy)]
struct Step {
    next: u8,
    symbol: u8,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A symbol is not complete.
    Inner,
    /// One was completed; no code is shorter than five bits.
    Symbol,
    /// The end of a string was sent, which is an error.
    Fault,
}

/// A child of an inner node.
#[derive(Clone, Copy)]
enum Child {
    Node(u8),
    Leaf(u16),
}

const fn codes() -> [u32; 257] {
    let mut codes = [0; 257];
    let (mut code, mut length) = (0_u32, 1);
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < codes.len() {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
}

const fn tree() -> [[Child; 2]; NODES] {
    const NONE: Child = Child::Leaf(u16::MAX);
    let codes = codes();
    let mut tree = [[NONE; 2]; NODES];
    let mut nodes = 1_usize;
    let mut symbol = 0;
    while symbol < codes.len() {
        let mut node = 0_usize;
        let mut left = LENGTHS[symbol];
        while left > 1 {
            left -= 1;
            let bit = (codes[symbol] >> left & 1) as usize;
            node = match tree[node][bit] {
                Child::Node(next) => next as usize,
                Child::Leaf(_) => {
                    tree[node][bit] = Child::Node(nodes as u8);
                    nodes += 1;
                    nodes - 1
                }
            };
        }
        tree[node][(codes[symbol] & 1) as usize] = Child::Leaf(symbol as u16);
        symbol += 1;
    }
    tree
}

const fn steps() -> [[Step; 16]; NODES] {
    const NONE: Step = Step {
        next: 0,
        symbol: 0,
        kind: Kind::Inner,
    };
    let tree = tree();
    let mut steps = [[NONE; 16]; NODES];
    let mut from = 0;
    while from < NODES {
        let mut bits = 0;
        while bits < 16 {
            let mut step = NONE;
            let mut node = from as u8;
            let mut left = 4;
            while left > 0 {
                left -= 1;
                match tree[node as usize][bits >> left & 1] {
                    Child::Node(next) => node = next,
                    Child::Leaf(symbol) => {
                        node = 0;
                        if symbol as usize == END {
                            step.kind = Kind::Fault;
                            break;
                        }
                        step.kind = Kind::Symbol;
                        step.symbol = symbol as u8;
                    }
                }
            }
            step.next = node;
            steps[from][bits] = step;
            bits += 1;
        }
        from += 1;
    }
    steps
}

const fn ends() -> [bool; NODES] {
    let tree = tree();
    let mut ends = [false; NODES];
    let (mut node, mut ones) = (0_u8, 0);
    while ones <= FILL_MAX {
        ends[node as usize] = true;
        if let Child::Node(next) = tree[node as usize][1] {
            node = next;
        }
        ones += 1;
    }
    ends
}

/// Decodes a string, appending it. `false`: it is none; what was appended is not to be used.
#[must_use]
pub(super) fn decode(encoded: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    // Each step writes a symbol, which counts only if it is complete: a branch for that is hard to predict.
    // No code is shorter than five bits.
    out.resize(start + encoded.len() * 8 / 5 + 1, 0);
    let symbols = &mut out[start..];
    let (mut len, mut node, mut is_fault) = (0, 0_u8, false);
    for byte in encoded {
        for bits in [byte >> 4, byte & 15] {
            let step = &STEPS[usize::from(node)][usize::from(bits)];
            symbols[len] = step.symbol;
            len += usize::from(step.kind == Kind::Symbol);
            is_fault |= step.kind == Kind::Fault;
            node = step.next;
        }
    }
    out.truncate(start + len);
    !is_fault && ENDS[usize::from(node)]
}

/// How many bytes a string has when it is encoded.
#[must_use]
pub(super) fn encoded_len(string: &[u8]) -> usize {
    let bits = string
        .iter()
        .map(|byte| usize::from(LENGTHS[usize::from(*byte)]));
    bits.sum::<usize>().div_ceil(8)
}

/// Encodes a string, appending it.
pub(super) fn encode(string: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for byte in string {
        let symbol = usize::from(*byte);
        let length = u32::from(LENGTHS[symbol]);
        bits = bits << length | u64::from(CODES[symbol]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        let fill = 8 - count;
        out.push((bits << fill) as u8 | ((1_u16 << fill) - 1) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(string: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(string, &mut out);
        assert_eq!(out.len(), encoded_len(string), "{string:?}");
        out
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).then_some(out)
    }

    /// Appendix B.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code) in [
            (0, 0x1ff8),
            (1, 0x7f_ffd8),
            (10, 0x3fff_fffc),
            (32, 0x14),
            (48, 0x0),
            (97, 0x3),
            (122, 0x7b),
            (249, 0xfff_fffe),
            (255, 0x3ff_ffee),
            (256, 0x3fff_ffff),
        ] {
            assert_eq!(CODES[symbol], code, "{symbol}");
        }
    }

    /// Appendices C.4 and C.6.
    #[test]
    fn strings_of_the_rfc() {
        for (string, bytes) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("", ""),
        ] {
            let hex: String = encoded(string.as_bytes())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, bytes, "{string}");
        }
    }

    #[test]
    fn every_byte_comes_back() {
        for length in [1, 2, 3, 7] {
            for byte in 0..=255_u8 {
                let string: Vec<_> = (0..length)
                    .map(|more: u8| byte.wrapping_add(more * 31))
                    .collect();
                assert_eq!(decoded(&encoded(&string)), Some(string));
            }
        }
    }

    #[test]
    fn strings_of_the_shortest_codes() {
        for len in 0..50 {
            let string = vec![b'0'; len];
            assert_eq!(decoded(&encoded(&string)), Some(string));
        }
    }

    #[test]
    fn only_fill_bits_of_fewer_than_eight_ones_end_a_string() {
        assert_eq!(decoded(&[0x07]), Some(b"0".to_vec()), "00000 111");
        assert_eq!(decoded(&[0x06]), None, "00000 110");
        assert_eq!(decoded(&[0x07, 0xff]), None, "more than seven ones");
        assert_eq!(decoded(&[0xff]), None, "eight ones");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None, "the end itself");
        assert_eq!(
            decoded(&[0xff, 0xff, 0xff, 0xfc, 0x07]),
            None,
            "the end, and more"
        );
    }
}
