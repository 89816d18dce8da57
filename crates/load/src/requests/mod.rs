//! From what the user typed to requests that are ready to be sent.
//!
//! URLs, a method, header fields, a body and expectations become a [`Mix`] and the addresses that it
//! goes to. A list of URLs (`list.rs`) gives each request a weight and options of its own; a log
//! ([`replay`](crate::replay)) gives them an order.

pub mod expectation;
pub mod list;
pub mod template;
pub mod url;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadline_proto::{Method, Version};
use loadline_spec::ValueError;

pub use self::list::{Content, Entry, Expected};
use self::template::{Ask, Template};
use self::url::Url;
use crate::{Expectation, Mix, MixOrder, Prepared};

/// What the user says about requests.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// URLs, each as likely as the others. With a list or a log the first one says which server
    /// paths are asked of, and is not asked for itself.
    pub urls: Vec<String>,
    /// A file of URLs, one a line.
    pub list: Option<PathBuf>,
    /// The method where no line says another; `None`: GET, or POST if there is a body.
    pub method: Option<String>,
    /// Header fields, `Name: value`.
    pub headers: Vec<String>,
    /// The content where no line says another.
    pub body: Option<Content>,
    /// `name:password` for Basic authentication where no URL says another.
    pub user: Option<String>,
    /// The version that is spoken.
    pub version: Version,
    /// What is expected where no line says another.
    pub expected: Expected,
}

/// A server that requests go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its address.
    pub address: SocketAddr,
    /// The name that its certificate has to be for, a host or an address; `None`: there is no TLS.
    pub tls_name: Option<String>,
}

/// Bytes of one body: it is held in memory, twice. 128 MiB: a bulk transfer of 100 MiB fits.
pub const BODY_BYTES_MAX: u64 = 128 << 20;
/// Bytes of all requests together, in both of their forms.
pub const REQUESTS_BYTES_MAX: usize = 1 << 30;
/// Different addresses in one run.
pub const SERVERS_MAX: usize = 1000;

/// The requests of the URLs or of the list, by weight, and where they go.
///
/// # Errors
/// One line: what is wrong, where, and what would be right.
pub fn prepare(options: &RequestOptions) -> Result<(Mix, Vec<Destination>), ValueError> {
    let template = Template::new(options.version, &options.headers, options.user.as_deref())?;
    let method = options.method.as_deref().map(template::method);
    let method = method.transpose()?;
    let body = options.body.as_ref().map(content).transpose()?;
    let mut requests = Requests::default();
    let mut bodies: HashMap<PathBuf, Arc<[u8]>> = HashMap::new();
    let (mut cumulative, mut sum) = (Vec::new(), 0.0);
    for entry in entries(options)? {
        let body = match &entry.body {
            None => body.clone(),
            Some(Content::File(file)) if bodies.contains_key(file) => bodies.get(file).cloned(),
            Some(own) => {
                let body = content(own)?;
                if let Content::File(file) = own {
                    bodies.insert(file.clone(), Arc::clone(&body));
                }
                Some(body)
            }
        };
        let body = body.as_deref().unwrap_or_default();
        let template = template.with(&entry.headers);
        let template = template.map_err(|error| at_list(options, error))?;
        let method = entry.method.or(method).unwrap_or(match body {
            [] => Method::Get,
            _ => Method::Post,
        });
        if method == Method::Trace && !body.is_empty() {
            return Err("TRACE has no body (RFC 9110 section 9.3.8)".into());
        }
        let server = requests.server(&entry.url)?;
        let ask = Ask {
            method,
            target: entry.url.target.as_bytes(),
            authority: &entry.url.authority,
            user: entry.url.user.as_deref(),
            body,
        };
        let expectation = entry.expected.or(&options.expected);
        requests.push(&ask, &template, server, &expectation)?;
        sum += entry.weight;
        cumulative.push(sum);
    }
    if cumulative.is_empty() {
        return Err("no URL: which server is to be asked for what?".into());
    }
    Ok(requests.finish(MixOrder::Weighted(cumulative)))
}

/// The lines of the list, or the URLs.
fn entries(options: &RequestOptions) -> Result<Vec<Entry>, ValueError> {
    let Some(path) = &options.list else {
        return options
            .urls
            .iter()
            .map(|url| Ok(Url::parse(url)?.into()))
            .collect();
    };
    let base = options
        .urls
        .first()
        .map(|url| Url::parse(url))
        .transpose()?;
    let text = String::from_utf8(read(path, list::LIST_BYTES_MAX)?);
    let text = text.map_err(|_| at_list(options, "not UTF-8".into()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    list::parse(&text, base.as_ref(), folder).map_err(|error| at_list(options, error))
}

fn at_list(options: &RequestOptions, error: ValueError) -> ValueError {
    match &options.list {
        Some(path) => error.at(path.display()),
        None => error,
    }
}

/// Requests as they are put together.
#[derive(Default)]
pub(crate) struct Requests {
    prepared: Vec<Prepared>,
    bytes: usize,
    expectations: Vec<Expectation>,
    /// Their indexes.
    known: HashMap<Expectation, u32>,
    servers: Vec<Destination>,
    /// Hosts that were looked up, by scheme, name and port, with their index among the servers.
    hosts: HashMap<(bool, String, u16), u16>,
}

impl Requests {
    /// Adds a request to a server that is known.
    pub(crate) fn push(
        &mut self,
        ask: &Ask<'_>,
        template: &Template,
        server: u16,
        expectation: &Expectation,
    ) -> Result<(), ValueError> {
        let (keep, last) = template.prepare(ask);
        self.bytes += keep.len() + last.len();
        if self.bytes > REQUESTS_BYTES_MAX {
            return Err(ValueError::from(format!(
                "the requests take more than {} MiB of memory: fewer of them, or smaller bodies",
                REQUESTS_BYTES_MAX >> 20
            )));
        }
        let expectation = self.expectation(expectation);
        self.prepared.push(Prepared {
            keep: keep.into(),
            last: last.into(),
            method: ask.method,
            expectation,
            server,
        });
        Ok(())
    }

    /// The index of an expectation; a new one is added.
    fn expectation(&mut self, wanted: &Expectation) -> u32 {
        if let Some(index) = self.known.get(wanted) {
            return *index;
        }
        let index = self.expectations.len() as u32;
        self.expectations.push(wanted.clone());
        self.known.insert(wanted.clone(), index);
        index
    }

    /// The index of the server of a URL, looked up the first time.
    pub(crate) fn server(&mut self, url: &Url) -> Result<u16, ValueError> {
        let host = (url.is_https, url.host.to_ascii_lowercase(), url.port);
        if let Some(index) = self.hosts.get(&host) {
            return Ok(*index);
        }
        let destination = Destination {
            address: url.resolve()?,
            tls_name: url.is_https.then(|| host.1.clone()),
        };
        let index = self.servers.iter().position(|one| *one == destination);
        let index = index.unwrap_or_else(|| {
            self.servers.push(destination);
            self.servers.len() - 1
        });
        if self.servers.len() > SERVERS_MAX {
            return Err(format!("more than {SERVERS_MAX} servers").into());
        }
        self.hosts.insert(host, index as u16);
        Ok(index as u16)
    }

    pub(crate) fn finish(self, order: MixOrder) -> (Mix, Vec<Destination>) {
        let mix = Mix {
            requests: self.prepared,
            expectations: self.expectations,
            order,
        };
        (mix, self.servers)
    }
}

fn content(content: &Content) -> Result<Arc<[u8]>, ValueError> {
    match content {
        Content::File(path) => read(path, BODY_BYTES_MAX).map(Arc::from),
        Content::Inline(bytes) if bytes.len() as u64 > BODY_BYTES_MAX => {
            Err(too_large("the body", BODY_BYTES_MAX))
        }
        Content::Inline(bytes) => Ok(Arc::from(bytes.as_slice())),
    }
}

/// All of a file, unless it is larger than `bytes_max`.
fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ValueError> {
    let mut bytes = Vec::new();
    let outcome =
        File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
    outcome.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match bytes.len() as u64 > bytes_max {
        true => Err(too_large(path.display(), bytes_max)),
        false => Ok(bytes),
    }
}

fn too_large(what: impl fmt::Display, bytes_max: u64) -> ValueError {
    format!("{what} is larger than {} MiB", bytes_max >> 20).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(urls: &[&str]) -> RequestOptions {
        RequestOptions {
            urls: urls.iter().map(|&url| url.to_owned()).collect(),
            ..RequestOptions::default()
        }
    }

    fn first_line(request: &Prepared) -> String {
        let text = String::from_utf8_lossy(&request.keep).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn urls_are_equally_likely_and_share_servers_and_expectations() {
        let urls = [
            "http://127.0.0.1:81/a",
            "http://127.0.0.1:81/b",
            "http://127.0.0.2:81/c",
        ];
        let (mix, servers) = prepare(&options(&urls)).unwrap();
        let addresses: Vec<SocketAddr> = servers.iter().map(|one| one.address).collect();
        assert_eq!(
            addresses,
            [([127, 0, 0, 1], 81).into(), ([127, 0, 0, 2], 81).into()]
        );
        assert_eq!(mix.order, MixOrder::Weighted(vec![1.0, 2.0, 3.0]));
        let servers: Vec<u16> = mix.requests.iter().map(|request| request.server).collect();
        assert_eq!((servers, mix.expectations.len()), (vec![0, 0, 1], 1));
        assert_eq!(first_line(&mix.requests[2]), "GET /c HTTP/1.1");
    }

    fn refusal(options: &RequestOptions) -> String {
        prepare(options).unwrap_err().to_string()
    }

    #[test]
    fn names_of_one_address_are_servers_of_their_own_by_https_alone() {
        let urls = [
            "http://127.0.0.1:81/a",
            "http://localhost:81/a",
            "https://127.0.0.1:82/",
            "https://LOCALHOST:82/",
            "https://localhost:82/b",
        ];
        let (_, servers) = prepare(&options(&urls)).unwrap();
        let names: Vec<Option<&str>> = servers.iter().map(|it| it.tls_name.as_deref()).collect();
        let last = [Some("127.0.0.1"), Some("localhost")];
        assert!(names.ends_with(&last) && names[0].is_none(), "{names:?}");
    }

    #[test]
    fn a_body_makes_it_a_post() {
        let mut options = options(&["http://127.0.0.1:81/"]);
        options.body = Some(Content::Inline(b"x".to_vec()));
        for (given, method) in [(None, Method::Post), (Some("PUT"), Method::Put)] {
            options.method = given.map(str::to_owned);
            assert_eq!(prepare(&options).unwrap().0.requests[0].method, method);
        }
        options.method = Some("TRACE".to_owned());
        assert!(refusal(&options).starts_with("TRACE has no body"));
        options.body = Some(Content::File("/does/not/exist".into()));
        let refusal = refusal(&options);
        assert!(
            refusal.contains("cannot read /does/not/exist: No such file"),
            "{refusal}"
        );
    }

    #[test]
    fn a_list_has_weights_bodies_and_expectations() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("urls.txt");
        std::fs::write(folder.path().join("b.bin"), b"\x00\xffbody").unwrap();
        let text = "3 /a\n1 POST /b body=@b.bin header=X:1 status=303\n2 http://127.0.0.2:82/c\n";
        std::fs::write(&path, text).unwrap();
        let mut options = options(&["http://127.0.0.1:81/not-asked-for"]);
        options.list = Some(path.clone());
        let (mix, servers) = prepare(&options).unwrap();
        assert_eq!((mix.requests.len(), servers.len()), (3, 2));
        assert_eq!(mix.order, MixOrder::Weighted(vec![3.0, 4.0, 6.0]));
        assert_eq!(first_line(&mix.requests[0]), "GET /a HTTP/1.1");
        assert!(
            mix.requests[1]
                .keep
                .ends_with(b"X: 1\r\nContent-Length: 6\r\n\r\n\x00\xffbody")
        );
        assert_eq!(mix.requests[1].expectation, 1);
        assert_eq!(mix.expectations[1].statuses, [303]);
        for (text, part) in [
            (&b"/a\n/b body=@missing\n"[..], "missing"),
            (b"/a\n/b x=y\n", "urls.txt: line 2:"),
            (b"/\xff", "not UTF-8"),
        ] {
            std::fs::write(&path, text).unwrap();
            let refusal = refusal(&options);
            assert!(refusal.contains(part), "{refusal}");
        }
    }

    #[test]
    fn refusals_are_one_line() {
        // A label that is too long is refused by the resolver itself, without a network.
        let unknown = format!("http://{}/", "x".repeat(64));
        for (urls, begin) in [
            (vec![], "no URL"),
            (vec!["127.0.0.1/"], "URL without scheme"),
            (vec![unknown.as_str()], "cannot find the host `xxx"),
        ] {
            let refusal = refusal(&options(&urls));
            assert!(refusal.starts_with(begin), "{refusal}");
        }
    }
}
