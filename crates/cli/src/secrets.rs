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

/// Links on one way. 40 is the kernel's own bound.
const LINKS_MAX: usize = 40;

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
    let follow_symlinks = spec.content.follow_symlinks;
    for (option, path) in keys.chain(tickets).chain(bindings).chain(logs) {
        let named = format!("{option} {}", path.display());
        refuse_inside(&named, path, root, follow_symlinks)?;
    }
    if spec.acme.acme.is_none() {
        return Ok(());
    }
    let folder = acme::folder(&spec.acme)?;
    let named = format!("--acme-dir {}", folder.display());
    refuse_inside(&named, &folder, root, follow_symlinks)?;
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
pub(crate) fn refuse_inside(
    named: &str,
    path: &Path,
    root: &Path,
    follow_symlinks: bool,
) -> Result<(), Failure> {
    let Some((full, links)) = follow(path) else {
        return Ok(()); // nothing can be opened there
    };
    let root_text = root.display();
    if full.starts_with(root) {
        return Err(Failure::usage(format!(
            "{named}: in the directory that is served, {root_text}; right would be a place outside of it"
        )));
    }
    match links.iter().find(|link| link.starts_with(root)) {
        Some(link) if follow_symlinks => Err(Failure::usage(format!(
            "{named}: behind {}, a link in the directory that is served with --follow-symlinks; right \
             would be its own path, {}, and no link to it there",
            link.display(),
            full.display()
        ))),
        _ => Ok(()),
    }
}

/// The full path of what may not be there yet.
fn full(path: &Path) -> Option<PathBuf> {
    follow(path).map(|(full, _)| full)
}

/// The full path of what may not be there yet, and the links on the way to it, also those that lead to
/// nothing: a log would be made where they lead. `None`: they run in circles.
fn follow(path: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let parts = |path: &Path| -> Vec<PathBuf> {
        let parts = path.components().rev();
        let parts = parts.filter(|part| *part != Component::CurDir);
        parts.map(|part| part.as_os_str().into()).collect()
    };
    let mut ahead = parts(&absolute(path).ok()?);
    let (mut full, mut links) = (PathBuf::new(), Vec::new());
    while let Some(part) = ahead.pop() {
        if part.as_os_str() == ".." {
            full.pop();
            continue;
        }
        full.push(part); // one that is absolute begins anew
        let Ok(target) = fs::read_link(&full) else {
            continue; // nothing to follow
        };
        links.push(full.clone());
        if links.len() > LINKS_MAX {
            return None;
        }
        full.pop();
        ahead.extend(parts(&target));
    }
    Some((full, links))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::flags::serve_spec;

    const ACME: &str = "--acme you@example.org --acme-domain example.org";

    #[test]
    fn paths_that_are_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("there")).unwrap();
        symlink(root.join("there"), root.join("link")).unwrap();
        symlink(root.join("new/log"), root.join("dangling")).unwrap();
        symlink("./there/../new", root.join("there/relative")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        for (path, expected) in [
            ("there", "there"),
            ("link", "there"),
            ("link/new/state", "there/new/state"),
            ("new/../there/state", "there/state"),
            ("there/../state", "state"),
            ("dangling", "new/log"),
            ("link/relative/log", "there/new/log"),
        ] {
            assert_eq!(full(&root.join(path)), Some(root.join(expected)), "{path}");
        }
        assert_eq!(full(&root.join("circle")), None);
    }

    /// What such a link leads to was handed out.
    #[test]
    fn a_key_behind_a_link_in_the_directory_is_refused_if_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("site");
        fs::create_dir(&root).unwrap();
        let root = root.canonicalize().unwrap();
        let key = folder.path().join("key.pem");
        fs::write(&key, "").unwrap();
        symlink(&key, root.join("key.pem")).unwrap();
        symlink(folder.path(), root.join("up")).unwrap();
        symlink(root.join("key.pem"), folder.path().join("round")).unwrap();
        let found = |path: &Path, more: &str| {
            let options = format!("--tls-cert c.pem --tls-key {} {more}", path.display());
            let spec = serve_spec(&options).unwrap();
            refuse_served(&spec, &root).map_err(|failure| failure.message)
        };
        for path in [
            root.join("key.pem"),
            root.join("up/key.pem"),
            folder.path().join("round"),
        ] {
            assert_eq!(found(&path, ""), Ok(()), "the link is not served");
            let message = found(&path, "--follow-symlinks").unwrap_err();
            assert!(message.contains("a link in the directory"), "{message}");
        }
        assert_eq!(found(&key, "--follow-symlinks"), Ok(()));
    }

    #[test]
    fn keys_logs_and_state_are_refused_in_the_served_directory_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("public").join("site");
        fs::create_dir_all(&root).unwrap();
        let root = root.canonicalize().unwrap();
        let link = folder.path().join("link");
        symlink(&root, &link).unwrap();
        let dangling = folder.path().join("dangling");
        symlink(root.join("new/secret"), &dangling).unwrap();
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
            for path in [&inside, &link.join("secret"), &dangling] {
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
