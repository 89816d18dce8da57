//! The programs that hold the tests: built once, and run side by side.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::steps::command;

/// How many tests run at once, to the programs of tests.
pub(crate) const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// What cargo is asked, to learn where the programs are once they are built. Examples have no tests: they
/// are checked with the lints, and not linked.
const BUILD: &str =
    "cargo test -q --workspace --tests --no-run --message-format=json-render-diagnostics";
/// Programs that time what they do: nothing else runs beside them.
const ALONE: [&str; 2] = ["limited", "truth"];
/// The same of tests in other programs: program, and name.
const TESTS_ALONE: [(&str, &str); 1] = [(
    "architectures",
    "workers_that_compute_become_hardly_more_than_cpus",
)];
/// Programs that take longest begin first, so that none of them ends alone.
const FIRST: [&str; 3] = ["browser", "conformance", "architectures"];

/// The programs of tests.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) side_by_side: Vec<Command>,
    pub(crate) alone: Vec<Command>,
}

impl Programs {
    /// The command that builds them; what it says of them goes to its standard output.
    pub(crate) fn build(root: &Path) -> Command {
        command(root, BUILD)
    }

    /// One more that runs side by side with others, behind those that take longest.
    pub(crate) fn add(&mut self, command: Command) {
        let at = self.side_by_side.len().min(FIRST.len());
        self.side_by_side.insert(at, command);
    }

    /// Those of which cargo said that it has built them, each with so many tests at once.
    ///
    /// # Errors
    /// A line is no JSON.
    pub(crate) fn parse(lines: &str, threads: Option<usize>) -> Result<Self, String> {
        let mut programs = Vec::new();
        for line in lines.lines().filter(|line| line.starts_with('{')) {
            let built: Value =
                serde_json::from_str(line).map_err(|error| format!("{BUILD}: {error}"))?;
            programs.extend(Program::of(&built));
        }
        programs.sort_by_key(|program| {
            let first = FIRST.iter().position(|name| *name == program.name);
            first.unwrap_or(FIRST.len())
        });
        let mut sorted = Self::default();
        for program in programs {
            let mut command = program.command(threads);
            if ALONE.contains(&program.name.as_str()) {
                sorted.alone.push(command);
                continue;
            }
            let tests = TESTS_ALONE.iter().filter(|(of, _)| *of == program.name);
            for (_, test) in tests {
                command.args(["--skip", test]);
                let mut alone = program.command(threads);
                alone.arg(test);
                sorted.alone.push(alone);
            }
            sorted.side_by_side.push(command);
        }
        Ok(sorted)
    }
}

struct Program {
    name: String,
    path: String,
    /// Of its package: tests expect to be run there.
    folder: String,
}

impl Program {
    /// What one of cargo's messages says, if it is of a program with tests.
    fn of(built: &Value) -> Option<Self> {
        let is_test = built["profile"]["test"].as_bool()?;
        let path = built["executable"].as_str()?;
        let manifest = Path::new(built["manifest_path"].as_str()?);
        is_test.then(|| Self {
            name: built["target"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            path: path.to_owned(),
            folder: manifest.parent().unwrap_or(manifest).display().to_string(),
        })
    }

    fn command(&self, threads: Option<usize>) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.envs(threads.map(|threads| (TEST_THREADS, threads.to_string())));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/x/Cargo.toml",
               "target":{{"name":"{name}"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
        .replace('\n', " ")
    }

    #[test]
    fn a_test_that_times_what_it_does_is_run_behind_the_others_of_its_program() {
        let line = message("architectures", true, r#""/r/a-1""#);
        let programs = Programs::parse(&line, None).unwrap();
        let arguments = |commands: &[Command]| {
            let [command] = commands else {
                panic!("{commands:?}");
            };
            let arguments = command.get_args().map(|it| it.to_string_lossy());
            arguments.collect::<Vec<_>>().join(" ")
        };
        let (_, test) = TESTS_ALONE[0];
        assert_eq!(arguments(&programs.side_by_side), format!("--skip {test}"));
        assert_eq!(arguments(&programs.alone), test);
    }

    #[test]
    fn programs_with_tests_are_run_where_their_package_is() {
        let lines = [
            "warning: something".to_owned(),
            message("loadline", false, r#""/r/target/debug/loadline""#),
            message("x", true, r#""/r/target/debug/deps/x-1""#),
            message("truth", true, r#""/r/target/debug/deps/truth-1""#),
            message("x", true, "null"),
            message("browser", true, r#""/r/target/debug/deps/browser-1""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let mut programs = Programs::parse(&lines.join("\n"), Some(3)).unwrap();
        let paths = |commands: &[Command]| {
            let path = |command: &Command| command.get_program().to_string_lossy().into_owned();
            commands.iter().map(path).collect::<Vec<_>>()
        };
        let side_by_side = ["/r/target/debug/deps/browser-1", "/r/target/debug/deps/x-1"];
        assert_eq!(paths(&programs.side_by_side), side_by_side);
        assert_eq!(paths(&programs.alone), ["/r/target/debug/deps/truth-1"]);
        programs.add(Command::new("cargo"));
        let last = paths(&programs.side_by_side).pop();
        assert_eq!(last.as_deref(), Some("cargo"));
        let command = &programs.alone[0];
        assert_eq!(command.get_current_dir(), Some(Path::new("/r/crates/x")));
        let mut all = command.get_envs();
        let threads = all.find(|(name, _)| *name == TEST_THREADS).unwrap().1;
        assert_eq!(threads.unwrap(), "3");
        assert!(Programs::parse("{", None).is_err());
    }
}
