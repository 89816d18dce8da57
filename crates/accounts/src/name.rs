//! Which user names there can be, and which are the same.
//!
//! A name is shown as it was typed, in Unicode's NFKC form. Two names are the same if they agree
//! after NFKC, case folding and NFKC once more: `Straße`, `STRASSE` and the same in full-width letters
//! are one user.

use icu_casemap::CaseMapper;
use icu_normalizer::ComposingNormalizerBorrowed;

use crate::limits::{NAME_BYTES_MAX, NAME_CHARS_MAX};

/// A user name that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserName {
    /// As it is shown.
    pub(crate) shown: String,
    /// As it is compared.
    pub(crate) key: String,
}

/// Why a name cannot be taken, in words for its user.
pub(crate) type NameError = &'static str;

impl UserName {
    /// The name that was typed. White space around it is left out: it comes from copying.
    pub(crate) fn parse(typed: &str) -> Result<Self, NameError> {
        let typed = typed.trim();
        if typed.is_empty() {
            return Err("Choose a user name.");
        }
        // Looked at first, so that the work below is bounded.
        if typed.chars().nth(NAME_CHARS_MAX).is_some() {
            return Err("This user name is too long; 64 characters are the most.");
        }
        let nfkc = ComposingNormalizerBorrowed::new_nfkc();
        let shown = nfkc.normalize(typed).into_owned();
        let folded = CaseMapper::new().fold_string(&shown).into_owned();
        let key = nfkc.normalize(&folded).into_owned();
        if shown.len() > NAME_BYTES_MAX || key.len() > NAME_BYTES_MAX {
            return Err("This user name is too long.");
        }
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '+');
        if !shown.chars().all(is_plain) || !key.chars().all(|c| is_plain(c) || is_mark(c)) {
            return Err("A user name has letters, digits and . - _ @ + only.");
        }
        Ok(Self { shown, key })
    }
}

/// Combining marks that case folding may leave beside a letter: those of Latin.
fn is_mark(c: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(typed: &str) -> String {
        UserName::parse(typed).unwrap().key
    }

    #[test]
    fn names_that_look_alike_by_case_or_form_are_one() {
        for (one, two) in [
            ("Ada", "ada"),
            ("Ada", "  aDA\t"),
            ("Straße", "STRASSE"),
            ("\u{ff21}da", "ada"), // a full-width letter
            ("e\u{301}va", "\u{e9}va"),
            ("\u{fb01}nn", "finn"), // a ligature
            ("ΣΊΣΥΦΟΣ", "σίσυφος"), // both forms of the small sigma
            ("İstanbul", "İSTANBUL"),
        ] {
            assert_eq!(key(one), key(two), "{one} {two}");
        }
        assert_ne!(key("ada"), key("adah"));
        assert_eq!(UserName::parse("  Ada ").unwrap().shown, "Ada");
    }

    #[test]
    fn other_names_are_refused_with_a_reason() {
        for bad in [
            "",
            "   ",
            "a b",
            "a\0",
            "a/b",
            "<b>",
            "a'--",
            "\u{202e}abc",
            "a\u{200b}b",
            "💧",
        ] {
            assert!(UserName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(UserName::parse(&"x".repeat(64)).is_ok());
        assert!(UserName::parse(&"x".repeat(65)).is_err());
        let long = "\u{fdfa}".repeat(64); // one character that is eighteen after NFKC
        assert!(UserName::parse(&long).is_err());
    }
}
