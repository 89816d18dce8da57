//! Which passwords are taken, as a pure function.
//!
//! Length counts, composition does not (NIST SP 800-63B; ASVS 6.2). What is refused: what is too
//! short or too long, what is common, what has hardly any characters, what is the user name.

use std::collections::HashSet;
use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use icu_casemap::CaseMapper;

use crate::limits::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN, PASSWORD_DISTINCT_MIN};
use crate::name::UserName;

/// The passwords most often found in collections of stolen ones; see `assets/README.md`.
static COMMON: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let list = include_bytes!("../assets/common-passwords.txt.gz");
    let mut text = String::new();
    GzDecoder::new(&list[..])
        .read_to_string(&mut text)
        .expect("the list is a part of the program");
    text.leak().lines().collect()
});

/// Whether a new password is strong enough.
///
/// # Errors
/// What is wrong with it, in words for its user.
pub(crate) fn check(password: &str, name: &UserName) -> Result<(), &'static str> {
    if password.chars().nth(PASSWORD_CHARS_MIN - 1).is_none() {
        return Err("This password is too short; it needs 8 characters, and more are better.");
    }
    if password.chars().nth(PASSWORD_CHARS_MAX).is_some() {
        return Err("This password is too long; 128 characters are the most.");
    }
    let folded = CaseMapper::new().fold_string(password).into_owned();
    if COMMON.contains(folded.as_str()) || COMMON.contains(folded.trim()) {
        return Err("This password is one of the most common ones; choose another.");
    }
    let distinct: HashSet<char> = folded.chars().collect();
    if distinct.len() < PASSWORD_DISTINCT_MIN {
        return Err("This password repeats a few characters; choose another.");
    }
    // What is left of a password without the name must be one by itself, or nearly.
    let rest = folded.replace(&name.key, "");
    if rest.len() < folded.len() && rest.chars().count() < PASSWORD_CHARS_MIN / 2 {
        return Err("This password is hardly more than the user name; choose another.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(password: &str) -> Result<(), &'static str> {
        check(password, &UserName::parse("Quintilla").unwrap())
    }

    #[test]
    fn length_counts_and_composition_does_not() {
        for good in [
            "correct horse battery staple",
            "zebrakeks",
            "ein Satz, den niemand kennt",
            "пароль-длинный",
            "🦀🐎🔋📎🌊⚓🧭🛟",
            &"long ".repeat(20),
        ] {
            assert_eq!(verdict(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn weak_and_common_ones_are_refused() {
        let too_long = "x".repeat(60) + &"abcdefgh".repeat(9);
        for (bad, reason) in [
            ("", "too short"),
            ("abcdefg", "too short"),
            (too_long.as_str(), "too long"),
            ("password", "common"),
            ("PassWord1", "common"),
            ("  password ", "common"),
            ("iloveyou", "common"),
            ("abababababab", "repeats"),
            ("quintilla", "user name"),
            ("Quintilla123", "user name"),
            ("quintillaquintilla", "user name"),
        ] {
            let said = verdict(bad).unwrap_err();
            assert!(said.contains(reason), "{bad}: {said}");
        }
    }

    #[test]
    fn the_list_holds_the_top_of_what_the_length_allows() {
        assert!(COMMON.len() > 3000, "ASVS 6.2.4 asks for 3000");
        let long_enough = |word: &&str| word.chars().count() >= PASSWORD_CHARS_MIN;
        assert!(COMMON.iter().all(long_enough), "others are refused anyway");
    }
}
