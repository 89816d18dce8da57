//! As the `worker` room of the server: what is checked of it, and what that needs of the rest.

#[path = "../../crates/server/src/worker/job_queue.rs"]
pub(crate) mod job_queue;
#[path = "../../crates/server/src/worker/mailbox.rs"]
pub(crate) mod mailbox;
#[path = "../../crates/server/src/worker/peaks.rs"]
mod peaks;
#[path = "../../crates/server/src/worker/queue_ends.rs"]
mod queue_ends;

pub(crate) mod job {
    use loadline_base::Token;
    use loadline_proto::StreamId;

    #[derive(Debug)]
    pub(crate) enum Message {
        Task {
            token: Token,
            stream: StreamId,
        },
        /// A task is over.
        Done,
    }
}
