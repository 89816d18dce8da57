//! Results as text: hand-made records against golden files, and the forms of other tools parsed
//! back as their users' scripts do. `UPDATE_GOLDEN=1` writes the files, and the examples in
//! docs/load-output.md, anew.

mod assertions;
mod golden;
mod parsed;
mod records;
