//! What comes of a run: text, files, and the exit code.

use std::path::PathBuf;

use loadline_record::assertion::Assertion;
use loadline_record::report::{self, Style};
use loadline_record::{ErrorKind, GroupRecord, HTTP2_GROUP, StepReport, TrialRecord, export};
use loadline_spec::load::{CLIENTS_MAX, LoadSpec};
use loadline_spec::values::Count;

use super::progress::page;
use crate::failure::{Exit, Failure};
use crate::files::{Output, full};
use crate::flags::load_defs::OutputFlags;
use crate::say;

/// Where results go.
#[derive(Debug)]
pub(super) struct Outputs {
    style: Style,
    json: Option<Output>,
    csv: Option<Output>,
    hdr: Option<Output>,
    assertions: Vec<Assertion>,
    allow_client_limited: bool,
    is_quiet: bool,
}

/// Connections that an open loop needs so that requests do not wait in the client before the bounds
/// of its conditions are exceeded four times over (Little's law); `None`: the default is enough.
pub(super) fn connections(assertions: &[String], spec: &LoadSpec) -> Option<Count<0, CLIENTS_MAX>> {
    /// Each is opened before the start, and costs the server memory.
    const CONNECTIONS_MAX: f64 = 4096.0;
    const CONNECTIONS_DEFAULT: f64 = 64.0;
    let bound_us = |text: &String| text.parse::<Assertion>().ok()?.time_us();
    let bound_us = assertions.iter().filter_map(bound_us).reduce(f64::max)?;
    let wanted = (*spec.pace.rate? * bound_us * 1e-6 * 4.0).ceil();
    (!spec.has_actors() && wanted > CONNECTIONS_DEFAULT)
        .then(|| Count::clamped(wanted.min(CONNECTIONS_MAX) as usize))
}

impl Outputs {
    /// Sees that the files can be written, and reads the conditions.
    pub(super) fn open(flags: &OutputFlags) -> Result<Self, Failure> {
        let assertion = |text: &String| {
            let parsed = text.parse::<Assertion>();
            parsed.map_err(|why| Failure::usage(format!("--assert {why}")))
        };
        refuse_same(flags)?;
        let assertions = flags.assert.iter().map(assertion);
        Ok(Self {
            assertions: assertions.collect::<Result<_, _>>()?,
            style: flags.style,
            json: Output::open("--json", flags.json.as_deref())?,
            csv: Output::open("--csv", flags.csv.as_deref())?,
            hdr: Output::open("--hdr", flags.hdr.as_deref())?,
            allow_client_limited: flags.allow_client_limited,
            is_quiet: flags.quiet,
        })
    }

    /// Prints the result, writes the files, and says how it ended.
    pub(super) fn finish(
        self,
        records: &[TrialRecord],
        steps: &[StepReport],
    ) -> Result<(), Failure> {
        for step in steps.iter().filter(|step| step.failures > 0) {
            say(&step.to_string());
        }
        crate::print(report::text(records, self.style, page()).as_bytes())?;
        if self.style != Style::Summary && !self.is_quiet {
            for note in records.iter().flat_map(report::notes) {
                say(&note);
            }
        }
        Output::write(self.json, |to| export::write_json(records, to))?;
        Output::write(self.csv, |to| export::write_csv(records, to))?;
        Output::write(self.hdr, |to| export::write_hdr(records, to))?;
        let broken = broken(&self.assertions, records);
        for line in &broken {
            say(line);
        }
        let reasons_are_printed = self.style == Style::Summary || !self.is_quiet;
        let findings = Findings {
            broken_count: broken.len(),
            nothing_good: records.iter().find_map(nothing_good).or_else(|| {
                let step = steps.iter().find(|step| step.never_succeeded());
                step.map(|step| format!("the step '{}' never succeeded", step.name))
            }),
        };
        verdict(
            records,
            &findings,
            reasons_are_printed,
            self.allow_client_limited,
        )
    }
}

/// Each file has one form.
fn refuse_same(flags: &OutputFlags) -> Result<(), Failure> {
    let files = [
        ("--json", &flags.json),
        ("--csv", &flags.csv),
        ("--hdr", &flags.hdr),
    ];
    let place = |path: &PathBuf| full(path).unwrap_or_else(|| path.clone());
    for (index, (option, path)) in files.iter().enumerate() {
        let Some(path) = path else { continue };
        let is_same = |other: &Option<PathBuf>| other.as_ref().map(place) == Some(place(path));
        let before = files[..index].iter().find(|(_, other)| is_same(other));
        if let Some((other, _)) = before {
            return Err(Failure::usage(format!(
                "{option} {}: {other} goes there too; right would be a file for each",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The conditions that do not hold, a line each; an interrupted run is not judged.
fn broken(assertions: &[Assertion], records: &[TrialRecord]) -> Vec<String> {
    let rounds = records.iter().filter(|record| !record.run.interrupted);
    let mut broken = Vec::new();
    for record in rounds {
        for assertion in assertions {
            let of_http2 = assertion.check_http2(record);
            let findings = [assertion.check(record)].into_iter().chain(of_http2);
            for finding in findings.filter(|finding| !finding.holds) {
                broken.push(match record.run.rounds {
                    0 | 1 => finding.line,
                    _ => format!("round {}: {}", record.run.round, finding.line),
                });
            }
        }
    }
    broken
}

/// Groups that behave as ordinary users do; what slow and hostile clients get is no measure.
const CUSTOMERS: [&str; 4] = ["clients", HTTP2_GROUP, "users", "players"];

/// That a group had responses in the counted time, and not one that was good; with the cause that is
/// most frequent.
fn nothing_good(record: &TrialRecord) -> Option<String> {
    let is_failed = |group: &&GroupRecord| {
        let tally = &group.total.tally;
        let has_ended = tally.completed > 0 || tally.errors_total() > 0;
        CUSTOMERS.contains(&group.name.as_str()) && has_ended && tally.good == 0
    };
    let group = record.groups.iter().find(is_failed)?;
    let tally = &group.total.tally;
    let most = ErrorKind::ALL
        .into_iter()
        .max_by_key(|kind| tally.errors_of(*kind))?;
    let statuses = tally.unexpected_statuses.iter();
    let statuses = statuses.max_by_key(|(_, count)| *count);
    let cause = match statuses.filter(|_| most.is_of_status()) {
        Some((status, _)) => {
            format!("status {status}; if that is right, --expect-status {status} says so")
        }
        None => most.words().to_owned(),
    };
    let who = match group.name.as_str() {
        HTTP2_GROUP => "clients of HTTP/2",
        name => name,
    };
    Some(format!("no response to the {who} was good: {cause}"))
}

/// What was found that an exit code stands for, beside what stands in the records.
#[derive(Debug, Default)]
struct Findings {
    /// Conditions that do not hold.
    broken_count: usize,
    /// That nothing was good, or a step never succeeded.
    nothing_good: Option<String>,
}

/// What the exit code says; where several apply, the first one counts.
fn verdict(
    records: &[TrialRecord],
    findings: &Findings,
    reasons_are_printed: bool,
    allow_client_limited: bool,
) -> Result<(), Failure> {
    let fail = |exit, message: &str| Err(Failure::new(exit, message));
    if records.iter().any(|record| record.run.interrupted) {
        let message = "interrupted: this is what was measured so far";
        return fail(Exit::Interrupted, message);
    }
    let mut tallies = records.iter().map(|record| &record.everything);
    if let Some(all) = tallies.find(|all| all.completed == 0) {
        let message = match all.errors_total() {
            0 => "no response came, and no error: nothing was due, or the run was too short",
            _ => "no response came; the errors are in the result",
        };
        // Idle and slow clients may run without plain clients, and so without responses; but they
        // have connections.
        if all.offered > 0 || (all.connections == 0 && all.errors_total() > 0) {
            return fail(Exit::Failed, message);
        }
    }
    if findings.broken_count > 0 {
        let message = match findings.broken_count {
            1 => "an --assert does not hold".to_owned(),
            count => format!("{count} of --assert do not hold"),
        };
        return fail(Exit::BindOrAssert, &message);
    }
    if let Some(message) = &findings.nothing_good {
        return fail(Exit::NothingGood, message);
    }
    match records.iter().find(|record| record.verdict.client_limited) {
        Some(_) if reasons_are_printed && !allow_client_limited => fail(
            Exit::ClientLimited,
            "client-limited: the server may do more than this; --allow-client-limited accepts that",
        ),
        Some(record) if !allow_client_limited => {
            let reasons = record.verdict.reasons.join(" ");
            fail(Exit::ClientLimited, &format!("client-limited: {reasons}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(change: impl FnOnce(&mut TrialRecord)) -> TrialRecord {
        let mut record = TrialRecord::default();
        record.everything.offered = 10;
        record.everything.completed = 10;
        change(&mut record);
        record
    }

    fn exit_of(record: TrialRecord, broken_count: usize, allow: bool) -> Result<(), Exit> {
        let findings = Findings {
            broken_count,
            nothing_good: nothing_good(&record),
        };
        verdict(&[record], &findings, true, allow).map_err(|failure| failure.exit)
    }

    #[test]
    fn an_open_loop_has_the_connections_that_its_conditions_need() {
        let wanted = |rate: Option<&str>, condition: &str| {
            let mut spec = LoadSpec::default();
            spec.pace.rate = rate.map(|rate| rate.parse().unwrap());
            connections(&[condition.to_owned()], &spec).map(|count| *count)
        };
        assert_eq!(wanted(Some("2000"), "p99 < 50ms"), Some(400));
        assert_eq!(wanted(Some("100"), "p99 < 50ms"), None, "64 are enough");
        assert_eq!(wanted(Some("1M"), "p99 < 1s"), Some(4096), "bounded");
        assert_eq!(
            wanted(Some("2000"), "errors < 1%"),
            None,
            "not about a time"
        );
        assert_eq!(wanted(None, "p99 < 50ms"), None, "a closed loop");
    }

    /// Ten responses of 404 to one group.
    fn not_found(name: &str) -> GroupRecord {
        let mut group = GroupRecord {
            name: name.to_owned(),
            ..GroupRecord::default()
        };
        group.total.tally.offered = 10;
        group.total.tally.completed = 10;
        group.total.tally.unexpected_statuses = vec![(404, 10)];
        group.total.tally.errors[ErrorKind::Status4xx as usize] = 10;
        group
    }

    #[test]
    fn a_run_without_a_good_answer_is_not_a_measurement() {
        let missing = |record: &mut TrialRecord| {
            record.verdict.client_limited = true;
            record.groups = vec![not_found("clients")];
        };
        assert_eq!(exit_of(record(missing), 0, false), Err(Exit::NothingGood));
        assert_eq!(exit_of(record(missing), 1, false), Err(Exit::BindOrAssert));
        let why = nothing_good(&record(missing)).unwrap();
        assert!(why.contains("status 404") && why.contains("--expect-status 404"));
        let one_is_good = |record: &mut TrialRecord| {
            missing(record);
            record.groups[0].total.tally.good = 1;
        };
        assert_eq!(exit_of(record(one_is_good), 0, true), Ok(()));
        let slow = |record: &mut TrialRecord| record.groups = vec![not_found("slow-heads")];
        assert_eq!(exit_of(record(slow), 0, false), Ok(()));
        for name in ["users", HTTP2_GROUP] {
            let beside = |record: &mut TrialRecord| {
                one_is_good(record);
                record.groups.push(not_found(name));
            };
            assert_eq!(exit_of(record(beside), 0, true), Err(Exit::NothingGood));
        }
        let of_http2 = |record: &mut TrialRecord| record.groups = vec![not_found(HTTP2_GROUP)];
        let why = nothing_good(&record(of_http2)).unwrap();
        assert!(
            why.contains("no response to the clients of HTTP/2"),
            "{why}"
        );
    }

    #[test]
    fn a_condition_has_to_hold_for_either_protocol() {
        let both = |record: &mut TrialRecord| {
            let mut good = not_found("clients");
            good.total.tally.errors = Default::default();
            record.groups = vec![good, not_found(HTTP2_GROUP)];
        };
        let condition: Assertion = "errors < 1%".parse().unwrap();
        let broken = broken(&[condition], &[record(both)]);
        assert_eq!(broken, ["HTTP/2: errors < 1% does not hold: it was 100 %"]);
    }

    #[test]
    fn the_first_exit_code_that_applies_counts() {
        let limited = |record: &mut TrialRecord| record.verdict.client_limited = true;
        assert_eq!(exit_of(record(|_| ()), 0, false), Ok(()));
        assert_eq!(exit_of(record(limited), 0, false), Err(Exit::ClientLimited));
        assert_eq!(exit_of(record(limited), 0, true), Ok(()));
        assert_eq!(exit_of(record(limited), 1, true), Err(Exit::BindOrAssert));
        let nothing = |record: &mut TrialRecord| {
            limited(record);
            record.everything.completed = 0;
        };
        assert_eq!(exit_of(record(nothing), 2, false), Err(Exit::Failed));
        let interrupted = |record: &mut TrialRecord| {
            nothing(record);
            record.run.interrupted = true;
        };
        assert_eq!(
            exit_of(record(interrupted), 2, false),
            Err(Exit::Interrupted)
        );
        let only_idle = |record: &mut TrialRecord| {
            record.everything.completed = 0;
            record.everything.offered = 0;
        };
        assert_eq!(exit_of(record(only_idle), 0, false), Ok(()));
        let refused = |record: &mut TrialRecord| {
            only_idle(record);
            record.everything.error(ErrorKind::Refused);
        };
        assert_eq!(exit_of(record(refused), 0, false), Err(Exit::Failed));
    }
}
