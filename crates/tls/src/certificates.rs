//! Which certificate a client gets: by the name that it asks for. They can be replaced while they are
//! served, and challenges of an authority (RFC 8737) have certificates of their own.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use loadline_base::sorting::sort_by_key;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::{Certificate, Warning, WarningKind};

/// The protocol of a challenge, by which an authority finds out whether a name is this server's.
pub(crate) const ACME_TLS_ALPN: &[u8] = b"acme-tls/1";

/// HTTP/2 over TLS (RFC 9113 section 3.2).
pub(crate) const HTTP_2_ALPN: &[u8] = b"h2";

/// By name, or IP address as text, indexes of the certificates that are for it.
type ByName = HashMap<String, Vec<usize>>;

/// Certificates in service. Whoever has got them from somewhere puts them here.
#[derive(Debug, Default)]
pub struct Certificates {
    current: RwLock<Arc<Set>>,
    /// By name: what an authority that validates a name is shown.
    challenges: RwLock<HashMap<String, Certificate>>,
}

/// Those of one moment.
#[derive(Debug, Default)]
struct Set {
    all: Vec<Certificate>,
    /// Of each of them, whether it is valid.
    are_valid: Vec<bool>,
    names: Arc<[String]>,
    /// Which of them are for a name: valid ones before others, ECDSA before RSA, and of each kind those first
    /// that last longer.
    by_name: ByName,
    /// Names whose certificates are yet to come.
    awaited: HashSet<String>,
}

impl Certificates {
    /// These. The first one, or another one for its first name or for an address of it, is for clients that ask for
    /// no name, or for one that none is for.
    #[must_use]
    pub fn new(certificates: Vec<Certificate>) -> Self {
        let it = Self::default();
        it.replace(certificates);
        it
    }

    /// Serves these from now on. A handshake that has begun keeps the one it has chosen.
    pub fn replace(&self, certificates: Vec<Certificate>) {
        self.replace_awaiting(certificates, Vec::new());
    }

    /// The same while the certificates of these names are yet to come: handshakes for them fail until then,
    /// since no other certificate is for them, and people would learn to click warnings away.
    pub fn replace_awaiting(&self, certificates: Vec<Certificate>, awaited: Vec<String>) {
        let set = Arc::new(Set::new(certificates, awaited, SystemTime::now()));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = set;
    }

    /// Time has passed: of those for the same name, one may have expired or become valid.
    pub fn passed(&self, now: SystemTime) {
        let before = self.current();
        let are_valid = are_valid(&before.all, now);
        if are_valid == before.are_valid {
            return;
        }
        let set = Arc::new(Set {
            by_name: by_name(&before.all, &are_valid),
            all: before.all.clone(),
            are_valid,
            names: Arc::clone(&before.names),
            awaited: before.awaited.clone(),
        });
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Others may have been put here meanwhile.
        if Arc::ptr_eq(&before, &current) {
            *current = set;
        }
    }

    /// Answers the challenge for a name with this one; `None`: not any more.
    pub fn answer_challenge(&self, name: &str, certificate: Option<Certificate>) {
        let mut challenges = self
            .challenges
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match certificate {
            Some(certificate) => challenges.insert(name.to_ascii_lowercase(), certificate),
            None => challenges.remove(&name.to_ascii_lowercase()),
        };
    }

    /// Those in service.
    #[must_use]
    pub fn all(&self) -> Vec<Certificate> {
        self.current().all.clone()
    }

    /// The names that those in service are for.
    pub(crate) fn names(&self) -> Arc<[String]> {
        Arc::clone(&self.current().names)
    }

    /// What an operator should know of those in service.
    #[must_use]
    pub fn warnings(&self, now: SystemTime) -> Vec<Warning> {
        let current = self.current();
        let mut warnings = Vec::new();
        for (index, it) in current.all.iter().enumerate() {
            warnings.extend(it.warning(now));
            warnings.extend(it.key_warning().cloned());
            if !current.is_used(index) {
                let text = "no client gets it; right would be a name that no other pair is for";
                warnings.push(Warning::new(WarningKind::Unused, it.label(), text));
            }
        }
        warnings
    }

    fn current(&self) -> Arc<Set> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let challenges = self
            .challenges
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let certificate = challenges.get(&name.to_ascii_lowercase())?;
        Some(Arc::clone(&certificate.key))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        if hello
            .alpn()
            .is_some_and(|mut all| all.any(|it| it == ACME_TLS_ALPN))
        {
            return self.challenge(name?);
        }
        let schemes = hello.signature_schemes();
        let set = self.current();
        let suits = |index: &usize| set.all[*index].key.key.choose_scheme(schemes).is_some();
        let is_good = |index: &usize| set.are_valid[*index] && suits(index);
        let chosen = set
            .named(name)
            .find(is_good)
            .or_else(|| set.named(name).find(suits))
            .or_else(|| set.named(name).next())?;
        Some(Arc::clone(&set.all[chosen].key))
    }
}

impl Set {
    fn new(all: Vec<Certificate>, awaited: Vec<String>, now: SystemTime) -> Self {
        let names = all.iter().flat_map(|it| it.names().iter().cloned());
        let are_valid = are_valid(&all, now);
        Self {
            names: names.collect(),
            by_name: by_name(&all, &are_valid),
            all,
            are_valid,
            awaited: awaited.into_iter().collect(),
        }
    }

    /// Whether any client gets this one: of those of its kind it is the first for a name, or the one for clients
    /// without a name. A client that takes no other kind gets it, even if it is not valid.
    fn is_used(&self, index: usize) -> bool {
        let it = &self.all[index];
        let is_of_kind = |other: &usize| self.all[*other].kind() == it.kind();
        let is_first = |name: &String| {
            let mut all = self.by_name.get(name).into_iter().flatten().copied();
            all.find(is_of_kind) == Some(index)
        };
        // These are in the order of several names: a valid one may come behind others.
        let unnamed = self.named(None).filter(is_of_kind);
        let unnamed = unnamed.min_by_key(|other| !self.are_valid[*other]);
        it.names().iter().any(is_first) || unnamed == Some(index)
    }

    /// Indexes of those for a name: exactly, then by a wildcard for its first label; or else of those for the first
    /// name of the first of all, or for an address of it; none for one that is awaited. Some clients send a dot at
    /// the end, which RFC 6066 section 3 leaves out.
    fn named(&self, name: Option<&str>) -> impl Iterator<Item = usize> {
        let of = |name: &str| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let name = name.map(|it| it.strip_suffix('.').unwrap_or(it).to_ascii_lowercase());
        let exact = name.as_deref().map_or(&[][..], of);
        let parent = name.as_deref().and_then(|name| name.split_once('.'));
        let wildcard = parent.map_or(&[][..], |(_, parent)| of(&format!("*.{parent}")));
        let is_found = !exact.is_empty() || !wildcard.is_empty();
        let is_awaited = name.is_some_and(|name| self.awaited.contains(&name));
        let first = self.all.first().filter(|_| !is_found && !is_awaited);
        let first_name = first.and_then(|it| it.names().first());
        let addresses = first.map_or(&[][..], Certificate::addresses);
        let like_first = first_name.into_iter().chain(addresses);
        let like_first = like_first.flat_map(move |name| of(name));
        let named = [exact, wildcard].into_iter().flatten();
        let named = named.chain(like_first).copied();
        named.chain(first.map(|_| 0))
    }
}

fn are_valid(all: &[Certificate], now: SystemTime) -> Vec<bool> {
    all.iter().map(|it| it.is_valid_at(now)).collect()
}

fn by_name(all: &[Certificate], are_valid: &[bool]) -> ByName {
    let mut by_name = ByName::new();
    for (index, certificate) in all.iter().enumerate() {
        for name in certificate.names().iter().chain(certificate.addresses()) {
            by_name.entry(name.clone()).or_default().push(index);
        }
    }
    for indexes in by_name.values_mut() {
        sort_by_key(indexes, |index| {
            let it = &all[*index];
            (!are_valid[*index], it.kind(), Reverse(it.not_after()))
        });
    }
    by_name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_signed;

    /// The client of rustls leaves it out.
    #[test]
    fn a_name_with_a_dot_at_its_end_is_the_same_name() {
        let all = ["a.org", "b.org"].map(|name| self_signed(&[name.to_owned()]).unwrap());
        let set = Set::new(all.to_vec(), vec!["c.org".to_owned()], SystemTime::now());
        let first = |name| Some(set.all[set.named(Some(name)).next()?].names()[0].clone());
        for (name, expected) in [
            ("b.org", Some("b.org")),
            ("B.org.", Some("b.org")),
            ("unknown.org.", Some("a.org")),
            ("c.org.", None),
        ] {
            assert_eq!(first(name).as_deref(), expected, "{name}");
        }
    }
}
