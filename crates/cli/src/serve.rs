//! `loadline serve`: checks what it is given, puts handler and server together, and waits.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadline_apps::{
    CacheLimits, HttpsPort, Mounts, ServiceKind, ServiceTime, StaticFiles, StaticOptions,
};
use loadline_observe::{Figure, Pages, STATUS_PATH, Section, Status};
use loadline_proto::{ErrorPages, Protocol, SessionConfig};
use loadline_serve::{Content, Site, serve_pages};
use loadline_server::{
    ListenAddr, ListenError, ListenerConfig, MemoryBudget, OptionError, ServerConfig, ServerHandle,
};
use loadline_spec::serve::{Listen, LogLevel, RunningSpec, WorkSpec};
use loadline_tls::{Reload, TlsServer};

use crate::accounts::{self, Mounted};
use crate::acme;
use crate::admin::Admin;
use crate::diagnostics;
use crate::failure::{Exit, Failure};
use crate::flags::high::{Machine, Plan};
use crate::logs::{LogEnds, Logs};
use crate::secrets;
use crate::signals::{self, Times};
use crate::start_up;
use crate::tls::{self, Tls};

/// Serves until a signal ends it.
pub(crate) fn serve(plan: &Plan, machine: &Machine) -> Result<(), Failure> {
    let running = &plan.flags.running;
    diagnostics::start(level(running.log_level.0.0))
        .map_err(|error| Failure::failed(format!("diagnostics: {error}")))?;
    let root = directory("DIR", &plan.flags.root)?;
    secrets::refuse_served(&plan.flags, &root)?;
    let memory = MemoryBudget::new(plan.memory_bytes_max);
    memory.reserve(plan.cache_bytes_max);
    let files = static_files(plan, &root, &memory)?;
    let error_pages = error_pages(plan.flags.content.error_pages.as_deref())?;
    let (logs, log_ends) = Logs::open(running)?;
    let tls = Tls::open(plan)?;
    let accounts = Mounted::open(plan, &root)?;
    let status = Status::new(sections(&logs, &files, accounts.as_ref(), tls.as_ref()));
    let (front, admin) = pages(running, &root, &status, tls.as_ref())?;
    let caught = signals::catch().map_err(Failure::signals)?;
    let log_format = running.log_format.map(|format| format.0);
    let listeners = listeners(plan, error_pages, tls.as_ref());
    let https_port = plan.flags.tls.https_redirect.then(|| https_port(plan));
    let config = ServerConfig {
        options: plan.options.clone(),
        memory: Some(memory),
        unix_mode: running.unix_mode.map(|mode| mode.0),
        access_log: logs.access_logging(log_format),
        connection_log: logs.connection_logging(log_format),
    };
    let site = Site {
        mounts: mounts(files, &plan.flags.work, front, accounts.as_ref()),
        https_port: https_port.clone(),
        tokens: tls.as_ref().and_then(Tls::tokens),
    };
    let handle = site
        .serve(listeners, config)
        .map_err(|error| refused("--listen", &error))?;
    status.attach(&handle);
    if let (Some(port), Some(address)) = (&https_port, https_address(plan, &handle)) {
        port.set(address.port());
    }
    let reload = tls.as_ref().map(Tls::look_after).transpose();
    let reload = reload.map_err(|error| Failure::failed(format!("certificates: {error}")))?;
    let times = Times {
        delay: **running.drain_delay,
        grace: plan.options.grace,
    };
    caught
        .obey(handle.control(), times, move || {
            logs.reopen();
            reload.iter().for_each(Reload::now);
        })
        .map_err(Failure::signals)?;
    let mut lines = start_up::text(plan, machine, &root, handle.addresses());
    lines += tls.as_ref().map_or("", Tls::text);
    lines += accounts.as_ref().map_or("", Mounted::text);
    if let Some(admin) = &admin {
        let path = status_path(running).unwrap_or(STATUS_PATH);
        lines += &start_up::admin_text(running, admin.addresses(), path);
    }
    start_up::announce(&lines, release_memory, diagnostics::print);
    let admin = admin.map(|admin| Admin::watch(admin, handle.control()));
    let admin = admin
        .transpose()
        .map_err(|error| Failure::failed(format!("admin: {error}")))?;
    let result = wait(handle, log_ends, accounts.as_ref());
    admin.map_or(Ok(()), Admin::end).and(result)
}

/// Gives back what only starting up needs.
fn release_memory() {
    loadline_sys::memory::release_free_memory();
    loadline_sys::memory::release_program_pages();
}

/// What the status page shows beside the server's own counts.
fn sections(
    logs: &Logs,
    files: &Arc<StaticFiles>,
    accounts: Option<&Mounted>,
    tls: Option<&Tls>,
) -> Vec<Section> {
    let (files, accounts) = (Arc::clone(files), accounts.cloned());
    vec![
        Tls::section(tls),
        acme::section(tls.and_then(Tls::report)),
        Section::of_log("access_log", logs.access.clone()),
        Section::of_log("connection_log", logs.connections.clone()),
        Section::of_log("diagnostics", diagnostics::log().cloned()),
        Section::new("accounts", move || {
            let counters = accounts.as_ref()?.counters().named();
            let figures = counters.map(|(name, value)| Figure::new(name, value));
            Some(figures.into())
        })
        .live_sizes(&[
            ("pool_size", "database pool"),
            ("pool_size_min", "database pool at least"),
            ("pool_size_max", "database pool at most"),
        ]),
        Section::new("cache", move || {
            let cache = files.cache_use();
            Some(vec![
                Figure::gauge("entries", cache.entries as u64),
                Figure::gauge("misses", cache.misses as u64),
                Figure::gauge("weight_bytes", cache.weight),
            ])
        }),
    ]
}

fn status_path(running: &RunningSpec) -> Option<&str> {
    running.status_path.as_ref().map(|path| path.0.as_str())
}

/// The server's own pages in front of the files, or at a listener of their own. Says so if they hide a
/// file.
fn pages(
    running: &RunningSpec,
    root: &Path,
    status: &Arc<Status>,
    tls: Option<&Tls>,
) -> Result<(Option<Pages>, Option<ServerHandle>), Failure> {
    let path = status_path(running);
    if !running.admin_listen.is_empty() {
        let pages = Pages::new(Some(path.unwrap_or(STATUS_PATH)), status);
        let unix_mode = running.unix_mode.map(|mode| mode.0);
        let protocol = |listen: &Listen| protocol(listen, tls.and_then(|tls| tls.admin.as_ref()));
        let addresses = running.admin_listen.iter();
        let addresses = addresses.map(|listen| (address(listen), protocol(listen)));
        let admin = serve_pages(pages, addresses.collect(), unix_mode);
        let admin = admin.map_err(|error| refused("--admin-listen", &error))?;
        return Ok((None, Some(admin)));
    }
    let pages = Pages::new(path, status);
    for path in pages.paths() {
        if root.join(path.trim_start_matches('/')).exists() {
            tracing::warn!(
                "{path} is a page of the server's own, not the file of that name; --status-path with \
                 another folder moves these pages"
            );
        }
    }
    Ok((Some(pages), None))
}

/// The files, what they take, and what stands in front of them.
fn mounts(
    files: Arc<StaticFiles>,
    work: &WorkSpec,
    front: Option<Pages>,
    accounts: Option<&Mounted>,
) -> Mounts<Content> {
    let content = match work.service_time {
        None => Content::Files(files),
        Some(time) => {
            let kind = work.service_kind.map_or(ServiceKind::Sleep, |kind| kind.0);
            Content::SlowFiles(ServiceTime::new(files, *time, kind))
        }
    };
    let mounts = match front {
        Some(pages) => pages.in_front_of(content),
        None => Mounts::new(content),
    };
    match accounts {
        Some(app) => mounts.mount(accounts::BASE, app.handler()),
        None => mounts,
    }
}

/// Addresses, and what is spoken there.
fn listeners(plan: &Plan, error_pages: ErrorPages, tls: Option<&Tls>) -> Vec<ListenerConfig> {
    let session = Arc::new(SessionConfig {
        limits: plan.limits.clone(),
        keep_alive: plan.flags.connections.keep_alive.0,
        http2: plan.flags.requests.http2.map(|it| it.0).unwrap_or_default(),
        error_pages,
        trusted_proxies: plan.trusted_proxies.clone(),
        ..SessionConfig::default()
    });
    let listener = |listen: &Listen| ListenerConfig {
        address: address(listen),
        session: Arc::clone(&session),
        protocol: protocol(listen, tls.map(|tls| &tls.server)),
    };
    plan.flags.listen.iter().map(listener).collect()
}

/// What is spoken at an address.
fn protocol(listen: &Listen, tls: Option<&TlsServer>) -> Protocol {
    match tls.filter(|_| tls::https(listen).is_some()) {
        Some(tls) => tls.protocol(),
        None => Protocol::Http,
    }
}

/// The port that http is to lead to, known before anybody connects unless the kernel chooses it.
fn https_port(plan: &Plan) -> HttpsPort {
    let port = HttpsPort::default();
    let first = plan.flags.listen.iter().find_map(tls::https);
    port.set(first.map_or(0, |address| address.port()));
    port
}

/// The first address that speaks TLS, as it was bound.
fn https_address(plan: &Plan, handle: &ServerHandle) -> Option<SocketAddr> {
    let mut all = plan.flags.listen.iter().zip(handle.addresses());
    all.find_map(|(listen, bound)| match bound {
        ListenAddr::Tcp(bound) if tls::https(listen).is_some() => Some(*bound),
        _ => None,
    })
}

/// Waits for the end and says how it was.
fn wait(
    handle: ServerHandle,
    log_ends: LogEnds,
    accounts: Option<&Mounted>,
) -> Result<(), Failure> {
    let control = handle.control();
    let ending = handle.wait();
    signals::served(); // what is left to do is bounded by itself
    if let Some(accounts) = accounts {
        accounts.close();
    }
    let total = control.snapshot().total;
    log_ends.finish();
    let ending = ending.map_err(|error| Failure::failed(format!("the server failed: {error}")))?;
    if ending.is_clean() {
        tracing::info!("ended: {} requests answered, none cut", total.requests());
        return Ok(());
    }
    let why = match ending.connections_cut {
        1 => "ended: 1 connection was cut".to_owned(),
        count => format!("ended: {count} connections were cut"),
    };
    Err(Failure::new(Exit::Cut, why))
}

/// Why the server did not start, in the words of the command line. `option` has its addresses.
fn refused(option: &str, error: &io::Error) -> Failure {
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<OptionError>()) {
        return Failure::usage(error);
    }
    let Some(ListenError { address, reason }) = inner.and_then(|inner| inner.downcast_ref()) else {
        return Failure::failed(format!("the server cannot start: {error}"));
    };
    let why: &str = match (reason.kind(), address) {
        (io::ErrorKind::AddrInUse, ListenAddr::Tcp(_)) => {
            "already in use; stop the other program, or take another (port 0 takes a free one)"
        }
        (io::ErrorKind::AddrInUse, ListenAddr::Unix(_)) => {
            "already there, and in use or not a socket; stop the other program, or take another path"
        }
        (io::ErrorKind::PermissionDenied, ListenAddr::Tcp(tcp)) => &format!(
            "no permission for port {}; ports from 1024 on need none, below it run as root or grant \
             CAP_NET_BIND_SERVICE",
            tcp.port()
        ),
        (io::ErrorKind::PermissionDenied, ListenAddr::Unix(_)) => {
            "no permission to create this file"
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this machine does not have this address; 127.0.0.1 and 0.0.0.0 always exist"
        }
        (io::ErrorKind::NotFound, _) => "no such directory for the socket's file",
        _ => &reason.to_string(),
    };
    Failure::new(Exit::BindOrAssert, format!("{option} {address}: {why}"))
}

/// A directory that can be entered and read, with its full path.
fn directory(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let refuse = |why: &str| Failure::usage(format!("{option} {shown}: {why}"));
    let full = path.canonicalize().and_then(|full| {
        fs::read_dir(&full)?;
        Ok(full)
    });
    full.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            refuse("no such directory; right would be an existing one, or none for the current one")
        }
        io::ErrorKind::NotADirectory => refuse("not a directory; right would be the one it is in"),
        io::ErrorKind::PermissionDenied => {
            refuse("no permission to read it; right would be one that this user can read")
        }
        _ => refuse(&error.to_string()),
    })
}

/// The names of the levels are the same.
fn level(level: LogLevel) -> tracing::Level {
    level.name().parse().unwrap_or(tracing::Level::INFO)
}

fn address(listen: &Listen) -> ListenAddr {
    match listen {
        Listen::Tcp(address) | Listen::Https(address) => ListenAddr::Tcp(*address),
        Listen::Unix(path) => ListenAddr::Unix(path.clone()),
    }
}

/// The handler of files.
fn static_files(
    plan: &Plan,
    root: &Path,
    memory: &Arc<MemoryBudget>,
) -> Result<Arc<StaticFiles>, Failure> {
    let content = &plan.flags.content;
    let defaults = StaticOptions::default();
    let options = StaticOptions {
        index: match content.index.is_empty() {
            true => defaults.index,
            false => content.index.iter().map(|name| name.0.clone()).collect(),
        },
        listing: content.listing,
        spa_fallback: content.spa.clone(),
        follow_symlinks: content.follow_symlinks,
        hidden: content.hidden,
        precompressed: content.precompressed.0,
        compress: content.compress.0 && !plan.options.blocks_on_loops(),
        media_types: plan.media_types.clone(),
        cache_control: plan.cache_control.clone(),
        inline_bytes_max: plan.limits.inline_body_bytes_max,
        memory: Some(Arc::clone(memory)),
        cache: CacheLimits {
            bytes_max: usize::try_from(plan.cache_bytes_max).unwrap_or(usize::MAX),
            entries_max: content.cache_entries.get(),
            open_files_max: plan.open_files_max,
            ..defaults.cache
        },
        ..defaults
    };
    // As it was given: a link in it is followed again when it leads elsewhere.
    let files = StaticFiles::new(&plan.flags.root, options)
        .map_err(|error| Failure::usage(format!("DIR {}: {error}", root.display())))?;
    if let (Some(page), Err(status)) = (&content.spa, files.check_fallback()) {
        let why = match status == loadline_proto::Status::NOT_FOUND {
            true => "no such file in",
            false => "hidden, not to be read, or not within",
        };
        return Err(Failure::usage(format!(
            "--spa {page}: {why} {}; right would be a page there, such as index.html",
            root.display()
        )));
    }
    Ok(Arc::new(files))
}

/// The built-in pages, or those of a directory in their place.
fn error_pages(folder: Option<&Path>) -> Result<ErrorPages, Failure> {
    let mut pages = loadline_apps::error_pages();
    let Some(folder) = folder else {
        return Ok(pages);
    };
    let refuse = |what: &str| Failure::usage(format!("--error-pages {}: {what}", folder.display()));
    let full = directory("--error-pages", folder)?;
    let mut count = 0;
    let errors = loadline_proto::Status::ALL
        .iter()
        .filter(|status| status.is_error());
    for status in errors {
        let path = full.join(format!("{}.html", status.code()));
        match fs::read(&path) {
            Ok(page) => {
                pages.set(*status, "text/html; charset=utf-8", page);
                count += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refuse(&format!("{}: {error}", path.display()))),
        }
    }
    match count {
        0 => Err(refuse(
            "no page in it; right would be files such as 404.html",
        )),
        _ => Ok(pages),
    }
}
