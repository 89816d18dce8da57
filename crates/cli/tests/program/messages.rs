//! What it says about itself and about bad input, and with which exit code.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::util::{PROGRAM, Server, run, site};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// One line on standard error, nothing on standard output, the exit code; the line has all `parts`.
fn refuses(arguments: &[&str], exit: i32, parts: &[&str]) {
    let output = run(arguments);
    refused(&output, &arguments.join(" "), exit, parts);
}

fn refused(output: &std::process::Output, what: &str, exit: i32, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{what}: {message}");
    assert_eq!(text(&output.stdout), "", "{what}");
    assert_eq!(message.lines().count(), 1, "{what}: {message}");
    assert!(message.starts_with("loadline: "), "{what}: {message}");
    for part in parts {
        assert!(message.contains(part), "{what}: no '{part}' in: {message}");
    }
}

#[test]
fn bad_usage_is_one_line_with_option_value_and_what_would_be_right() {
    for (line, parts) in [
        (
            "",
            &["command is missing", "loadline serve", "loadline load"][..],
        ),
        ("srve", &["srve", "did you mean serve"]),
        ("serve --lisen 1", &["--lisen", "did you mean --listen"]),
        ("serve --listen 8080", &["--listen 8080", "127.0.0.1:8080"]),
        (
            "serve --listen 127.0.0.1:99999",
            &["127.0.0.1:99999", "0 to 65535"],
        ),
        (
            "serve --architecture reactr",
            &[
                "--architecture reactr",
                "did you mean reactor",
                "thread-pool",
            ],
        ),
        (
            "serve --architecture",
            &["--architecture", "missing", "sequential"],
        ),
        (
            "serve --trust-proxy localhost",
            &["--trust-proxy localhost", "10.0.0.0/8", "unix"],
        ),
        (
            "serve --trust-proxy unix --trust-proxy-field via",
            &["--trust-proxy-field via", "x-forwarded-for", "forwarded"],
        ),
        (
            "serve --trust-proxy-field forwarded",
            &["--trust-proxy-field", "it goes with --trust-proxy"],
        ),
        (
            "serve --accounts-proxy 10.0.0.0/8",
            &[
                "--accounts-proxy 10.0.0.0/8",
                "right would be --trust-proxy 10.0.0.0/8",
            ],
        ),
        ("serve --loops 0", &["--loops 0", "1 to 1024", "auto"]),
        ("serve --loops many", &["--loops many", "1 to 1024"]),
        (
            "serve --workers -1",
            &["--workers -1", "out of range", "0 to 16384"],
        ),
        (
            "serve --threads 999999999999999999999",
            &["--threads 9999", "1 to 16384"],
        ),
        ("serve --grace 10", &["--grace 10", "10s"]),
        ("serve --body-max lots", &["--body-max lots", "64k"]),
        ("serve --keep-alive yes", &["--keep-alive yes", "on or off"]),
        ("serve --log-level loud", &["--log-level loud", "debug"]),
        (
            "serve --cache-control .css:",
            &["--cache-control .css:", "max-age=3600"],
        ),
        (
            "serve --media-type wasm",
            &["--media-type wasm", "EXT=TYPE", "application/wasm"],
        ),
        (
            "serve --media-type .wasm=wasm",
            &["--media-type .wasm=wasm", "application/wasm"],
        ),
        ("serve --unix-mode 999", &["--unix-mode 999", "660"]),
        ("serve one two", &["two", "one directory"]),
        (
            "serve --architecture sequential --loops 2",
            &["--loops 2", "sequential", "reactor"],
        ),
        (
            "serve --balance least-busy",
            &["--balance least-busy", "--accept handoff"],
        ),
        (
            "serve --workers 0 --socket-io worker",
            &["--socket-io worker", "--workers 1"],
        ),
        ("serve --log-format json", &["--access-log"]),
        ("serve --service-kind spin", &["--service-time"]),
        (
            "serve --connections-max 1000000",
            &["--connections-max 1000000", "open files"],
        ),
        ("completions tcsh", &["tcsh", "bash"]),
        ("serve --compress yes", &["--compress yes", "on or off"]),
        (
            "precompress",
            &["directory is missing", "loadline precompress DIR"],
        ),
        ("precompress /no/such", &["DIR /no/such", "existing"]),
        (
            "precompress . --encodings deflate",
            &["--encodings deflate", "not made here", "br,gzip"],
        ),
        (
            "precompress . --types html",
            &["--types html", "'html' is not a media type"],
        ),
        ("precompress . --min-size 0", &["--min-size 0", "1"]),
        ("precompress . --jobs 0", &["--jobs 0", "1 to 1024"]),
    ] {
        let arguments: Vec<&str> = line.split_ascii_whitespace().collect();
        refuses(&arguments, 2, parts);
    }
}

/// Also with an address in use: the architecture is looked at before anything is bound.
#[test]
fn a_proactor_where_io_uring_is_refused() {
    let site = site();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused_with = |without: &str, parts: &[&str]| {
        let output = Command::new(PROGRAM)
            .arg("serve")
            .arg(site.path())
            .args(["--architecture", "proactor", "--listen", &address])
            .env("LOADLINE_RING_WITHOUT", without)
            .output()
            .unwrap();
        refused(&output, without, 2, parts);
    };
    let common = ["--architecture proactor", "--architecture reactor"];
    refused_with("io-uring", &[&common[..], &["io_uring is off"]].concat());
    refused_with("speed", &[&common[..], &["speed", "quiet-sends"]].concat());
}

#[test]
fn without_io_uring_auto_is_the_reactor_and_says_why() {
    let site = site();
    let listen = ["--listen", "127.0.0.1:0"];
    let mut command = Command::new(PROGRAM);
    command.arg("serve").arg(site.path()).args(listen);
    command.env("LOADLINE_RING_WITHOUT", "io-uring");
    let server = Server::start_command(command, &listen);
    let note = "loadline: the reactor instead of the proactor: io_uring is off";
    let lines = server.start_up.iter();
    assert_eq!(lines.filter(|line| line.starts_with(note)).count(), 1);
    assert_eq!(server.get("/"), "<p>hello</p>");
}

#[test]
fn a_directory_that_cannot_be_served() {
    let site = site();
    let file = site.path().join("index.html");
    let nowhere = site.path().join("nowhere");
    let folder = site.path().to_str().unwrap();
    let nowhere = nowhere.to_str().unwrap();
    refuses(
        &["serve", nowhere],
        2,
        &["DIR", nowhere, "no such directory"],
    );
    refuses(
        &["serve", file.to_str().unwrap()],
        2,
        &["DIR", "index.html", "not a directory"],
    );
    refuses(
        &["serve", folder, "--spa", "app.html"],
        2,
        &["--spa app.html", "no such file"],
    );
    refuses(
        &["serve", folder, "--spa", "../index.html"],
        2,
        &["--spa ../index.html", "not within", "such as index.html"],
    );
    refuses(
        &["serve", folder, "--error-pages", nowhere],
        2,
        &["--error-pages", "no such directory"],
    );
    refuses(
        &["serve", folder, "--error-pages", folder],
        2,
        &["--error-pages", "404.html"],
    );
    refuses(
        &["serve", folder, "--access-log", "/nowhere/log"],
        2,
        &["--access-log", "no such directory"],
    );
    refuses(
        &["serve", folder, "--access-log", folder],
        2,
        &["--access-log", "a directory"],
    );
}

/// The program as an ordinary user, without root's permissions.
fn as_nobody(copy: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(copy);
    command.args(arguments);
    if is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .contains("Uid:\t0\t")
}

#[test]
fn no_permission() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(folder.path(), 0o755);
    let copy = folder.path().join("loadline");
    // By another process: a descriptor for writing that a child of another test inherits for a
    // moment would make the copy "busy".
    let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status();
    assert!(copied.unwrap().success());
    let secret = folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    open(&secret, 0o700);
    if !is_root() {
        open(&secret, 0o000);
    }
    let log = secret.join("log");
    let socket = format!("unix:{}", secret.join("socket").display());
    let public = folder.path().join("public");
    std::fs::create_dir(&public).unwrap();
    open(&public, 0o755);
    let (root, secret) = (public.to_str().unwrap(), secret.to_str().unwrap());
    let output = as_nobody(&copy, &["serve", secret]);
    refused(
        &output,
        "a directory",
        2,
        &["DIR", "secret", "no permission"],
    );
    let output = as_nobody(
        &copy,
        &["serve", root, "--access-log", log.to_str().unwrap()],
    );
    refused(&output, "a log", 2, &["--access-log", "no permission"]);
    let output = as_nobody(&copy, &["serve", root, "--listen", &socket]);
    refused(&output, "a socket", 3, &["--listen unix:", "no permission"]);
    let unprivileged = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if unprivileged.is_ok_and(|port| port.trim() == "1024") {
        let output = as_nobody(&copy, &["serve", root, "--listen", "127.0.0.1:81"]);
        refused(
            &output,
            "a port",
            3,
            &["--listen 127.0.0.1:81", "no permission", "1024"],
        );
    }
}

#[test]
fn an_address_that_cannot_be_listened_on() {
    let site = site();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = site.path().to_str().unwrap();
    refuses(
        &["serve", folder, "--listen", &address],
        3,
        &[&address, "already in use"],
    );
    let foreign = "192.0.2.1:8080"; // TEST-NET-1: nobody has it
    refuses(
        &["serve", folder, "--listen", foreign],
        3,
        &[foreign, "does not have this address"],
    );
    let server = Server::start(site.path(), &[]);
    let address = server.address().to_string();
    refuses(
        &["serve", folder, "--listen", &address],
        3,
        &[&address, "already in use"],
    );
    let socket = format!("unix:{folder}/socket");
    let _first = Server::start(site.path(), &["--listen", &socket]);
    refuses(
        &["serve", folder, "--listen", &socket],
        3,
        &[&socket, "in use", "another path"],
    );
    let file = format!("unix:{folder}/index.html");
    refuses(
        &["serve", folder, "--listen", &file],
        3,
        &[&file, "not a socket"],
    );
}

#[test]
fn limits_that_do_not_fit_the_descriptor_limit() {
    let site = site();
    let script = "ulimit -n 512; exec \"$0\" serve \"$1\" --listen 127.0.0.1:0 \"$2\" \"$3\"";
    let limited = |option: &str, value: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", script, PROGRAM])
            .arg(site.path())
            .args([option, value]);
        command.output().unwrap()
    };
    let output = limited("--connections-max", "1000");
    refused(
        &output,
        "connections",
        2,
        &["--connections-max 1000", "512", "ulimit"],
    );
    let output = limited("--cache-open-files", "100000");
    refused(&output, "cache", 2, &["100000"]);
}

#[test]
fn help_names_every_option_groups_examples_and_exit_codes() {
    let help = run(&["serve", "--help"]);
    assert!(help.status.success() && help.stderr.is_empty());
    let help = text(&help.stdout);
    for heading in [
        "Architecture:",
        "Connections:",
        "Requests:",
        "Content:",
        "Running:",
    ] {
        assert!(help.contains(heading), "{heading}");
    }
    for part in [
        "Examples:",
        "Exit codes:",
        "Signals:",
        "loadline serve public",
        "1  something failed while running, or the database of --accounts could not be reached",
    ] {
        assert!(help.contains(part), "{part}");
    }
    for option in OPTIONS {
        let stands = help
            .lines()
            .any(|line| line.split_ascii_whitespace().any(|word| word == *option));
        assert!(stands, "{option} is not in the help");
    }
    let about = run(&["--help"]);
    for command in ["serve", "load"] {
        let heading = format!("Exit codes of {command}:");
        assert!(text(&about.stdout).contains(&heading));
    }
    let version = run(&["--version"]);
    assert_eq!(
        text(&version.stdout),
        format!("loadline {}\n", env!("CARGO_PKG_VERSION"))
    );
}

/// The options that are promised. (That the help has no others undocumented, docs/serve.md sees to.)
const OPTIONS: &[&str] = &[
    "--listen",
    "--architecture",
    "--loops",
    "--workers",
    "--threads",
    "--worker-pools",
    "--accept",
    "--balance",
    "--queue",
    "--queue-max",
    "--socket-io",
    "--parse",
    "--file-io",
    "--capacity-per-loop",
    "--connections-max",
    "--backlog",
    "--defer-accept",
    "--keep-alive",
    "--idle-timeout",
    "--service-time",
    "--service-kind",
    "--index",
    "--listing",
    "--spa",
    "--error-pages",
    "--follow-symlinks",
    "--hidden",
    "--cache-control",
    "--access-log",
    "--log-format",
    "--status-path",
    "--grace",
    "--log-level",
];

#[test]
fn completions_for_every_shell_know_the_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]);
        assert!(script.status.success());
        let script = text(&script.stdout);
        for option in ["architecture", "status-path", "keep-alive"] {
            assert!(script.contains(option), "{shell}: {option}");
        }
        let knows_values = !matches!(shell, "elvish" | "powershell");
        assert_eq!(script.contains("least-busy"), knows_values, "{shell}");
    }
    let bash = Command::new("bash")
        .args([
            "-c",
            "source <(\"$0\" completions bash) && complete -p loadline",
            PROGRAM,
        ])
        .output();
    assert!(bash.unwrap().status.success());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let script = "\"$0\" serve --help | head -n 1; exit ${PIPESTATUS[0]}";
    let piped = Command::new("bash")
        .args(["-c", script, PROGRAM])
        .output()
        .unwrap();
    assert!(piped.status.success(), "{}", text(&piped.stderr));
}
