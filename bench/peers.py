"""The servers that are compared, each with the best settings found, and what is asked of them."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from processes import NOFILE

SMALL, BIG = 600, 1 << 20


@dataclass(frozen=True)
class Scenario:
    path: str
    size: int
    conns: int
    close: bool = False
    idle: bool = False
    stretch: int = 1  # times --seconds: many connections take long to set up


SCENARIOS = {
    "small-64": Scenario("/small.html", SMALL, 64),
    "small-1000": Scenario("/small.html", SMALL, 1000),
    "small-10000": Scenario("/small.html", SMALL, 10000, stretch=2),
    "big-64": Scenario("/big.bin", BIG, 64),
    "close-64": Scenario("/small.html", SMALL, 64, close=True),
    "idle-10000": Scenario("/small.html", SMALL, 10000, idle=True),
    "hello": Scenario("/", len("hello"), 64),  # crates/tower/examples/hello.rs
}


@dataclass
class Ctx:
    """What a server's command line and configuration may depend on."""

    port: int
    root: Path
    dir: Path  # scratch, fresh for each start
    size: int
    tls: bool
    cert: Path | None
    key: Path | None

    def conf(self, text: str) -> str:
        path = self.dir / "conf"
        path.write_text(text)
        return str(path)


NGINX = """
user root; worker_processes 1; worker_rlimit_nofile {nofile}; daemon off;
pid {dir}/pid; error_log {dir}/error.log crit;
events {{ worker_connections 15000; {events} }}
http {{
  types {{ text/html html; application/octet-stream bin; }}
  client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
  uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
  {http}
  server {{ listen 127.0.0.1:{port} {listen}; {server} root {root}; }}
}}
"""


def nginx(c: Ctx, events: str, http: str, listen: str, server: str = "") -> list[str]:
    if c.tls:
        listen += " ssl"
        server += f" ssl_certificate {c.cert}; ssl_certificate_key {c.key};"
    return [
        "nginx",
        "-p",
        str(c.dir),
        "-e",
        str(c.dir / "early.log"),
        "-c",
        c.conf(
            NGINX.format(
                nofile=NOFILE,
                dir=c.dir,
                port=c.port,
                root=c.root,
                events=events,
                http=http,
                listen=listen,
                server=server,
            )
        ),
    ]


def nginx_default(c: Ctx) -> list[str]:
    """The distribution's settings: access log on, no file cache, backlog 511."""
    return nginx(c, "", f"sendfile on; tcp_nopush on; access_log {c.dir}/access.log;", "")


NGINX_TUNED = """
  access_log off; tcp_nodelay on; server_tokens off; etag off;
  keepalive_timeout 300; keepalive_requests 1000000000; reset_timedout_connection on;
  open_file_cache max=1000 inactive=300s; open_file_cache_valid 300s; open_file_cache_min_uses 1;
  ssl_session_cache shared:S:10m; ssl_protocols TLSv1.2 TLSv1.3;
"""


def nginx_tuned(c: Ctx) -> list[str]:
    """The best found: small files by read and one write (sendfile costs a second segment), big
    ones by sendfile; connections accepted once their request is there."""
    return nginx(
        c,
        "multi_accept on; use epoll;",
        NGINX_TUNED,
        "backlog=16384 deferred",
        "sendfile off; location = /big.bin { sendfile on; sendfile_max_chunk 0; }",
    )


def nginx_return(c: Ctx) -> list[str]:
    """No file at all: the body sits in the configuration (small scenarios only)."""
    body = f'default_type text/html; location = /small.html {{ return 200 "{"x" * SMALL}"; }}'
    return nginx(c, "multi_accept on; use epoll;", NGINX_TUNED, "backlog=16384 deferred", body)


def lighttpd(c: Ctx) -> list[str]:
    tls = (
        f"""
server.modules = ("mod_openssl")
ssl.engine = "enable"
ssl.pemfile = "{c.cert}"
ssl.privkey = "{c.key}"
"""
        if c.tls
        else ""
    )
    return [
        "lighttpd",
        "-D",
        "-f",
        c.conf(
            f"""{tls}
server.document-root = "{c.root}"
server.bind = "127.0.0.1"
server.port = {c.port}
server.errorlog = "{c.dir}/error.log"
server.max-fds = {NOFILE}
server.max-connections = 15000
server.listen-backlog = 16384
server.defer-accept = 1
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 300
server.feature-flags = ( "server.h2proto" => "disable" )
mimetype.assign = ( ".html" => "text/html", "" => "application/octet-stream" )
"""
        ),
    ]


def apache_event(c: Ctx) -> list[str]:
    mods = "/usr/lib/apache2/modules"
    tls = (
        f"""
LoadModule socache_shmcb_module {mods}/mod_socache_shmcb.so
LoadModule ssl_module {mods}/mod_ssl.so
SSLEngine on
SSLCertificateFile {c.cert}
SSLCertificateKeyFile {c.key}
SSLSessionCache shmcb:{c.dir}/ssl(512000)
"""
        if c.tls
        else ""
    )
    return [
        "apache2",
        "-D",
        "FOREGROUND",
        "-f",
        c.conf(
            f"""
LoadModule mpm_event_module {mods}/mod_mpm_event.so
LoadModule authz_core_module {mods}/mod_authz_core.so
LoadModule mime_module {mods}/mod_mime.so
User www-data
Group www-data
ServerName localhost
ServerRoot {c.dir}
PidFile {c.dir}/pid
ErrorLog {c.dir}/error.log
LogLevel crit
Mutex sem
Listen 127.0.0.1:{c.port}
ListenBacklog 16384
StartServers 1
ServerLimit 1
ThreadsPerChild 64
ThreadLimit 64
MinSpareThreads 64
MaxSpareThreads 64
MaxRequestWorkers 64
AsyncRequestWorkerFactor 250
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 300
EnableSendfile On
EnableMMAP On
TypesConfig /etc/mime.types
DocumentRoot {c.root}
<Directory />
  Options FollowSymLinks
  AllowOverride None
  Require all granted
</Directory>
{tls}
"""
        ),
    ]


def h2o(c: Ctx) -> list[str]:
    ssl = f"  ssl:\n    certificate-file: {c.cert}\n    key-file: {c.key}\n" if c.tls else ""
    return [
        "h2o",
        "-m",
        "worker",
        "-c",
        c.conf(
            f"""user: root
num-threads: 1
num-name-resolution-threads: 1
max-connections: 15000
http1-request-timeout: 300
http1-upgrade-to-http2: OFF
error-log: {c.dir}/error.log
listen:
  host: 127.0.0.1
  port: {c.port}
{ssl}hosts:
  default:
    paths:
      /:
        file.dir: {c.root}
"""
        ),
    ]


def caddy(c: Ctx) -> list[str]:
    tls = f"tls {c.cert} {c.key}" if c.tls else ""
    conf = c.conf(
        f"""{{
  admin off
  auto_https off
  storage file_system {c.dir}
  servers {{
    protocols h1
    timeouts {{
      idle 5m
    }}
  }}
}}
{"https" if c.tls else "http"}://127.0.0.1:{c.port} {{
  bind 127.0.0.1
  {tls}
  root * {c.root}
  file_server
}}
"""
    )
    return [
        "env",
        "GOMAXPROCS=1",
        f"HOME={c.dir}",
        "caddy",
        "run",
        "--adapter",
        "caddyfile",
        "--config",
        conf,
    ]


def sws(c: Ctx) -> list[str]:
    tls = (
        ["--http2", "true", "--http2-tls-cert", str(c.cert), "--http2-tls-key", str(c.key)]
        if c.tls
        else []
    )
    off = ["--compression", "--cache-control-headers", "--security-headers", "--directory-listing"]
    return [
        "static-web-server",
        "-a",
        "127.0.0.1",
        "-p",
        str(c.port),
        "-d",
        str(c.root),
        "-g",
        "error",
        "-n",
        "1",
        *(x for o in off for x in (o, "false")),
        *tls,
    ]


def command(template: str):
    def argv(c: Ctx) -> list[str]:
        fill = {"port": c.port, "root": c.root, "size": c.size, "cert": c.cert, "key": c.key}
        return shlex.split(
            re.sub(r"\{(port|root|size|cert|key)\}", lambda m: str(fill[m[1]]), template)
        )

    return argv


@dataclass
class Server:
    name: str
    argv: object  # Ctx -> list[str]
    program: str  # what has to be installed
    tls: bool = False
    only_small: bool = False


LISTENS = "loadline serve {root} --listen 127.0.0.1:{port} --backlog 16384"


def loadline(name: str, options: str, idle_timeout: str = "300s") -> Server:
    """Limits, timers and counters are on, as they always are; idle time as the peers have it."""
    line = f"{LISTENS} --idle-timeout {idle_timeout} --architecture {options}"
    return Server(name, command(line), "loadline")


def loop(architecture: str, loops: int = 1, more: str = "") -> str:
    return f"{architecture} --loops {loops} --workers 0 {more}"


PEERS = {
    s.name: s
    for s in [
        loadline("reactor", loop("reactor")),
        loadline("proactor", loop("proactor")),
        loadline("reactor-deferred", loop("reactor", more="--defer-accept")),
        loadline("proactor-deferred", loop("proactor", more="--defer-accept")),
        loadline("reactor-2-loops", loop("reactor", 2)),
        loadline("proactor-2-loops", loop("proactor", 2)),
        loadline("thread-per-connection", "thread-per-connection"),
        loadline("thread-pool-64", "thread-pool --threads 64"),
        loadline("thread-pool-1000", "thread-pool --threads 1000"),
        Server("nginx-default", nginx_default, "nginx", tls=True),
        Server("nginx-tuned", nginx_tuned, "nginx", tls=True),
        Server("nginx-return", nginx_return, "nginx", tls=True, only_small=True),
        Server("lighttpd", lighttpd, "lighttpd", tls=True),
        Server("apache-event", apache_event, "apache2", tls=True),
        Server("h2o", h2o, "h2o", tls=True),
        Server("caddy", caddy, "caddy", tls=True),
        Server("sws", sws, "static-web-server", tls=True),
        # The bare ceilings of bench/ceilings: one prebuilt answer, no parsing.
        Server("ceil-epoll-eager", command("ceil-epoll-eager {port} {size}"), "ceil-epoll-eager"),
        Server("ceil-epoll", command("ceil-epoll {port} {size}"), "ceil-epoll"),
        Server("ceil-uring", command("ceil-uring {port} {size}"), "ceil-uring"),
    ]
}


def pick_server(spec: str) -> Server:
    if spec in PEERS:
        return PEERS[spec]
    if spec.startswith("cmd:") and spec.count(":") >= 2:
        _, label, template = spec.split(":", 2)
        return Server(label, command(template), shlex.split(template)[0], tls="{cert}" in template)
    sys.exit(f"unknown server {spec!r}; known: {', '.join(PEERS)}, cmd:LABEL:COMMAND")
