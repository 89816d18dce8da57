//! What is sent: URLs, a list of them, or a log.

use std::net::SocketAddr;

use loadline_load::Mix;
use loadline_load::replay::{self, ReplayOptions, Timing};
use loadline_load::requests::list::{Content, Expected};
use loadline_load::requests::template::Template;
use loadline_load::requests::{self, RequestOptions, expectation};
use loadline_proto::Version;

use crate::failure::Failure;
use crate::flags::load_defs::{ExpectFlags, HttpVersion, LoadFlags};

/// Requests, ready to be sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// Which.
    pub(super) mix: Mix,
    /// Where they go.
    pub(super) servers: Vec<SocketAddr>,
    /// When, if a log says so.
    pub(super) timing: Option<Timing>,
    /// What is worth knowing of how they came to be.
    pub(super) remarks: Vec<String>,
}

/// Reads what the options name, and puts the requests together.
pub(super) fn prepared(flags: &LoadFlags) -> Result<Sent, Failure> {
    let typed = &flags.requests;
    if flags.urls.is_empty() && typed.urls_file.is_none() {
        return Err(Failure::usage(
            "URL: it is missing; right would be loadline load http://127.0.0.1:8080/, say",
        ));
    }
    let options = options(flags)?;
    let Some(path) = &typed.replay else {
        let (mix, servers) = requests::prepare(&options).map_err(Failure::usage)?;
        return Ok(Sent {
            mix,
            servers,
            timing: None,
            remarks: Vec::new(),
        });
    };
    let log = ReplayOptions {
        path: path.clone(),
        all_methods: typed.replay_all_methods,
        time_scale: typed.replay_timing,
    };
    let replay = replay::prepare(&log, &options).map_err(Failure::usage)?;
    Ok(Sent {
        mix: replay.mix,
        servers: replay.servers,
        timing: replay.timing,
        remarks: vec![format!("{}: {}", path.display(), replay.report)],
    })
}

/// What requests have in common.
pub(super) fn template(flags: &LoadFlags) -> Result<Template, Failure> {
    let typed = &flags.requests;
    let version = version(typed.http);
    Template::new(version, &typed.header, typed.user.as_deref()).map_err(Failure::usage)
}

fn version(typed: HttpVersion) -> Version {
    match typed {
        HttpVersion::Http10 => Version::Http10,
        HttpVersion::Http11 => Version::Http11,
    }
}

fn options(flags: &LoadFlags) -> Result<RequestOptions, Failure> {
    let typed = &flags.requests;
    let body = match (&typed.body, &typed.body_file) {
        (Some(text), _) => Some(Content::Inline(text.clone().into_bytes())),
        (None, Some(path)) => Some(Content::File(path.clone())),
        (None, None) => None,
    };
    Ok(RequestOptions {
        urls: flags.urls.clone(),
        list: typed.urls_file.clone(),
        method: typed.method.clone(),
        headers: typed.header.clone(),
        body,
        user: typed.user.clone(),
        version: version(typed.http),
        expected: expected(&flags.expect)?,
    })
}

fn expected(typed: &ExpectFlags) -> Result<Expected, Failure> {
    let refused = |option: &str, why: String| Failure::usage(format!("{option}: {why}"));
    let statuses = typed.expect_status.as_deref().map(expectation::statuses);
    let sha256 = typed.expect_sha256.as_deref().map(expectation::sha256);
    Ok(Expected {
        statuses: statuses
            .transpose()
            .map_err(|why| refused("--expect-status", why))?,
        length: typed.expect_length,
        sha256: sha256
            .transpose()
            .map_err(|why| refused("--expect-sha256", why))?,
    })
}
