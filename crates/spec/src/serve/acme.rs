//! Where automatic certificates come from, and for which names.

use clap::ValueHint;

use crate::ValueError;
use crate::spec;
use crate::values::FilePath;

spec! {
    /// Automatic certificates.
    #[command(next_help_heading = "Automatic certificates")]
    pub struct AcmeSpec {
        /// Get certificates from an authority by ACME, and renew them. The authority may write to this
        /// address.
        #[arg(long, value_name = "EMAIL")]
        pub acme: Option<Email>,

        /// A name to get a certificate for; may be given up to 100 times. The authority must reach this server
        /// under it, at port 80 or 443.
        #[arg(long, value_name = "NAME")]
        pub acme_domain: Vec<DomainName>,

        /// Agree to the authority's terms, at the first start. Without it the server says where they are, and
        /// ends with exit code 2.
        #[arg(long)]
        pub acme_agree_to_terms: bool,

        /// The authority: the URL of its ACME directory [default: Let's Encrypt,
        /// https://acme-v02.api.letsencrypt.org/directory].
        #[arg(long, value_name = "URL")]
        pub acme_directory: Option<DirectoryUrl>,

        /// The key identifier of your account with the authority, if it asks for one (external account
        /// binding). Needed when an account for certificates is made: at the first start.
        #[arg(long, value_name = "KID")]
        pub acme_eab_kid: Option<KeyId>,

        /// A file with the HMAC key of that account, in base64url as the authority shows it.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub acme_eab_key: Option<FilePath>,

        /// Certificates in PEM that sign the authority's own server, for an authority within an organisation
        /// [default: the system's].
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub acme_ca: Option<FilePath>,

        /// Where account, keys and certificates are kept: a directory of mode 700 for this server alone
        /// [default: /var/lib/loadline/acme for root, otherwise ~/.local/state/loadline/acme].
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        pub acme_dir: Option<FilePath>,
    }
}

/// The authority, if no other is named.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The longest name: files are called after it (`NAME.order.json.new`), and names of files have 255 bytes at
/// most. DNS has 253.
const NAME_LEN_MAX: usize = 240;
/// The longest label in DNS.
const LABEL_LEN_MAX: usize = 63;

/// A DNS name that a certificate can be for, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainName(pub String);

as_text!(DomainName, |text| {
    const RIGHT: &str = "a DNS name such as www.example.org";
    if text.starts_with("*.") {
        return Err(ValueError::new(
            "for a wildcard an authority asks for a record in the DNS (DNS-01), which a web server cannot \
             make",
            "each name by itself, or --tls-cert with a certificate from a DNS client",
        ));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if !name.is_ascii() {
        let right = "its ASCII form, which begins with xn--";
        return Err(ValueError::new("not a name in ASCII", right));
    }
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=LABEL_LEN_MAX).contains(&label.len())
            && label.bytes().all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_address = last.bytes().all(|byte| byte.is_ascii_digit());
    if is_address || !name.split('.').all(is_label) {
        return Err(ValueError::new("not a DNS name", RIGHT));
    }
    if name.len() > NAME_LEN_MAX {
        return Err(ValueError::new(
            format!(
                "{} characters, too long for the names of its files",
                name.len()
            ),
            format!("{NAME_LEN_MAX} at most"),
        ));
    }
    if !name.contains('.') {
        return Err(ValueError::new(
            "no authority knows a name without a dot",
            RIGHT,
        ));
    }
    Ok(Self(name.to_ascii_lowercase()))
});

/// Where an authority writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email(pub String);

as_text!(Email, |text| {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b",;<>\"?&%#".contains(&byte);
    match text.split_once('@') {
        Some((user, host))
            if !user.is_empty()
                && host.contains('.')
                && !host.contains('@')
                && text.bytes().all(is_plain) =>
        {
            Ok(Self(text.to_owned()))
        }
        _ => Err(ValueError::new(
            "not an address for mail",
            "you@example.org, say",
        )),
    }
});

/// The longest key identifier: authorities' have 20 to 60 characters.
const KEY_ID_LEN_MAX: usize = 256;

/// By which an authority knows the key of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyId(pub String);

as_text!(KeyId, |text| {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain && (1..=KEY_ID_LEN_MAX).contains(&text.len()) {
        true => Ok(Self(text.to_owned())),
        false => Err(ValueError::new(
            "not a key identifier",
            "the one that the authority shows, without spaces",
        )),
    }
});

/// The URL of an authority's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUrl(pub String);

as_text!(DirectoryUrl, |text| {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain && !rest.is_empty() && !rest.starts_with(['/', ':']) {
        true => Ok(Self(text.to_owned())),
        false => Err(ValueError::new("not the URL of a directory", LETS_ENCRYPT)),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_certificate_can_be_for() {
        for (text, name) in [
            ("example.org", "example.org"),
            ("WWW.Example.org.", "www.example.org"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(text.parse(), Ok(DomainName(name.to_owned())));
        }
        let long = format!("{}.org", "x".repeat(64));
        let (most, too_long) = ("x.".repeat(119) + "io", "x.".repeat(119) + "org");
        assert_eq!(most.parse(), Ok(DomainName(most.clone())));
        for (text, part) in [
            ("*.example.org", "(DNS-01)"),
            ("b\u{fc}cher.example", "begins with xn--"),
            ("127.0.0.1", "not a DNS name"),
            ("::1", "not a DNS name"),
            ("localhost", "without a dot"),
            ("https://example.org", "not a DNS name"),
            ("a..org", "not a DNS name"),
            ("-a.org", "not a DNS name"),
            ("../x.org", "not a DNS name"),
            ("", "not a DNS name"),
            (&long, "not a DNS name"),
            (&too_long, "241 characters"),
        ] {
            let message = text.parse::<DomainName>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn addresses_for_mail_and_directories() {
        assert!("you+acme@example.org".parse::<Email>().is_ok());
        for text in ["you", "@example.org", "a@b", "a@b.org,c@d.org", "a b@c.org"] {
            assert!(text.parse::<Email>().is_err(), "{text}");
        }
        assert!(
            "https://localhost:14000/dir"
                .parse::<DirectoryUrl>()
                .is_ok()
        );
        assert!("kid-1_A=".parse::<KeyId>().is_ok());
        for text in ["", "two words", "k\u{fc}", &"k".repeat(257)] {
            assert!(text.parse::<KeyId>().is_err(), "{text}");
        }
        for text in ["http://a/dir", "https://", "https:///dir", "a.example"] {
            assert!(text.parse::<DirectoryUrl>().is_err(), "{text}");
        }
    }
}
