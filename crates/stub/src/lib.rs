//! A responder with a programmed truth: what it answers, and when, is known beforehand.
//!
//! It shares no code with what it is used to test.
#![forbid(unsafe_code)]
