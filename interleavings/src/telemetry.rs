//! As the `telemetry` room of the server.

pub(crate) mod counters {
    use loadline_base::Counter;

    #[derive(Debug, Default)]
    pub(crate) struct ThreadStats {
        pub(crate) app_requests: Counter,
        pub(crate) app_requests_in_progress: Counter,
    }
}
