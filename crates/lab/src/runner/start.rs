//! How servers of a plan are started, for those who start them themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::child::find_program;
use super::error::RunnerError;
use super::launch_context::LaunchContext;
use super::network::Link;
use super::servers::{is_root, launch, program, shown};
use super::site::large_files;
use crate::plan::{Plan, Server, Site};

/// Where a server is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Where {
    /// Of 127.0.0.1.
    pub port: u16,
    /// The folder that it serves, from the root of the file system.
    pub root: PathBuf,
    /// A folder of its own, likewise.
    pub folder: PathBuf,
    /// What is asked for.
    pub path: String,
    /// CPUs that it may use.
    pub cpu_count: usize,
}

/// How a server is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Its name in the plan.
    pub name: String,
    /// Whether its program is there.
    pub is_installed: bool,
    /// One element for each word; this program is called "loadline".
    pub command: Vec<String>,
    /// What has to be in `configuration_file` when it is started, if anything.
    pub configuration: Option<String>,
    /// A file below [`Where::folder`].
    pub configuration_file: PathBuf,
}

/// Every server of a plan, with its own options: what a series adds to them is not known here.
///
/// # Errors
/// An option that a server does not have, and what would be right.
pub fn starts(plan: &Plan, context: &Where) -> Result<Vec<Start>, RunnerError> {
    let large_files = match &plan.site {
        Site::Made(files) => large_files(files),
        Site::Folder(_) => Vec::new(),
    };
    let databases = BTreeMap::new(); // whoever starts a server has databases of its own
    let start = |server: &Server| {
        let context = LaunchContext {
            port: context.port,
            link: &Link::Loopback,
            root: &context.root,
            path: &context.path,
            databases: &databases,
            scratch: &context.folder,
            plan: &plan.folder,
            cpu_count: context.cpu_count,
            large_files: &large_files,
            is_root: is_root(),
            descriptors: loadline_sys::usage::descriptor_limit().hard.min(1 << 20),
        };
        let launch = launch(server, &server.spec, &context)
            .map_err(RunnerError::at(format!("server {}", server.name)))?;
        Ok(Start {
            name: server.name.clone(),
            is_installed: program(server).is_none_or(|name| find_program(name).is_some()),
            command: shown(&launch.command),
            configuration: launch.configuration,
            configuration_file: context.configuration_file(),
        })
    };
    plan.servers.values().map(start).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_server_of_a_plan_says_how_it_is_started() {
        let text = "name = \"t\"\nfiles = { \"a.html\" = 600, \"b.bin\" = 1048576 }\n\
                    [servers.nginx-tuned]\n[servers.loadline]\noptions = { loops = 2 }\n\
                    [servers.none]\ncommand = [\"no-such-program\", \"{port}\", \"{root}{path}\"]\n\
                    [[series]]\nname = \"s\"";
        let plan = Plan::parse(text, "plan", Path::new("/plans")).unwrap();
        let context = Where {
            port: 8123,
            root: "/root-of-files".into(),
            folder: "/own".into(),
            path: "/a.html".to_owned(),
            cpu_count: 1,
        };
        let all = starts(&plan, &context).unwrap();
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["loadline", "nginx-tuned", "none"]);
        assert_eq!(all[0].command[..3], ["loadline", "serve", "/root-of-files"]);
        assert!(all[0].is_installed && all[0].configuration.is_none());
        let configuration = all[1].configuration.as_ref().unwrap();
        assert!(
            configuration.contains("location = /b.bin"),
            "{configuration}"
        );
        assert_eq!(all[1].configuration_file, Path::new("/own/configuration"));
        let right = ["no-such-program", "8123", "/root-of-files/a.html"];
        assert_eq!(
            (&all[2].command[..], all[2].is_installed),
            (&right.map(str::to_owned)[..], false)
        );
    }
}
