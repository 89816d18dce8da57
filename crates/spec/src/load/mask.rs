//! Command lines, URLs and options as they stand in results: without passwords.

use crate::Table;

/// The words of a command line, passwords masked.
pub fn masked_words(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for word in words {
        let before = shown.last().map(String::as_str);
        let masked = match before {
            Some("--user") => mask_password(&word),
            Some("-H" | "--header") => mask_field(&word),
            _ => match word.split_once('=') {
                Some(("--user", value)) => format!("--user={}", mask_password(value)),
                Some(("--header", value)) => format!("--header={}", mask_field(value)),
                _ if word.starts_with("-H") => format!("-H{}", mask_field(&word[2..])),
                _ => mask_url(&word),
            },
        };
        shown.push(masked);
    }
    shown
}

const MASK: &str = "***";

fn mask_password(user: &str) -> String {
    match user.split_once(':') {
        Some((name, _)) => format!("{name}:{MASK}"),
        None => user.to_owned(),
    }
}

/// Fields that carry credentials.
fn mask_field(field: &str) -> String {
    let secret = ["authorization", "cookie", "proxy-authorization"];
    match field.split_once(':') {
        Some((name, _)) if secret.contains(&name.trim().to_ascii_lowercase().as_str()) => {
            format!("{name}: {MASK}")
        }
        _ => field.to_owned(),
    }
}

/// Options, passwords masked.
#[must_use]
pub fn mask_table(mut table: Table) -> Table {
    let mut mask = |name: &str, mask: fn(&str) -> String| {
        if let Some(value) = table.get_mut(name) {
            *value = value.map(mask);
        }
    };
    mask("url", mask_url);
    mask("user", mask_password);
    mask("header", mask_field);
    table
}

/// `http://name:password@host/`.
#[must_use]
pub fn mask_url(url: &str) -> String {
    let masked = url.split_once("://").and_then(|(scheme, rest)| {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://{}@{host}{path}", mask_password(user)))
    });
    masked.unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (line, right) in [
            ("load http://a/ -c 5", "load http://a/ -c 5"),
            ("--user me:secret", "--user me:***"),
            ("--user=me:se:cret", "--user=me:***"),
            ("http://me:secret@host:80/a@b", "http://me:***@host:80/a@b"),
            ("-H Cookie:a=b -H X:y", "-H Cookie: *** -H X:y"),
            ("-HAuthorization:Basic", "-HAuthorization: ***"),
            ("--header=cookie:1", "--header=cookie: ***"),
            ("-H", "-H"),
        ] {
            let words = line.split_ascii_whitespace().map(str::to_owned);
            assert_eq!(masked_words(words).join(" "), right);
        }
    }
}
