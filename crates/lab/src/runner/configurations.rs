//! Configuration files of other servers: the best settings that were found for each, and nginx as
//! distributions have it. They stand in the journal, whole.

use std::fmt::Write as _;

use super::launch_context::LaunchContext;

/// Connections that each of them takes: more than plans ask for.
const CONNECTIONS_MAX: u32 = 32_768;
/// The queue of the kernel in front of them; it may be cut down by `net.core.somaxconn`.
const BACKLOG: u32 = 16_384;
/// Threads of Apache: its own default. With all of them busy its event
/// module closes connections that rest, some of them with a request under way: 64 threads are quicker
/// with 64 connections, and cut off one request in 200 of them.
const APACHE_THREADS: u32 = 400;
/// Time that a connection may rest: longer than a trial has it rest.
const IDLE_S: u32 = 300;

/// nginx. `workers` is the number of its processes; by default one for each CPU.
///
/// The default is what Debian ships (access log on, no cache of open files, the kernel's queue at 511),
/// but for more connections than its 768. Tuned: small files by read and one write, since sendfile
/// costs a second segment, large ones by sendfile; connections accepted once their request is there.
pub(super) fn nginx(is_tuned: bool, workers: Option<&str>, context: &LaunchContext<'_>) -> String {
    let folder = context.scratch.display();
    let default_workers = context.cpu_count.to_string();
    let workers = workers.unwrap_or(&default_workers);
    let mut text = String::new();
    if context.is_root {
        text += "user root;\n";
    }
    let _ = writeln!(
        text,
        "worker_processes {workers};
worker_rlimit_nofile {};
daemon off;
pid {folder}/pid;
error_log {folder}/error.log crit;",
        context.descriptors
    );
    let events = if is_tuned {
        " multi_accept on; use epoll;"
    } else {
        ""
    };
    let _ = writeln!(
        text,
        "events {{ worker_connections {CONNECTIONS_MAX};{events} }}
http {{
  types {{ text/html html htm; text/css css; text/javascript js; image/png png; image/svg+xml svg;
    video/mp4 mp4; }}
  default_type application/octet-stream;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;"
    );
    if is_tuned {
        let _ = writeln!(
            text,
            "  access_log off; tcp_nodelay on; server_tokens off; etag off;
  keepalive_timeout {IDLE_S}; keepalive_requests 1000000000; reset_timedout_connection on;
  open_file_cache max=1000 inactive={IDLE_S}s; open_file_cache_valid {IDLE_S}s;
  open_file_cache_min_uses 1; sendfile off;"
        );
    } else {
        let _ = writeln!(
            text,
            "  sendfile on; tcp_nopush on; access_log {folder}/access.log;"
        );
    }
    let listen = if is_tuned {
        format!(" backlog={BACKLOG} deferred")
    } else {
        String::new()
    };
    let (address, root) = (context.address(), context.root.display());
    let _ = writeln!(
        text,
        "  server {{
    listen {address}{listen};
    root \"{root}\";"
    );
    if is_tuned {
        for path in context.large_files {
            let _ = writeln!(
                text,
                "    location = {path} {{ sendfile on; sendfile_max_chunk 0; }}"
            );
        }
    }
    text + "  }\n}\n"
}

/// Apache with its event module; `workers` is the number of its threads.
pub(super) fn apache_event(workers: Option<&str>, context: &LaunchContext<'_>) -> String {
    let modules = "/usr/lib/apache2/modules";
    let (folder, root) = (context.scratch.display(), context.root.display());
    let address = context.address();
    let default_workers = APACHE_THREADS.to_string();
    let workers = workers.unwrap_or(&default_workers);
    let factor = CONNECTIONS_MAX / APACHE_THREADS;
    let user = match context.is_root {
        // It refuses to serve as root.
        true => "User www-data\nGroup www-data\n",
        false => "",
    };
    format!(
        "LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule mime_module {modules}/mod_mime.so
{user}ServerName localhost
ServerRoot \"{folder}\"
PidFile \"{folder}/pid\"
ErrorLog \"{folder}/error.log\"
LogLevel crit
Mutex sem
Listen {address}
ListenBacklog {BACKLOG}
StartServers 1
ServerLimit 1
ThreadsPerChild {workers}
ThreadLimit {workers}
MinSpareThreads {workers}
MaxSpareThreads {workers}
MaxRequestWorkers {workers}
AsyncRequestWorkerFactor {factor}
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout {IDLE_S}
EnableSendfile On
EnableMMAP On
TypesConfig /etc/mime.types
DocumentRoot \"{root}\"
<Directory />
  Options FollowSymLinks
  AllowOverride None
  Require all granted
</Directory>
"
    )
}

/// lighttpd; `workers` is the number of its processes: by default one for each CPU.
pub(super) fn lighttpd(workers: Option<&str>, context: &LaunchContext<'_>) -> String {
    let (folder, root) = (context.scratch.display(), context.root.display());
    let (host, port) = (context.link.server_address(), context.port);
    let default_workers = context.cpu_count.to_string();
    let workers = match workers.unwrap_or(&default_workers) {
        "1" => String::new(), // one worker beside a parent is what it calls 1
        several => format!("server.max-worker = {several}\n"),
    };
    format!(
        "{workers}server.document-root = \"{root}\"
server.bind = \"{host}\"
server.port = {port}
server.errorlog = \"{folder}/error.log\"
server.max-fds = {descriptors}
server.max-connections = {CONNECTIONS_MAX}
server.listen-backlog = {BACKLOG}
server.defer-accept = 1
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = {IDLE_S}
server.feature-flags = ( \"server.h2proto\" => \"disable\" )
mimetype.assign = ( \".html\" => \"text/html\", \".mp4\" => \"video/mp4\", \"\" => \
         \"application/octet-stream\" )
",
        descriptors = context.descriptors
    )
}

/// h2o; `workers` is the number of its threads: by default one for each CPU.
pub(super) fn h2o(workers: Option<&str>, context: &LaunchContext<'_>) -> String {
    let (folder, root) = (context.scratch.display(), context.root.display());
    let (host, port) = (context.link.server_address(), context.port);
    let default_workers = context.cpu_count.to_string();
    let workers = workers.unwrap_or(&default_workers);
    let user = if context.is_root { "user: root\n" } else { "" };
    format!(
        "{user}num-threads: {workers}
num-name-resolution-threads: 1
max-connections: {CONNECTIONS_MAX}
http1-request-timeout: {IDLE_S}
http1-upgrade-to-http2: OFF
error-log: {folder}/error.log
listen:
  host: {host}
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {root}
"
    )
}
