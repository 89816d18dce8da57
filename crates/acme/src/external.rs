//! An account that the authority has of somebody already: the one for certificates is bound to it (external
//! account binding, RFC 8555 section 7.3.4).

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use instant_acme::ExternalAccountKey;

use crate::AcmeError;

/// What a file of a key has at most: keys have 32 to 64 bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// Authorities show keys with and without padding.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An account with an authority, by which it knows whose certificates it issues.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    id: String,
    key: Vec<u8>,
}

impl ExternalAccount {
    /// By its key identifier, and a file with its HMAC key in base64url.
    ///
    /// # Errors
    /// The file cannot be read, or has no such key.
    pub fn from_file(id: &str, path: &Path) -> Result<Self, AcmeError> {
        let of_file = |source: io::Error| AcmeError::File {
            path: path.to_owned(),
            source,
        };
        let mut text = Vec::new();
        let file = File::open(path).map_err(of_file)?;
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
        read.map_err(of_file)?;
        let wrong = || AcmeError::ExternalKey {
            path: path.to_owned(),
        };
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong());
        }
        let key = BASE64URL.decode(text.trim_ascii()).map_err(|_| wrong())?;
        if key.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            id: id.to_owned(),
            key,
        })
    }

    pub(crate) fn key(&self) -> ExternalAccountKey {
        ExternalAccountKey::new(self.id.clone(), &self.key)
    }
}

/// Without the key.
impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_as_authorities_show_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eab.key");
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            ExternalAccount::from_file("kid-1", &path)
        };
        for text in ["_-8AAQ", "_-8AAQ==", " _-8AAQ==\r\n"] {
            let account = read(text.as_bytes()).unwrap();
            assert_eq!(account.key, [0xff, 0xef, 0, 1], "{text:?}");
            assert!(!format!("{account:?}").contains("255"), "no key in a log");
        }
        let long = "A".repeat(5000);
        for text in ["", "\n", "a+b/", "two words", "key=", &long] {
            let message = read(text.as_bytes()).unwrap_err().to_string();
            assert!(
                message.contains("not a key in base64url"),
                "{text:?}: {message}"
            );
            assert!(
                message.starts_with(&path.display().to_string()),
                "{message}"
            );
        }
        assert!(read(&[0xff; 32]).is_err());
        assert!(ExternalAccount::from_file("kid-1", "/nowhere".as_ref()).is_err());
    }
}
