//! The laboratory: plans of many trials, run in random order, recorded and analysed.
//!
//! It knows servers by their command line and by HTTP only, so it can measure any server. All
//! decisions are pure (which trials, which rate next, what the figures mean); one module acts.
//!
//! ```text
//!   plan ── expands to cells ── runner: server and client as processes, trial after trial
//!                                  │
//!                                  ▼
//!                               journal (JSON lines, one HDR file a trial)
//!                                  │
//!            analysis, report, verify, advice: read the journal, and nothing else
//! ```
#![forbid(unsafe_code)]

pub mod advice;
pub mod analysis;
pub mod capacity;
pub mod cells;
pub mod decide;
pub mod expand;
pub mod file_error;
pub mod folded;
pub mod goals;
pub mod journal;
pub mod link;
pub mod observer;
pub mod plan;
pub mod progress;
pub mod report;
pub mod runner;
pub mod slo;
pub mod unmatched;
pub mod verify;
