//! An axum app that works for each request, behind one of tower's limits: beside Loadline in
//! `lab/overload.toml`. Or the same app served by Loadline (`--served-by`), without such a limit.
//!
//! ```text
//! hyper ── load shed (503) ── limit ── semaphore of --workers ── work on a thread ── content
//! ```
//!
//! The semaphore is the capacity, the same in each case: so many requests work at a time, the others wait
//! in its queue, first come first served. A request whose client has left leaves the queue. The limit
//! decides how many may wait.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{BoxError, Router};
use clap::{Parser, ValueEnum};
use loadline_observe::StartWithPages;
use loadline_server::{Architecture, Server, ServerOptions};
use loadline_tower::Tower;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower_acc::{ConcurrencyLimitLayer, Gradient2, Vegas};

#[derive(Parser)]
struct Flags {
    /// IP:PORT or unix:PATH.
    #[arg(long)]
    listen: String,
    /// The content of each response.
    #[arg(long)]
    content: PathBuf,
    /// What serves it.
    #[arg(long, value_enum, default_value = "axum")]
    served_by: ServedBy,
    /// With the status page at /-/status, if Loadline serves it.
    #[arg(long)]
    pages: bool,
    /// What bounds the requests that are in the app.
    #[arg(long, value_enum, default_value = "none")]
    limit: Limit,
    /// That bound, of `fixed`.
    #[arg(long, default_value_t = 200)]
    limit_max: usize,
    /// How a request passes its time.
    #[arg(long, value_enum, default_value = "sleep")]
    kind: Kind,
    /// How long a request works: 10ms or 200us.
    #[arg(long, default_value = "10ms", value_parser = time)]
    work: Duration,
    /// Requests that work at a time.
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum ServedBy {
    /// `axum::serve`.
    Axum,
    /// Loadline with its latency goal: one loop, two workers.
    Reactor,
    /// The loop polls the app.
    ReactorWorkers0,
    Proactor,
    ThreadPool,
    ThreadPerConnection,
}

impl ServedBy {
    /// Of Loadline.
    fn options(self) -> Option<ServerOptions> {
        let (architecture, workers) = match self {
            Self::Axum => return None,
            Self::Reactor => (Architecture::Reactor, 2),
            Self::ReactorWorkers0 => (Architecture::Reactor, 0),
            Self::Proactor => (Architecture::Proactor, 2),
            Self::ThreadPool => (Architecture::ThreadPool, 0),
            Self::ThreadPerConnection => (Architecture::ThreadPerConnection, 0),
        };
        Some(ServerOptions {
            architecture,
            workers,
            loops: 1,
            threads: 2,
            connections_max: 12_000,
            ..ServerOptions::default()
        })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Limit {
    /// Nothing: all wait.
    None,
    /// tower's `LoadShed` over its `ConcurrencyLimit`.
    Fixed,
    /// tower's `LoadShed` over tower-acc's `Vegas`, with its defaults.
    Vegas,
    /// tower's `LoadShed` over tower-acc's `Gradient2`, with its defaults.
    Gradient2,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Asleep.
    Sleep,
    /// Computing, as CPU time.
    Spin,
}

struct App {
    content: Vec<u8>,
    capacity: Semaphore,
    kind: Kind,
    work: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let app = Arc::new(App {
        content: std::fs::read(&flags.content)?,
        capacity: Semaphore::new(flags.workers),
        kind: flags.kind,
        work: flags.work,
    });
    let router = limited(&flags, Router::new().route("/{*path}", get(answer))).with_state(app);
    if let Some(options) = flags.served_by.options() {
        let server = Server::new(Tower::new(router)?).options(options);
        let address: SocketAddr = flags.listen.parse()?;
        let server = server.listen(address);
        let server = match flags.pages {
            true => server.start_with_pages()?,
            false => server.start()?,
        };
        server.wait()?;
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(flags.workers)
        .enable_all()
        .build()?;
    runtime.block_on(serve(&flags.listen, router))
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("us") {
        Some(number) => (number, Duration::from_micros(1)),
        None => (text.trim_end_matches("ms"), Duration::from_millis(1)),
    };
    let number: u32 = number
        .parse()
        .map_err(|_| "not a time; right would be 10ms or 200us".to_owned())?;
    Ok(unit * number)
}

async fn serve(listen: &str, router: Router) -> Result<(), Box<dyn Error>> {
    match listen.strip_prefix("unix:") {
        Some(path) => axum::serve(UnixListener::bind(path)?, router).await?,
        None => {
            // The queue of connections is as long as the kernel allows, as those of the others.
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(listen.parse()?)?;
            let listener: TcpListener = socket.listen(16_384)?;
            axum::serve(listener, router).await?;
        }
    }
    Ok(())
}

fn limited(flags: &Flags, router: Router<Arc<App>>) -> Router<Arc<App>> {
    let shed = || {
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(overloaded))
            .load_shed()
    };
    match flags.limit {
        Limit::None => router,
        Limit::Fixed => router.layer(shed().concurrency_limit(flags.limit_max)),
        Limit::Vegas => router.layer(shed().layer(ConcurrencyLimitLayer::new(Vegas::default()))),
        Limit::Gradient2 => {
            router.layer(shed().layer(ConcurrencyLimitLayer::new(Gradient2::default())))
        }
    }
}

async fn overloaded(_: BoxError) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

async fn answer(State(app): State<Arc<App>>) -> Result<Vec<u8>, StatusCode> {
    let permit = app.capacity.acquire().await;
    let _permit = permit.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let (kind, work) = (app.kind, app.work);
    let worked = tokio::task::spawn_blocking(move || kind.pass(work)).await;
    worked.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(app.content.clone())
}

impl Kind {
    fn pass(self, work: Duration) {
        match self {
            Self::Sleep => std::thread::sleep(work),
            Self::Spin => {
                let begin = cpu_time();
                while cpu_time().saturating_sub(begin) < work {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// Of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
