//! Results as text: hand-made records against golden files, and the forms of other tools parsed
//! back as their users' scripts do. `UPDATE_GOLDEN=1` writes the files, and the examples in
//! docs/load-output.md, anew. The documented fields and columns against those that are written.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod assertions;
mod documented;
mod golden;
mod parsed;
mod records;
