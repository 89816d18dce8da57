//! What every example takes on its command line.
#![allow(dead_code, reason = "each example uses a part of it")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::exit;

use loadline_proto::Handler;
use loadline_server::{Architecture, Server};

/// `--architecture NAME --listen ADDRESS --loops N --workers N --threads N --root DIR`, each optional.
/// Workers and threads may be `auto`: then their number changes with the load.
pub(crate) struct Args {
    pub(crate) architecture: String,
    pub(crate) listen: SocketAddr,
    pub(crate) loops: usize,
    /// What files are served from, where an example has files: the working directory.
    pub(crate) root: PathBuf,
    workers: Size,
    threads: Size,
}

/// A number of threads.
#[derive(Clone, Copy)]
enum Size {
    Auto,
    Fixed(usize),
}

/// Of `auto`.
const LEAST: usize = 2;
const MOST: usize = 256;

const NAMES: &str = "--architecture, --listen, --loops, --workers, --threads or --root";

impl Args {
    /// What was typed; ends the process with a line that says what would be right.
    pub(crate) fn parse() -> Self {
        let mut args = Self {
            architecture: "reactor".into(),
            listen: ([127, 0, 0, 1], 8080).into(),
            loops: 1,
            root: ".".into(),
            workers: Size::Fixed(2),
            threads: Size::Fixed(64),
        };
        let mut typed = std::env::args().skip(1);
        while let Some(name) = typed.next() {
            let Some(value) = typed.next() else {
                fail(&format!("{name}: its value is missing"));
            };
            match &*name {
                "--architecture" => args.architecture = value,
                "--listen" => args.listen = parsed(&name, &value),
                "--loops" => args.loops = parsed(&name, &value),
                "--workers" => args.workers = size(&name, &value),
                "--threads" => args.threads = size(&name, &value),
                "--root" => args.root = value.into(),
                _ => fail(&format!("{name}: right would be {NAMES}")),
            }
        }
        args
    }

    /// Serves until the process is ended.
    pub(crate) fn serve(&self, handler: impl Handler) -> std::io::Result<()> {
        let control = self.server(handler).start()?;
        self.say();
        control.wait().map(drop)
    }

    /// What was asked for.
    pub(crate) fn server<H: Handler>(&self, handler: H) -> Server<H> {
        let Some(architecture) = Architecture::parse(&self.architecture) else {
            let names = Architecture::ALL.iter().map(|known| known.name());
            let names: Vec<_> = names.collect();
            fail(&format!(
                "--architecture: right would be {}",
                names.join(", ")
            ));
        };
        let server = Server::new(handler)
            .architecture(architecture)
            .loops(self.loops)
            .listen(self.listen);
        let server = match self.workers {
            Size::Auto => server.workers_between(LEAST, MOST),
            Size::Fixed(count) => server.workers(count),
        };
        match self.threads {
            Size::Auto => server.threads_between(LEAST, MOST),
            Size::Fixed(count) => server.threads(count),
        }
    }

    /// Where it serves.
    pub(crate) fn say(&self) {
        println!(
            "serving at http://{}/ by {}",
            self.listen, self.architecture
        );
    }
}

fn size(name: &str, value: &str) -> Size {
    match value {
        "auto" => Size::Auto,
        _ => Size::Fixed(parsed(name, value)),
    }
}

fn parsed<T: std::str::FromStr>(name: &str, value: &str) -> T {
    value
        .parse()
        .unwrap_or_else(|_| fail(&format!("{name} {value}: not what it takes")))
}

fn fail(text: &str) -> ! {
    eprintln!("{text}");
    exit(2)
}
