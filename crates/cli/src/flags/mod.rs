//! The command line: what was typed (`defs`, `load_defs`) and what it means (`high`; that of a load is in
//! its own crate).

pub(crate) mod capacity_defs;
#[cfg(test)]
mod defaults;
pub(crate) mod defs;
mod fit;
pub(crate) mod high;
pub(crate) mod lab_advise_defs;
pub(crate) mod lab_defs;
pub(crate) mod lab_link_defs;
pub(crate) mod lab_paper_defs;
pub(crate) mod lab_report_defs;
pub(crate) mod lab_server_defs;
pub(crate) mod limits;
pub(crate) mod load_defs;
pub(crate) mod memory;
pub(crate) mod precompress_defs;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, CommandFactory, FromArgMatches};
use loadline_spec::load::LoadSpec;

use crate::failure::Failure;
use defs::{Command, Loadline};

/// What a command line comes to.
#[derive(Debug)]
pub(crate) enum Typed {
    /// Do this.
    Command(Command),
    /// Print this (help, version) and be done.
    Print(String),
}

/// Reads a command line, the program's name included.
pub(crate) fn read<I>(arguments: I) -> Result<Typed, Failure>
where
    I: IntoIterator<Item = OsString>,
{
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command_name = command_named(&arguments);
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Loadline::from_arg_matches(&matches));
    match parsed {
        Ok(typed) => Ok(Typed::Command(typed.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Typed::Print(error.to_string()))
            }
            _ => Err(Failure::usage(visible(&one_line(&error, &command_name)))),
        },
    }
}

/// The command that a line names: "lab run".
fn command_named(arguments: &[OsString]) -> String {
    let mut command = &Loadline::command();
    let mut names = Vec::new();
    for word in arguments.iter().skip(1) {
        let named = word.to_str().and_then(|word| command.find_subcommand(word));
        let Some(named) = named else { break };
        names.push(named.get_name());
        command = named;
    }
    match names.is_empty() {
        true => "serve".to_owned(), // the options of a server are what is asked for most
        false => names.join(" "),
    }
}

/// What is typed behind `loadline serve`.
#[cfg(test)]
pub(crate) fn serve_spec(line: &str) -> Result<loadline_spec::serve::ServeSpec, Failure> {
    let words = ["loadline", "serve"].into_iter();
    let words = words.chain(line.split_ascii_whitespace());
    match read(words.map(Into::into))? {
        Typed::Command(Command::Serve(spec)) => Ok(*spec),
        other => panic!("{other:?}"),
    }
}

/// The options of a load, a word each, as `--load` of `loadline lab capacity` has them.
pub(crate) fn load_words(words: &[String]) -> Result<LoadSpec, Failure> {
    let command = LoadSpec::augment_args(clap::Command::new("load").no_binary_name(true));
    allow_negative(command)
        .try_get_matches_from(words)
        .and_then(|matches| LoadSpec::from_arg_matches(&matches))
        .map_err(|error| Failure::usage(visible(&one_line(&error, "load"))))
}

/// Values that are numbers with a unit, or several of them, by the names of their kinds.
const MEASURES: [&str; 8] = [
    "TIME",
    "SIZE",
    "RATE",
    "SCALE",
    "N@SPEED",
    "ON/OFF",
    "FROM..TO",
    "FROM..TO/STEP",
];

/// A negative number is a value like any other, with a unit or without: out of range, rather than an
/// unknown option.
fn command() -> clap::Command {
    Loadline::command()
        .mut_subcommand("serve", allow_negative)
        .mut_subcommand("load", allow_negative)
}

fn allow_negative(command: clap::Command) -> clap::Command {
    command.mut_args(|argument| {
        let takes_value = argument.get_action().takes_values() && !argument.is_positional();
        let mut kinds = argument.get_value_names().unwrap_or_default().iter();
        let is_measure = kinds.any(|kind| MEASURES.contains(&kind.as_str()));
        match is_measure {
            true => argument.allow_hyphen_values(true),
            false => argument.allow_negative_numbers(takes_value),
        }
    })
}

/// The completion script for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Loadline::command(), "loadline", &mut script);
    script
}

/// A refusal as one line: option, value, and what would be right.
fn one_line(error: &clap::Error, command: &str) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let option = text(ContextKind::InvalidArg).unwrap_or_default();
    // "--loops <N>" is how clap names it; the placeholder says nothing here.
    let option = option.split(" <").next().unwrap_or_default().to_owned();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let did_you_mean =
        |kind| text(kind).map_or(String::new(), |it| format!("; did you mean {it}?"));
    match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => {
            let right = text(ContextKind::ValidValue).filter(|right| !right.is_empty());
            let right = right.map_or(String::new(), |right| {
                format!("; right would be one of {right}")
            });
            format!("{option}: the value is missing{right}")
        }
        ErrorKind::InvalidValue => format!(
            "{option} {value}: unknown{}; right would be one of {}",
            did_you_mean(ContextKind::SuggestedValue),
            text(ContextKind::ValidValue).unwrap_or_default(),
        ),
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map_or(String::new(), |why| why.to_string());
            format!("{option} {}: {why}", quoted(&value))
        }
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            let hint = did_you_mean(ContextKind::SuggestedArg);
            format!("{option}: no such option{hint}; loadline {command} --help lists them")
        }
        ErrorKind::UnknownArgument if command == "serve" => {
            format!("{option}: one directory is enough; loadline serve --help shows how")
        }
        ErrorKind::UnknownArgument => {
            format!("{option}: one is enough; loadline {command} --help shows how")
        }
        ErrorKind::InvalidSubcommand => format!(
            "{}: no such command{}; right would be {}",
            text(ContextKind::InvalidSubcommand).unwrap_or_default(),
            did_you_mean(ContextKind::SuggestedSubcommand),
            match command {
                "lab" =>
                    "run, paper, compare, server, link, capacity, report, verify, advise or results",
                _ => "serve, precompress, load, lab or completions",
            },
        ),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            missing_command(command).to_owned()
        }
        ErrorKind::MissingRequiredArgument => missing_argument(&option, command),
        ErrorKind::ArgumentConflict => format!("{option}: given more than once"),
        _ => {
            let whole = error.to_string();
            let line = whole.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    }
}

fn missing_argument(option: &str, command: &str) -> String {
    let (what, right) = match command {
        "precompress" => ("the directory", "DIR"),
        "lab run" => (option, "PLAN --out DIR"),
        "lab capacity" => {
            let right = "--slo 'p99 < 50ms' URL, or -- and how a server is started";
            (option, right)
        }
        "lab paper" => ("the paper", "P1"),
        "lab server" => (option, "NAME --root DIR --dir DIR"),
        of_lab if of_lab.starts_with("lab ") => ("the folder of the run", "RUN"),
        _ => return format!("{option} is missing: the options given need it"),
    };
    format!("{what} is missing; right would be loadline {command} {right}")
}

fn missing_command(command: &str) -> &'static str {
    match command {
        "lab" => {
            "lab: the command is missing; right would be loadline lab run PLAN --out DIR, and loadline \
             lab --help says more"
        }
        _ => {
            "the command is missing; right would be loadline serve [DIR] or loadline load URL, and \
             loadline --help says more"
        }
    }
}

/// The line with whatever would not be seen, or would end it, written out.
fn visible(line: &str) -> String {
    let written_out = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    line.chars().map(written_out).collect()
}

/// An empty value, or one with spaces, in quotes, so that it can be seen.
fn quoted(value: &str) -> String {
    if value.is_empty() || value.contains(' ') {
        format!("'{value}'")
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "checked by the same -->\n";
    const END: &str = "<!-- end of options -->";

    /// The options of a command as tables, a heading each.
    fn documented(name: &str) -> String {
        let mut command = Loadline::command();
        command.build();
        let command = name.split(' ').fold(&command, |command, name| {
            command.find_subcommand(name).unwrap()
        });
        let options = || {
            command
                .get_arguments()
                .filter(|option| !option.is_hide_set())
        };
        let mut headings: Vec<Option<&str>> = Vec::new();
        for option in options() {
            if !headings.contains(&option.get_help_heading()) {
                headings.push(option.get_help_heading());
            }
        }
        let mut text = String::new();
        for heading in headings {
            text += &format!(
                "\n### {}\n\n| option | default | what it does |\n|---|---|---|\n",
                heading.unwrap_or("What and where")
            );
            let of_heading = |option: &&clap::Arg| {
                option.get_help_heading() == heading && option.get_id() != "help"
            };
            for option in options().filter(of_heading) {
                text += &row(option);
            }
        }
        text + "\n"
    }

    fn row(option: &clap::Arg) -> String {
        let takes = option.get_action().takes_values();
        let is_several = matches!(option.get_action(), clap::ArgAction::Append);
        let value = option
            .get_value_names()
            .filter(|_| takes)
            .map(|names| names[0].as_str());
        let short = option.get_short();
        let short = short.map_or(String::new(), |short| format!("-{short}, "));
        let name = match (option.get_long(), value) {
            (Some(long), Some(value)) => format!("{short}--{long} {value}"),
            (Some(long), None) => format!("{short}--{long}"),
            (None, Some(value)) if option.is_last_set() => format!("-- {value}..."),
            (None, Some(value)) if is_several => format!("{value}..."),
            (None, value) => value.unwrap_or_default().to_owned(),
        };
        let help = option.get_help().unwrap().to_string();
        let (help, noted) = help.split_once(" [default: ").unwrap_or((&help, ""));
        let noted = noted.trim_end_matches("].").trim_end_matches(']');
        let default = match option.get_default_values() {
            [default] if takes => format!("`{}`", default.to_string_lossy()),
            _ => noted.to_owned(),
        };
        let choices: Vec<String> = option
            .get_possible_values()
            .iter()
            .filter(|choice| takes && !choice.is_hide_set())
            .map(|choice| format!("`{}`", choice.get_name()))
            .collect();
        let choices = match choices.is_empty() {
            true => String::new(),
            false => format!(" One of {}.", choices.join(", ")),
        };
        let help = help.trim_end_matches('.').replace('|', "\\|");
        format!(
            "| `{}` | {default} | {help}.{choices} |\n",
            name.replace('|', "\\|")
        )
    }

    #[test]
    fn every_option_is_documented() {
        for (name, page) in [
            ("serve", "serve"),
            ("precompress", "compression"),
            ("load", "load"),
            ("lab run", "lab"),
            ("lab capacity", "capacity"),
            ("lab advise", "advice"),
            ("lab paper", "papers"),
            ("lab link", "links"),
        ] {
            check_page(name, page);
        }
    }

    fn check_page(name: &str, page_name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let path = format!("{folder}/{page_name}.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (options, after) = rest.split_once(END).unwrap();
        let right = documented(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let page = format!("{before}{BEGIN}{right}{END}{after}");
            return std::fs::write(path, page).unwrap();
        }
        assert_eq!(
            options, right,
            "{page_name}.md: run it again with UPDATE_DOCS=1 in the environment"
        );
    }

    /// Commands that serve or load in the code of a page, each with the lines that continue it.
    fn commands(page: &str) -> Vec<String> {
        let mut is_fenced = false;
        let mut found = Vec::new();
        for line in page.replace("\\\n", " ").lines() {
            let code = line.trim_start();
            if code.starts_with("```") {
                is_fenced = !is_fenced;
            }
            let code = code.strip_prefix("$ ").unwrap_or(code);
            let is_code = is_fenced || line.starts_with("    ");
            let rest = code.strip_prefix("loadline ");
            let name = rest.and_then(|rest| rest.split(' ').next());
            if is_code && matches!(name, Some("serve" | "load")) {
                found.push(code.to_owned());
            }
        }
        found
    }

    /// The words that a shell makes of a command, as far as the manual needs: quotes, and no comments.
    fn shell_words(command: &str) -> Vec<OsString> {
        let (mut words, mut word) = (Vec::<String>::new(), None::<String>);
        let mut is_quoted = false;
        for c in command.chars() {
            match c {
                '\'' => is_quoted = !is_quoted,
                '#' if word.is_none() => break,
                ' ' if !is_quoted => words.extend(word.take()),
                c => word.get_or_insert_with(String::new).push(c),
            }
        }
        words.extend(word);
        words.into_iter().map(OsString::from).collect()
    }

    /// What is wrong with a command, as far as that can be said without files and servers.
    fn check_command(command: &str) -> Result<(), String> {
        let machine = high::Machine {
            budget: loadline_sys::affinity::CpuBudget {
                affinity: 2,
                quota_milli: None,
            },
            descriptors_max: 20_000,
            memory: None,
            refuses_io_uring: None,
        };
        match read(shell_words(command)).map_err(|failure| failure.message)? {
            Typed::Command(Command::Serve(spec)) => high::plan(*spec, &machine)
                .map(drop)
                .map_err(|failure| failure.message),
            Typed::Command(Command::Load(flags)) => {
                flags.spec.check().map_err(|error| error.to_string())
            }
            Typed::Command(other) => Err(format!("it is another command: {other:?}")),
            Typed::Print(_) => Ok(()),
        }
    }

    #[test]
    fn the_manuals_commands_can_be_typed_as_they_are() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let docs = std::fs::read_dir(root.join("docs")).unwrap();
        let pages = docs.map(|page| page.unwrap().path());
        let pages = pages.filter(|page| page.extension().is_some_and(|it| it == "md"));
        let mut over_tls = 0;
        for path in pages.chain([root.join("README.md")]) {
            let page = std::fs::read_to_string(&path).unwrap();
            // The one name that readers have to put in themselves.
            for command in commands(&page.replace("YOUR-DOMAIN", "example.org")) {
                let checked = check_command(&command);
                assert_eq!(checked, Ok(()), "{}: {command}", path.display());
                over_tls += usize::from(command.contains("https://"));
            }
        }
        assert!(over_tls > 10, "{over_tls} commands with https were found");
    }

    #[test]
    fn commands_of_a_page_are_those_in_its_code() {
        let page = "loadline serve is text\n\n    loadline serve a \\\n        --listen b   # c\n\n\
                    ```sh\n$ loadline load 'd e'\nloadline lab run f\nloadline serve\n```\n";
        let words: Vec<_> = commands(page).iter().map(|it| shell_words(it)).collect();
        assert_eq!(
            words,
            [
                &["loadline", "serve", "a", "--listen", "b"][..],
                &["loadline", "load", "d e"],
                &["loadline", "serve"],
            ]
        );
    }

    #[test]
    fn the_definitions_are_sound() {
        Loadline::command().debug_assert();
    }
}
