//! Lines that are JSON objects, under the names that servers use.
//!
//! | server | request | time |
//! |---|---|---|
//! | Loadline, and others by OpenTelemetry's names | `http.request.method`, `url.path`, `url.query` | `time` |
//! | Loadline before that | `request` (the whole line) | `time` |
//! | nginx, `log_format ... escape=json` | `request`; or `request_method`, `request_uri`, or `uri` and `args` | `time_iso8601`, `time_local`, `msec` |
//! | Caddy | `request.method`, `request.uri` | `ts` |
//! | Traefik | `RequestMethod`, `RequestPath` | `StartUTC`, `time` |
//! | Envoy | `method`, `path` | `start_time` |
//!
//! Values of another kind than expected, and all other names, are passed over. A query may begin with
//! its question mark, as Apache's `%q` does. What an object `request` does not say, the method or the
//! path, may stand beside it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::logged::{LogLine, method, origin, request_line};
use super::time::LogTime;

/// Reads a line that begins as a JSON object.
pub(super) fn parse(line: &[u8]) -> Result<LogLine<'_>, &'static str> {
    let fields: Fields<'_> =
        serde_json::from_slice(line).map_err(|_| "it is no JSON object on one line")?;
    let time = fields.time;
    let (method, target) = match fields.request {
        Some(Value::Text(line)) => taken(line, request_line)?,
        Some(Value::Fields(nested)) => {
            let mut nested = *nested;
            nested.method = nested.method.or(fields.method);
            if nested.target.is_none() && nested.path.is_none() {
                nested.target = fields.target;
                nested.path = fields.path;
                nested.query = fields.query;
            }
            nested.request()?
        }
        _ => fields.request()?,
    };
    Ok(LogLine {
        method,
        target,
        time,
    })
}

type Request<'l> = (Option<loadline_proto::Method>, Cow<'l, [u8]>);

/// What a line says about its request and its time.
#[derive(Default)]
struct Fields<'l> {
    request: Option<Value<'l>>,
    method: Option<Cow<'l, str>>,
    /// The target as it was sent.
    target: Option<Cow<'l, str>>,
    /// The path, perhaps without its query.
    path: Option<Cow<'l, str>>,
    query: Option<Cow<'l, str>>,
    time: Option<LogTime>,
}

/// A value, as far as it can be of use.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value<'l> {
    Text(#[serde(borrow)] Cow<'l, str>),
    Whole(i64),
    Decimal(f64),
    Fields(Box<Fields<'l>>),
    Other(IgnoredAny),
}

impl<'l> Fields<'l> {
    fn request(self) -> Result<Request<'l>, &'static str> {
        let name = self.method.ok_or("it has no method")?;
        let method = method(name.as_bytes())?;
        let (target, query) = match (self.target, self.path) {
            (Some(target), _) => (target, None),
            (None, Some(path)) => (path, self.query),
            (None, None) => return Err("it has no request"),
        };
        let query = query.as_deref();
        let query = query.map(|query| query.strip_prefix('?').unwrap_or(query));
        let target = match query {
            Some(query) if !query.is_empty() && !target.contains('?') => {
                Cow::Owned(format!("{target}?{query}"))
            }
            _ => target,
        };
        taken(target, |target| Ok((method, origin(target)?)))
    }

    fn take(&mut self, name: &str, value: Value<'l>) {
        match name {
            "request" => self.request = Some(value),
            "http.request.method"
            | "method"
            | "request_method"
            | "http_method"
            | "verb"
            | "RequestMethod" => self.method = value.text(),
            "request_uri" | "RequestPath" => self.target = value.text(),
            "url.path" | "uri" | "path" | "url" | "target" => self.path = value.text(),
            "url.query" | "args" | "query_string" | "query" => self.query = value.text(),
            "time" | "ts" | "timestamp" | "@timestamp" | "time_iso8601" | "time_local" | "msec"
            | "start_time" | "StartUTC" => self.time = more_exact(self.time, value.time()),
            _ => {}
        }
    }
}

impl<'l> Value<'l> {
    fn text(self) -> Option<Cow<'l, str>> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn time(&self) -> Option<LogTime> {
        match self {
            Self::Text(text) => LogTime::parse(text.as_bytes()),
            Self::Whole(whole) => LogTime::from_number(*whole, None),
            Self::Decimal(number) => {
                let fraction_ns = (number.fract() * 1e9).round() as i64;
                LogTime::from_number(*number as i64, Some(fraction_ns))
            }
            Self::Fields(_) | Self::Other(_) => None,
        }
    }
}

/// The first of two times, unless only the second has parts of a second.
fn more_exact(first: Option<LogTime>, second: Option<LogTime>) -> Option<LogTime> {
    match (first, second) {
        (Some(one), Some(two)) if one.is_whole_second && !two.is_whole_second => second,
        (first, second) => first.or(second),
    }
}

/// Takes text apart that may be borrowed from the line or not.
fn taken<'l>(
    text: Cow<'l, str>,
    take: impl for<'t> Fn(&'t [u8]) -> Result<Request<'t>, &'static str>,
) -> Result<Request<'l>, &'static str> {
    match text {
        Cow::Borrowed(text) => take(text.as_bytes()),
        Cow::Owned(text) => {
            let (method, target) = take(text.as_bytes())?;
            Ok((method, Cow::Owned(target.into_owned())))
        }
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Fields::default();
                while let Some(Name(name)) = map.next_key()? {
                    fields.take(&name, map.next_value()?);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A name, borrowed from the line unless it has escapes in it.
#[derive(Deserialize)]
struct Name<'l>(#[serde(borrow)] Cow<'l, str>);

#[cfg(test)]
mod tests {
    use loadline_proto::Method;

    use super::*;

    fn read(line: &str) -> Result<(String, Option<i64>), &'static str> {
        let parsed = parse(line.as_bytes())?;
        let target = String::from_utf8_lossy(&parsed.target).into_owned();
        let method = parsed.method.map_or("?", Method::as_str);
        let time_ms = parsed.time.map(|time| time.unix_ns / 1_000_000);
        Ok((format!("{method} {target}"), time_ms))
    }

    #[test]
    fn lines_of_many_servers() {
        let table = r#"
{"time":971211336,"peer":"127.0.0.1","request":"GET /a?\"b HTTP/1.1","host":"h","status":200,"bytes":5,"duration_ms":0,"referer":"","user_agent":"x"} => GET /a?"b => 971211336000
{"time":"2000-10-10T20:55:36.250000Z","client.address":"203.0.113.7","client.port":4000,"network.peer.address":"127.0.0.1","network.peer.port":5000,"http.request.method":"GET","url.scheme":"https","url.path":"/a","url.query":"b=c","server.address":"h","network.protocol.version":"1.1","http.response.status_code":200,"http.response.body.size":5,"user_agent.original":"ä","http.request.header.referer":["http://r/?url.path"],"duration_us":42} => GET /a?b=c => 971211336250
{"time":"2000-10-10T20:55:36.25Z","http.request.method":"_OTHER","http.request.method_original":"BREW","url.path":"/pot","url.query":""} => ? /pot => 971211336250
{"time_local":"10/Oct/2000:13:55:36 -0700","request":"HEAD /x HTTP/1.0","status":"200","msec":"971211336.250"} => HEAD /x => 971211336250
{"time_iso8601":"2000-10-10T13:55:36-07:00","request_method":"GET","uri":"/index.html","request_uri":"/?q"} => GET /?q => 971211336000
{"msec":971211336.25,"request_method":"POST","uri":"/p","args":"a=b"} => POST /p?a=b => 971211336250
{"level":"info","ts":971211336.25,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"h","uri":"/c?d","headers":{"User-Agent":["x"],"method":["y"]}},"bytes_read":0,"duration":0.005,"status":200} => GET /c?d => 971211336250
{"RequestMethod":"GET","RequestPath":"/t","StartUTC":"2000-10-10T20:55:36.25Z","time":"2000-10-10T20:55:37Z"} => GET /t => 971211336250
{"start_time":"2000-10-10T20:55:36.250Z","method":"BREW","path":"/e","duration":3} => ? /e => 971211336250
{"@timestamp":971211336250,"verb":"GET","url":"http://h/f","x":null,"y":[1,{"uri":"/no"}]} => GET /f => 971211336250
{"@timestamp":971211336250,"method":"GET","path":"/p","query":"?a=b"} => GET /p?a=b => 971211336250
{"@timestamp":971211336250,"method":"GET","path":"/p","query":"?"} => GET /p => 971211336250
{"ts":971211336.25,"request":{"id":7},"method":"GET","path":"/q","query":"a=b"} => GET /q?a=b => 971211336250
{"ts":971211336.25,"request":{"path":"/r","query":"c"},"method":"POST","query":"x"} => POST /r?c => 971211336250"#;
        for row in table.lines().skip(1) {
            let mut parts = row.split(" => ");
            let line = parts.next().unwrap();
            let (request, time_ms) = read(line).unwrap();
            assert_eq!(parts.next(), Some(request.as_str()), "{line}");
            assert_eq!(
                parts.next(),
                Some(time_ms.unwrap().to_string().as_str()),
                "{line}"
            );
        }
        let (_, time) = read(r#"{"request":"GET / HTTP/1.1","time":0.003}"#).unwrap();
        assert_eq!(time, None);
    }

    #[test]
    fn lines_without_a_request() {
        for (line, part) in [
            ("{", "no JSON"),
            (r#"{"request":"GET / HTTP/1.1"} x"#, "no JSON"),
            (r#"{"request":"GET /\x22 HTTP/1.1"}"#, "no JSON"),
            (r#"{}"#, "no method"),
            (
                r#"{"level":"info","msg":"serving","request":{}}"#,
                "no method",
            ),
            (r#"{"method":"GET"}"#, "no request"),
            (
                r#"{"time":"2000-10-10T20:55:36.25Z","request":"\u0016\u0003\u0001","http.response.status_code":400}"#,
                "no request",
            ),
            (
                r#"{"time":"2000-10-10T20:55:36.25Z","http.response.status_code":408}"#,
                "no method",
            ),
            (r#"{"method":"GET","uri":5}"#, "no request"),
            (r#"{"method":5,"uri":"/"}"#, "no method"),
            (r#"{"method":"GET","uri":"/a b"}"#, "blank"),
            (r#"{"method":"GET","uri":"/a\n"}"#, "control"),
            (r#"{"request":"-"}"#, "no request"),
            (r#"{"request":7}"#, "no method"),
        ] {
            let refusal = read(line).unwrap_err();
            assert!(refusal.contains(part), "{line}: {refusal}");
        }
    }

    #[test]
    fn deep_nesting_is_no_json() {
        let line = format!("{}1{}", r#"{"request":"#.repeat(10_000), "}".repeat(10_000));
        assert!(read(&line).is_err());
    }
}
