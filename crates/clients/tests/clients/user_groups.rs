//! Plans with one user group, run on a thread until the test stops them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use loadline_clients::{RequestSpec, UserGroup};
use loadline_load::{Control, Expectation, Message, Phase, Plan, Prepared, Share, ThreadReport};
use loadline_proto::Method;
use loadline_record::Tally;
use loadline_sys::clock::monotonic_ns;

/// Longer than any test takes: what ends a test is what it waits for.
pub(crate) const AGES: Duration = Duration::from_secs(60);

pub(crate) fn spec(method: Method, text: &str) -> RequestSpec {
    RequestSpec {
        request: Prepared {
            keep: Arc::from(text.as_bytes()),
            last: Arc::from(text.as_bytes()),
            method,
            expectation: 0,
            server: 0,
        },
        expectation: Expectation::default(),
        timeout_ns: AGES.as_nanos() as u64,
    }
}

pub(crate) fn get() -> RequestSpec {
    spec(Method::Get, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
}

/// What is run: a plan without plain clients, and user groups.
pub(crate) struct TestPlan {
    pub(crate) plan: Plan,
    pub(crate) user_groups: Vec<UserGroup>,
}

pub(crate) fn plan(server: SocketAddr, user_group: UserGroup, duration: Duration) -> TestPlan {
    let phase = Phase {
        label: "all".to_owned(),
        end_ns: duration.as_nanos() as u64,
        counted: true,
        ..Phase::default()
    };
    let groups = ["clients", "users"].map(str::to_owned);
    let plan = Plan {
        connections: 0,
        timeout_ns: AGES.as_nanos() as u64,
        groups: groups.to_vec(),
        ..Plan::new(server, get().request, vec![phase])
    };
    TestPlan {
        plan,
        user_groups: vec![user_group],
    }
}

/// A run on a thread of its own.
pub(crate) struct TestRun {
    control: Arc<Control>,
    messages: Receiver<Message>,
    thread: JoinHandle<()>,
    /// Connections that were open before the start.
    pub(crate) ready: u64,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) report: ThreadReport,
}

impl TestRun {
    /// Runs the plan, from the start on.
    pub(crate) fn begin(planned: TestPlan) -> Self {
        let control = Arc::new(Control::new());
        let (notify, messages) = channel();
        let looked_at = Arc::clone(&control);
        let thread = thread::spawn(move || {
            let mut out = |message| notify.send(message).unwrap();
            loadline_clients::run(
                &planned.plan,
                &planned.user_groups,
                Share::WHOLE,
                &looked_at,
                &mut out,
            )
            .unwrap();
        });
        let ready = match messages.recv().unwrap() {
            Message::Ready { connections, .. } => connections,
            other => panic!("{other:?}"),
        };
        control.start_at(monotonic_ns());
        Self {
            control,
            messages,
            thread,
            ready,
        }
    }

    /// Asks it to end, and waits.
    pub(crate) fn stop(self) -> Outcome {
        self.control.stop();
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(self) -> Outcome {
        let (mut tally, mut report) = (Tally::default(), None);
        for message in &self.messages {
            match message {
                Message::Interval(interval) => {
                    assert_eq!(interval.group, 1);
                    tally.merge(&interval.tally);
                }
                Message::Finished(finished) => report = Some(*finished),
                other @ (Message::Ready { .. } | Message::Steps(_)) => panic!("{other:?}"),
            }
        }
        self.thread.join().unwrap();
        Outcome {
            tally,
            report: report.unwrap(),
        }
    }
}
