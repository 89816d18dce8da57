//! As `src/site.rs` of the server. A panic is not caught: it is the checker's.

use std::task::{Context, Poll};

use loadline_proto::Task;

pub(crate) fn poll_guarded(task: &mut Task, context: &mut Context<'_>) -> Poll<()> {
    task.as_mut().poll(context)
}

pub(crate) fn drop_guarded(task: Option<Task>) {
    drop(task);
}
