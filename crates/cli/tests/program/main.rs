//! The program as people meet it: command line, messages, exit codes, signals, logs, status page.

mod logs;
mod messages;
mod running;
mod status;
mod stopping;
mod util;
