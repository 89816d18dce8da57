//! The parts that are checked, and what they need of those that are not.

#[path = "../../crates/server/src/parts/job_queue.rs"]
pub(crate) mod job_queue;
#[path = "../../crates/server/src/parts/mailbox.rs"]
pub(crate) mod mailbox;

pub(crate) mod counters {
    use loadline_base::Counter;

    #[derive(Debug, Default)]
    pub(crate) struct Row {
        pub(crate) app_requests: Counter,
        pub(crate) app_requests_in_progress: Counter,
    }
}

pub(crate) mod workers {
    use loadline_base::Token;
    use loadline_proto::StreamId;

    #[derive(Debug)]
    pub(crate) enum Message {
        Task {
            token: Token,
            stream: StreamId,
        },
        /// A worker has carried a task out.
        Done,
    }
}
