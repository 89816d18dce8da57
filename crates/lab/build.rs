//! Takes plotly.js (MIT) out of the crate that carries it and leaves it compressed: 4.7 MB become
//! 1.4 MB, and the browser unpacks them itself.
//!
//! The crate is a build dependency alone: the program has this text and nothing else of it.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// How the library's script begins; what the crate puts behind it sets formulas, which no chart has.
const BANNER: &str = "/**\n* plotly.js v";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let scripts = plotly::Plot::offline_js_sources();
    let begin = scripts.find(BANNER).expect("the crate carries plotly.js");
    let script = &scripts[begin..];
    let end = script.find("</script>\n").expect("the script has an end");
    let script = &script[..end];
    let version = script[BANNER.len()..].lines().next().unwrap_or_default();
    println!("cargo::rustc-env=PLOTLY_JS_VERSION={version}");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(script.as_bytes())
        .expect("memory is written");
    let packed = gzip.finish().expect("memory is written");
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let file = Path::new(&folder).join("plotly.js.gz");
    std::fs::write(file, packed).expect("OUT_DIR is written");
}
