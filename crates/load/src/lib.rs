//! The load generator: plans requests in time, sends them, measures, and says when the measurement
//! itself is not to be trusted.
//!
//! ```text
//!   Plan ──► load_threads (and processes)            one Plan for all, a Share for each
//!              │
//!              ├─ engine   the plain clients: one epoll loop a thread, closed or open loop
//!              └─ one thread more, if the program adds one (clients with behaviour)
//!              │
//!              ▼  Message, once a second
//!            trial: merged, judged (client-limited? Little's law?)  ──► TrialRecord ──► report
//! ```
//!
//! What decides is pure: `pacer` (when is the next request due), `mix` (which one). What acts is thin:
//! `engine`.
#![forbid(unsafe_code)]

pub mod calendar;
pub mod client_loop;
pub mod control;
pub mod engine;
pub mod http2;
pub mod judge;
pub mod load_threads;
pub mod message;
pub mod meter;
pub mod mix;
pub mod pacer;
pub mod plan;
pub mod recorder;
pub mod replay;
pub mod requests;
pub mod run;
pub mod schedule;
pub mod secure_link;
pub mod seed;
pub mod share;
pub mod trial;
pub mod watch;
pub mod wire;

pub use control::Control;
pub use http2::{Http2Plan, Http2Request};
pub use loadline_spec::load::values::Overflow;
pub use message::{Interval, Message, ThreadReport};
pub use mix::{Expectation, Mix, MixOrder, Prepared};
pub use plan::{Loop, Plan, Retries};
pub use recorder::{GroupRecorder, Recorder};
pub use schedule::{Arrivals, Phase, Schedule, Segment};
pub use share::Share;
