//! Whole logs, from the file to requests in time; and lines of any kind.

use std::fmt::Write as _;

use loadline_proto::Method;
use proptest::prelude::*;

use super::time::LogTime;
use super::*;

fn server() -> RequestOptions {
    RequestOptions {
        urls: vec!["http://ann:pw@127.0.0.1:8080/ignored".to_owned()],
        ..RequestOptions::default()
    }
}

/// Lines at these moments, in milliseconds, of one request each: `/0`, `/1` and so on.
fn caddy(times_ms: &[u64]) -> String {
    let mut text = String::new();
    for (index, time_ms) in times_ms.iter().enumerate() {
        let seconds = 1_700_000_000.0 + *time_ms as f64 / 1000.0;
        let request = format!(r#"{{"method":"GET","uri":"/{index}"}}"#);
        writeln!(text, r#"{{"ts":{seconds:.3},"request":{request}}}"#).unwrap();
    }
    text
}

fn common(seconds: &[u64]) -> String {
    let mut text = String::new();
    for (index, second) in seconds.iter().enumerate() {
        writeln!(
            text,
            "h - - [10/Oct/2000:13:{:02}:{:02} +0000] \"GET /{index} HTTP/1.1\" 200 5",
            second / 60,
            second % 60
        )
        .unwrap();
    }
    text
}

fn replayed(text: &str, time_scale: Option<f64>) -> Result<Replay, ValueError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let options = ReplayOptions {
        path: file.path().to_owned(),
        all_methods: false,
        time_scale,
    };
    prepare(&options, &server())
}

fn sequence(replay: &Replay) -> &[u32] {
    match &replay.mix.order {
        MixOrder::InTurn(sequence) => sequence,
        MixOrder::Weighted(_) => unreachable!("a log is replayed in turn"),
    }
}

#[test]
fn a_log_becomes_requests_in_turn() {
    let text = "h - - [10/Oct/2000:13:55:01 +0000] \"GET /a HTTP/1.0\" 200 5\n\
        {\"request\":\"HEAD /b?c HTTP/1.1\"}\n\
        h - - [10/Oct/2000:13:55:03 +0000] \"GET /a HTTP/1.0\" 200 5\n";
    let replay = replayed(text, None).unwrap();
    assert_eq!(sequence(&replay), [0, 1, 0]);
    assert_eq!(replay.timing, None);
    let addresses: Vec<_> = replay.servers.iter().map(|it| it.address).collect();
    assert_eq!(addresses, [([127, 0, 0, 1], 8080).into()]);
    let request = &replay.mix.requests[1];
    let head = String::from_utf8_lossy(&request.keep);
    assert!(
        head.starts_with("HEAD /b?c HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"),
        "{head}"
    );
    assert!(head.contains("Authorization: Basic "), "{head}");
    assert_eq!(request.method, Method::Head);
}

#[test]
fn the_logs_own_timing_is_scaled_and_in_order() {
    let replay = replayed(&caddy(&[500, 0, 250, 250, 2000]), Some(0.1)).unwrap();
    let timing = replay.timing.as_ref().unwrap();
    let due_ms: Vec<u64> = timing
        .due_ns
        .iter()
        .map(|ns| (ns + 500_000) / 1_000_000)
        .collect();
    assert_eq!(due_ms, [0, 25, 25, 50, 200]);
    assert_eq!(sequence(&replay), [1, 2, 3, 0, 4]);
    assert_eq!(timing.duration_ns, timing.due_ns[4] + LAST_NS);
}

#[test]
fn whole_seconds_are_spread_evenly() {
    let replay = replayed(&common(&[7, 7, 7, 7, 9, 8, 8]), Some(1.0)).unwrap();
    let timing = replay.timing.as_ref().unwrap();
    let due_ms: Vec<u64> = timing.due_ns.iter().map(|ns| ns / 1_000_000).collect();
    assert_eq!(due_ms, [0, 250, 500, 750, 1000, 1500, 2000]);
    assert_eq!(sequence(&replay), [0, 1, 2, 3, 5, 6, 4]);
    assert_eq!(timing.duration_ns, 3 * NS_PER_S);
}

#[test]
fn refusals_name_the_file_and_the_reason() {
    let refusal = |text: &str, scale| replayed(text, scale).unwrap_err().to_string();
    assert!(refusal("hello\n", None).contains("line 1: it has no [time]"));
    assert!(refusal(&caddy(&[0, 9_000_000_000]), Some(1.0)).contains("span 104 days"));
    assert!(replayed(&caddy(&[0, 9_000_000_000]), Some(0.01)).is_ok());
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refusal(&caddy(&[0]), Some(scale)).contains("time scale"));
    }
    let options = |path: &str| ReplayOptions {
        path: path.into(),
        all_methods: false,
        time_scale: None,
    };
    let refusal = prepare(&options("/does/not/exist"), &server())
        .unwrap_err()
        .to_string();
    assert!(
        refusal.starts_with("cannot replay /does/not/exist: No such file"),
        "{refusal}"
    );
    assert!(prepare(&options("/"), &server()).is_err());
    assert!(prepare(&options("/x"), &RequestOptions::default()).is_err());
    let mut with_method = server();
    with_method.method = Some("GET".to_owned());
    assert!(prepare(&options("/x"), &with_method).is_err());
}

fn targets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0x21_u8..=0xff, 0..40).prop_map(|mut bytes| {
        bytes.retain(|byte| *byte != 0x7f);
        bytes.insert(0, b'/');
        bytes
    })
}

/// As Apache (`is_hex` false) and nginx write it.
fn escaped(target: &[u8], is_hex: bool) -> String {
    let mut text = String::new();
    for byte in target {
        match byte {
            b'"' | b'\\' if !is_hex => text.extend(['\\', char::from(*byte)]),
            b'"' | b'\\' | 0x80.. => write!(text, "\\x{byte:02X}").unwrap(),
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

proptest! {
    #[test]
    fn targets_come_back_as_they_were_sent(target in targets(), is_hex: bool, unix in 0_i64..9_000_000_000) {
        let text = escaped(&target, is_hex);
        let line = format!("h - - [10/Oct/2000:13:55:36 +0000] \"GET {text} HTTP/1.1\" 200 5");
        let read = line::parse(line.as_bytes()).unwrap();
        prop_assert_eq!(&*read.target, &*target);
        let text = String::from_utf8_lossy(&target).into_owned();
        let object = serde_json::json!({ "request": format!("GET {text} HTTP/1.1"), "time": unix });
        let object = object.to_string();
        let read = line::parse(object.as_bytes()).unwrap();
        prop_assert_eq!(&*read.target, text.as_bytes());
        let expected = (unix >= 100_000_000).then_some(LogTime { unix_ns: unix * 1_000_000_000, is_whole_second: true });
        prop_assert_eq!(read.time, expected);
    }

    #[test]
    fn any_bytes_are_a_line_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(read) = line::parse(&bytes) {
            prop_assert!(read.target.starts_with(b"/"));
            prop_assert!(read.target.iter().all(|byte| *byte > b' ' && *byte != 0x7f));
        }
    }

    #[test]
    fn due_times_keep_their_order_and_their_distances(
        times_ms in prop::collection::vec(0_u64..100_000, 1..60), scale in 0.01_f64..10.0, whole: bool,
    ) {
        let unit_ms = if whole { 1000 } else { 1 };
        let times_ms: Vec<u64> = times_ms.iter().map(|ms| ms / unit_ms * unit_ms).collect();
        let text = match whole {
            true => common(&times_ms.iter().map(|ms| ms / 1000).collect::<Vec<_>>()),
            false => caddy(&times_ms),
        };
        let replay = replayed(&text, Some(scale)).unwrap();
        let timing = replay.timing.as_ref().unwrap();
        prop_assert_eq!(timing.due_ns.len(), times_ms.len());
        prop_assert!(timing.due_ns.windows(2).all(|two| two[0] <= two[1]));
        prop_assert!(timing.due_ns.iter().all(|ns| *ns < timing.duration_ns));
        let first_ms = *times_ms.iter().min().unwrap();
        for (line, due_ns) in sequence(&replay).iter().zip(&*timing.due_ns) {
            let time_ms = times_ms[*line as usize];
            let due_ms = *due_ns as f64 / 1e6 / scale;
            let error_ms = due_ms - (time_ms - first_ms) as f64;
            prop_assert!((-0.01..if whole { 1000.0 } else { 0.01 }).contains(&error_ms), "{error_ms}");
        }
    }
}
