//! Where a connection stands.

/// What a session is waiting for, or has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Between requests; nothing of the next one has come.
    Idle,
    /// Part of a head has come.
    Head,
    /// A request waits for `Run`.
    RunDue,
    /// The handler has the exchange.
    Running,
    /// The request waits for its blocking step.
    BlockDue,
    /// The blocking step has the exchange.
    Blocking,
    /// The blocking step is done; what has arrived behind it is to be received before it is answered.
    AnswerDue,
    /// The request waits for an app's task to be started.
    StartDue,
    /// An app's task has it: content streams in both directions.
    Streaming,
    /// The app's task is to be dropped; `close`: the connection too, else it ends with its output.
    CancelDue {
        close: bool,
    },
    /// Content is gathered: for the handler, or before an app's task is started.
    Collecting {
        for_task: bool,
    },
    /// Answered; content that was not asked for is read and thrown away.
    Discarding,
    /// The last answer is out; `linger`: input may still come.
    Ending {
        linger: bool,
    },
    /// Half-closed, reading what still comes so that the client can read the answer.
    Lingering,
    Closed,
}

/// What the socket holds that was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// What its transport knows of.
    AsReported,
    /// Maybe more: a response took time, and nobody has asked the socket since.
    Unknown,
    /// Nothing, as of the last `ReceivePending`.
    Nothing,
}
