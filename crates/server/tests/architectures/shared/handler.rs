//! A handler made for tests, one for all: the server is compiled for each handler anew.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use loadline_base::OpenFile;
use loadline_proto::{
    Body, Context, Exchange, Fields, Handler, Outcome, Port, RequestBody, Status, Task, TaskOptions,
};

use super::Gate;
use super::app::TestApp;

/// | path | where | what |
/// |---|---|---|
/// | `/hello` | at once | says "hello" |
/// | `/gate`, `/second-gate` | blocking | waits at that gate; the first says "passed" |
/// | `/spin` | at once | computes for 5 ms |
/// | `/blocking` | blocking | says the thread's name |
/// | `/compute` | blocking | the same after 1 ms of CPU time |
/// | `/nap` | blocking | the same after 2 ms |
/// | `/work` | blocking | the same after 10 ms |
/// | `/long-work` | blocking | the same after 500 ms |
/// | `/compute-long` | blocking | the same after 20 ms of CPU time |
/// | `/long-compute` | blocking | the same after 500 ms of CPU time |
/// | `/upload` | blocking | the same, with content that is collected |
/// | `/encoded` | blocking | has its answer encoded first |
/// | `/panic`, `/panic-blocking` | either | panics |
/// | `/lost`, `/lost-blocking` | either | panics, and again in those who have caught that |
/// | `/shared`, `/big` | at once | some MiB from memory |
/// | `/file` | at once | the file it was given |
/// | `/app` | a task | waits until the app is opened, and says "passed" |
/// | `/app-work`, `/app-long-work` | a task | holds its thread for 10 ms, or for 500 ms |
/// | `/app-gate` | a task | holds its thread at the app's gate |
/// | `/apps-begun` | blocking | says how many tasks were begun before |
/// | `/app-content` | a task | says how long the content is |
/// | `/pieces` | a task | produces whenever there is room, in many pieces |
/// | `/pieces-so-far` | blocking | says how many those are |
/// | `/time-slice` | at once | the thread's time slice |
/// | others | at once | the thread's name |
#[derive(Default)]
pub(crate) struct TestHandler {
    pub(crate) gate: Gate,
    pub(crate) second_gate: Gate,
    pub(crate) app: Arc<TestApp>,
    pub(crate) file: Option<Arc<OpenFile>>,
    /// So many threads that a pool adds cannot be started.
    pub(crate) starts_that_panic: AtomicUsize,
    /// Where each thread waits before it serves by this handler.
    pub(crate) local_gate: Option<Gate>,
}

impl TestHandler {
    /// At which requests for this path wait.
    pub(crate) fn gate_of(&self, path: &str) -> &Gate {
        match path {
            "/gate" => &self.gate,
            "/second-gate" => &self.second_gate,
            "/app-gate" => &self.app.gate,
            _ => panic!("{path} has no gate"),
        }
    }
}

/// Panics when what has panicked is dropped: so often that nothing around a request holds it.
struct PanicsAgain(u32);

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        if let Some(less) = self.0.checked_sub(1) {
            panic_any(Self(less));
        }
    }
}

fn lose_the_thread() -> ! {
    panic_any(PanicsAgain(2))
}

pub(crate) const SHARED_BYTES: usize = 4 << 20;
pub(crate) const BIG_BYTES: usize = 8 << 20;
pub(crate) const UPLOAD_BYTES: u64 = 60_000;

static BIG: LazyLock<Arc<[u8]>> = LazyLock::new(|| vec![b'x'; BIG_BYTES].into());

/// Until this thread has used so much CPU time.
fn compute(cpu: Duration) {
    let before = loadline_sys::usage::thread_cpu();
    while loadline_sys::usage::thread_cpu() - before < cpu {
        std::hint::spin_loop();
    }
}

fn thread_name() -> Vec<u8> {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    name.into_bytes()
}

/// Of this thread, in nanoseconds, if the kernel shows it.
pub(crate) fn time_slice() -> Vec<u8> {
    let shown = std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
    let line = shown.lines().find(|line| line.starts_with("se.slice"));
    let slice = line.and_then(|line| line.split_ascii_whitespace().next_back());
    slice.unwrap_or("?").to_owned().into_bytes()
}

fn some(len: usize) -> Body {
    Body::Shared {
        bytes: Arc::clone(&BIG),
        start: 0,
        end: len,
    }
}

impl Handler for TestHandler {
    type Local = ();

    fn local(&self) {
        if let Some(gate) = &self.local_gate {
            gate.pass();
        }
        if thread_name() == b"pool sizes" {
            let left = &self.starts_that_panic;
            let panics = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            assert!(panics.is_err(), "on purpose");
        }
    }

    fn handle(&self, _: &mut (), exchange: &mut Exchange, turn: &mut Context<'_>) -> Outcome {
        exchange.response.body = match exchange.request.path() {
            b"/gate" | b"/second-gate" | b"/panic-blocking" | b"/lost-blocking" | b"/blocking"
            | b"/nap" | b"/work" | b"/long-work" | b"/compute" | b"/compute-long"
            | b"/long-compute" | b"/pieces-so-far" | b"/apps-begun" => {
                return Outcome::Blocking;
            }
            b"/app" | b"/app-work" | b"/app-long-work" | b"/app-gate" | b"/app-content"
            | b"/pieces" => {
                return Outcome::Later(TaskOptions::default());
            }
            b"/upload" => {
                return match exchange.request.body {
                    RequestBody::Pending { .. } => Outcome::Collect {
                        bytes_max: UPLOAD_BYTES,
                    },
                    _ => Outcome::Blocking,
                };
            }
            b"/encoded" => {
                let fields = Fields::default().with("X-Encoded", "1");
                exchange.answer_as_data = true;
                exchange.answer_borrowed(Status::OK, &fields, b"encoded", turn);
                return Outcome::Blocking;
            }
            b"/panic" => panic!("on purpose"),
            b"/lost" => lose_the_thread(),
            b"/spin" => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(5) {
                    std::hint::spin_loop();
                }
                Body::Bytes(thread_name())
            }
            b"/shared" => some(SHARED_BYTES),
            b"/big" => some(BIG_BYTES),
            b"/file" => {
                let file = Arc::clone(self.file.as_ref().unwrap());
                let len = file.version.size;
                Body::File {
                    file,
                    offset: 0,
                    len,
                }
            }
            b"/hello" => Body::Bytes(b"hello".to_vec()),
            b"/time-slice" => Body::Bytes(time_slice()),
            _ => Body::Bytes(thread_name()),
        };
        Outcome::Ready
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        let mut text = thread_name();
        match exchange.request.path() {
            b"/panic-blocking" => panic!("on purpose"),
            b"/lost-blocking" => lose_the_thread(),
            b"/gate" => {
                self.gate.pass();
                text = b"passed".to_vec();
            }
            b"/second-gate" => self.second_gate.pass(),
            b"/pieces-so-far" => text = self.app.pieces.load(SeqCst).to_string().into_bytes(),
            b"/apps-begun" => text = self.app.begun.load(SeqCst).to_string().into_bytes(),
            b"/nap" => std::thread::sleep(Duration::from_millis(2)),
            b"/work" | b"/upload" => std::thread::sleep(Duration::from_millis(10)),
            b"/long-work" => std::thread::sleep(Duration::from_millis(500)),
            b"/compute" => compute(Duration::from_millis(1)),
            b"/compute-long" => compute(Duration::from_millis(20)),
            b"/long-compute" => compute(Duration::from_millis(500)),
            b"/encoded" => {
                self.gate.pass();
                return;
            }
            _ => {}
        }
        exchange.response.body = Body::Bytes(text);
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let app = Arc::clone(&self.app);
        app.begun.fetch_add(1, SeqCst);
        Box::pin(async move {
            let path = exchange.request.path().to_vec();
            match &path[..] {
                b"/app-work" => TestApp::work(exchange, &port, Duration::from_millis(10)),
                b"/app-long-work" => TestApp::work(exchange, &port, Duration::from_millis(500)),
                b"/app-gate" => {
                    app.gate.pass();
                    TestApp::work(exchange, &port, Duration::ZERO);
                }
                b"/app-content" => TestApp::count(exchange, port).await,
                b"/pieces" => app.produce(exchange, port).await,
                _ => app.pass(exchange, port).await,
            }
        })
    }
}
