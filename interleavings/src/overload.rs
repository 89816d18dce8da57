//! No latency goal: apps take what comes.

#[derive(Debug)]
pub(crate) struct AppRequest;

impl AppRequest {
    pub(crate) fn waits(&mut self) {}

    pub(crate) fn answered(self) {}
}
