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

/// By name, indexes of the certificates that are for it.
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
    names: Arc<[String]>,
    /// Which of them are for a name: valid ones before others, ECDSA before RSA, and of each kind those first
    /// that last longer.
    by_name: ByName,
    /// Names whose certificates are yet to come.
    awaited: HashSet<String>,
}

impl Certificates {
    /// These. The first one is for clients that ask for no name, or for one that none is for.
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
        let by_name = by_name(&before.all, now);
        if by_name == before.by_name {
            return;
        }
        let set = Arc::new(Set {
            all: before.all.clone(),
            names: Arc::clone(&before.names),
            by_name,
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
        let suits = |it: &&Certificate| it.key.key.choose_scheme(schemes).is_some();
        let chosen = set
            .named(name)
            .find(suits)
            .or_else(|| set.named(name).next());
        chosen.map(|certificate| Arc::clone(&certificate.key))
    }
}

impl Set {
    fn new(all: Vec<Certificate>, awaited: Vec<String>, now: SystemTime) -> Self {
        let names = all.iter().flat_map(|it| it.names().iter().cloned());
        Self {
            names: names.collect(),
            by_name: by_name(&all, now),
            all,
            awaited: awaited.into_iter().collect(),
        }
    }

    /// Whether any client gets this one: of those of its kind it is the first for a name. A client that takes
    /// no other kind gets it, even if it is not valid.
    fn is_used(&self, index: usize) -> bool {
        let it = &self.all[index];
        let is_first = |name: &String| {
            let mut all = self.by_name.get(name).into_iter().flatten();
            let first = all.find(|other| self.all[**other].kind() == it.kind());
            first == Some(&index)
        };
        match it.names() {
            [] => index == 0, // it is for those that ask for no name
            names => names.iter().any(is_first),
        }
    }

    /// Those for a name: exactly, by a wildcard for its first label, or else the first of all and those
    /// with the same names; none for one that is awaited. Some clients send a dot at the end, which RFC 6066
    /// section 3 leaves out.
    fn named(&self, name: Option<&str>) -> impl Iterator<Item = &Certificate> {
        let of = |name: &str| self.by_name.get(name);
        let name = name.map(|it| it.strip_suffix('.').unwrap_or(it).to_ascii_lowercase());
        let found = name.as_ref().and_then(|name| {
            let wildcard = || {
                let (_, rest) = name.split_once('.')?;
                of(&format!("*.{rest}"))
            };
            of(name).or_else(wildcard)
        });
        let is_awaited = name.is_some_and(|name| self.awaited.contains(&name));
        let first = self.all.first().filter(|_| !is_awaited);
        let of_first = || first?.names().first().and_then(|name| of(name));
        let indexes = found.or_else(of_first).map_or(&[][..], Vec::as_slice);
        let unnamed = first.filter(|_| indexes.is_empty());
        indexes.iter().map(|index| &self.all[*index]).chain(unnamed)
    }
}

fn by_name(all: &[Certificate], now: SystemTime) -> ByName {
    let mut by_name = ByName::new();
    for (index, certificate) in all.iter().enumerate() {
        for name in certificate.names() {
            by_name.entry(name.clone()).or_default().push(index);
        }
    }
    for indexes in by_name.values_mut() {
        sort_by_key(indexes, |index| {
            let it = &all[*index];
            let is_invalid = !it.is_valid_at(now);
            (is_invalid, it.kind(), Reverse(it.not_after()))
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
        let first = |name| Some(set.named(Some(name)).next()?.names()[0].clone());
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
