//! What comes of a run: text, files, and the exit code.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use loadline_record::assertion::Assertion;
use loadline_record::report::{self, Style, words};
use loadline_record::{ErrorKind, GroupRecord, StepReport, TrialRecord, export};
use loadline_spec::load::{CLIENTS_MAX, LoadSpec};
use loadline_spec::values::Count;

use super::progress::page;
use crate::failure::{Exit, Failure};
use crate::flags::load_defs::OutputFlags;

/// Where results go, tried out before the run: that a directory is missing should not show after an
/// hour.
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

#[derive(Debug)]
struct Output {
    name: String,
    path: PathBuf,
    /// What is no file: a pipe, say, which is opened once. A file is made when there is something to
    /// be written, so that a run that fails leaves an older one as it was, and no empty one.
    open: Option<File>,
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
        Ok(Self {
            assertions: flags
                .assert
                .iter()
                .map(assertion)
                .collect::<Result<_, _>>()?,
            style: flags.style,
            json: open("--json", flags.json.as_deref())?,
            csv: open("--csv", flags.csv.as_deref())?,
            hdr: open("--hdr", flags.hdr.as_deref())?,
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
            tell(&step.to_string());
        }
        crate::print(report::text(records, self.style, page()).as_bytes())?;
        if self.style != Style::Summary && !self.is_quiet {
            for note in records.iter().flat_map(report::notes) {
                tell(&note);
            }
        }
        write_to(self.json, |to| export::write_json(records, to))?;
        write_to(self.csv, |to| export::write_csv(records, to))?;
        write_to(self.hdr, |to| export::write_hdr(records, to))?;
        let broken = broken(&self.assertions, records);
        for line in &broken {
            tell(line);
        }
        let reasons_are_told = self.style == Style::Summary || !self.is_quiet;
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
            reasons_are_told,
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
    for (index, (option, path)) in files.iter().enumerate() {
        let Some(path) = path else { continue };
        let is_same = |other: &Option<PathBuf>| other.as_deref().map(place) == Some(place(path));
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

/// Where a file is, whichever way leads there; it need not be there yet.
fn place(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let found = fs::canonicalize(path).ok().or_else(|| {
        let folder = fs::canonicalize(folder).ok()?;
        Some(folder.join(path.file_name()?))
    });
    found.unwrap_or_else(|| path.to_owned())
}

fn open(option: &str, path: Option<&Path>) -> Result<Option<Output>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let name = format!("{option} {}", path.display());
    if path.as_os_str() == "-" || is_standard_output(path) {
        return Err(Failure::usage(format!(
            "{name}: standard output has the result in words; right would be a file of its own"
        )));
    }
    match try_out(path) {
        Ok(open) => Ok(Some(Output {
            name,
            path: path.to_owned(),
            open,
        })),
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "no such directory".to_owned(),
                io::ErrorKind::PermissionDenied => "no permission to write it".to_owned(),
                io::ErrorKind::IsADirectory => "a directory".to_owned(),
                _ => error.to_string(),
            };
            Err(Failure::usage(format!(
                "{name}: {why}; right would be a file that can be written"
            )))
        }
    }
}

/// Whether the file is the one that standard output goes to: each would overwrite the other. A pipe or
/// a terminal takes both, one behind the other.
fn is_standard_output(path: &Path) -> bool {
    let found = (fs::metadata(path), fs::metadata("/proc/self/fd/1"));
    matches!(found, (Ok(file), Ok(output)) if file.is_file()
        && (file.dev(), file.ino()) == (output.dev(), output.ino()))
}

/// Sees that a file can be written, and leaves it as it was; gives what is no file, open.
fn try_out(path: &Path) -> io::Result<Option<File>> {
    let is_new =
        matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let file = OpenOptions::new().write(true).create(is_new).open(path)?;
    if is_new {
        fs::remove_file(fs::canonicalize(path)?)?; // a link to nothing stays one
        return Ok(None);
    }
    let is_file = file.metadata()?.is_file();
    Ok((!is_file).then_some(file))
}

fn write_to(
    output: Option<Output>,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(Output { name, path, open }) = output else {
        return Ok(());
    };
    let is_file = open.is_none();
    let written = open
        .map_or_else(|| File::create(&path), Ok)
        .map(BufWriter::new)
        .and_then(|mut to| write(&mut to).and_then(|()| to.flush()));
    written.map_err(|error| {
        if is_file {
            let _ = fs::remove_file(&path); // half of a result is none; the error is reported
        }
        Failure::failed(format!("{name}: {error}"))
    })
}

/// The conditions that do not hold, a line each; an interrupted run is not judged.
fn broken(assertions: &[Assertion], records: &[TrialRecord]) -> Vec<String> {
    let rounds = records.iter().filter(|record| !record.run.interrupted);
    let mut broken = Vec::new();
    for record in rounds {
        for assertion in assertions {
            let finding = assertion.check(record);
            if !finding.holds {
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
const CUSTOMERS: [&str; 3] = ["clients", "users", "players"];

/// That a group had answers in the counted time, and not one that was good; with the cause that is
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
        None => words(most).to_owned(),
    };
    let name = &group.name;
    Some(format!("no answer to the {name} was good: {cause}"))
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
    reasons_are_told: bool,
    allow_client_limited: bool,
) -> Result<(), Failure> {
    let fail = |exit, message: String| Err(Failure { exit, message });
    if records.iter().any(|record| record.run.interrupted) {
        let message = "interrupted: this is what was measured so far";
        return fail(Exit::Interrupted, message.to_owned());
    }
    if let Some(record) = records
        .iter()
        .find(|record| record.everything.completed == 0)
    {
        let message = match record.everything.errors_total() {
            0 => "not one answer came, and no error: nothing was due, or the run was too short",
            _ => "not one answer came; the errors are in the result",
        };
        let all = &record.everything;
        // Idle and slow clients may well be asked for without anybody who gets an answer; but they
        // have connections.
        if all.offered > 0 || (all.connections == 0 && all.errors_total() > 0) {
            return fail(Exit::Failed, message.to_owned());
        }
    }
    if findings.broken_count > 0 {
        let message = match findings.broken_count {
            1 => "an --assert does not hold".to_owned(),
            count => format!("{count} of --assert do not hold"),
        };
        return fail(Exit::BindOrAssert, message);
    }
    if let Some(message) = &findings.nothing_good {
        return fail(Exit::NothingGood, message.clone());
    }
    match records.iter().find(|record| record.verdict.client_limited) {
        Some(_) if reasons_are_told && !allow_client_limited => fail(
            Exit::ClientLimited,
            "client-limited: the server may do more than this; --allow-client-limited accepts that"
                .to_owned(),
        ),
        Some(record) if !allow_client_limited => {
            let reasons = record.verdict.reasons.join(" ");
            fail(Exit::ClientLimited, format!("client-limited: {reasons}"))
        }
        _ => Ok(()),
    }
}

/// If standard error is closed, the text is lost.
fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "loadline: {line}");
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

    /// Ten answers of 404 to one group.
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
        let beside = |record: &mut TrialRecord| {
            one_is_good(record);
            record.groups.push(not_found("users"));
        };
        assert_eq!(exit_of(record(beside), 0, true), Err(Exit::NothingGood));
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
