//! Why requests that were due were not sent: what the server or the connections have to do with it.

use loadline_record::verdict::CONNECTIONS_OUT_SHARE_MIN;
use loadline_record::{GroupRecord, PhaseRecord, Tally};

use crate::ThreadReport;

/// Requests of the clients of these threads, of whom the tally is, whose connections the server did not
/// accept, or ended first: in time, or before the end.
pub(super) fn not_accepted<'a>(
    tally: &Tally,
    threads: impl Iterator<Item = &'a ThreadReport>,
) -> u64 {
    let at_end = threads.map(|report| report.connecting);
    tally.not_accepted + at_end.sum::<u64>()
}

/// Of all that was missing in the seconds that sent less than was due: the part that was missing
/// while the connections were out. Seconds that lie in the warm-up or beyond the end in part have a
/// mean that says little; where there are no others, that of the whole stretch decides. `None`: what
/// was in flight is not known.
pub(super) fn held_back_share(
    group: &GroupRecord,
    phases: &[PhaseRecord],
    in_flight_max: u32,
) -> Option<f64> {
    let is_counted = |begin_s: f64| {
        let mut counted = phases.iter().filter(|phase| phase.counted);
        counted.any(|phase| phase.begin_s <= begin_s && begin_s + 1.0 <= phase.end_s)
    };
    let out_min = f64::from(in_flight_max) * CONNECTIONS_OUT_SHARE_MIN;
    let (mut missing, mut held_back) = (0, 0);
    for second in &group.series {
        let short = second.offered.saturating_sub(second.sent);
        let Some(in_flight) = second.in_flight else {
            continue;
        };
        if is_counted(f64::from(second.second)) {
            missing += short;
            held_back += if in_flight >= out_min { short } else { 0 };
        }
    }
    if missing > 0 {
        return Some(held_back as f64 / missing as f64);
    }
    let in_flight = group.total.in_flight?;
    Some(if in_flight >= out_min { 1.0 } else { 0.0 })
}
