//! The fields by which proxies name their clients: `X-Forwarded-For`, `X-Forwarded-Proto` and
//! `Forwarded` (RFC 7239).
//!
//! They are read from their end, since only what stands there was written by the proxy next to us:
//! a quote that a client opens in front and never closes changes nothing behind it. Nothing here
//! allocates.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use memchr::memrchr;

use crate::{Client, ForwardedField, Request};

const X_FORWARDED_FOR: &[u8] = b"x-forwarded-for";
const X_FORWARDED_PROTO: &[u8] = b"x-forwarded-proto";
const FORWARDED: &[u8] = b"forwarded";

/// A node that is longer names no address: those have 39 bytes at most, and a zone and a port.
const NODE_BYTES_MAX: usize = 80;

/// What a proxy says about one hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The sender; `None` if the proxy names none, or something else than an address.
    pub(crate) from: Option<Client>,
    /// Whether that was by https.
    pub(crate) is_secure: bool,
}

/// The field by which a request says that it has come through a proxy, if it does.
pub(crate) fn field_of_a_proxy(request: &Request) -> Option<ForwardedField> {
    let has = |wanted: &[u8]| {
        let mut names = request.fields().map(|(name, _)| name);
        names.any(|name| name.eq_ignore_ascii_case(wanted))
    };
    match () {
        () if has(X_FORWARDED_FOR) => Some(ForwardedField::XForwardedFor),
        () if has(FORWARDED) => Some(ForwardedField::Forwarded),
        () => None,
    }
}

/// Whether a field, its name in lower case, may say who a proxy's client is.
pub(crate) fn is_field_of_a_proxy(name: &[u8]) -> bool {
    matches!(name, X_FORWARDED_FOR | FORWARDED)
}

/// The hops of `X-Forwarded-For`, the last first.
pub(crate) fn x_forwarded_for(request: &Request) -> impl Iterator<Item = Hop> {
    let members = members(request, X_FORWARDED_FOR, |list| memrchr(b',', list));
    members.map(|member| Hop {
        from: node(member),
        is_secure: false,
    })
}

/// Whether the last `X-Forwarded-Proto` says https.
pub(crate) fn proto_is_https(request: &Request) -> bool {
    let mut members = members(request, X_FORWARDED_PROTO, |list| memrchr(b',', list));
    let last = members.next();
    last.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"))
}

/// The hops of `Forwarded`, the last first.
pub(crate) fn forwarded(request: &Request) -> impl Iterator<Item = Hop> {
    let elements = members(request, FORWARDED, last_comma_outside_quotes);
    elements.map(|element| hop(element).unwrap_or_default())
}

/// The members of a list field, the last first; empty ones are none (RFC 9110 section 5.6.1).
fn members<'r>(
    request: &'r Request,
    name: &'static [u8],
    last_comma: fn(&[u8]) -> Option<usize>,
) -> impl Iterator<Item = &'r [u8]> {
    let lines = request.field_lines_from_the_end(name);
    let members = lines.flat_map(move |line| Members {
        rest: Some(line),
        last_comma,
    });
    members.filter(|member| !member.is_empty())
}

/// The members of one line, the last first.
struct Members<'l> {
    rest: Option<&'l [u8]>,
    last_comma: fn(&[u8]) -> Option<usize>,
}

impl<'l> Iterator for Members<'l> {
    type Item = &'l [u8];

    fn next(&mut self) -> Option<&'l [u8]> {
        let list = self.rest.take()?;
        let member = match (self.last_comma)(list) {
            Some(comma) => {
                self.rest = Some(&list[..comma]);
                &list[comma + 1..]
            }
            None => list,
        };
        Some(member.trim_ascii())
    }
}

/// The last comma that is not in a quoted string, if the strings behind it are whole.
fn last_comma_outside_quotes(list: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    for (index, byte) in list.iter().enumerate().rev() {
        match byte {
            b'"' if is_quoted && is_escaped(list, index) => {}
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return Some(index),
            _ => {}
        }
    }
    None
}

/// Whether a byte of a quoted string has a backslash of its own in front.
fn is_escaped(text: &[u8], index: usize) -> bool {
    let backslashes = text[..index]
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// An element of `Forwarded`: `for=192.0.2.60;proto=https;by="[2001:db8::1]:80"`. `None` if it is
/// malformed.
fn hop(mut element: &[u8]) -> Option<Hop> {
    let (mut from, mut proto) = (None, None);
    loop {
        element = element.trim_ascii_start();
        while let [b';', rest @ ..] = element {
            element = rest.trim_ascii_start(); // there may be nothing between two of them
        }
        if element.is_empty() {
            break;
        }
        let (name, value, rest) = pair(element)?;
        let place = match name {
            name if name.eq_ignore_ascii_case(b"for") => Some(&mut from),
            name if name.eq_ignore_ascii_case(b"proto") => Some(&mut proto),
            _ => None,
        };
        // Each may be there once (RFC 7239 section 4): of two, which one is it?
        if place.is_some_and(|place| place.replace(value).is_some()) {
            return None;
        }
        element = rest.trim_ascii_start();
        if !matches!(element, [] | [b';', ..]) {
            return None;
        }
    }
    Some(Hop {
        from: from.and_then(|value| node(value.bytes()?)),
        is_secure: proto.is_some_and(|value| {
            let bytes = value.bytes();
            bytes.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"))
        }),
    })
}

/// The first pair of an element, and what follows it.
fn pair(text: &[u8]) -> Option<(&[u8], Value, &[u8])> {
    let equals = text.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&text[..equals], &text[equals + 1..]);
    if name.is_empty() || !name.iter().all(|byte| crate::ascii::is_token_byte(*byte)) {
        return None;
    }
    let mut taken = Value::default();
    let [b'"', value @ ..] = value else {
        // More than a token: `for=[2001:db8::1]:80` is common, though it wants quotes.
        let ends = |byte: &u8| matches!(byte, b';' | b' ' | b'\t' | b'"');
        let end = value.iter().position(ends).unwrap_or(value.len());
        value[..end].iter().for_each(|byte| taken.push(*byte));
        return Some((name, taken, &value[end..])).filter(|_| end > 0);
    };
    let mut bytes = value.iter();
    loop {
        match bytes.next()? {
            b'"' => return Some((name, taken, bytes.as_slice())),
            b'\\' => taken.push(*bytes.next()?),
            byte => taken.push(*byte),
        }
    }
}

/// A value without its quotes.
struct Value {
    text: [u8; NODE_BYTES_MAX],
    len: usize,
}

impl Default for Value {
    fn default() -> Self {
        Self {
            text: [0; NODE_BYTES_MAX],
            len: 0,
        }
    }
}

impl Value {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.text.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    /// `None` if it is longer than anything that would be understood.
    fn bytes(&self) -> Option<&[u8]> {
        self.text.get(..self.len)
    }
}

/// An address with a port or without: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`. Others are none: `unknown`, or a name that a proxy has made up (`_hidden`).
fn node(text: &[u8]) -> Option<Client> {
    let text = core::str::from_utf8(text).ok()?;
    let (address, port): (IpAddr, Option<u16>) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let port = match port.strip_prefix(':') {
                Some(port) => self::port(port)?,
                None if port.is_empty() => None,
                None => return None,
            };
            (ipv6(address)?.into(), port)
        }
        None => match text.split_once(':') {
            None => (text.parse::<Ipv4Addr>().ok()?.into(), None),
            Some((_, rest)) if rest.contains(':') => (ipv6(text)?.into(), None),
            Some((address, port)) => (address.parse::<Ipv4Addr>().ok()?.into(), self::port(port)?),
        },
    };
    Some(Client {
        address: address.to_canonical(),
        port,
    })
}

/// A port, or `Some(None)` where it is a name that was made up for it.
fn port(text: &str) -> Option<Option<u16>> {
    match text.strip_prefix('_') {
        Some(name) => (!name.is_empty()).then_some(None),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok().map(Some),
        None => None,
    }
}

/// An address of IPv6; a zone (`fe80::1%eth0`) says nothing here.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse().ok()
}
