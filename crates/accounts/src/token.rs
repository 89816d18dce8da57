//! Random tokens, and what is stored or shown of them.
//!
//! A token is 256 random bits that only a browser's cookie holds. The database has its SHA-256, so
//! that a reader of the database cannot act for any user; forms carry another hash of it, which proves
//! that they were made for this browser.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

const TOKEN_BYTES: usize = 32;

/// A secret of one browser. Has no `Debug`, so that no log shows it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The kernel gives no randomness.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The one in a cookie, if it has the form of one.
    pub(crate) fn from_cookie(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        (bytes.len() == TOKEN_BYTES).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_cookie(&self) -> &str {
        &self.0
    }

    /// What the database holds of it, as the token of a session.
    pub(crate) fn stored(&self) -> String {
        hex::encode(self.hash("session"))
    }

    /// What the database holds of it, as the token of a browser that an account knows.
    pub(crate) fn stored_of_device(&self) -> String {
        hex::encode(self.hash("device"))
    }

    /// What forms carry of it.
    pub(crate) fn for_forms(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.hash("form"))
    }

    /// Whether a form carries the right one, found out in the same time for each wrong one.
    pub(crate) fn is_of_form(&self, text: &str) -> bool {
        let right = self.hash("form");
        let Ok(given) = BASE64_URL_SAFE_NO_PAD.decode(text) else {
            return false;
        };
        let differences = right
            .iter()
            .zip(&given)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        given.len() == right.len() && differences == 0
    }

    fn hash(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update([0]);
        hash.update(self.0.as_bytes());
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_survive_the_way_through_a_cookie() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert!(one != two);
        assert!(Token::from_cookie(one.as_cookie()).unwrap() == one);
        assert_eq!(one.as_cookie().len(), 43, "256 bits in base64url");
        for bad in ["", "short", &"a".repeat(44), "%", &"=".repeat(43)] {
            assert!(Token::from_cookie(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_is_stored_and_what_forms_carry_are_different_hashes() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one.stored(), one.for_forms());
        assert_ne!(
            one.stored(),
            one.stored_of_device(),
            "neither is good for the other"
        );
        assert_ne!(one.stored(), two.stored());
        assert!(!one.stored().contains(one.as_cookie()));
        assert!(one.is_of_form(&one.for_forms()));
        let own = one.for_forms();
        for wrong in [&two.for_forms(), "", "a", one.as_cookie(), &own[1..]] {
            assert!(!one.is_of_form(wrong), "{wrong}");
        }
    }
}
