//! The blocking architectures: who is served when, what a cap does, how a drain ends.

mod descriptors;
mod fairness;
mod limits;
mod order;
mod overload;
mod shutdown;
mod sizes;
mod streams;
mod time_slices;
mod util;
