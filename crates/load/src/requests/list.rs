//! A file of requests, one a line.
//!
//! ```text
//! # [WEIGHT] [METHOD] URL-or-path [option=value ...]
//! 70      /
//! 25      /about.html           status=200,304
//!  5 POST /login                body=@login.txt header=Content-Type:text/plain status=303
//!         http://127.0.0.1:81/  length=512
//! ```
//!
//! Fields are parted by blanks; there is no quoting, so what has blanks in it comes from a file.

use std::path::{Path, PathBuf};

use loadline_proto::Method;
use loadline_spec::ValueError;

use super::expectation::{sha256, statuses};
use super::template::method;
use super::url::Url;
use crate::Expectation;

/// Lines of a list that are requests; more belong into a log to be replayed.
pub const ENTRIES_MAX: usize = 100_000;
/// Bytes of a list.
pub const LIST_BYTES_MAX: u64 = 64 << 20;

/// Where a body comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Inline(Vec<u8>),
    /// A file.
    File(PathBuf),
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// How often it comes, relative to the others; above 0.
    pub weight: f64,
    /// The method, if the line says one.
    pub method: Option<Method>,
    /// What to ask for, and where.
    pub url: Url,
    /// The content, if the line says one.
    pub body: Option<Content>,
    /// Fields, `Name:value`.
    pub headers: Vec<String>,
    /// What the line expects; where it says nothing, that of all requests holds.
    pub expected: Expected,
}

/// A URL that says nothing more.
impl From<Url> for Entry {
    fn from(url: Url) -> Self {
        Self {
            weight: 1.0,
            method: None,
            url,
            body: None,
            headers: Vec::new(),
            expected: Expected::default(),
        }
    }
}

/// What is expected, as far as something is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Statuses that are good.
    pub statuses: Option<Vec<u16>>,
    /// Bytes of content.
    pub length: Option<u64>,
    /// SHA-256 of the content.
    pub sha256: Option<[u8; 32]>,
}

impl Expected {
    /// With what `general` says where this says nothing.
    #[must_use]
    pub fn or(&self, general: &Self) -> Expectation {
        let statuses = self.statuses.as_ref().or(general.statuses.as_ref());
        Expectation {
            statuses: statuses.cloned().unwrap_or_default(),
            length: self.length.or(general.length),
            sha256: self.sha256.or(general.sha256),
        }
    }
}

/// Reads a list. `base` is what paths are asked of, `folder` is where the names of files begin.
///
/// # Errors
/// The first line that is not as it should be, by its number; or too many lines, or none.
pub fn parse(text: &str, base: Option<&Url>, folder: &Path) -> Result<Vec<Entry>, ValueError> {
    let mut entries = Vec::new();
    let text = text.trim_start_matches('\u{feff}'); // some editors begin a file with it
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} requests").into());
        }
        let entry = entry(line, base, folder);
        entries.push(entry.map_err(|error| error.at(format_args!("line {}", index + 1)))?);
    }
    match entries.is_empty() {
        true => Err("no requests in it: one URL a line".into()),
        false => Ok(entries),
    }
}

fn entry(line: &str, base: Option<&Url>, folder: &Path) -> Result<Entry, ValueError> {
    let mut words = line.split_ascii_whitespace().peekable();
    let mut weight = 1.0;
    if let Some(number) = words.peek().and_then(|word| word.parse::<f64>().ok()) {
        if !(number > 0.0 && number <= WEIGHT_MAX) {
            let problem = format!("the weight {number} is not above 0, at most {WEIGHT_MAX:e}");
            return Err(problem.into());
        }
        weight = number;
        words.next();
    }
    let is_method = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let method = words.next_if(is_method).map(method).transpose()?;
    let url = match (words.next(), base) {
        (None, _) => return Err("no URL".into()),
        (Some(path), Some(base)) if path.starts_with('/') => at_path(base, path)?,
        (Some(path), None) if path.starts_with('/') => {
            return Err(format!("`{path}` is a path, and no URL says of which server").into());
        }
        (Some(url), _) => Url::parse(url)?,
    };
    let mut entry = Entry {
        weight,
        method,
        ..Entry::from(url)
    };
    for option in words {
        entry.take(option, folder)?;
    }
    Ok(entry)
}

/// Beyond this, sums of weights lose the small ones.
const WEIGHT_MAX: f64 = 1e9;

/// Another path of the same server.
fn at_path(base: &Url, path: &str) -> Result<Url, ValueError> {
    let url = Url::parse(&format!("{}://{}{path}", base.scheme(), base.authority))?;
    Ok(Url {
        user: base.user.clone(),
        ..url
    })
}

impl Entry {
    fn take(&mut self, option: &str, folder: &Path) -> Result<(), ValueError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "body" => {
                self.body = Some(match value.strip_prefix('@') {
                    Some(file) => Content::File(folder.join(file)),
                    None => Content::Inline(value.into()),
                });
            }
            "header" => self.headers.push(value.to_owned()),
            "status" => self.expected.statuses = Some(statuses(value)?),
            "length" => {
                let length = value.parse();
                let length = length.map_err(|_| format!("`{option}`: a length is a number"))?;
                self.expected.length = Some(length);
            }
            "sha256" => self.expected.sha256 = Some(sha256(value)?),
            _ => {
                let known = "body=, header=, status=, length=, sha256=";
                return Err(format!("`{option}` is none of {known}").into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Entry>, ValueError> {
        let base = Url::parse("http://a:b@h:81/ignored").unwrap();
        parse(text, Some(&base), Path::new("lists"))
    }

    #[test]
    fn a_line_says_as_much_as_it_wants() {
        let text = "\u{20}\n# comment\r\n /\n2.5 HEAD http://x/y\n\
            3 POST /p body=a=b=c header=X:1 header=Y:2 status=303,2xx length=0\n\
            PUT /f body=@data/f.bin\n";
        let entries = parsed(text).unwrap();
        let [plain, head, post, put] = &entries[..] else {
            panic!("{entries:?}");
        };
        let weights: Vec<f64> = entries.iter().map(|entry| entry.weight).collect();
        assert_eq!(weights, [1.0, 2.5, 3.0, 1.0]);
        assert_eq!(plain.url.authority, "h:81");
        assert_eq!((plain.url.target.as_str(), plain.method), ("/", None));
        assert_eq!(plain.url.user.as_deref(), Some("a:b"));
        assert_eq!((head.url.port, head.method), (80, Some(Method::Head)));
        assert_eq!(post.body, Some(Content::Inline(b"a=b=c".to_vec())));
        assert_eq!(post.headers, ["X:1", "Y:2"]);
        let expected = post.expected.or(&Expected::default());
        assert_eq!((expected.statuses.len(), expected.length), (101, Some(0)));
        assert_eq!(put.body, Some(Content::File("lists/data/f.bin".into())));
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_an_entry_or_not(line in "([0-9.e-]{1,3} )?([A-Za-z]{1,4} )?[/a-z:]{0,9}( [a-z]{1,6}=[@a-z0-9,x]{0,9}){0,3}") {
            if let Ok(entries) = parsed(&line) {
                proptest::prop_assert!(entries.len() == 1 && entries[0].weight > 0.0);
            }
        }
    }

    #[test]
    fn what_a_line_does_not_say_is_as_for_all() {
        let general = Expected {
            statuses: Some(vec![404]),
            length: Some(5),
            sha256: None,
        };
        let expected = parsed("/ length=6").unwrap()[0].expected.or(&general);
        assert_eq!((expected.statuses, expected.length), (vec![404], Some(6)));
    }

    #[test]
    fn refusals_name_the_line() {
        for (text, part) in [
            ("/\n\n0 /", "line 3: the weight 0"),
            ("-1 /", "line 1: the weight"),
            ("nan /", "line 1: the weight"),
            ("5", "no URL"),
            ("GET", "no URL"),
            ("get /", "`get` is not a method"),
            ("h:81/", "URL without scheme"),
            ("ftp://h/", "only http and https"),
            ("/ü", "may not stand"),
            ("/ bdy=x", "`bdy=x` is none of"),
            ("/ status=2x", "not a status"),
            ("/ length=-1", "length is a number"),
            ("/ sha256=12", "SHA-256"),
            ("# nothing", "no requests"),
        ] {
            let refusal = parsed(text).unwrap_err().to_string();
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
        let refusal = parse("/x", None, Path::new(".")).unwrap_err().to_string();
        assert!(refusal.contains("no URL says"), "{refusal}");
        let refusal = parsed(&"/\n".repeat(ENTRIES_MAX + 1))
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("more than"), "{refusal}");
    }
}
