//! Other servers that the lab configures: their command lines, and the best settings that were found for
//! each, as files with placeholders (`configurations/`). They stand in the journal, whole.
//!
//! nginx as Debian ships it (access log on, no cache of open files, the kernel's queue at 511), but for
//! more connections than its 768. Tuned: small files by read and one write, since sendfile costs a second
//! segment, large ones by sendfile; connections accepted once their request is there. All of them: more
//! connections (32,768) than plans ask for, a queue in front of them of 16,384 that
//! `net.core.somaxconn` may cut down, and 300 s for a connection to rest, which is longer than a trial
//! has it rest.

use std::collections::BTreeMap;

use super::launch_context::LaunchContext;
use crate::plan::ServerKind;

/// A program that is configured by a file.
pub(super) struct Configured {
    kind: ServerKind,
    pub(super) command: &'static [&'static str],
    /// What prints its version in the first line.
    pub(super) version: &'static [&'static str],
    pub(super) configuration: &'static str,
    /// Its user, where it is started as root.
    user: &'static str,
    /// Its processes or threads, if no option says how many; `None`: one for each CPU.
    workers: Option<&'static str>,
}

const CONFIGURED: [Configured; 5] = [
    Configured {
        kind: ServerKind::NginxDefault,
        command: &NGINX,
        version: &["nginx", "-v"],
        configuration: include_str!("configurations/nginx-default.conf"),
        user: "user root;\n",
        workers: None,
    },
    Configured {
        kind: ServerKind::NginxTuned,
        command: &NGINX,
        version: &["nginx", "-v"],
        configuration: include_str!("configurations/nginx-tuned.conf"),
        user: "user root;\n",
        workers: None,
    },
    Configured {
        kind: ServerKind::ApacheEvent,
        command: &["apache2", "-D", "FOREGROUND", "-f", "{configuration}"],
        version: &["apache2", "-v"],
        configuration: include_str!("configurations/apache-event.conf"),
        // It refuses to serve as root.
        user: "User www-data\nGroup www-data\n",
        // Its own default. With all of them busy its event module closes connections that rest, some of
        // them with a request under way: 64 threads are quicker with 64 connections, and cut off one
        // request in 200 of them.
        workers: Some("400"),
    },
    Configured {
        kind: ServerKind::Lighttpd,
        command: &["lighttpd", "-D", "-f", "{configuration}"],
        version: &["lighttpd", "-v"],
        configuration: include_str!("configurations/lighttpd.conf"),
        user: "",
        workers: None,
    },
    Configured {
        kind: ServerKind::H2o,
        command: &["h2o", "-m", "worker", "-c", "{configuration}"],
        version: &["h2o", "--version"],
        configuration: include_str!("configurations/h2o.conf"),
        user: "user: root\n",
        workers: None,
    },
];

const NGINX: [&str; 7] = [
    "nginx",
    "-p",
    "{dir}",
    "-e",
    "{dir}/early.log",
    "-c",
    "{configuration}",
];

impl Configured {
    /// That of a kind; `None`: it is Loadline, or has a command of its own.
    pub(super) fn of(kind: ServerKind) -> Option<&'static Self> {
        CONFIGURED.iter().find(|it| it.kind == kind)
    }

    /// Adds what stands in the place of what.
    pub(super) fn add_names(
        &self,
        workers: Option<&str>,
        context: &LaunchContext<'_>,
        names: &mut BTreeMap<String, String>,
    ) {
        let workers = workers.or(self.workers).map(str::to_owned);
        let workers = workers.unwrap_or_else(|| context.cpu_count.to_string());
        let user = if context.is_root { self.user } else { "" };
        let max_worker = match workers.as_str() {
            "1" => String::new(), // one worker beside a parent is what lighttpd calls 1
            several => format!("server.max-worker = {several}\n"),
        };
        let large_files = context.large_files.iter().map(|path| {
            format!("    location = {path} {{ sendfile on; sendfile_max_chunk 0; }}\n")
        });
        names.extend(
            [
                ("{workers}", workers),
                ("{user}", user.to_owned()),
                ("{max_worker}", max_worker),
                ("{large_files}", large_files.collect()),
                ("{descriptors}", context.descriptors.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
}
