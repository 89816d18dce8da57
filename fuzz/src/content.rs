//! As the `content` module of the file handler, of which the targets use these three: the handler itself
//! has two compressors with it, which would take longer to build than they.

#[path = "../../crates/apps/src/content/conditional.rs"]
pub mod conditional;
#[path = "../../crates/apps/src/content/path.rs"]
pub mod path;
#[path = "../../crates/apps/src/content/range.rs"]
pub mod range;
