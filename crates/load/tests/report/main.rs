//! Results as text: hand-made records against golden files, and the forms of other tools parsed
//! back as their users' scripts do. `UPDATE_GOLDEN=1` writes the files, and the examples in
//! docs/load-output.md, anew.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod assertions;
mod golden;
mod parsed;
mod records;
