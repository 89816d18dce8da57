//! What `loadline serve` must not hand out: keys, accounts and logs lie outside of the directory that is
//! served.
//!
//! Modes do not help: the server itself can read these files.

use std::fs;
use std::path::{Component, Path, PathBuf, absolute};

use loadline_spec::serve::ServeSpec;
use loadline_spec::values::FilePath;

use crate::acme;
use crate::failure::Failure;

/// Refuses keys and logs in the directory that is served, and a state directory that shares files with it.
pub(crate) fn refuse_served(spec: &ServeSpec, root: &Path) -> Result<(), Failure> {
    let keys = spec.tls.tls_key.iter().map(|path| ("--tls-key", path));
    let tickets = spec.tls.tls_ticket_key.iter();
    let tickets = tickets.map(|path| ("--tls-ticket-key", path));
    let bindings = spec.acme.acme_eab_key.iter();
    let bindings = bindings.map(|path| ("--acme-eab-key", path));
    let logs = [
        ("--access-log", &spec.running.access_log),
        ("--connection-log", &spec.running.connection_log),
    ];
    let logs = logs
        .into_iter()
        .filter_map(|(option, path)| Some((option, path.as_ref().filter(|it| is_file(it))?)));
    for (option, path) in keys.chain(tickets).chain(bindings).chain(logs) {
        refuse_inside(&format!("{option} {}", path.display()), path, root)?;
    }
    if spec.acme.acme.is_none() {
        return Ok(());
    }
    let folder = acme::folder(&spec.acme)?;
    let named = format!("--acme-dir {}", folder.display());
    refuse_inside(&named, &folder, root)?;
    if full(&folder).is_some_and(|full| root.starts_with(full)) {
        return Err(Failure::usage(format!(
            "{named}: the directory that is served, {}, is in it; right would be a place of its own",
            root.display()
        )));
    }
    Ok(())
}

/// Whether a log is a file, or will be: not standard output, a pipe or a folder, which is refused elsewhere.
fn is_file(path: &FilePath) -> bool {
    let is_other = fs::metadata(&path.0).is_ok_and(|found| !found.is_file());
    path.as_os_str() != "-" && !is_other
}

/// Refuses a file or a folder that the server would hand out. `named`: its option and value.
pub(crate) fn refuse_inside(named: &str, path: &Path, root: &Path) -> Result<(), Failure> {
    match full(path).is_some_and(|full| full.starts_with(root)) {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{named}: in the directory that is served, {}; right would be a place outside of it",
            root.display()
        ))),
    }
}

/// The full path of what may not be there yet. Links are resolved in what is there.
fn full(path: &Path) -> Option<PathBuf> {
    let path = absolute(path).ok()?;
    path.ancestors().find_map(|there| {
        let mut full = fs::canonicalize(there).ok()?;
        for part in path.strip_prefix(there).ok()?.components() {
            match part {
                Component::ParentDir => {
                    full.pop();
                }
                part => full.push(part),
            }
        }
        Some(full)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::serve_spec;

    const ACME: &str = "--acme you@example.org --acme-domain example.org";

    #[test]
    fn paths_that_are_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("there")).unwrap();
        std::os::unix::fs::symlink(root.join("there"), root.join("link")).unwrap();
        for (path, expected) in [
            ("there", "there"),
            ("link", "there"),
            ("link/new/state", "there/new/state"),
            ("new/../there/state", "there/state"),
            ("there/../state", "state"),
        ] {
            assert_eq!(full(&root.join(path)), Some(root.join(expected)), "{path}");
        }
    }

    #[test]
    fn keys_logs_and_state_are_refused_in_the_served_directory_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("public").join("site");
        fs::create_dir_all(&root).unwrap();
        let root = root.canonicalize().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&root, &link).unwrap();
        let (inside, above) = (root.join("new/secret"), root.parent().unwrap());
        let outside = above.join("secret");
        for options in [
            "--tls-cert c.pem --tls-key",
            "--tls self-signed --tls-ticket-key",
            "--access-log",
            "--log-format json --connection-log",
            &format!("{ACME} --acme-dir"),
            &format!("{ACME} --acme-dir /nowhere --acme-eab-kid k --acme-eab-key"),
        ] {
            let option = options.rsplit(' ').next().unwrap();
            let found = |path: &Path| {
                let spec = serve_spec(&format!("{options} {}", path.display())).unwrap();
                refuse_served(&spec, &root).map_err(|failure| failure.message)
            };
            for path in [&inside, &link.join("secret")] {
                let message = found(path).unwrap_err();
                let named = format!("{option} {}: in the directory", path.display());
                assert!(message.starts_with(&named), "{message}");
            }
            assert_eq!(found(&outside), Ok(()), "{options}");
            assert_eq!(found(above).is_err(), option == "--acme-dir", "{options}");
        }
        for options in ["--access-log -", "--connection-log /dev/stdout"] {
            assert_eq!(refuse_served(&serve_spec(options).unwrap(), &root), Ok(()));
        }
    }
}
