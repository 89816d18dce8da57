//! What people give to the load generator: lists and logs, as documented and as servers write them.

mod documented;
mod own_log;
