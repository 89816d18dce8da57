//! A process that was watched: from the looks at it to its totals over the counted phases.

use serde::{Deserialize, Serialize};

use crate::PhaseRecord;

/// CPU time below this is not divided by: the kernel counts it in hundredths of a second.
const CPU_S_MIN: f64 = 0.05;

/// A process that was watched, with all its descendants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedRecord {
    /// As given.
    pub name: String,
    /// The process at the top.
    pub pid: u32,
    /// When it was found to be gone, from the start; null: it outlived the run.
    pub ended_s: Option<f64>,
    /// How much of the counted phases was seen.
    pub seconds: f64,
    /// CPU time outside of the kernel, over `seconds`.
    pub cpu_user_s: f64,
    /// CPU time in the kernel.
    pub cpu_kernel_s: f64,
    /// Time in which threads could have run and were not let, all together.
    pub run_delay_s: f64,
    /// Complete answers to the client, of all groups, for each second of CPU time.
    pub completed_per_cpu_s: Option<f64>,
    /// Largest proportional set size: memory, with what is shared divided by its sharers.
    pub pss_bytes_max: Option<u64>,
    /// Most processes.
    pub processes_max: u64,
    /// Most threads.
    pub threads_max: u64,
    /// Most descriptors; null where they may not be counted.
    pub descriptors_max: Option<u64>,
    /// The largest part of its own limit of them that one process had open; null: not known.
    pub descriptors_share_max: Option<f64>,
    /// Times that threads went to sleep.
    pub switches_voluntary: u64,
    /// Times that threads were interrupted for others.
    pub switches_involuntary: u64,
    /// Of the time, the part for which the busiest thread ran: of each look the busiest since the last
    /// one, on average; null: not known.
    pub busiest_share: Option<f64>,
    /// Of the same threads: the part for which they could have run and were not let.
    pub busiest_delay_share: Option<f64>,
    /// The thread that was the busiest most often.
    pub busiest_thread: Option<String>,
    /// By sample, about one a second, warm-up included.
    pub series: Vec<WatchedSample>,
}

/// A look at a watched process and its descendants. What is cumulative counts from the first look
/// and does not fall when a process ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedSample {
    /// When, from the start; the first one may be before it.
    pub at_s: f64,
    /// CPU time outside of the kernel, cumulative.
    pub cpu_user_s: f64,
    /// CPU time in the kernel, cumulative.
    pub cpu_kernel_s: f64,
    /// Time in which threads could have run and were not let, cumulative.
    pub run_delay_s: f64,
    /// Proportional set size; null where it was not asked for this time (it costs the process's
    /// memory lock) or may not be.
    pub pss_bytes: Option<u64>,
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Descriptors.
    pub descriptors: Option<u64>,
    /// The largest part of its own limit of them that one process has open; null: not known.
    pub descriptors_share: Option<f64>,
    /// Times that threads went to sleep, cumulative.
    pub switches_voluntary: u64,
    /// Times that threads were interrupted for others, cumulative.
    pub switches_involuntary: u64,
    /// Since the last look: of the time, the part for which the busiest thread ran; null in the first
    /// look.
    pub busiest_share: Option<f64>,
    /// The part for which it could have run and was not let.
    pub busiest_delay_share: Option<f64>,
    /// The name of that thread.
    pub busiest_thread: Option<String>,
}

impl WatchedRecord {
    /// Fills in the totals over the counted phases from the series; `completed` answers came in them.
    /// Looks are about a second apart: in between, what is cumulative is taken to grow evenly.
    pub fn settle(&mut self, phases: &[PhaseRecord], completed: u64) {
        let counted = phases.iter().filter(|phase| phase.counted);
        let mut sum = [0.0; CUMULATIVE];
        self.seconds = 0.0;
        for phase in counted {
            let begin_s = self.within(phase.begin_s);
            let end_s = self.within(phase.end_s);
            self.seconds += end_s - begin_s;
            let (begin, end) = (self.at(begin_s), self.at(end_s));
            sum = std::array::from_fn(|index| sum[index] + (end[index] - begin[index]));
        }
        let [
            cpu_user_s,
            cpu_kernel_s,
            run_delay_s,
            voluntary,
            involuntary,
        ] = sum;
        (self.cpu_user_s, self.cpu_kernel_s) = (cpu_user_s, cpu_kernel_s);
        self.run_delay_s = run_delay_s;
        self.switches_voluntary = voluntary.round() as u64;
        self.switches_involuntary = involuntary.round() as u64;
        let cpu_s = cpu_user_s + cpu_kernel_s;
        self.completed_per_cpu_s = (cpu_s >= CPU_S_MIN).then(|| completed as f64 / cpu_s);
        self.settle_busiest(phases);
        let series = &self.series;
        self.pss_bytes_max = series.iter().filter_map(|look| look.pss_bytes).max();
        self.descriptors_max = series.iter().filter_map(|look| look.descriptors).max();
        let shares = series.iter().filter_map(|look| look.descriptors_share);
        self.descriptors_share_max = shares.reduce(f64::max);
        self.processes_max = series.iter().map(|look| look.processes).max().unwrap_or(0);
        self.threads_max = series.iter().map(|look| look.threads).max().unwrap_or(0);
    }

    /// Of the looks of which most of the time before them counts; of all, if none is such.
    fn settle_busiest(&mut self, phases: &[PhaseRecord]) {
        let is_counted = |at_s: f64| {
            let mut counted = phases.iter().filter(|phase| phase.counted);
            counted.any(|phase| phase.begin_s <= at_s && at_s < phase.end_s)
        };
        let of = |is_wanted: &dyn Fn(f64) -> bool| -> Vec<(f64, f64, &str)> {
            let pairs = self.series.windows(2);
            let pairs = pairs.filter(|pair| is_wanted((pair[0].at_s + pair[1].at_s) / 2.0));
            let busiest = pairs.filter_map(|pair| {
                let (look, name) = (&pair[1], pair[1].busiest_thread.as_deref()?);
                let delay_share = look.busiest_delay_share.unwrap_or(0.0);
                Some((look.busiest_share?, delay_share, name))
            });
            busiest.collect()
        };
        let mut found = of(&is_counted);
        if found.is_empty() {
            found = of(&|_| true);
        }
        if found.is_empty() {
            return;
        }
        let often = |name: &str| found.iter().filter(|(.., other)| *other == name).count();
        let names = found.iter().map(|(.., name)| *name);
        let most_often = names.max_by_key(|name| (often(name), *name));
        self.busiest_thread = most_often.map(str::to_owned);
        let count = found.len() as f64;
        self.busiest_share = Some(found.iter().map(|(share, ..)| share).sum::<f64>() / count);
        let delays = found.iter().map(|(_, delay_share, _)| delay_share);
        self.busiest_delay_share = Some(delays.sum::<f64>() / count);
    }

    /// The moment, or the nearest that was seen.
    fn within(&self, at_s: f64) -> f64 {
        match (self.series.first(), self.series.last()) {
            (Some(first), Some(last)) => at_s.max(first.at_s).min(last.at_s),
            _ => 0.0,
        }
    }

    /// What was cumulative at a moment.
    fn at(&self, at_s: f64) -> [f64; CUMULATIVE] {
        let after = self.series.partition_point(|look| look.at_s < at_s);
        let next = self.series.get(after).or_else(|| self.series.last());
        let Some(next) = next else {
            return [0.0; CUMULATIVE];
        };
        let before = after
            .checked_sub(1)
            .map_or(next, |index| &self.series[index]);
        let part = match next.at_s > before.at_s {
            true => ((at_s - before.at_s) / (next.at_s - before.at_s)).clamp(0.0, 1.0),
            false => 0.0,
        };
        let (before, next) = (cumulative(before), cumulative(next));
        std::array::from_fn(|index| before[index] + (next[index] - before[index]) * part)
    }
}

/// How many figures of a look are cumulative.
const CUMULATIVE: usize = 5;

fn cumulative(look: &WatchedSample) -> [f64; CUMULATIVE] {
    [
        look.cpu_user_s,
        look.cpu_kernel_s,
        look.run_delay_s,
        look.switches_voluntary as f64,
        look.switches_involuntary as f64,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_s: f64, cpu_user_s: f64, threads: u64) -> WatchedSample {
        WatchedSample {
            at_s,
            cpu_user_s,
            cpu_kernel_s: cpu_user_s / 2.0,
            threads,
            switches_voluntary: (cpu_user_s * 100.0) as u64,
            pss_bytes: (at_s < 2.0).then_some(1000 * threads),
            descriptors_share: (at_s > 0.0).then_some(threads as f64 / 10.0),
            ..WatchedSample::default()
        }
    }

    fn phase(begin_s: f64, end_s: f64, counted: bool) -> PhaseRecord {
        PhaseRecord {
            begin_s,
            end_s,
            counted,
            ..PhaseRecord::default()
        }
    }

    #[test]
    fn only_what_counts_is_in_the_totals() {
        let mut record = WatchedRecord {
            series: vec![
                look(-0.5, 0.0, 4),
                look(0.5, 1.0, 8),
                look(1.5, 2.0, 6),
                look(2.5, 4.0, 6),
            ],
            ..WatchedRecord::default()
        };
        let phases = [phase(0.0, 1.0, false), phase(1.0, 2.0, true)];
        record.settle(&phases, 3_000);
        // From 1.5 (between 1 and 2) to 3.0 (between 2 and 4).
        assert!((record.cpu_user_s - 1.5).abs() < 1e-9);
        assert!((record.cpu_kernel_s - 0.75).abs() < 1e-9);
        assert_eq!(record.switches_voluntary, 150);
        assert!((record.seconds - 1.0).abs() < 1e-9);
        let per_cpu_s = record.completed_per_cpu_s.unwrap();
        assert!((per_cpu_s - 3_000.0 / 2.25).abs() < 1e-6);
        assert_eq!((record.threads_max, record.pss_bytes_max), (8, Some(8000)));
        assert_eq!(record.descriptors_share_max, Some(0.8));
    }

    #[test]
    fn a_record_of_an_older_version_has_no_share_of_descriptors() {
        let old: WatchedRecord = serde_json::from_str(
            r#"{ "descriptors_max": 9, "series": [{ "at_s": 1.0, "descriptors": 9 }] }"#,
        )
        .unwrap();
        assert_eq!(old.descriptors_share_max, None);
        assert_eq!(old.series[0].descriptors_share, None);
    }

    #[test]
    fn a_process_that_ended_is_counted_until_then() {
        let mut record = WatchedRecord {
            series: vec![look(0.0, 0.0, 1), look(1.0, 1.0, 0)],
            ended_s: Some(1.0),
            ..WatchedRecord::default()
        };
        record.settle(&[phase(0.0, 10.0, true)], 0);
        assert!((record.cpu_user_s - 1.0).abs() < 1e-9);
        assert!((record.seconds - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_thread_is_that_of_the_counted_looks() {
        let busy = |at_s: f64, share: f64, name: &str| WatchedSample {
            at_s,
            busiest_share: (at_s > 0.0).then_some(share),
            busiest_delay_share: (at_s > 0.0).then_some(share / 2.0),
            busiest_thread: (at_s > 0.0).then(|| name.to_owned()),
            ..WatchedSample::default()
        };
        let mut record = WatchedRecord {
            series: vec![
                busy(0.0, 0.0, ""),
                busy(1.0, 0.9, "warm"),
                busy(2.0, 0.2, "loop 1"),
                busy(3.0, 0.4, "loop 0"),
                busy(4.0, 0.6, "loop 0"),
            ],
            ..WatchedRecord::default()
        };
        record.settle(&[phase(0.0, 1.0, false), phase(1.0, 4.0, true)], 1);
        assert!((record.busiest_share.unwrap() - 0.4).abs() < 1e-9);
        assert!((record.busiest_delay_share.unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(record.busiest_thread.as_deref(), Some("loop 0"));
        // A trial that is shorter than the time between two looks.
        record.series.truncate(2);
        record.settle(&[phase(0.9, 1.0, true)], 1);
        assert_eq!(record.busiest_thread.as_deref(), Some("warm"));
    }

    #[test]
    fn of_nothing_seen_there_is_no_ratio() {
        let mut record = WatchedRecord::default();
        record.settle(&[phase(0.0, 1.0, true)], 100);
        assert_eq!(record.completed_per_cpu_s, None);
        assert_eq!(record.seconds, 0.0);
    }
}
