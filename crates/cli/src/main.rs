//! The program: `loadline serve`, `loadline precompress`, `loadline load` and `loadline lab`. See `flags`,
//! `serve`, `precompress`, `load` and `lab`.
#![forbid(unsafe_code)]
// What .cargo/cc says of a release that it could not strip.
#![cfg_attr(not(debug_assertions), warn(linker_messages))]

mod accounts;
mod acme;
mod admin;
mod diagnostics;
mod failure;
mod files;
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the docs of options are the text of --help, and no Markdown"
)]
mod flags;
mod interrupt;
mod lab;
mod load;
mod logs;
mod precompress;
mod secrets;
mod serve;
mod signals;
mod start_up;
mod tls;

use std::io::Write;
use std::process::ExitCode;

use failure::Failure;
use flags::Typed;
use flags::defs::Command;
use flags::high::{Machine, plan};

fn main() -> ExitCode {
    let code = match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            diagnostics::print(&format!("loadline: {failure}\n"));
            failure.code()
        }
    };
    diagnostics::finish();
    code
}

fn run() -> Result<(), Failure> {
    match flags::read(std::env::args_os())? {
        Typed::Print(text) => print(text.as_bytes()),
        Typed::Command(Command::Completions { shell }) => print(&flags::completions(shell)),
        Typed::Command(Command::Precompress(flags)) => precompress::precompress(&flags),
        Typed::Command(Command::Load(flags)) => load::load(&flags),
        Typed::Command(Command::Lab { command }) => lab::lab(&command),
        Typed::Command(Command::Serve(flags)) => {
            let machine = Machine::find();
            serve::serve(&plan(*flags, &machine)?, &machine)
        }
    }
}

pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(()), // a reader that has seen enough, as `head`, is none of our trouble
    }
}

/// Prints a line on standard error. If that is closed, the line is lost.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "loadline: {line}");
}
