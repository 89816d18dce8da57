//! The load generator: it plans requests in time, sends them, measures, and says when its own
//! measurement cannot be trusted.
//!
//! ```text
//!   Plan ──► fleet: threads (and processes)          one Plan for all, a Share for each
//!              │
//!              ├─ engine   the plain clients: one epoll loop a thread, closed or open loop
//!              └─ actors   clients with behaviour: scenarios, players, slow and hostile ones
//!              │
//!              ▼  Message, once a second
//!            trial: merged, judged (client-limited? Little's law?)  ──► TrialRecord ──► report
//! ```
//!
//! What decides is pure: `pacer` (when is the next request due), the actors (what does this client
//! do next), `verdict`. What acts is thin: `engine` and `actors::stage`.
#![forbid(unsafe_code)]

pub mod actors;
mod client_loop;
pub mod control;
pub mod engine;
pub mod fleet;
mod judge;
pub mod message;
pub mod mix;
pub mod pacer;
pub mod plan;
pub mod player;
pub mod recorder;
pub mod replay;
pub mod requests;
pub mod scenario;
pub mod schedule;
pub mod seed;
pub mod share;
pub mod trial;
pub mod watch;
pub mod wire;

pub use control::Control;
pub use message::{Interval, Message, ThreadReport};
pub use mix::{Expectation, Mix, MixOrder, Prepared};
pub use plan::{Loop, Overflow, Plan};
pub use recorder::{GroupRecorder, Recorder};
pub use schedule::{Arrivals, Phase, Schedule, Segment};
pub use share::Share;
