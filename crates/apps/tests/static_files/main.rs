//! The static file handler over real directories, driven through a session in memory.

mod basics;
mod site;
