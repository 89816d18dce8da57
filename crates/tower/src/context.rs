//! The runtime that tasks are polled within, though it does not run them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads of `spawn_blocking` and of tokio's files at once. 64: an app that wants more should say
/// so with a runtime of its own.
const BLOCKING_THREADS_MAX: usize = 64;

/// The one runtime of this process for apps: one thread, for timers, sockets and what apps spawn.
/// Started at the first call, and there until the process ends.
///
/// # Errors
/// No thread or no descriptor is to be had.
pub fn runtime() -> io::Result<Handle> {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    let new = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("app runtime")
        .enable_all()
        .build()?;
    let handle = new.handle().clone();
    *runtime = Some(new);
    Ok(handle)
}

pin_project! {
    /// A future that is polled, and dropped, within the context of a runtime.
    pub(crate) struct Within<F> {
        runtime: Handle,
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for Within<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                let _guard = this.runtime.enter();
                this.future.set(None);
            }
        }
    }
}

impl<F> Within<F> {
    pub(crate) fn new(runtime: Handle, future: F) -> Self {
        Self {
            runtime,
            future: Some(future),
        }
    }
}

impl<F: Future<Output = ()>> Future for Within<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let _guard = this.runtime.enter();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            return Poll::Ready(());
        };
        let polled = future.poll(context);
        if polled.is_ready() {
            this.future.set(None); // while the context is there
        }
        polled
    }
}
