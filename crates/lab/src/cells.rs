//! Cells: one combination of levels each, with everything that its trials need.

use std::collections::{BTreeMap, BTreeSet};

use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::Cpus;
use loadline_spec::{SpecError, ValueError};

use crate::journal::{Level, Levels};
use crate::link::LinkSpec;
use crate::plan::{
    Factor, Network, Placement, Plan, PlanError, PlannedLoad, Repeated, Series, ServerSpec,
    Settings, Site, check_site_bytes,
};

/// Cells of a plan: more is a slip, a trial of a second each would take days.
const CELLS_MAX: usize = 50_000;

/// One combination of levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Index into [`Plan::series`].
    pub series: usize,
    /// What distinguishes it; `server` is always among them.
    pub levels: Levels,
    /// Name of the server.
    pub server: String,
    /// The options of the server; paths and texts with placeholders.
    pub serve: ServerSpec,
    /// The load, without what the lab sets itself; paths and texts with placeholders.
    pub load: LoadSpec,
    /// Whether the client may spin where it has CPUs of its own: `spin = false` says no.
    pub may_spin: bool,
    /// The rate as a multiple of what the server carries, if it is given so.
    pub rate_of_capacity: Option<f64>,
    /// The server whose capacity that is; `None`: its own.
    pub capacity_of: Option<String>,
    /// What is asked for.
    pub path: String,
    /// Where both sides run.
    pub placement: Placement,
    /// CPUs that the server's processes may use on average; `None`: all of theirs.
    pub cpu_quota: Option<f64>,
    /// What both sides are joined by, where there is no link.
    pub network: Network,
    /// A slow network between them; `None`: none.
    pub link: Option<LinkSpec>,
    /// Whether it is run twice in each block.
    pub is_repeated: bool,
}

impl Cell {
    /// How its server is asked: `https` if that is Loadline with a certificate, or another one of which
    /// the load says whom to trust.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        let is_https = match &self.serve {
            ServerSpec::Loadline(serve) => serve.tls.has_certificate(),
            ServerSpec::Other(_) => self.load.tls.says_trust(),
        };
        if is_https { "https" } else { "http" }
    }
}

/// All cells of a plan in the order of the file, and the files that they ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    /// The cells.
    pub cells: Vec<Cell>,
    /// What is made below the document root: path and size in bytes; empty if the root is a folder
    /// that is there.
    pub files: BTreeMap<String, u64>,
}

impl Cells {
    /// Combines the levels of each series, on a machine with these CPUs, without servers that are not
    /// installed.
    ///
    /// # Errors
    /// Which series and cell, what is wrong with it and what would be right.
    pub fn of(plan: &Plan, cpus: &[usize], left_out: &[String]) -> Result<Self, PlanError> {
        let mut all = Self::default();
        if let Site::Made(files) = &plan.site {
            all.files.clone_from(files);
        }
        let mut known = BTreeSet::new();
        for (index, series) in plan.series.iter().enumerate() {
            let wrong = |problem: Wrong| problem.of_series(&series.name);
            let cells = Maker {
                plan,
                series,
                index,
                cpus,
                left_out,
            };
            let made = cells.make(&mut all.files).map_err(wrong)?;
            check_site_bytes(&all.files).map_err(|problem| wrong(Wrong::whole(problem)))?;
            for cell in made {
                let levels = levels_text(&cell.levels);
                if !known.insert((&series.name, levels.clone())) {
                    return Err(wrong(Wrong::whole(format!(
                        "the cell {levels} is there twice"
                    ))));
                }
                all.cells.push(cell);
                if all.cells.len() > CELLS_MAX {
                    return Err(wrong(Wrong::whole(format!(
                        "more than {CELLS_MAX} cells; right would be fewer levels"
                    ))));
                }
            }
        }
        all.check_capacities(plan)?;
        if all.cells.is_empty() {
            return Err(PlanError::Whole(
                "no cell is left: every server is missing, or every cell excepted".to_owned(),
            ));
        }
        Ok(all)
    }

    /// The levels of all cells that a series would have without its exceptions.
    ///
    /// # Errors
    /// Two factors set the same, or the cells are too many.
    pub(crate) fn combinations(plan: &Plan, index: usize) -> Result<Vec<Levels>, PlanError> {
        let series = &plan.series[index];
        let maker = Maker {
            plan,
            series,
            index,
            cpus: &[],
            left_out: &[],
        };
        let wrong = |problem: SpecError| Wrong::whole(problem).of_series(&series.name);
        let drafts = maker.drafts().map_err(wrong)?;
        Ok(drafts.into_iter().map(|draft| draft.levels).collect())
    }

    /// Whether the server whose capacity a rate is a multiple of is run as well.
    fn check_capacities(&self, plan: &Plan) -> Result<(), PlanError> {
        let lost = |cell: &&Cell| cell.capacity_cell(&self.cells).is_none();
        self.cells.iter().find(lost).map_or(Ok(()), |cell| {
            let problem = format!(
                "rate_of_capacity of {}, which the series is not run with; right would be one of its \
                 servers",
                cell.capacity_of.as_deref().unwrap_or_default()
            );
            Err(Wrong::whole(problem).of_series(&plan.series[cell.series].name))
        })
    }
}

impl Cell {
    /// The cell whose server's capacity its rate is a multiple of: itself, if nothing else is said.
    #[must_use]
    pub fn capacity_cell<'c>(&'c self, cells: &'c [Self]) -> Option<&'c Self> {
        let Some(server) = &self.capacity_of else {
            return Some(self);
        };
        let mut levels = self.levels.clone();
        levels.insert("server".to_owned(), Level::from(server.as_str()));
        let mut cells = cells.iter();
        cells.find(|it| it.series == self.series && it.levels == levels)
    }
}

/// `server=reactor, service_us=200`.
#[must_use]
pub fn levels_text(levels: &Levels) -> String {
    let texts = levels.iter().map(|(name, level)| format!("{name}={level}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// What is wrong with a cell, or with a whole series.
struct Wrong {
    /// "LEVELS: "; empty: the whole series.
    cell: String,
    problem: SpecError,
}

impl Wrong {
    fn whole(problem: impl Into<SpecError>) -> Self {
        Self {
            cell: String::new(),
            problem: problem.into(),
        }
    }

    fn of_series(self, series: &str) -> PlanError {
        PlanError::InSeries {
            series: series.to_owned(),
            cell: self.cell,
            problem: Box::new(self.problem),
        }
    }
}

/// Makes the cells of one series.
struct Maker<'p> {
    plan: &'p Plan,
    series: &'p Series,
    index: usize,
    cpus: &'p [usize],
    /// Servers that are not installed.
    left_out: &'p [String],
}

/// What the levels of a cell come to, before it is checked.
#[derive(Clone)]
struct Draft {
    levels: Levels,
    server: String,
    /// Of all levels together, over the options of the series.
    sets: Settings,
    /// What has been set by a factor, and by which.
    set_by: BTreeMap<String, String>,
}

impl Maker<'_> {
    /// The cells whose servers are there.
    fn make(&self, files: &mut BTreeMap<String, u64>) -> Result<Vec<Cell>, Wrong> {
        let mut cells = Vec::new();
        for draft in self.drafts().map_err(Wrong::whole)? {
            let has = |levels: &Levels| {
                let mut some = levels.iter();
                some.all(|(name, level)| draft.levels.get(name) == Some(level))
            };
            if self.series.except.iter().any(has) {
                continue;
            }
            let is_repeated = match &self.series.a_a {
                Repeated::None => false,
                Repeated::First => cells.is_empty(),
                Repeated::Of(some) => some.iter().any(has),
            };
            let cell = levels_text(&draft.levels) + ": ";
            let made = self.cell(draft, files, is_repeated);
            let cell = made.map_err(|problem| Wrong { cell, problem })?;
            if !self.is_left_out(&cell) {
                cells.push(cell);
            }
        }
        Ok(cells)
    }

    /// Whether its server is missing, or the one whose capacity its rate is a multiple of.
    fn is_left_out(&self, cell: &Cell) -> bool {
        let mut servers = std::iter::once(&cell.server).chain(&cell.capacity_of);
        servers.any(|server| self.left_out.contains(server))
    }

    /// All combinations, before exceptions.
    fn drafts(&self) -> Result<Vec<Draft>, SpecError> {
        let is_decided = |factor: &Factor| {
            let mut levels = factor.levels.iter();
            levels.all(|level| level.sets.server.is_some())
        };
        let mut servers = self.series.servers.as_slice();
        if self.series.factors.iter().any(is_decided) {
            servers = &servers[..1];
        }
        let mut drafts = Vec::new();
        for server in servers {
            drafts.extend(self.drafts_of(server)?);
        }
        for draft in &mut drafts {
            let server = Level::Text(draft.server.clone());
            draft.levels.insert("server".to_owned(), server);
        }
        Ok(drafts)
    }

    /// Those of one server.
    fn drafts_of(&self, server: &str) -> Result<Vec<Draft>, SpecError> {
        let series = self.series;
        let first = Draft {
            levels: Levels::new(),
            server: server.to_owned(),
            sets: Settings {
                serve: series.serve.clone(),
                load: series.load.clone(),
                ..Settings::default()
            },
            set_by: BTreeMap::new(),
        };
        let mut drafts = vec![first];
        for factor in &series.factors {
            let mut next = Vec::new();
            if drafts.len().saturating_mul(factor.levels.len()) > CELLS_MAX {
                let problem = format!("more than {CELLS_MAX} cells");
                return Err(ValueError::new(problem, "fewer levels").into());
            }
            for draft in &drafts {
                for level in &factor.levels {
                    let mut one = draft.clone();
                    one.levels.insert(factor.name.clone(), level.level.clone());
                    one.set(&factor.name, &level.sets)?;
                    next.push(one);
                }
            }
            drafts = next;
        }
        Ok(drafts)
    }

    fn cell(
        &self,
        draft: Draft,
        files: &mut BTreeMap<String, u64>,
        is_repeated: bool,
    ) -> Result<Cell, SpecError> {
        let (series, sets) = (self.series, draft.sets);
        let server = self.plan.servers.get(&draft.server);
        let server = server.ok_or_else(|| format!("no server {}", draft.server))?;
        let serve = server.varied(&sets.serve)?;
        let load = PlannedLoad::new(sets.load)?;
        let path = match sets.file_bytes {
            None => sets.path.unwrap_or_else(|| series.path.clone()),
            Some(_) if matches!(self.plan.site, Site::Folder(_)) => {
                let problem = "file_bytes makes files, and root is a folder that is there";
                return Err(ValueError::new(problem, "path").into());
            }
            Some(bytes) => {
                let name = format!("{bytes}-bytes.bin");
                files.insert(name.clone(), bytes);
                format!("/{name}")
            }
        };
        let cpus = sets.cpus.as_ref().unwrap_or(&series.cpus);
        let placement = self.plan.placement(cpus, self.cpus);
        let placement = placement.ok_or_else(|| format!("no cpus {cpus}"))?;
        for cpu in placement.server.iter().chain(&placement.client) {
            if !self.cpus.contains(cpu) {
                let problem = format!(
                    "cpus {cpus}: CPU {cpu} is not one of this process ({})",
                    cpus_text(self.cpus)
                );
                let right = "split, one or shared, which every machine has";
                return Err(ValueError::new(problem, right).into());
            }
        }
        Ok(Cell {
            series: self.index,
            levels: draft.levels,
            server: draft.server,
            serve,
            load: load.spec,
            may_spin: load.may_spin,
            rate_of_capacity: load.rate_of_capacity,
            capacity_of: load.capacity_of,
            path,
            placement,
            cpu_quota: sets.cpu_quota.or(series.cpu_quota),
            network: sets.network.unwrap_or(series.network),
            link: sets.link.map_or(series.link, |link| link.0),
            is_repeated,
        })
    }
}

impl Draft {
    /// Sets what a level sets. Two factors that set the same would leave it to their names which one
    /// counts.
    fn set(&mut self, factor: &str, sets: &Settings) -> Result<(), SpecError> {
        let mut names: Vec<String> = Vec::new();
        names.extend(sets.serve.keys().map(|name| format!("the server's {name}")));
        names.extend(sets.load.keys().map(|name| format!("the load's {name}")));
        names.extend(sets.server.iter().map(|_| "the server".to_owned()));
        names.extend(sets.cpus.iter().map(|_| "cpus".to_owned()));
        names.extend(sets.cpu_quota.iter().map(|_| "cpu_quota".to_owned()));
        // A link is a network of its own.
        let has_network = sets.network.is_some() || sets.link.is_some();
        names.extend(has_network.then(|| "the network".to_owned()));
        let has_path = sets.path.is_some() || sets.file_bytes.is_some();
        names.extend(has_path.then(|| "the path".to_owned()));
        for name in names {
            if let Some(other) = self.set_by.insert(name.clone(), factor.to_owned()) {
                let problem = format!("the factors {other} and {factor} both set {name}");
                return Err(ValueError::new(problem, "one of them").into());
            }
        }
        if let Some(server) = &sets.server {
            self.server.clone_from(server);
        }
        let all = &mut self.sets;
        all.serve.extend(sets.serve.clone());
        all.load.extend(sets.load.clone());
        all.path = sets.path.clone().or_else(|| all.path.take());
        all.file_bytes = sets.file_bytes.or(all.file_bytes);
        all.cpus = sets.cpus.clone().or_else(|| all.cpus.take());
        all.cpu_quota = sets.cpu_quota.or(all.cpu_quota);
        all.network = sets.network.or(all.network);
        all.link = sets.link.or(all.link);
        Ok(())
    }
}

/// CPUs as people write them: `0-2,5`.
#[must_use]
pub fn cpus_text(cpus: &[usize]) -> String {
    Cpus(cpus.to_vec()).to_string()
}

#[cfg(test)]
mod tests;
