//! The state directory: account, keys, certificates, and what was asked of the authority.
//!
//! ```text
//!   DIR/                        mode 0700, locked by one process
//!     lock
//!     HOST-PATH/                of an authority's directory (`folder_name`)
//!       account.json            key, URL and contact of the account
//!       account.json.old        the same of one that the authority did not know any more
//!       account.json.old.2      the same of the next one, and so on (`asides`)
//!       schedule.json           what was asked, what is due
//!       NAME.pem                key and certificates of a name
//!       NAME.pem.old            the same of before, while the new ones are not valid yet
//!       NAME.order.json         an order under way, with its key
//! ```
//!
//! Each file has mode 0600 and is replaced as a whole: whatever happens, there is the old one or the new
//! one. Key and certificates are in one file for the same reason.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::iter;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::AcmeError;

pub(crate) const ACCOUNT: &str = "account.json";

/// So many files of one name are set aside: an authority that has forgotten as many accounts will forget others.
const ASIDES_MAX: u32 = 100;

/// What is kept about one authority.
#[derive(Debug)]
pub(crate) struct StateDir {
    folder: PathBuf,
    /// Held as long as this process uses the directory.
    _lock: File,
}

impl StateDir {
    /// Opens the directory, makes it if it is not there, and locks it.
    pub(crate) fn open(path: &Path, directory_url: &str) -> Result<Self, AcmeError> {
        make(path).map_err(|source| file_error(path, source))?;
        check(path)?;
        let lock_path = path.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&lock_path);
        let lock = lock.map_err(|source| file_error(&lock_path, source))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => AcmeError::InUse {
                path: path.to_owned(),
            },
            TryLockError::Error(source) => file_error(&lock_path, source),
        })?;
        rename_folder_of_before(path, directory_url)?;
        let folder = path.join(folder_name(directory_url));
        make(&folder).map_err(|source| file_error(&folder, source))?;
        check(&folder)?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A file's content; `None`: there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, AcmeError> {
        let path = self.path(name);
        match fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AcmeError::File { path, source }),
        }
    }

    /// Puts a file in place of the one of before, if any.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), AcmeError> {
        self.write_and(name, content, sync)
    }

    fn write_and(&self, name: &str, content: &[u8], sync: SyncFolder) -> Result<(), AcmeError> {
        let path = self.path(name);
        let new = self.path(&format!("{name}.new"));
        let write = || {
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).write(true).mode(0o600);
            let mut file = options.open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|source| AcmeError::File { path, source })?;
        self.renamed(sync);
        Ok(())
    }

    /// Keeps a file under the first of its `asides` that is free. `None`: there is no such file.
    pub(crate) fn set_aside(&self, name: &str) -> Result<Option<PathBuf>, AcmeError> {
        let path = self.path(name);
        let set_aside = || {
            if !path.try_exists()? {
                return Ok(None);
            }
            for aside in asides(&path) {
                if !is_free(fs::symlink_metadata(&aside))? {
                    continue; // whoever holds the lock is alone here
                }
                fs::rename(&path, &aside)?;
                self.renamed(sync);
                return Ok(Some(aside));
            }
            Err(io::Error::other(format!(
                "it cannot be set aside, since {ASIDES_MAX} files are already, up to {name}.old.{ASIDES_MAX}; \
                 right would be to move those elsewhere"
            )))
        };
        set_aside().map_err(|source| file_error(&path, source))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), AcmeError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(AcmeError::File { path, source })
            }
            _ => Ok(()),
        }
    }

    /// A file has its new name, and counts. If the folder cannot be synced, only a power failure can undo that.
    fn renamed(&self, sync: SyncFolder) {
        if let Err(error) = sync(&self.folder) {
            let folder = self.folder.display();
            tracing::warn!(
                "acme: {folder}: {error}; a power failure may undo what was written there last"
            );
        }
    }
}

/// Makes the names in a folder outlast a power failure.
type SyncFolder = fn(&Path) -> io::Result<()>;

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Whether nothing has a name. If that cannot be found out, a rename could replace something.
fn is_free(looked: io::Result<Metadata>) -> io::Result<bool> {
    match looked {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The names under which a file is set aside: `NAME.old`, `NAME.old.2` and so on.
pub(crate) fn asides(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..=ASIDES_MAX).map(move |number| {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".old");
        if number > 1 {
            aside.push(format!(".{number}"));
        }
        PathBuf::from(aside)
    })
}

/// Where the state of a server is, if nothing else is said: where systemd has it (`StateDirectory=`), in
/// /var/lib for root, else where the user's programs keep theirs. `None`: there is no such place.
#[must_use]
pub fn default_state_dir() -> Option<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    state_dir_of(is_root, |name| std::env::var(name).ok())
}

fn state_dir_of(is_root: bool, variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).filter(|it| it.starts_with('/'));
    let of_systemd = variable("STATE_DIRECTORY");
    let first = of_systemd.as_deref().and_then(|it| it.split(':').next());
    if let Some(folder) = first {
        return Some(Path::new(folder).join("acme"));
    }
    if is_root {
        return Some("/var/lib/loadline/acme".into());
    }
    let of_user = || Some(Path::new(&variable("HOME")?).join(".local/state"));
    let folder = variable("XDG_STATE_HOME").map(PathBuf::from);
    Some(folder.or_else(of_user)?.join("loadline/acme"))
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether it is this user's alone.
fn check(path: &Path) -> Result<(), AcmeError> {
    let of = fs::metadata(path).map_err(|source| file_error(path, source))?;
    if !of.is_dir() {
        return Err(file_error(path, io::ErrorKind::NotADirectory.into()));
    }
    let owner = of.uid();
    if owner != rustix::process::geteuid().as_raw() {
        let path = path.to_owned();
        return Err(AcmeError::OwnedByOthers { path, owner });
    }
    let mode = of.mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(AcmeError::ReadableByOthers { path, mode });
    }
    Ok(())
}

/// `https://acme.example.org:14000/dir` is kept in `acme.example.org-14000-dir`. Where another URL could have
/// the same name, `%` escapes keep them apart.
fn folder_name(directory_url: &str) -> String {
    let rest = match directory_url.split_once("://") {
        Some((_, rest)) => rest,
        None => directory_url,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let host = host.to_ascii_lowercase();
    let path = path.strip_prefix('/').unwrap_or(path);
    match has_plain_name(&host, path) {
        true => format!("{}-{path}", host.replace(':', "-")),
        false => escaped(&format!("{host}/{path}")),
    }
}

/// Whether host, port and path can be distinguished with a `-` between them: the path has none, and the
/// last label of the host has none either.
fn has_plain_name(host: &str, path: &str) -> bool {
    let is_plain = |it: char| matches!(it, 'a'..='z' | '0'..='9' | '.');
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_name = name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && name.chars().all(|it| is_plain(it) || it == '-')
        && name.rsplit('.').next().is_none_or(|it| !it.contains('-'));
    let is_port = !port.is_empty() && port.chars().all(|it| it.is_ascii_digit());
    let is_path = !path.is_empty()
        && path.chars().all(|it| is_plain(it) || it == '_')
        && !path.ends_with('.');
    is_name && is_port && is_path
}

fn escaped(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                name.push(char::from(byte));
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// Names were ambiguous before: `/a-b` and `/a/b` had the same folder. It goes to the authority of its account. It
/// stays if that is unknown: the name may be the present one of another URL.
fn rename_folder_of_before(path: &Path, directory_url: &str) -> Result<(), AcmeError> {
    let before = path.join(folder_name_of_before(directory_url));
    if before == path || !before.is_dir() {
        return Ok(());
    }
    let Some(owner) = owner(&before, directory_url)? else {
        return Ok(());
    };
    let now = path.join(folder_name(&owner));
    if before == now || now.exists() {
        return Ok(());
    }
    fs::rename(&before, &now).map_err(|source| file_error(&before, source))?;
    tracing::info!("acme: {} is now {}", before.display(), now.display());
    Ok(())
}

/// The authority of a folder's account, or of one that was set aside there. An account that names none, as some of
/// before, is taken to be this URL's. `None`: there is no account, or it is not understood.
fn owner(folder: &Path, directory_url: &str) -> Result<Option<String>, AcmeError> {
    let account = folder.join(ACCOUNT);
    for path in iter::once(account.clone()).chain(asides(&account)) {
        let account: Option<Value> = match fs::read(&path) {
            Ok(account) => serde_json::from_slice(&account).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(file_error(&path, source)),
        };
        let account = account.filter(Value::is_object);
        return Ok(account.map(|it| {
            let owner = it["directory"].as_str();
            owner.unwrap_or(directory_url).to_owned()
        }));
    }
    Ok(None)
}

fn folder_name_of_before(directory_url: &str) -> String {
    let rest = directory_url.trim_start_matches("https://");
    let plain = |it: char| match it {
        'a'..='z' | '0'..='9' | '.' | '_' => it,
        'A'..='Z' => it.to_ascii_lowercase(),
        _ => '-',
    };
    let name: String = rest.chars().map(plain).collect();
    name.trim_matches(['-', '.']).to_owned()
}

fn file_error(path: &Path, source: io::Error) -> AcmeError {
    AcmeError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    const URL: &str = "https://acme.example.org:14000/dir";

    #[test]
    fn the_directory_and_its_files_are_for_their_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let state = StateDir::open(&path, URL).unwrap();
        state.write("x.pem", b"one").unwrap();
        state.write("x.pem", b"two").unwrap();
        assert_eq!(state.read("x.pem").unwrap().unwrap(), b"two");
        assert_eq!(state.read("y.pem").unwrap(), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let folder = path.join("acme.example.org-14000-dir");
        assert_eq!((mode(&path), mode(&folder)), (0o700, 0o700));
        assert_eq!(mode(&folder.join("x.pem")), 0o600);
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "nothing is left over"
        );
        state.remove("x.pem").unwrap();
        state.remove("x.pem").unwrap();
        assert_eq!(state.read("x.pem").unwrap(), None);
    }

    /// It was an error: a new certificate was in its place, and the old one was served on.
    #[test]
    fn a_file_that_has_its_name_counts_though_its_folder_cannot_be_synced() {
        let parent = tempfile::tempdir().unwrap();
        let state = StateDir::open(&parent.path().join("s"), URL).unwrap();
        state.write("x.pem", b"old").unwrap();
        let fails: SyncFolder = |_| Err(io::ErrorKind::StorageFull.into());
        state.write_and("x.pem", b"new", fails).unwrap();
        assert_eq!(state.read("x.pem").unwrap().unwrap(), b"new");
    }

    #[test]
    fn each_authority_has_a_folder_of_its_own() {
        let folders = [
            (
                "https://acme-v02.api.letsencrypt.org/directory",
                "acme-v02.api.letsencrypt.org-directory",
            ),
            (URL, "acme.example.org-14000-dir"),
            ("https://Acme.example.org/dir", "acme.example.org-dir"),
            ("https://h.org/v2/DV90", "h.org%2Fv2%2FDV90"),
            ("https://h.org", "h.org%2F"),
        ];
        for (url, name) in folders {
            assert_eq!(folder_name(url), name);
        }
        let urls = [
            "https://h.org/a-b",
            "https://h.org/a/b",
            "https://h.org/A/b",
            "https://h.org-a/b",
            "https://h.org/b",
            "https://h.org/B",
            "https://h.org/b.",
            "https://h.org/b/",
            "https://h.org:1/b",
            "https://h.org/1/b",
            "https://h.org-1/b",
            "https://h-org/b",
            "https://h/org/b",
            "https://h.org/%2Fb",
            "https://h.org//b",
            "https://h.org?b",
            "https://h.org?B",
            "https://h.org#b",
        ];
        let names: HashSet<String> = urls.iter().map(|url| folder_name(url)).collect();
        assert_eq!(names.len(), urls.len(), "{names:?}");
    }

    /// Both URLs had the same folder.
    #[test]
    fn a_folder_of_before_goes_to_the_authority_of_its_account() {
        let (one, other) = ("https://h.org/a-b", "https://h.org/a/b");
        for (owner, file) in [
            (Some(one), ACCOUNT),
            (Some(other), ACCOUNT),
            (None, ACCOUNT),
            (Some(one), "account.json.old"),
            (Some(other), "account.json.old"),
        ] {
            let parent = tempfile::tempdir().unwrap();
            let path = parent.path().join("s");
            let before = path.join("h.org-a-b");
            make(&before).unwrap();
            let account = json!({ "directory": owner }).to_string();
            fs::write(before.join(file), account).unwrap();
            let has_account = |url: &str| {
                let state = StateDir::open(&path, url).unwrap();
                state.read(file).unwrap().is_some()
            };
            // If it is nobody's, the first one gets it.
            assert_eq!(has_account(other), owner != Some(one), "{owner:?}");
            assert_eq!(has_account(one), owner == Some(one), "{owner:?}");
        }
    }

    /// The name of before, of the one URL, is the present one of the other.
    #[test]
    fn a_folder_whose_owner_is_unknown_or_another_stays() {
        let (present, other) = ("https://h.org/dir", "https://h.org/Dir");
        let account = json!({ "directory": present }).to_string();
        for (name, content) in [
            ("x.pem", "a certificate without an account"),
            (ACCOUNT, "{"),
            (ACCOUNT, "[]"),
            (ACCOUNT, account.as_str()),
            ("account.json.old", account.as_str()),
        ] {
            let parent = tempfile::tempdir().unwrap();
            let path = parent.path().join("s");
            let open = |url: &str| StateDir::open(&path, url).unwrap();
            open(present).write(name, content.as_bytes()).unwrap();
            assert_eq!(open(other).read(name).unwrap(), None, "{name}: {content}");
            let kept = open(present).read(name).unwrap();
            assert_eq!(kept.as_deref(), Some(content.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_folder_whose_account_cannot_be_read_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("s");
        make(&path.join("h.org-dir").join(ACCOUNT)).unwrap(); // a directory in the place of the file
        let error = StateDir::open(&path, "https://h.org/Dir").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("h.org-dir/account.json: "), "{error}");
        assert!(path.join("h.org-dir").exists());
    }

    #[test]
    fn what_is_set_aside_replaces_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let state = StateDir::open(&parent.path().join("s"), URL).unwrap();
        assert_eq!(state.set_aside(ACCOUNT).unwrap(), None);
        for (name, content) in [("account.json.old", "1"), ("account.json.old.2", "2")] {
            state.write(ACCOUNT, content.as_bytes()).unwrap();
            let aside = state.set_aside(ACCOUNT).unwrap();
            assert_eq!(aside, Some(state.path(name)));
            assert_eq!(state.read(ACCOUNT).unwrap(), None);
        }
        for aside in asides(&state.path(ACCOUNT)).skip(2) {
            fs::write(aside, "3").unwrap();
        }
        state.write(ACCOUNT, b"last").unwrap();
        let error = state.set_aside(ACCOUNT).unwrap_err().to_string();
        assert!(error.contains("account.json: it cannot be"), "{error}");
        assert_eq!(state.read(ACCOUNT).unwrap().unwrap(), b"last");
        for (aside, content) in asides(&state.path(ACCOUNT)).zip(["1", "2", "3"]) {
            assert_eq!(fs::read_to_string(aside).unwrap(), content);
        }
    }

    /// It counted as free, and what had it would have been replaced.
    #[test]
    fn a_name_that_cannot_be_looked_at_is_not_free() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_free(fs::symlink_metadata(folder.path())).unwrap());
        assert!(is_free(fs::symlink_metadata(folder.path().join("none"))).unwrap());
        let error = is_free(Err(io::ErrorKind::TimedOut.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// `--acme-domain` takes names of up to 240 bytes.
    #[test]
    fn the_longest_name_has_files() {
        let parent = tempfile::tempdir().unwrap();
        let state = StateDir::open(&parent.path().join("s"), URL).unwrap();
        let name = format!("{}.order.json", "n".repeat(240));
        state.write(&name, b"one").unwrap();
        assert_eq!(state.read(&name).unwrap().unwrap(), b"one");
    }

    #[test]
    fn one_that_others_can_read_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("open");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let error = StateDir::open(&path, URL).unwrap_err().to_string();
        assert!(error.contains("its mode is 755"), "{error}");
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn one_process_has_it() {
        let parent = tempfile::tempdir().unwrap();
        let first = StateDir::open(&parent.path().join("s"), URL).unwrap();
        let second = StateDir::open(&parent.path().join("s"), "https://other/");
        assert!(matches!(second, Err(AcmeError::InUse { .. })), "{second:?}");
        drop(first);
        StateDir::open(&parent.path().join("s"), URL).unwrap();
    }

    #[test]
    fn where_it_is_by_default() {
        let all = [
            ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        let with = |names: &[&str], is_root| {
            state_dir_of(is_root, |name| {
                let mut all = all.iter();
                let (_, value) = all.find(|(it, _)| *it == name && names.contains(it))?;
                Some((*value).to_owned())
            })
        };
        for (names, is_root, path) in [
            (
                &["STATE_DIRECTORY", "HOME"][..],
                true,
                Some("/var/lib/a/acme"),
            ),
            (&["HOME"], true, Some("/var/lib/loadline/acme")),
            (&["XDG_STATE_HOME", "HOME"], false, Some("/x/loadline/acme")),
            (&["HOME"], false, Some("/h/.local/state/loadline/acme")),
            (&[], false, None),
        ] {
            assert_eq!(with(names, is_root), path.map(PathBuf::from), "{names:?}");
        }
    }
}
