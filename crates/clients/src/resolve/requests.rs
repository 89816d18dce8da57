//! What is sent: URLs, a list of them, or a log.

use loadline_proto::Version;
use loadline_spec::SpecError;

use loadline_load::Mix;
use loadline_load::replay::{self, ReplayOptions, Timing};
use loadline_load::requests::list::{Content, Expected};
use loadline_load::requests::{self, Destination, RequestOptions, expectation};
use loadline_spec::load::values::HttpVersion;
use loadline_spec::load::{ExpectSpec, LoadSpec};

/// Requests, ready to be sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// Which.
    pub(super) mix: Mix,
    /// Where they go.
    pub(super) servers: Vec<Destination>,
    /// When, if a log says so.
    pub(super) timing: Option<Timing>,
    /// What is worth knowing of how they came to be.
    pub(super) remarks: Vec<String>,
}

/// Reads what the options name, and puts the requests together.
pub(super) fn prepared(spec: &LoadSpec) -> Result<Sent, SpecError> {
    let typed = &spec.requests;
    if spec.url.is_empty() && typed.urls.is_none() {
        let right = "loadline load http://127.0.0.1:8080/, say";
        return Err(SpecError::new("URL", "it is missing", right));
    }
    let options = options(spec)?;
    let Some(path) = &typed.replay else {
        let (mix, servers) = requests::prepare(&options)?;
        return Ok(Sent {
            mix,
            servers,
            timing: None,
            remarks: Vec::new(),
        });
    };
    let log = ReplayOptions {
        path: path.0.clone(),
        all_methods: typed.replay_all_methods,
        time_scale: typed.replay_timing.map(|scale| scale.0),
    };
    let replay = replay::prepare(&log, &options)?;
    Ok(Sent {
        mix: replay.mix,
        servers: replay.servers,
        timing: replay.timing,
        remarks: vec![format!("{}: {}", path.display(), replay.report)],
    })
}

fn version(version: HttpVersion) -> Result<Version, SpecError> {
    version.check_supported()?;
    Ok(match version {
        HttpVersion::Http10 => Version::Http10,
        _ => Version::Http11,
    })
}

fn options(spec: &LoadSpec) -> Result<RequestOptions, SpecError> {
    let typed = &spec.requests;
    let body = match (&typed.body, &typed.body_file) {
        (Some(text), _) => Some(Content::Inline(text.clone().into_bytes())),
        (None, Some(path)) => Some(Content::File(path.0.clone())),
        (None, None) => None,
    };
    Ok(RequestOptions {
        urls: spec.url.iter().map(ToString::to_string).collect(),
        list: typed.urls.as_ref().map(|path| path.0.clone()),
        method: typed.method.clone(),
        headers: typed.header.clone(),
        body,
        user: typed.user.clone(),
        version: version(*typed.http)?,
        expected: expected(&spec.expect)?,
    })
}

fn expected(expect: &ExpectSpec) -> Result<Expected, SpecError> {
    let refused = |option: &'static str| move |error| SpecError::of(option, error);
    let statuses = expect.expect_status.as_deref().map(expectation::statuses);
    let sha256 = expect.expect_sha256.as_deref().map(expectation::sha256);
    Ok(Expected {
        statuses: statuses.transpose().map_err(refused("expect-status"))?,
        length: expect.expect_length.map(|length| *length),
        sha256: sha256.transpose().map_err(refused("expect-sha256"))?,
    })
}
