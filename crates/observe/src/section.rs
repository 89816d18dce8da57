//! Figures of other parts of a program, shown on the status page beside the server's.

use std::sync::Arc;

use crate::line_writer::LineWriter;

/// Counts that go up and down; the others only rise.
const GAUGES: [&str; 8] = [
    "connections",
    "pool_size",
    "pool_size_min",
    "pool_size_max",
    "pool_busy",
    "app_requests_in_progress",
    "queue_depth",
    "entries",
];

/// Figures with a name in common, `cache` for example; read when the page is.
pub struct Section {
    pub(crate) name: &'static str,
    read: Box<dyn Fn() -> Option<Vec<Figure>> + Send + Sync>,
    /// Names of figures, and what each is called on the live page.
    live_sizes: &'static [(&'static str, &'static str)],
}

/// A count and its name, in JSON and as a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
    /// In JSON in place of the number; Prometheus has no texts.
    pub(crate) text: Option<String>,
    pub(crate) metric: Metric,
}

/// A count as Prometheus names it: times in seconds, what only rises with `_total`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    unit: f64,
}

impl Section {
    /// `read` is called on a serving thread, so it must not block. `None`: that part does not run; JSON
    /// has `null`, and Prometheus nothing.
    pub fn new(
        name: &'static str,
        read: impl Fn() -> Option<Vec<Figure>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            read: Box::new(read),
            live_sizes: &[],
        }
    }

    /// The live page shows these figures among its sizes: the name of each, and what it is called there.
    #[must_use]
    pub fn live_sizes(mut self, sizes: &'static [(&'static str, &'static str)]) -> Self {
        self.live_sizes = sizes;
        self
    }

    /// What a log has written and lost.
    #[must_use]
    pub fn of_log(name: &'static str, log: Option<Arc<LineWriter>>) -> Self {
        Self::new(name, move || {
            let counts = log.as_ref()?.counts();
            Some(vec![
                Figure::new("lines_written", counts.written).metric("lines"),
                Figure::new("lines_dropped", counts.dropped),
                Figure::new("write_errors", counts.errors),
            ])
        })
    }

    pub(crate) fn figures(&self) -> Option<Vec<Figure>> {
        (self.read)()
    }

    /// What the live page shows of it.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, u64)> {
        if self.live_sizes.is_empty() {
            return Vec::new();
        }
        let figures = self.figures().unwrap_or_default();
        let value = |name: &str| Some(figures.iter().find(|it| it.name == name)?.value);
        let sizes = self.live_sizes.iter();
        let sizes = sizes.filter_map(|(name, shown)| Some((*shown, value(name)?)));
        sizes.collect()
    }
}

impl Figure {
    /// A count. A time has a name that ends in `_us`.
    #[must_use]
    pub fn new(name: &'static str, value: u64) -> Self {
        Self {
            metric: Metric::of(name),
            ..Self::gauge(name, value)
        }
    }

    /// A number that also falls.
    #[must_use]
    pub fn gauge(name: &'static str, value: u64) -> Self {
        Self {
            name,
            value,
            text: None,
            metric: Metric::gauge(name),
        }
    }

    /// Words, for JSON alone.
    #[must_use]
    pub fn text(name: &'static str, text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            ..Self::gauge(name, 0)
        }
    }

    /// The metric has another name.
    #[must_use]
    fn metric(mut self, name: &str) -> Self {
        self.metric = Metric::of(name);
        self
    }
}

impl Metric {
    pub(crate) fn of(name: &str) -> Self {
        if GAUGES.contains(&name) {
            return Self::gauge(name);
        }
        let (name, unit) = match name.strip_suffix("_us") {
            Some(name) => (format!("{name}_seconds_total"), 1e6),
            None => (format!("{name}_total"), 1.0),
        };
        Self {
            name,
            kind: "counter",
            unit,
        }
    }

    fn gauge(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: "gauge",
            unit: 1.0,
        }
    }

    pub(crate) fn scaled(&self, value: u64) -> f64 {
        value as f64 / self.unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_and_what_rises_is_a_total() {
        let wait = Metric::of("queue_wait_us");
        let found = (wait.name.as_str(), wait.kind);
        assert_eq!(found, ("queue_wait_seconds_total", "counter"));
        assert_eq!(wait.scaled(1_500_000), 1.5);
        assert_eq!(Metric::of("connections").name, "connections");
        assert_eq!(Metric::of("bytes_in").name, "bytes_in_total");
    }

    #[test]
    fn the_live_page_has_the_figures_that_it_is_to_show() {
        let figures = || vec![Figure::new("pool_asked", 3), Figure::new("pool_size", 8)];
        let section = Section::new("accounts", move || Some(figures()));
        let sizes = section.live_sizes(&[("pool_size", "pool"), ("pool_size_max", "at most")]);
        assert_eq!(sizes.sizes(), [("pool", 8)]);
        let none = Section::new("accounts", || None).live_sizes(&[("pool_size", "pool")]);
        assert!(none.sizes().is_empty());
        let other = Section::new("acme", move || Some(figures()));
        assert!(other.sizes().is_empty());
    }
}
