//! A server under test: which program, and its options as data.

use loadline_base::choice;
use loadline_spec::rules::refuse;
use loadline_spec::serve::ServeSpec;
use loadline_spec::{SpecError, Table, Value, ValueError, fill, given};

/// Options of `loadline serve` that the lab sets itself, and what a plan has in their place.
const OWN: [(&str, &str); 3] = [
    ("root", "root or files of the plan"),
    ("listen", "nothing: a free port is taken"),
    ("status-path", "nothing"),
];

/// Placeholders of a command that the lab fills in itself.
const PLACEHOLDERS: [&str; 10] = [
    "host",
    "port",
    "root",
    "path",
    "dir",
    "plan",
    "configuration",
    "loadline",
    "mariadb",
    "postgresql",
];

/// What can be set of the servers that the lab configures.
const FOREIGN_OPTIONS: [&str; 1] = ["workers"];

/// A server under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// As it stands in levels and reports.
    pub name: String,
    /// Which program it is.
    pub kind: ServerKind,
    /// Its options in every trial.
    pub spec: ServerSpec,
    /// How it is started, one element for each word, with placeholders; empty unless
    /// [`ServerKind::Command`].
    pub command: Vec<String>,
    /// A file that is written for each start, its path being `{configuration}`, with placeholders.
    pub configuration: Option<String>,
    /// What prints its version; empty: not known.
    pub version: Vec<String>,
    /// Whether the run goes without it where its program is not installed.
    pub optional: bool,
    /// Whether it is shown beside the others for what it says of them, and never advised.
    pub is_reference: bool,
}

choice! {
    /// Servers that the lab knows how to start, in the order of the documentation.
    ServerKind {
        /// `loadline serve`, with any of its options.
        Loadline "loadline",
        /// nginx as distributions configure it.
        NginxDefault "nginx-default",
        /// nginx with the best settings found.
        NginxTuned "nginx-tuned",
        /// Apache with its event module.
        ApacheEvent "apache-event",
        /// lighttpd.
        Lighttpd "lighttpd",
        /// h2o.
        H2o "h2o",
        /// Any other, by its command line.
        Command "command",
    }
}

/// The options of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerSpec {
    /// Those of `loadline serve`.
    Loadline(Box<ServeSpec>),
    /// Those of another program, by name: they are filled into its configuration or its command.
    Other(Table),
}

impl ServerSpec {
    /// As a table: what differs from the defaults of `loadline serve`, or all.
    #[must_use]
    pub fn table(&self) -> Table {
        match self {
            Self::Loadline(spec) => given(&**spec),
            Self::Other(table) => table.clone(),
        }
    }
}

impl Server {
    /// Its options with others over them.
    ///
    /// # Errors
    /// An option that it does not have, a value that the option does not take, or an option that the
    /// lab sets itself.
    pub fn varied(&self, over: &Table) -> Result<ServerSpec, SpecError> {
        if over.is_empty() {
            return Ok(self.spec.clone());
        }
        let mut table = self.spec.table();
        table.extend(over.clone());
        match &self.spec {
            ServerSpec::Loadline(_) => {
                refuse(&OWN, "the lab sets it itself", over)?;
                Ok(ServerSpec::Loadline(Box::new(fill(&table)?)))
            }
            ServerSpec::Other(_) => {
                self.check_foreign(&table)?;
                Ok(ServerSpec::Other(table))
            }
        }
    }

    /// With the options that a plan gives it.
    pub(super) fn with_options(mut self, options: &Table) -> Result<Self, SpecError> {
        let messages = [("log-level".to_owned(), Value::from("warn"))];
        self.spec = match self.kind {
            ServerKind::Loadline => ServerSpec::Loadline(Box::new(fill(&messages.into())?)),
            _ => ServerSpec::Other(Table::new()),
        };
        self.spec = self.varied(options)?;
        Ok(self)
    }

    /// Whether a program other than Loadline has a use for these options.
    fn check_foreign(&self, options: &Table) -> Result<(), SpecError> {
        if self.kind == ServerKind::Command {
            return self.check_placeholders(options);
        }
        let is_known = |name: &&String| FOREIGN_OPTIONS.contains(&name.as_str());
        match options.keys().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                let problem = format!("{} has no option {name} here", self.kind.name());
                let right = format!(
                    "{}, or a server of its own with command and configuration",
                    FOREIGN_OPTIONS.join(", ")
                );
                Err(ValueError::new(problem, right).into())
            }
        }
    }

    /// Options of a command are what stands in its placeholders: `{workers}`.
    fn check_placeholders(&self, options: &Table) -> Result<(), SpecError> {
        let texts = || self.command.iter().chain(&self.configuration);
        let given = || {
            options
                .iter()
                .filter(|(_, value)| **value != Value::Switch(false))
        };
        let mut names = given().map(|(name, _)| name);
        if let Some(name) = names.find(|name| PLACEHOLDERS.contains(&name.as_str())) {
            let problem = format!("{{{name}}} has a meaning already");
            return Err(ValueError::new(problem, "an option with another name").into());
        }
        let unused = given().find(|(name, _)| {
            let is_named = |text: &String| spellings(name).iter().any(|one| text.contains(one));
            !texts().any(is_named)
        });
        match unused {
            None => Ok(()),
            Some((name, _)) => {
                let problem = format!("nothing in the command of {} asks for {name}", self.name);
                let right = format!("{{{}}} in a word of it", name.replace('-', "_"));
                Err(ValueError::new(problem, right).into())
            }
        }
    }
}

/// `{worker_pools}` and `{worker-pools}`.
pub(crate) fn spellings(option: &str) -> [String; 2] {
    [
        format!("{{{option}}}"),
        format!("{{{}}}", option.replace('-', "_")),
    ]
}
