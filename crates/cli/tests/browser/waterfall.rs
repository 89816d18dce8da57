//! What comes first over a slow line: the style sheet before pictures, since the browser says that it is more
//! urgent (RFC 9218). On a page that names large pictures ahead of it, and on the demo site.
//!
//! `UPDATE_DOCS=1 ./x test --all a_style_sheet` writes what came when into `docs/supported-http.md`, and draws it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use loadline_lab::report::svg::{WaterfallRow, waterfall};
use rustix::net::sockopt;
use serde_json::Value;

use crate::assert_clean;
use crate::chromium::Browser;
use crate::program::{Program, demo_site};

/// Large pictures of the page.
const PICTURES: usize = 6;
/// Pixels of each on both sides: 0.75 MB.
const SIDE: u32 = 500;
/// Rules of the style sheet: 0.87 MB, more than a picture, which would be first if they took turns.
const RULES: usize = 30_000;
/// A line for megabytes, and one for the demo site.
const LINE: Line = Line {
    bytes_per_s: 2 << 20,
    piece_bytes: 16 << 10,
};
const SLOW_LINE: Line = Line {
    bytes_per_s: 64 << 10,
    piece_bytes: 1 << 10,
};
/// What a line has room for: it says by that how much is on its way.
const BUFFER_BYTES: usize = 16 << 10;
/// What comes in one record of TLS is complete at about one time. A style sheet behind a picture of the demo
/// site would be some 100 ms later.
const RECORD_MS: f64 = 20.0;
/// Of what lies in the socket's buffer the server cannot change the order any more. Files stay as long as they
/// are.
const OPTIONS: &str = "--tls self-signed --socket-buffer 64k --compress off";

/// Where the table stands, and between which marks.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/supported-http.md");
const MARKS: [&str; 2] = ["<!-- waterfall: begin -->", "<!-- waterfall: end -->"];
/// The same as a picture, and what that shows.
const PICTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/pictures/waterfall.svg"
);
const TITLE: &str = "When each file came: HTTP/2 over 2 MiB/s, in Chromium";
const ABOUT: &str = "The style sheet, which the page names last, is complete before any picture";
/// What the browser says of each file: its address, the protocol, when it was asked for, when its first byte
/// came, when it was complete (ms), and its length.
const ENTRIES: &str = "performance.getEntriesByType('resource').map((entry) =>
    [entry.name, entry.nextHopProtocol, entry.requestStart, entry.responseStart, entry.responseEnd,
        entry.encodedBodySize])";

/// A line in the direction of the client.
#[derive(Clone, Copy)]
struct Line {
    bytes_per_s: usize,
    /// What it carries at once.
    piece_bytes: usize,
}

/// A picture without compression: a head of 54 bytes, and three bytes for each pixel.
fn bitmap(colour: u8) -> Vec<u8> {
    let content_bytes = SIDE * SIDE * 3;
    let mut file = b"BM".to_vec();
    for number in [54 + content_bytes, 0, 54, 40, SIDE, SIDE] {
        file.extend(number.to_le_bytes());
    }
    file.extend([1, 0, 24, 0]); // planes, and bits for each pixel
    for number in [0, content_bytes, 2835, 2835, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    file.resize(file.len() + content_bytes as usize, colour);
    file
}

/// Serves a folder behind a line, and says where; `Program` ends with the value.
fn serve_behind(line: Line, root: &Path) -> (Program, SocketAddr) {
    let options: Vec<&str> = OPTIONS.split(' ').collect();
    let server = Program::serve_at("https://127.0.0.1:0", root, &options);
    let address = server.url("").replace("https://", "");
    let address = pass_on(line, address.parse().expect("an address"));
    (server, address)
}

/// Passes connections on to the server, slowly in the direction of the client.
fn pass_on(line: Line, server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let upstream = TcpStream::connect(server).expect("the server listens");
            sockopt::set_socket_recv_buffer_size(&upstream, BUFFER_BYTES).expect("a buffer");
            let ends = [&client, &upstream].map(|it| it.try_clone().expect("a descriptor"));
            let [mut from, mut to] = ends;
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || pass_slowly(line, upstream, client));
        }
    });
    address
}

/// Each piece takes its time.
fn pass_slowly(line: Line, mut from: TcpStream, mut to: TcpStream) {
    let mut piece = vec![0; line.piece_bytes];
    let mut due = Instant::now();
    while let Ok(len @ 1..) = from.read(&mut piece) {
        let takes = Duration::from_secs(1) * len as u32 / line.bytes_per_s as u32;
        due = due.max(Instant::now()) + takes;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece[..len]).is_err() {
            return;
        }
    }
}

/// Visits a page in a browser that has nothing in its cache; returns what it says of each file.
fn visit(page: &str) -> Vec<Value> {
    let mut browser = Browser::start();
    browser.accept_any_certificate();
    assert_clean(&browser.visit(page), page);
    let entries = browser.evaluate(ENTRIES);
    let entries = entries.as_array().expect("a list").clone();
    assert!(entries.iter().all(|entry| entry[1] == "h2"), "{entries:?}");
    entries
}

/// When the files with these endings were complete, the first time: a browser asks again for the icon of a page.
fn completed(entries: &[Value], endings: &[&str]) -> Vec<f64> {
    let mut first: Vec<(&str, f64)> = Vec::new();
    for entry in entries {
        let name = entry[0].as_str().expect("an address");
        let at_ms = entry[4].as_f64().expect("a time");
        let is_wanted = endings.iter().any(|ending| name.ends_with(ending));
        match first.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known_ms)) => *known_ms = known_ms.min(at_ms),
            None if is_wanted => first.push((name, at_ms)),
            None => {}
        }
    }
    first.into_iter().map(|(_, at_ms)| at_ms).collect()
}

#[test]
#[ignore = "long: some seconds of a slow line"]
fn a_style_sheet_comes_before_the_pictures_that_are_named_ahead_of_it() {
    let site = tempfile::tempdir().expect("a folder");
    let write = |name: &str, content: &[u8]| {
        fs::write(site.path().join(name), content).expect("a file");
    };
    let mut page = "<!doctype html><link rel=icon href='data:,'>".to_owned();
    for number in 0..PICTURES {
        write(&format!("{number}.bmp"), &bitmap(number as u8 * 40));
        page += &format!("<img src={number}.bmp>");
    }
    page += "<link rel=stylesheet href=style.css>";
    write("index.html", page.as_bytes());
    write(
        "style.css",
        ".a, .b { color: #123456; }\n\n\n".repeat(RULES).as_bytes(),
    );
    let (_server, line) = serve_behind(LINE, site.path());
    let entries = visit(&format!("https://{line}/"));
    let (sheets, pictures) = (
        completed(&entries, &[".css"]),
        completed(&entries, &[".bmp"]),
    );
    assert_eq!((sheets.len(), pictures.len()), (1, PICTURES), "{entries:?}");
    let is_late = pictures.iter().any(|picture| *picture <= sheets[0]);
    assert!(
        !is_late,
        "a picture came before the style sheet: {entries:#?}"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        write_docs(&entries);
    }
}

/// The pages that have several pictures.
#[test]
#[ignore = "long: some seconds of a slow line"]
fn the_style_sheet_of_the_demo_site_comes_before_its_pictures() {
    let (_server, line) = serve_behind(SLOW_LINE, &demo_site());
    for (page, count) in [("index", 3), ("architectures", 8)] {
        let entries = visit(&format!("https://{line}/{page}.html"));
        let sheets = completed(&entries, &[".css"]);
        let pictures = completed(&entries, &[".svg", ".png"]);
        assert_eq!((sheets.len(), pictures.len()), (1, count), "{entries:?}");
        let is_late = pictures
            .iter()
            .any(|picture| picture + RECORD_MS < sheets[0]);
        assert!(!is_late, "{page}: {entries:#?}");
        let last = pictures.iter().copied().fold(0.0, f64::max);
        assert!(
            sheets[0] + RECORD_MS < last,
            "the line is slow: {entries:#?}"
        );
    }
}

/// Files in the order of their names, which is that of the page.
fn files(entries: &[Value]) -> Vec<WaterfallRow> {
    let file = |entry: &Value| {
        let name = entry[0].as_str().and_then(|it| it.rsplit('/').next());
        let name = name.expect("an address");
        WaterfallRow {
            name: name.to_owned(),
            times_ms: [2, 3, 4].map(|it| entry[it].as_f64().expect("a number")),
            is_marked: name.ends_with(".css"),
        }
    };
    let mut files: Vec<_> = entries.iter().map(file).collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

/// A row for each file, in the same order.
fn write_docs(entries: &[Value]) {
    let drawn = waterfall(TITLE, ABOUT, &files(entries));
    fs::write(PICTURE, drawn).expect("the picture can be written");
    let mut rows: Vec<_> = entries.iter().map(row).collect();
    rows.sort();
    let head = "| file | bytes | asked for, ms | first byte, ms | complete, ms |\n\
                |---|---:|---:|---:|---:|\n";
    let text = fs::read_to_string(PAGE).expect("the page");
    let [begin, end] = MARKS;
    let (before, rest) = text.split_once(begin).expect("the first mark");
    let (_, after) = rest.split_once(end).expect("the second mark");
    let picture = format!("![{ABOUT}](pictures/waterfall.svg)");
    let table = rows.concat();
    let text = format!("{before}{begin}\n\n{picture}\n\n{head}{table}\n{end}{after}");
    fs::write(PAGE, text).expect("the page can be written");
}

fn row(entry: &Value) -> String {
    let name = entry[0].as_str().and_then(|it| it.rsplit('/').next());
    let name = name.expect("an address");
    let [asked, first, complete, bytes] =
        [2, 3, 4, 5].map(|it| entry[it].as_f64().expect("a number"));
    format!("| `{name}` | {bytes:.0} | {asked:.0} | {first:.0} | {complete:.0} |\n")
}
