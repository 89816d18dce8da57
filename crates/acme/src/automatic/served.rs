//! The certificates in service and their files: the newest of each name, and the one of before as long as that is
//! valid and the newest is not yet, by the clock of this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_tls::Certificate;

use crate::UnixTime;
use crate::failed::Failed;
use crate::schedule::Validity;
use crate::state_dir::StateDir;

/// Two clocks that are set may differ by seconds.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Those in service.
#[derive(Debug, Default)]
pub(super) struct Served {
    newest: BTreeMap<String, Certificate>,
    before: BTreeMap<String, Certificate>,
}

impl Served {
    /// Reads those of a name. Returns how long the newest one is valid, if it can be used.
    pub(super) fn load(
        &mut self,
        state: &StateDir,
        name: &str,
    ) -> Result<Option<Validity>, Failed> {
        match load(state, name, &file_of_before(name)) {
            Ok(Some(before)) => {
                self.before.insert(name.to_owned(), before);
            }
            Ok(None) => {}
            Err(failed) => tracing::warn!("acme: {name}: {}", failed.message),
        }
        let Some(newest) = load(state, name, &file(name))? else {
            return Ok(None);
        };
        let validity = validity(&newest);
        self.newest.insert(name.to_owned(), newest);
        Ok(Some(validity))
    }

    /// A new certificate has come. The one of before stays if the new one is not valid now and that one is.
    pub(super) fn take_up(
        &mut self,
        state: &StateDir,
        name: &str,
        pem: &[u8],
        now: UnixTime,
    ) -> Result<Validity, Failed> {
        let certificate = checked(state, name, (&file(name), pem))?;
        let is_valid = |it: &Certificate| validity(it).contains(now);
        let newest = self.newest.get(name);
        if let Some(before) = newest.filter(|it| is_valid(it) && !is_valid(&certificate)) {
            if let Some(pem) = state.read(&file(name)).map_err(Failed::of_file)? {
                let kept = state.write(&file_of_before(name), &pem);
                kept.map_err(Failed::of_file)?;
            }
            self.before.insert(name.to_owned(), before.clone());
        }
        let kept = state.write(&file(name), pem);
        kept.map_err(Failed::of_file)?;
        let validity = validity(&certificate);
        if !validity.contains(now) && !validity.contains(now.plus(CLOCKS_APART)) {
            let meanwhile = match self.before.get(name).is_some_and(is_valid) {
                true => "; the one of before stays in service",
                false => "",
            };
            tracing::warn!(
                "acme: {name}: the new certificate is valid from {} to {}, and it is {now}: the clock of the \
                 authority or of this machine is wrong{meanwhile}",
                validity.from,
                validity.to
            );
        }
        self.newest.insert(name.to_owned(), certificate);
        Ok(validity)
    }

    /// Time has passed: where the newest one is valid, that of before is not needed any more. Returns whether there
    /// was any.
    pub(super) fn passed(&mut self, state: &StateDir, now: UnixTime) -> bool {
        let is_over = |name: &str| {
            let newest = self.newest.get(name);
            newest.is_some_and(|it| validity(it).contains(now))
        };
        let over = self.before.keys().filter(|name| is_over(name));
        let over: Vec<String> = over.cloned().collect();
        for name in &over {
            self.before.remove(name);
            if let Err(error) = state.remove(&file_of_before(name)) {
                tracing::warn!("acme: {name}: {error}"); // it is read again after a restart, and dropped again
            }
        }
        !over.is_empty()
    }

    pub(super) fn newest(&self, name: &str) -> Option<&Certificate> {
        self.newest.get(name)
    }

    /// All of a name: clients get one that is valid.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &Certificate> {
        self.newest
            .get(name)
            .into_iter()
            .chain(self.before.get(name))
    }
}

pub(super) fn file(name: &str) -> String {
    format!("{name}.pem")
}

fn file_of_before(name: &str) -> String {
    format!("{name}.pem.old")
}

fn load(state: &StateDir, name: &str, file: &str) -> Result<Option<Certificate>, Failed> {
    let kept = state.read(file)?;
    kept.map(|pem| checked(state, name, (file, &pem)))
        .transpose()
}

/// A certificate and its key, if they are what they should be.
fn checked(
    state: &StateDir,
    name: &str,
    (file, pem): (&str, &[u8]),
) -> Result<Certificate, Failed> {
    let path = state.path(file).display().to_string();
    let certificate = Certificate::from_pem((&path, pem), (&path, pem));
    let certificate = certificate.map_err(|error| Failed::refused(error.to_string()))?;
    match certificate.names().iter().any(|it| it == name) {
        true => Ok(certificate),
        false => Err(Failed::refused(format!("{path}: it is for another name"))),
    }
}

fn validity(certificate: &Certificate) -> Validity {
    Validity {
        from: certificate.not_before().into(),
        to: certificate.not_after().into(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const NAME: &str = "a.example.org";

    /// The first day of a year.
    fn day(year: i32) -> UnixTime {
        let seconds = date_time_ymd(year, 1, 1).unix_timestamp();
        UnixTime(u64::try_from(seconds).unwrap())
    }

    /// Valid from one year up to another.
    fn pem([from, to]: [i32; 2]) -> String {
        let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        key.serialize_pem() + &params.self_signed(&key).unwrap().pem()
    }

    /// From when on those in service are valid.
    fn in_service(it: &Served) -> Vec<UnixTime> {
        it.of(NAME).map(|it| validity(it).from).collect()
    }

    /// What there is after a restart.
    fn loaded(state: &StateDir) -> Served {
        let mut it = Served::default();
        it.load(state, NAME).unwrap();
        it
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_leaves_a_valid_one_in_service() {
        for (now, certificates, expected) in [
            (2026, &[[2020, 2030]][..], &[2020][..]),
            (2026, &[[2020, 2030], [2025, 2035]], &[2025]),
            (2026, &[[2020, 2030], [2027, 2035]], &[2027, 2020]),
            (2026, &[[2020, 2030], [2021, 2025]], &[2021, 2020]), // its clock is behind
            (
                2026,
                &[[2020, 2030], [2027, 2035], [2028, 2035]],
                &[2028, 2020],
            ),
            (2026, &[[2020, 2030], [2027, 2035], [2025, 2035]], &[2025]),
            // There is no better one.
            (2026, &[[2027, 2035]], &[2027]),
            (2026, &[[2020, 2025], [2027, 2035]], &[2027]),
            // The clock of this machine has not been set.
            (1970, &[[2020, 2030], [2025, 2035]], &[2025]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let state = StateDir::open(&folder.path().join("s"), "https://h.org/dir").unwrap();
            let mut it = Served::default();
            for years in certificates {
                let validity = it.take_up(&state, NAME, pem(*years).as_bytes(), day(now));
                assert_eq!(validity.unwrap().from, day(years[0]));
                it.passed(&state, day(now));
            }
            let expected: Vec<_> = expected.iter().map(|year| day(*year)).collect();
            assert_eq!(in_service(&it), expected, "{now}: {certificates:?}");
            assert_eq!(
                in_service(&loaded(&state)),
                expected,
                "{now}: after a restart"
            );
        }
    }

    #[test]
    fn the_one_of_before_goes_when_the_new_one_becomes_valid() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("s"), "https://h.org/dir").unwrap();
        let mut it = Served::default();
        for years in [[2020, 2030], [2027, 2035]] {
            let taken = it.take_up(&state, NAME, pem(years).as_bytes(), day(2026));
            taken.unwrap();
        }
        let mut it = loaded(&state);
        assert!(!it.passed(&state, UnixTime(day(2027).0 - 1)));
        assert_eq!(in_service(&it), [day(2027), day(2020)]);
        assert!(it.passed(&state, day(2027)));
        assert_eq!(in_service(&it), [day(2027)]);
        assert_eq!(in_service(&loaded(&state)), [day(2027)]);
    }

    #[test]
    fn the_one_of_before_is_in_service_though_the_file_of_the_new_one_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("s"), "https://h.org/dir").unwrap();
        let old = pem([2020, 2030]);
        state.write(&file_of_before(NAME), old.as_bytes()).unwrap();
        state.write(&file(NAME), b"cut off").unwrap();
        let mut it = Served::default();
        assert!(it.load(&state, NAME).is_err());
        assert_eq!(in_service(&it), [day(2020)]);
        assert!(!it.passed(&state, day(2026)), "there is no other");
    }
}
