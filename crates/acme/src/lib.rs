//! Automatic certificates: an authority is asked for them by ACME (RFC 8555), and they are renewed in time.
//!
//! ```text
//!   Schedule ── Step ──► Automatic ── questions ──► Authority ── requests ──► the authority
//!   (pure)   ◄─ events ─    │                       (instant-acme)  (https)
//!                           ├─ Certificates   what is served, and TLS-ALPN-01
//!                           ├─ Tokens         HTTP-01
//!                           └─ StateDir       what a restart needs
//! ```
//!
//! One thread, apart from those that serve: it may wait for an authority, and nobody waits for it.
//! Decisions are in [`Schedule`], which knows no clock, no socket and no file.
#![forbid(unsafe_code)]

mod authority;
mod automatic;
mod challenges;
mod error;
mod external;
mod failed;
mod https;
mod schedule;
mod state_dir;
mod time;

pub use automatic::{AcmeOptions, Automatic, Report};
pub use challenges::{HttpChallenges, Method01, Tokens};
pub use error::AcmeError;
pub use external::ExternalAccount;
pub use schedule::{Draw, Reason, Schedule, Step, Validity, Window};
pub use state_dir::default_state_dir;
pub use time::UnixTime;
