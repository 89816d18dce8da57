//! How servers are started: command line, configuration file, and what prints their version.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::child::THIS_PROGRAM;
use super::configurations::Configured;
use super::launch_context::LaunchContext;
use super::network::Link;
use crate::plan::{Server, ServerKind, ServerSpec, fill, in_place, spellings};
use loadline_spec::field::Preset;
use loadline_spec::serve::{Listen, ServeSpec, StatusPath};
use loadline_spec::values::FilePath;
use loadline_spec::{SpecError, Table, Value, words};

/// Where Loadline says what it has counted.
pub(super) const STATUS_PATH: &str = "/-/status";

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) command: Vec<String>,
    pub(super) configuration: Option<String>,
}

/// Whether this process is root's.
pub(super) fn is_root() -> bool {
    Path::new("/proc/self")
        .metadata()
        .is_ok_and(|found| found.uid() == 0)
}

/// The program that a server needs, as it is looked for; Loadline itself needs none.
pub(super) fn program(server: &Server) -> Option<&str> {
    match server.kind {
        ServerKind::Loadline => None,
        // Placeholders are for what comes behind it, but for this program itself.
        ServerKind::Command => server
            .command
            .first()
            .map(String::as_str)
            .filter(|program| *program != "{loadline}"),
        kind => Configured::of(kind).map(|it| it.command[0]),
    }
}

/// How a server is started with these options.
///
/// # Errors
/// What stands in the place of a placeholder does not fit.
pub(super) fn launch(
    server: &Server,
    spec: &ServerSpec,
    context: &LaunchContext<'_>,
) -> Result<Launch, SpecError> {
    match spec {
        ServerSpec::Loadline(spec) => loadline(spec, context),
        ServerSpec::Other(options) => Ok(other(server, options, context)),
    }
}

/// What prints its version in the first line.
pub(super) fn version_command(server: &Server) -> Vec<String> {
    let words: &[&str] = match server.kind {
        ServerKind::Loadline => &[THIS_PROGRAM, "--version"],
        ServerKind::Command => return server.version.clone(),
        kind => Configured::of(kind).map_or(&[], |it| it.version),
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn loadline(spec: &ServeSpec, context: &LaunchContext<'_>) -> Result<Launch, SpecError> {
    let mut spec = in_place(spec, &names(context))?;
    spec.root = Preset(FilePath(context.root.to_owned()));
    spec.listen = listening(&spec, context);
    spec.running.status_path = Some(StatusPath(STATUS_PATH.to_owned()));
    let command = [THIS_PROGRAM, "serve"].map(str::to_owned).into_iter();
    Ok(Launch {
        command: command.chain(words(&spec)).collect(),
        configuration: None,
    })
}

/// By https, if there is a certificate. Its counters are behind a socket where they cannot be had by a
/// plain connection, or would take their time.
fn listening(spec: &ServeSpec, context: &LaunchContext<'_>) -> Vec<Listen> {
    let address = context.address().into();
    let is_slow = matches!(context.link, Link::Relayed(_));
    let (listen, has_socket) = match spec.tls.has_certificate() {
        true => (Listen::Https(address), true),
        false => (Listen::Tcp(address), is_slow),
    };
    let status = context.status_socket().filter(|_| has_socket);
    std::iter::once(listen)
        .chain(status.map(Listen::Unix))
        .collect()
}

fn other(server: &Server, options: &Table, context: &LaunchContext<'_>) -> Launch {
    let mut names = names(context);
    for (option, value) in options {
        if let Some(text) = value.text() {
            let text = fill(text, &names);
            for spelling in spellings(option) {
                names.insert(spelling, text.clone());
            }
        }
    }
    // Behind a shell, the program's own path is that of the shell.
    let path = std::env::current_exe().unwrap_or_else(|_| THIS_PROGRAM.into());
    names.insert("{loadline}".to_owned(), path.display().to_string());
    let (words, configuration) = match Configured::of(server.kind) {
        Some(known) => {
            let workers = options.get("workers").and_then(Value::text);
            known.add_names(workers, context, &mut names);
            let words: Vec<String> = known.command.iter().map(|it| (*it).to_owned()).collect();
            (words, Some(known.configuration))
        }
        None => (server.command.clone(), server.configuration.as_deref()),
    };
    let mut command: Vec<String> = words.iter().map(|it| fill(it, &names)).collect();
    if words.first().is_some_and(|it| it == "{loadline}") {
        command[0] = THIS_PROGRAM.to_owned();
    }
    Launch {
        command,
        configuration: configuration.map(|text| fill(text, &names)),
    }
}

/// What stands in the place of what.
pub(super) fn names(context: &LaunchContext<'_>) -> BTreeMap<String, String> {
    let path = |path: &Path| path.display().to_string();
    let mut names = context.databases.clone();
    names.extend(
        [
            ("{host}", context.link.server_address().to_string()),
            ("{port}", context.port.to_string()),
            ("{root}", path(context.root)),
            ("{path}", context.path.to_owned()),
            ("{dir}", path(context.scratch)),
            ("{plan}", path(context.plan)),
            ("{configuration}", path(&context.configuration_file())),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    names
}

/// A command line as it stands in the journal: this program by its name.
pub(super) fn shown(command: &[String]) -> Vec<String> {
    let name = |word: &String| match word.as_str() {
        THIS_PROGRAM => "loadline".to_owned(),
        _ => word.clone(),
    };
    command.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    static NONE: BTreeMap<String, String> = BTreeMap::new();
    const PLACE: (&str, &str) = ("/out/root", "/out/scratch/7");

    fn context<'a>() -> LaunchContext<'a> {
        LaunchContext {
            port: 8123,
            link: &Link::Loopback,
            root: Path::new(PLACE.0),
            path: "/index.html",
            scratch: Path::new(PLACE.1),
            plan: Path::new("/plans"),
            cpu_count: 2,
            large_files: &[],
            is_root: false,
            descriptors: 50_000,
            databases: &NONE,
        }
    }

    fn launched(server: &str, options: &str) -> Launch {
        let text = format!(
            "name = \"t\"\n[servers.x]\n{server}\noptions = {options}\n[[series]]\nname = \"s\""
        );
        let plan = Plan::parse(&text, "plan", Path::new("/plans")).unwrap();
        let server = &plan.servers["x"];
        launch(server, &server.spec, &context()).unwrap()
    }

    #[test]
    fn loadline_is_this_program() {
        let launch = launched(
            "kind = \"loadline\"",
            "{ loops = 2, error_pages = \"{plan}/e\" }",
        );
        assert_eq!(
            shown(&launch.command).join(" "),
            "loadline serve /out/root --error-pages=/plans/e --listen=127.0.0.1:8123 \
             --log-level=warn --loops=2 --status-path=/-/status"
        );
        assert_eq!(launch.configuration, None);
    }

    #[test]
    fn loadline_with_a_certificate_listens_by_https() {
        let launch = launched("kind = \"loadline\"", "{ tls = \"self-signed\" }");
        let command = shown(&launch.command).join(" ");
        let right = "--listen=https://127.0.0.1:8123 --listen=unix:/out/scratch/7/status";
        assert!(command.contains(right), "{command}");
    }

    #[test]
    fn a_command_of_ones_own_is_filled_in() {
        let launch = launched(
            "command = [\"mine\", \"-p{port}\", \"{configuration}\", \"{worker_pools}\", \"{x}\", \
             \"{root}{path}\"]\n\
             configuration = \"a { root {root}; } {dir} {worker-pools}\"",
            "{ worker_pools = \"{plan}/p\" }",
        );
        assert_eq!(
            launch.command.join(" "),
            "mine -p8123 /out/scratch/7/configuration /plans/p {x} /out/root/index.html"
        );
        assert_eq!(
            launch.configuration.as_deref(),
            Some("a { root /out/root; } /out/scratch/7 /plans/p")
        );
    }

    /// They would stand in place of what the lab fills in.
    #[test]
    fn options_of_commands_are_not_named_as_the_placeholders_of_the_lab() {
        for name in names(&context()).keys() {
            let option = name.trim_matches(['{', '}']);
            let text = format!(
                "name = \"t\"\n[servers.x]\ncommand = [\"x\", \"{name}\"]\n\
                 options = {{ {option} = 1 }}\n[[series]]\nname = \"s\""
            );
            let error = Plan::parse(&text, "plan", Path::new("/plans")).unwrap_err();
            let right = format!("server x: {name} has a meaning already");
            assert!(error.to_string().contains(&right), "{error}");
        }
    }

    #[test]
    fn folders_may_have_spaces_in_their_names() {
        for name in [
            "nginx-default",
            "nginx-tuned",
            "apache-event",
            "lighttpd",
            "h2o",
        ] {
            let text = format!("name = \"t\"\n[servers.{name}]\n[[series]]\nname = \"s\"");
            let plan = Plan::parse(&text, "plan", Path::new("/plans")).unwrap();
            let context = LaunchContext {
                root: Path::new("/my runs/root"),
                scratch: Path::new("/my runs/7"),
                ..context()
            };
            let server = &plan.servers[name];
            let launch = launch(server, &server.spec, &context).unwrap();
            let configuration = launch.configuration.unwrap();
            let mut paths = configuration.match_indices("/my runs");
            let is_quoted = |(at, _): (usize, &str)| configuration[..at].ends_with('"');
            assert!(paths.all(is_quoted), "{configuration}");
        }
    }

    #[test]
    fn known_servers_are_configured_for_port_and_root() {
        for kind in [
            "nginx-default",
            "nginx-tuned",
            "apache-event",
            "lighttpd",
            "h2o",
        ] {
            let launch = launched(&format!("kind = \"{kind}\""), "{ workers = 3 }");
            let configuration = launch.configuration.unwrap();
            for part in ["8123", "/out/root", "/out/scratch/7", "3"] {
                assert!(
                    configuration.contains(part),
                    "{kind}: {part}: {configuration}"
                );
            }
            let file = "/out/scratch/7/configuration".to_owned();
            assert_eq!(launch.command.last(), Some(&file), "{kind}");
        }
    }

    #[test]
    fn braces_that_are_none_of_ours_stay() {
        let names = names(&context());
        for (text, right) in [
            ("{port}", "8123"),
            ("{{port}}", "{8123}"),
            ("{ {port", "{ {port"),
            ("}{", "}{"),
            ("ä{root}ö", "ä/out/rootö"),
        ] {
            assert_eq!(fill(text, &names), right);
        }
    }
}
