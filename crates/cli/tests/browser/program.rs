//! The program under test, serving a directory on a free port.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Makes each request that the page on HTTP describes: its name, the status, whether something else was
/// described, and what the page shows of the response.
pub(crate) const EXPERIMENTS: &str = "(async () => {
    const found = [];
    for (const article of document.querySelectorAll('[data-experiment]')) {
        article.querySelector('button').click();
        while (!article.dataset.status) await new Promise((go) => setTimeout(go, 10));
        const output = article.querySelector('.answer');
        found.push([article.dataset.experiment, article.dataset.status,
            output.classList.contains('unexpected'), output.textContent]);
    }
    return found;
})()";

/// A running `loadline serve`; ends with the value.
pub(crate) struct Program {
    child: Child,
    origin: String,
}

impl Program {
    /// Serves `root` and waits until the program has said where.
    pub(crate) fn serve(root: &Path, options: &[&str]) -> Self {
        Self::serve_at("127.0.0.1:0", root, options)
    }

    /// The same at this address, by https for instance.
    pub(crate) fn serve_at(address: &str, root: &Path, options: &[&str]) -> Self {
        let (reader, writer) = io::pipe().expect("a pipe");
        let errors = writer.try_clone().expect("a second end of the pipe");
        let child = Command::new(env!("CARGO_BIN_EXE_loadline"))
            .arg("serve")
            .arg(root)
            .args(["--listen", address])
            .args(options)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(errors)
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(reader).lines();
        let mut said = String::new();
        let origin = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the program ended without an address; it said:\n{said}");
            };
            if let Some(origin) = origin_in(&line) {
                break origin;
            }
            said += &line;
            said.push('\n');
        };
        thread::spawn(move || lines.for_each(drop)); // a full pipe would stop the program
        Self { child, origin }
    }

    /// The address of `path`, which begins with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `http://127.0.0.1:PORT`, or with https, in a start-up line.
fn origin_in(line: &str) -> Option<String> {
    let (scheme_and_host, port) = ["http", "https"].into_iter().find_map(|scheme| {
        let before = format!("{scheme}://127.0.0.1:");
        let start = line.find(&before)?;
        Some(line[start..].split_at(before.len()))
    })?;
    let digits = port.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| format!("{scheme_and_host}{}", &port[..digits]))
}

/// The folder of the repository.
pub(crate) fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("two folders up").to_owned()
}

/// The demo site.
pub(crate) fn demo_site() -> PathBuf {
    repository().join("site")
}
