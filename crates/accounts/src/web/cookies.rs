//! Cookies: their names, the fields that set and end them, and those that a browser sent.
//!
//! Over TLS their names have the prefix by which a browser takes them only from this host, over TLS.
//! Without it others on the way, and other pages of the host, can plant cookies of the same name, which
//! a browser may send before the real one: so all of a name are looked at, and what counts is which of
//! them is good, never which comes first.

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};

use crate::limits::{COOKIES_PER_NAME_MAX, DEVICE_COOKIES_MAX};
use crate::token::Token;

const HOST_PREFIX: &str = "__Host-";
const DEVICE_PREFIX: &str = "loadline-device-";

/// What a cookie is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cookie<'n> {
    /// A user who is logged in. Gone with the browser; the server may end it before.
    Session,
    /// The forms of a visitor who is not logged in. Gone with the browser.
    Guest,
    /// The account whose name has this key knows the browser. Stays when the session ends; the browser
    /// keeps one for each account.
    Device(&'n str),
}

impl Cookie<'_> {
    fn name(self, is_secure: bool) -> String {
        let prefix = if is_secure { HOST_PREFIX } else { "" };
        match self {
            Self::Session => format!("{prefix}loadline-session"),
            Self::Guest => format!("{prefix}loadline-guest"),
            Self::Device(name_key) => {
                // It distinguishes, it proves nothing: a name has characters that a cookie's cannot have.
                let hash: [u8; 32] = Sha256::digest(name_key).into();
                format!("{prefix}{DEVICE_PREFIX}{}", hex::encode(&hash[..8]))
            }
        }
    }

    /// The field that sets it, for so long if not as long as the browser runs; or ends it.
    pub(super) fn set(
        self,
        token: Option<&Token>,
        max_age: Option<u64>,
        is_secure: bool,
        base: &str,
    ) -> Option<HeaderValue> {
        let age = match token {
            Some(_) => max_age,
            None => Some(0),
        };
        let value = token.map_or("", Token::as_cookie);
        field(&self.name(is_secure), value, age, is_secure, base)
    }

    /// Those of its name that have the form of one, each once, as many as are looked at.
    pub(super) fn found(self, fields: &HeaderMap, is_secure: bool) -> Vec<Token> {
        let name = self.name(is_secure);
        let mut tokens = Vec::new();
        for (_, value) in pairs(fields).filter(|(found, _)| *found == name) {
            if let Some(token) = Token::from_cookie(value)
                && !tokens.contains(&token)
            {
                tokens.push(token);
            }
            if tokens.len() == COOKIES_PER_NAME_MAX {
                break;
            }
        }
        tokens
    }

    /// The fields that end cookies of other accounts that know the browser, if there would be too many
    /// with this one: those that come first, which a browser has had for longest.
    pub(super) fn end_others(
        self,
        fields: &HeaderMap,
        is_secure: bool,
        base: &str,
    ) -> Vec<HeaderValue> {
        let prefix = match is_secure {
            true => format!("{HOST_PREFIX}{DEVICE_PREFIX}"),
            false => DEVICE_PREFIX.to_owned(),
        };
        let own = self.name(is_secure);
        let mut others: Vec<&str> = Vec::new();
        for (name, _) in pairs(fields) {
            if name.starts_with(&prefix) && name != own && !others.contains(&name) {
                others.push(name);
            }
        }
        let surplus = (others.len() + 1).saturating_sub(DEVICE_COOKIES_MAX);
        let ended = others.into_iter().take(surplus);
        ended
            .filter_map(|name| field(name, "", Some(0), is_secure, base))
            .collect()
    }
}

fn pairs(fields: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let values = fields.get_all(header::COOKIE).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| str::from_utf8(pair.trim_ascii()).ok()) // cookies of others may have any bytes
        .filter_map(|pair| pair.split_once('='))
}

fn field(
    name: &str,
    value: &str,
    max_age: Option<u64>,
    is_secure: bool,
    base: &str,
) -> Option<HeaderValue> {
    let (path, secure) = match is_secure {
        true => ("/", "; Secure"), // the prefix asks for both
        false => (base, ""),
    };
    let age = max_age.map_or_else(String::new, |seconds| format!("; Max-Age={seconds}"));
    let text = format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}{age}");
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cookie: Cookie<'_>, token: Option<&Token>, age: Option<u64>, is_secure: bool) -> String {
        let field = cookie.set(token, age, is_secure, "/accounts").unwrap();
        field.to_str().unwrap().to_owned()
    }

    fn sent(text: impl AsRef<[u8]>) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let value = HeaderValue::from_bytes(text.as_ref()).unwrap();
        fields.insert(header::COOKIE, value);
        fields
    }

    #[test]
    fn cookies_are_kept_from_scripts_and_other_sites() {
        let token = Token::random().unwrap();
        for (cookie, age, name, end) in [
            (Cookie::Session, None, "loadline-session", ""),
            (Cookie::Guest, None, "loadline-guest", ""),
            (
                Cookie::Device("ada"),
                Some(60),
                "loadline-device-fdee430d40bd57de",
                "; Max-Age=60",
            ),
        ] {
            let value = token.as_cookie();
            let plain = format!("{name}={value}; Path=/accounts; HttpOnly; SameSite=Lax{end}");
            assert_eq!(set(cookie, Some(&token), age, false), plain);
            let secure =
                format!("__Host-{name}={value}; Path=/; HttpOnly; SameSite=Lax; Secure{end}");
            assert_eq!(set(cookie, Some(&token), age, true), secure);
            assert!(set(cookie, None, age, false).ends_with("; Max-Age=0"));
        }
    }

    #[test]
    fn all_cookies_of_a_name_are_found_and_none_of_another() {
        let [one, two] = [Token::random().unwrap(), Token::random().unwrap()];
        let [a, b] = [one.as_cookie(), two.as_cookie()];
        let name = "loadline-session";
        let no_space = format!("\u{a0}{name}={b}"); // whose prefix no browser would see
        let latin = &b"city=K\xf6ln"[..];
        for other in [latin, "city=Köln".as_bytes(), no_space.as_bytes()] {
            let fields = sent([other, format!("; {name}={a}").as_bytes()].concat());
            assert!(Cookie::Session.found(&fields, false) == [one.clone()]);
        }
        let fields = sent(format!(
            "a=b; {name}=planted; {name}={a}; {name}={a}; c; {name}={b}"
        ));
        assert!(Cookie::Session.found(&fields, false) == [one, two]);
        assert!(Cookie::Session.found(&fields, true).is_empty());
        assert!(Cookie::Guest.found(&fields, false).is_empty());
        let many: Vec<String> = (0..100)
            .map(|_| format!("{name}={}", Token::random().unwrap().as_cookie()))
            .collect();
        let found = Cookie::Session.found(&sent(many.join("; ")), false);
        assert_eq!(found.len(), COOKIES_PER_NAME_MAX);
    }

    #[test]
    fn a_browser_is_known_to_so_many_accounts_and_the_oldest_end() {
        let name = |number: usize| Cookie::Device(&number.to_string()).name(false);
        let of = |numbers: std::ops::Range<usize>| {
            let pairs: Vec<String> = numbers
                .map(|number| format!("{}=x", name(number)))
                .collect();
            sent(pairs.join("; "))
        };
        let ended = |fields: &HeaderMap| {
            let ended = Cookie::Device("7").end_others(fields, false, "/accounts");
            let texts = ended.iter().map(|field| field.to_str().unwrap().to_owned());
            texts.collect::<Vec<_>>()
        };
        assert!(ended(&of(0..8)).is_empty());
        let ended = ended(&of(0..10));
        assert_eq!(ended.len(), 2);
        for (number, field) in ended.iter().enumerate() {
            assert!(field.starts_with(&format!("{}=; Path=/accounts;", name(number))));
            assert!(field.ends_with("; Max-Age=0"), "{field}");
        }
    }
}
