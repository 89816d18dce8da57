//! Whether a file with a secret key is closed to other users of the machine.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::{Warning, WarningKind};

/// The permissions of users who are neither a file's owner nor in its group: to read it, and to go through it
/// if it is a folder.
const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;

/// A warning if all users of the machine can read this file, which has `what` in it ("the private key"). None if
/// only the owner and the group can read it: Debian's keys belong to `root:ssl-cert` and have mode 640.
#[must_use]
pub fn key_file_warning(key: &Path, what: &str) -> Option<Warning> {
    let file = fs::metadata(key).ok()?;
    let mode = file.mode() & 0o777;
    if mode & OTHERS_READ == 0 || !can_others_reach(key) {
        return None;
    }
    let path = key.display().to_string();
    // It belongs to this process's effective user.
    let process = fs::metadata("/proc/self").ok();
    let is_own = process.is_some_and(|it| it.uid() == file.uid());
    let right = right_mode(&path, is_own);
    let text = format!(
        "its mode is {mode:03o}, so all users of this machine can read {what}; right would be {right}"
    );
    Some(Warning::new(WarningKind::ReadableKey, &path, &text))
}

/// Not so if one of the folders that it is in is closed to them.
fn can_others_reach(file: &Path) -> bool {
    let Ok(file) = fs::canonicalize(file) else {
        return true;
    };
    let is_open = |folder: &Path| {
        let folder = fs::metadata(folder).ok();
        folder.is_none_or(|it| it.mode() & OTHERS_ENTER != 0)
    };
    file.ancestors().skip(1).all(is_open)
}

/// Mode 600 would keep a server from a key that belongs to another user.
fn right_mode(path: &str, is_own: bool) -> String {
    match is_own {
        true => format!("600 (chmod 600 {path})"),
        false => "640, with a group that this server is in".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Its server could not read it any more after the next start.
    #[test]
    fn a_key_of_another_user_is_not_to_be_closed_to_the_server() {
        assert_eq!(right_mode("k.pem", true), "600 (chmod 600 k.pem)");
        let of_another = right_mode("k.pem", false);
        assert!(of_another.starts_with("640, ") && !of_another.contains("600"));
    }

    #[test]
    fn a_key_in_a_folder_that_is_closed_to_others_is_not_readable_by_all() {
        // A folder for temporary files may be closed itself.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("k.pem"), "").unwrap();
        let link = folder.path().join("link.pem");
        std::os::unix::fs::symlink(inner.join("k.pem"), &link).unwrap();
        for (outer_mode, inner_mode, key_mode, is_warned) in [
            (0o755, 0o755, 0o644, true),
            (0o711, 0o711, 0o604, true),
            (0o755, 0o755, 0o640, false),
            (0o755, 0o700, 0o644, false),
            (0o700, 0o755, 0o644, false),
            (0o750, 0o755, 0o644, false),
        ] {
            set(folder.path(), outer_mode);
            set(&inner, inner_mode);
            set(&inner.join("k.pem"), key_mode);
            for key in [&inner.join("k.pem"), &link] {
                let warning = key_file_warning(key, "the key");
                assert_eq!(warning.is_some(), is_warned, "{warning:?}");
                let text = warning.map(|it| it.to_string()).unwrap_or_default();
                let right = format!("right would be 600 (chmod 600 {})", key.display());
                assert_eq!(text.contains(&right), is_warned, "{text}");
            }
        }
    }
}
