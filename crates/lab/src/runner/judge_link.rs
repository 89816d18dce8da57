//! What a trial's link says of the trial.

use crate::journal::{LinkFacts, Trial};

/// By how much a link may be late with one packet in a hundred.
const LINK_LATE_US_MAX: u64 = 1000;

/// What a link has carried, or why it has ended.
pub(super) fn judge_link(end: Result<LinkFacts, String>, trial: &mut Trial) {
    let link = match end {
        Ok(link) => link,
        Err(why) => return trial.discarded.push(format!("The link failed: {why}.")),
    };
    for (name, direction) in [("server", &link.up), ("client", &link.down)] {
        if let Some(late_us) = direction.late_p99_us
            && late_us > LINK_LATE_US_MAX
        {
            trial.notes.push(format!(
                "The link was late by {:.1} ms and more with one packet in a hundred to the {name}.",
                late_us as f64 / 1e3
            ));
        }
        if direction.refused > 0 {
            trial.notes.push(format!(
                "The link was at its end: {} packets to the {name} were dropped by the kernel.",
                direction.refused
            ));
        }
    }
    trial.server.link = Some(link);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_was_late_is_noted_and_one_that_ended_discards() {
        let judged = |end: Result<LinkFacts, String>| {
            let mut trial = Trial::default();
            judge_link(end, &mut trial);
            (
                trial.discarded.len(),
                trial.notes.len(),
                trial.server.link.is_some(),
            )
        };
        let mut link = LinkFacts::default();
        link.down.late_p99_us = Some(1_000);
        assert_eq!(judged(Ok(link.clone())), (0, 0, true));
        link.down.late_p99_us = Some(1_001);
        link.up.refused = 1;
        assert_eq!(judged(Ok(link)), (0, 2, true));
        assert_eq!(judged(Err("its relay has ended".to_owned())), (1, 0, false));
    }
}
