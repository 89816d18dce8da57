//! What comes first over a slow line: the style sheet before large pictures that the page names ahead of
//! it, since the browser says that it is more urgent (RFC 9218).
//!
//! `UPDATE_DOCS=1 ./x test --all a_style_sheet` writes what came when into `docs/supported-http.md`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde_json::Value;

use crate::assert_clean;
use crate::chromium::Browser;
use crate::program::Program;

/// Large pictures of the page.
const PICTURES: usize = 6;
/// Pixels of each on both sides: 0.75 MB.
const SIDE: u32 = 500;
/// Rules of the style sheet: 0.87 MB, more than a picture, which would be first if they took turns.
const RULES: usize = 30_000;
/// How fast the line is.
const BYTES_PER_S: usize = 2 << 20;
/// What the line takes in at once: it says by that how much is on its way.
const LINE_BYTES: usize = 16 << 10;

/// Where the table stands, and between which marks.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/supported-http.md");
const MARKS: [&str; 2] = ["<!-- waterfall: begin -->", "<!-- waterfall: end -->"];
/// What the browser says of each file: its address, the protocol, when it was asked for, when its first byte
/// came, when it was complete (ms), and its length.
const ENTRIES: &str = "performance.getEntriesByType('resource').map((entry) =>
    [entry.name, entry.nextHopProtocol, entry.requestStart, entry.responseStart, entry.responseEnd,
        entry.encodedBodySize])";

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

/// Passes connections on to the server, slowly in the direction of the client.
fn slow_line(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let upstream = TcpStream::connect(server).expect("the server listens");
            sockopt::set_socket_recv_buffer_size(&upstream, LINE_BYTES).expect("a buffer");
            let ends = [&client, &upstream].map(|it| it.try_clone().expect("a descriptor"));
            let [mut from, mut to] = ends;
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || pass_slowly(upstream, client));
        }
    });
    address
}

/// Each piece takes its time.
fn pass_slowly(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; LINE_BYTES];
    let mut due = Instant::now();
    while let Ok(len @ 1..) = from.read(&mut piece) {
        due = due.max(Instant::now()) + Duration::from_secs(1) * len as u32 / BYTES_PER_S as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece[..len]).is_err() {
            return;
        }
    }
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
    // Of what lies in the socket's buffer the server cannot change the order any more. The style sheet stays as
    // long as it is.
    let options = "--tls self-signed --socket-buffer 64k --compress off";
    let options: Vec<&str> = options.split(' ').collect();
    let server = Program::serve_at("https://127.0.0.1:0", site.path(), &options);
    let address = server.url("").replace("https://", "");
    let line = slow_line(address.parse().expect("an address"));

    let mut browser = Browser::start();
    browser.accept_any_certificate();
    assert_clean(&browser.visit(&format!("https://{line}/")), "the page");
    let entries = browser.evaluate(ENTRIES);
    let entries = entries.as_array().expect("a list");
    assert!(entries.iter().all(|entry| entry[1] == "h2"), "{entries:?}");
    let of_kind = |suffix: &str| {
        let is_of_kind = |name: &Value| name.as_str().is_some_and(|it| it.ends_with(suffix));
        let found = entries.iter().filter(|entry| is_of_kind(&entry[0]));
        found
            .map(|entry| entry[4].as_f64().expect("a time"))
            .collect()
    };
    let (sheets, pictures): (Vec<_>, Vec<_>) = (of_kind(".css"), of_kind(".bmp"));
    assert_eq!((sheets.len(), pictures.len()), (1, PICTURES), "{entries:?}");
    let is_late = pictures.iter().any(|picture| *picture <= sheets[0]);
    assert!(
        !is_late,
        "a picture came before the style sheet: {entries:#?}"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        write_table(entries);
    }
}

/// A row for each file, in the order of their names, which is that of the page.
fn write_table(entries: &[Value]) {
    let mut rows: Vec<_> = entries.iter().map(row).collect();
    rows.sort();
    let head = "| file | bytes | asked for, ms | first byte, ms | complete, ms |\n\
                |---|---:|---:|---:|---:|\n";
    let text = fs::read_to_string(PAGE).expect("the page");
    let [begin, end] = MARKS;
    let (before, rest) = text.split_once(begin).expect("the first mark");
    let (_, after) = rest.split_once(end).expect("the second mark");
    let table = rows.concat();
    let text = format!("{before}{begin}\n\n{head}{table}\n{end}{after}");
    fs::write(PAGE, text).expect("the page can be written");
}

fn row(entry: &Value) -> String {
    let name = entry[0].as_str().and_then(|it| it.rsplit('/').next());
    let name = name.expect("an address");
    let [asked, first, complete, bytes] =
        [2, 3, 4, 5].map(|it| entry[it].as_f64().expect("a number"));
    format!("| `{name}` | {bytes:.0} | {asked:.0} | {first:.0} | {complete:.0} |\n")
}
