//! The cookies of one client (RFC 6265), for the one host that it speaks to.
//!
//! The crates for this, cookie_store and cookie, read the system's clock, where a date here is relative
//! to the server's and a test moves the time; and they need `time`, besides other crates.

use std::time::{Duration, SystemTime};

/// Cookies of one client. RFC 6265 section 6.1 asks for at least 50 for each domain.
const COOKIES_MAX: usize = 50;
/// Name, value and path of one. The same section asks for at least 4096.
const COOKIE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    /// In nanoseconds of the monotonic clock; `None`: with the session.
    expires_ns: Option<u64>,
    secure: bool,
    /// Its place in the order in which cookies were set, each for the last time.
    set_number: u64,
}

/// The cookies of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Jar {
    /// In the order in which they were first set.
    cookies: Vec<Cookie>,
    /// How often one was set.
    set_count: u64,
}

/// From which host and when a cookie comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'o> {
    /// Host, perhaps with a port.
    pub(super) host: &'o str,
    /// The path of the request, without its query.
    pub(super) path: &'o [u8],
    /// Nanoseconds of the monotonic clock.
    pub(super) now_ns: u64,
    /// The same moment by the server's clock, which its dates refer to.
    pub(super) date: SystemTime,
}

/// Attributes of a Set-Cookie, as far as they are understood.
#[derive(Clone, Copy, Debug, Default)]
struct Attributes<'a> {
    path: Option<&'a [u8]>,
    domain: Option<&'a [u8]>,
    max_age: Option<i64>,
    expires: Option<SystemTime>,
    secure: bool,
}

impl Jar {
    /// Takes the value of a Set-Cookie field (sections 5.2 and 5.3). What is malformed, too large or
    /// for another host is ignored, as the RFC wants it.
    pub(super) fn set(&mut self, field: &[u8], origin: &Origin<'_>) {
        let mut parts = field.split(|byte| *byte == b';');
        let (name, Some(value)) = pair(parts.next().unwrap_or_default()) else {
            return;
        };
        let mut attributes = Attributes::default();
        for part in parts {
            attributes.read(part);
        }
        if name.is_empty() || !attributes.is_for(origin.host) {
            return;
        }
        let path = match attributes.path {
            Some(path) if path.first() == Some(&b'/') => path,
            _ => default_path(origin.path),
        };
        if name.len() + value.len() + path.len() > COOKIE_BYTES_MAX {
            return;
        }
        let expires_ns = attributes.expires_ns(origin);
        let same = |one: &Cookie| one.name == name && one.path == path;
        let index = self.cookies.iter().position(same);
        if expires_ns.is_some_and(|ns| ns <= origin.now_ns) {
            if let Some(index) = index {
                self.cookies.remove(index);
            }
            return;
        }
        self.set_count += 1;
        let cookie = Cookie {
            name: name.to_vec(),
            value: value.to_vec(),
            path: path.to_vec(),
            expires_ns,
            secure: attributes.secure,
            set_number: self.set_count,
        };
        match index {
            // It keeps its place: the order is that of creation (section 5.3, step 11.3).
            Some(index) => self.cookies[index] = cookie,
            None => {
                if self.cookies.len() == COOKIES_MAX {
                    self.cookies.remove(0);
                }
                self.cookies.push(cookie);
            }
        }
    }

    /// Appends the Cookie field for a request, if there are any (section 5.4): longer paths first,
    /// then older ones. Secure cookies only if the client is to believe that the way is secure.
    pub(super) fn write(&mut self, path: &[u8], is_secure: bool, now_ns: u64, out: &mut Vec<u8>) {
        self.cookies
            .retain(|one| one.expires_ns.is_none_or(|ns| ns > now_ns));
        let mut cookies: Vec<&Cookie> = self
            .cookies
            .iter()
            .filter(|one| (is_secure || !one.secure) && path_matches(path, &one.path))
            .collect();
        cookies.sort_by_key(|one| std::cmp::Reverse(one.path.len()));
        for (index, cookie) in cookies.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"Cookie: " } else { b"; " });
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
        if !cookies.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The value of a cookie, whatever its path; of several the one set last.
    pub(super) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let named = self.cookies.iter().filter(|one| one.name == name);
        let found = named.max_by_key(|one| one.set_number);
        found.map(|one| one.value.as_slice())
    }
}

impl<'a> Attributes<'a> {
    /// Section 5.2: unknown ones are ignored; of several the last counts.
    fn read(&mut self, part: &'a [u8]) {
        let (name, value) = pair(part);
        let value = value.unwrap_or_default();
        if name.eq_ignore_ascii_case(b"path") {
            self.path = Some(value);
        } else if name.eq_ignore_ascii_case(b"domain") {
            let domain = value.strip_prefix(b".").unwrap_or(value);
            self.domain = (!domain.is_empty()).then_some(domain);
        } else if name.eq_ignore_ascii_case(b"secure") {
            self.secure = true;
        } else if name.eq_ignore_ascii_case(b"max-age") {
            self.max_age = seconds(value).or(self.max_age);
        } else if name.eq_ignore_ascii_case(b"expires") {
            let text = str::from_utf8(value).ok();
            self.expires = text.and_then(date).or(self.expires);
        }
    }

    /// Whether the host lies in the domain that is named, if one is (section 5.1.3).
    fn is_for(&self, authority: &str) -> bool {
        let Some(domain) = self.domain else {
            return true;
        };
        let host = host_of(authority).as_bytes();
        let is_name = !host
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.');
        host.eq_ignore_ascii_case(domain)
            || is_name
                && host.len() > domain.len()
                && host[host.len() - domain.len()..].eq_ignore_ascii_case(domain)
                && host[host.len() - domain.len() - 1] == b'.'
    }

    /// Max-Age wins over Expires (section 5.3, step 3).
    fn expires_ns(&self, origin: &Origin<'_>) -> Option<u64> {
        let left = match (self.max_age, self.expires) {
            (Some(seconds), _) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            (None, Some(at)) => at.duration_since(origin.date).unwrap_or_default(),
            (None, None) => return None,
        };
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        Some(origin.now_ns.saturating_add(left_ns))
    }
}

/// A name, and what follows its equals sign.
fn pair(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = part.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
    (parts.next().unwrap_or_default(), parts.next())
}

/// A date of HTTP, or the one with hyphens that many servers write.
fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok().or_else(|| {
        let (day, rest) = text.split_once(", ")?;
        let date = rest.replacen('-', " ", 2);
        httpdate::parse_http_date(&format!("{}, {date}", day.get(..3)?)).ok()
    })
}

/// Seconds, perhaps negative; beyond 64 bits as many as fit.
fn seconds(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let is_negative = digits.len() < value.len();
    let number = str::from_utf8(value).ok()?.parse();
    Some(number.unwrap_or(if is_negative { i64::MIN } else { i64::MAX }))
}

/// Without the port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Section 5.1.4: the folder of the request.
fn default_path(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) if slash > 0 && path[0] == b'/' => &path[..slash],
        _ => b"/",
    }
}

/// Section 5.1.4: whether a request's path lies below a cookie's.
fn path_matches(path: &[u8], cookie: &[u8]) -> bool {
    path.starts_with(cookie)
        && (path.len() == cookie.len()
            || cookie.last() == Some(&b'/')
            || path[cookie.len()] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn origin(path: &'static str, now_ns: u64) -> Origin<'static> {
        Origin {
            host: "www.example:8080",
            path: path.as_bytes(),
            now_ns,
            date: httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap(),
        }
    }

    fn sent(jar: &mut Jar, path: &str, now_ns: u64) -> String {
        let mut out = Vec::new();
        jar.write(path.as_bytes(), false, now_ns, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn they_come_back_below_their_path() {
        let mut jar = Jar::default();
        jar.set(b"a=1; Path=/", &origin("/x/y", 0));
        jar.set(b" b = 2 ; HttpOnly; path=/x", &origin("/", 0));
        jar.set(b"c=3=3; SameSite=Lax", &origin("/x/y/z", 0));
        jar.set(b"no-pair", &origin("/", 0));
        jar.set(b"=5", &origin("/", 0));
        assert_eq!(sent(&mut jar, "/", 0), "Cookie: a=1\r\n");
        assert_eq!(sent(&mut jar, "/xy", 0), "Cookie: a=1\r\n");
        assert_eq!(sent(&mut jar, "/x/", 0), "Cookie: b=2; a=1\r\n");
        assert_eq!(sent(&mut jar, "/x/y/q", 0), "Cookie: c=3=3; b=2; a=1\r\n");
        jar.set(b"a=4; Path=/", &origin("/", 0));
        assert_eq!(jar.value(b"a"), Some(&b"4"[..]));
        jar = Jar::default();
        assert_eq!(sent(&mut jar, "/x/y", 0), "");
    }

    #[test]
    fn of_several_the_one_set_last_has_the_value() {
        let mut jar = Jar::default();
        for (field, value) in [
            (&b"a=1; Path=/"[..], b"1"),
            (b"a=2; Path=/x", b"2"),
            (b"a=3; Path=/", b"3"),
        ] {
            jar.set(field, &origin("/", 0));
            assert_eq!(jar.value(b"a"), Some(&value[..]));
        }
        assert_eq!(sent(&mut jar, "/x", 0), "Cookie: a=2; a=3\r\n");
    }

    #[test]
    fn they_end_in_time() {
        let mut jar = Jar::default();
        for cookie in [
            &b"a=1; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:00 GMT"[..],
            b"b=2; Expires=Sun, 06-Nov-1994 08:49:57 GMT",
            b"c=3; Expires=Sun, 06 Nov 1994 08:50:07 GMT",
            b"d=4; Max-Age=99999999999999999999",
            b"e=5; Max-Age=soon",
        ] {
            jar.set(cookie, &origin("/", SECOND));
        }
        assert_eq!(
            sent(&mut jar, "/", 10 * SECOND),
            "Cookie: a=1; b=2; c=3; d=4; e=5\r\n"
        );
        assert_eq!(
            sent(&mut jar, "/", 11 * SECOND),
            "Cookie: b=2; c=3; d=4; e=5\r\n"
        );
        assert_eq!(sent(&mut jar, "/", 31 * SECOND), "Cookie: d=4; e=5\r\n");
        for gone in [
            &b"d=; Max-Age=0"[..],
            b"d=; Max-Age=-1",
            b"d=; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            jar.set(b"d=4", &origin("/", SECOND));
            jar.set(gone, &origin("/", 40 * SECOND));
            assert_eq!(sent(&mut jar, "/", 40 * SECOND), "Cookie: e=5\r\n");
        }
    }

    #[test]
    fn other_hosts_and_secure_ways() {
        let mut jar = Jar::default();
        jar.set(b"a=1; Domain=example", &origin("/", 0));
        jar.set(b"b=2; Domain=.WWW.example", &origin("/", 0));
        jar.set(b"c=3; Domain=ample", &origin("/", 0));
        jar.set(b"d=4; Domain=other.example", &origin("/", 0));
        jar.set(b"e=5; Secure", &origin("/", 0));
        assert_eq!(sent(&mut jar, "/", 0), "Cookie: a=1; b=2\r\n");
        let mut out = Vec::new();
        jar.write(b"/", true, 0, &mut out);
        assert_eq!(out, b"Cookie: a=1; b=2; e=5\r\n");
        let mut jar = Jar::default();
        let address = Origin {
            host: "127.0.0.1",
            ..origin("/", 0)
        };
        jar.set(b"a=1; Domain=0.0.1", &address);
        jar.set(b"b=2; Domain=127.0.0.1", &address);
        assert_eq!(sent(&mut jar, "/", 0), "Cookie: b=2\r\n");
    }

    #[test]
    fn a_jar_has_bounds() {
        let mut jar = Jar::default();
        for index in 0..COOKIES_MAX + 1 {
            jar.set(format!("n{index}=x").as_bytes(), &origin("/", 0));
        }
        assert_eq!(jar.cookies.len(), COOKIES_MAX);
        assert!(jar.value(b"n0").is_none() && jar.value(b"n50").is_some());
        jar.set(
            &[b"big=".as_slice(), &[b'x'; COOKIE_BYTES_MAX]].concat(),
            &origin("/", 0),
        );
        assert!(jar.value(b"big").is_none());
    }
}
