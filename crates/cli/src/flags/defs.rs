//! The options as they are typed: names, groups, texts of the help. What they mean is in `high`.

use clap::{Parser, Subcommand};
use loadline_spec::serve::ServeSpec;

use super::lab_defs::{LAB_EXIT_CODES, LabCommand};
use super::load_defs::{LOAD_EXIT_CODES, LOAD_MORE, LoadFlags};
use super::precompress_defs::{PRECOMPRESS_MORE, PrecompressFlags};

const EXIT_CODES: &str = "\
Exit codes:
  0  stopped by SIGTERM or SIGINT; every accepted request was answered
  1  something failed while running, or the database of --accounts could not be reached
  2  bad usage: an option, a value, a directory, or options that do not fit together; an
     architecture that this machine does not offer; or an authority's terms that are not agreed to
  3  an address cannot be listened on
  4  stopped before every accepted request was answered: --grace ran out, or a second signal came";

const SERVE_MORE: &str = "\
Examples:
  loadline serve
      the current directory on http://127.0.0.1:8080/
  loadline serve public --listen 0.0.0.0:80 --listen '[::]:80' --access-log /var/log/loadline.log
      a site for everyone, with a log that SIGHUP reopens
  loadline serve public --listen https://0.0.0.0:443 --tls-cert c.pem --tls-key k.pem
      over https, with a certificate that is read again when it changes
  loadline serve public --listen 0.0.0.0:80 --listen https://0.0.0.0:443 \\
      --acme you@example.org --acme-domain example.org --acme-agree-to-terms
      over http and https, with a certificate of Let's Encrypt that is renewed
  loadline serve --tls self-signed
      the current directory on https://127.0.0.1:8443/, with a certificate for trying things out
  loadline serve public --listen unix:/run/loadline.sock --trust-proxy unix
      behind a proxy on the same machine
  loadline serve app/dist --spa index.html --cache-control max-age=3600
      a single-page app
  loadline serve --architecture thread-pool --threads 1000 --service-time 500us
      a thousand blocking threads, and 0.5 ms of made-up work for each request

Signals:
  SIGTERM, SIGINT  drain: stop accepting, finish every accepted request, exit; a second signal
                   exits at once. With --drain-delay: respond 503 at /-/ready and keep serving
                   for the delay, then drain; a second signal drains at once, a third one exits
  SIGHUP           reopen the access log and the connection log; read certificates again";

const MORE_EXIT_CODES: &str = "Other commands list their exit codes with --help.";

/// A web server for Linux that knows how much load it can carry.
#[derive(Debug, Parser)]
#[command(name = "loadline", version, disable_help_subcommand = true,
    after_help = format!("{}\n\n{}\n\n{}\n\n{MORE_EXIT_CODES}", of("serve", EXIT_CODES),
        of("load", LOAD_EXIT_CODES), of("lab run, lab paper and lab compare", LAB_EXIT_CODES)))]
pub(crate) struct Loadline {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Exit codes under a heading that says whose they are.
fn of(command: &str, codes: &str) -> String {
    codes.replacen("Exit codes:", &format!("Exit codes of {command}:"), 1)
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the files of a directory.
    #[command(after_help = format!("{SERVE_MORE}\n\n{EXIT_CODES}"))]
    Serve(Box<ServeSpec>),
    /// Compress the files of a directory ahead, for serve or another server to send.
    #[command(after_help = PRECOMPRESS_MORE)]
    Precompress(PrecompressFlags),
    /// Send requests and measure how the server responds.
    #[command(after_help = format!("{LOAD_MORE}\n\n{LOAD_EXIT_CODES}"))]
    Load(Box<LoadFlags>),
    /// Run experiments: plans of many trials, with any server.
    Lab {
        /// What to do.
        #[command(subcommand)]
        command: LabCommand,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell to print it for.
        shell: clap_complete::Shell,
    },
}
