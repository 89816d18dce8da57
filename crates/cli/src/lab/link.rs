//! `loadline lab link`: a link against its own settings; and the relay that carries its packets.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use loadline_lab::link::PRESETS;
use loadline_lab::runner::link_check::{LinkCheck, check_link};
use loadline_lab::runner::relay::{RelayOptions, relay};
use loadline_spec::load::values::Cpus;

use crate::failure::{Exit, Failure};
use crate::files::Output;
use crate::flags::lab_link_defs::{LabLinkFlags, RelayFlags};

/// Lists links by name, or measures one.
pub(super) fn link(flags: &LabLinkFlags) -> Result<(), Failure> {
    let Some(link) = &flags.link else {
        return crate::print(list().as_bytes());
    };
    let json = Output::open("--json", flags.json.as_deref())?;
    // Signals are not caught: their thread would come before the namespaces, which end by themselves.
    let check = check_link(link, flags.seed, *flags.each).map_err(Failure::failed)?;
    crate::print(page(&check).as_bytes())?;
    Output::write(json, |to| to.write_all(&serde_json::to_vec_pretty(&check)?))?;
    match check.holds() {
        true => Ok(()),
        false => {
            let why = "the link is not as set; a machine that is busy may be the reason";
            Err(Failure::new(Exit::BindOrAssert, why))
        }
    }
}

/// Carries packets for a trial.
pub(super) fn carry(flags: &RelayFlags) -> Result<(), Failure> {
    let cpus = |list: &Option<Cpus>| list.as_ref().map(|list| list.0.clone()).unwrap_or_default();
    let options = RelayOptions {
        link: flags.link,
        seed: flags.seed,
        server_cpus: cpus(&flags.server_cpus),
        client_cpus: cpus(&flags.client_cpus),
    };
    relay(&options).map_err(|error: io::Error| Failure::failed(format!("relay: {error}")))
}

fn list() -> String {
    let mut page = String::new();
    for preset in PRESETS {
        let _ = writeln!(
            page,
            "{:10} {}\n{:10} {}\n{:10} {}",
            preset.name, preset.about, "", preset.text, "", preset.source
        );
    }
    page
}

fn page(check: &LinkCheck) -> String {
    let mut page = format!("link: {}\n", check.link.settings);
    let _ = writeln!(page, "{:16} {:>14} {:>14}", "", "as set", "measured");
    for row in &check.rows {
        let wanted = match (row.wanted, row.name.starts_with("bulk")) {
            (Some(most), true) => format!("<= {most:.2}"),
            (Some(wanted), false) => format!("{wanted:.2}"),
            (None, _) => "-".to_owned(),
        };
        let (name, unit, measured) = (&row.name, &row.unit, row.measured);
        let mark = match row.holds {
            Some(false) => "  off",
            _ => "",
        };
        let _ = writeln!(page, "{name:16} {wanted:>14} {measured:>14.2} {unit}{mark}");
    }
    for (name, way) in [("down", &check.link.down), ("up", &check.link.up)] {
        let late = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us}"));
        let _ = writeln!(
            page,
            "{name}: {} packets, {} lost, {} dropped at the full buffer, {} refused; late by {} us \
             (median), {} us (99 %), {} us (most)",
            way.packets,
            way.lost,
            way.dropped,
            way.refused,
            late(way.late_p50_us),
            late(way.late_p99_us),
            late(way.late_max_us)
        );
    }
    let _ = writeln!(
        page,
        "relay: {:.2} s of CPU time; bulk transfers by {}",
        check.link.cpu_s, check.congestion_control
    );
    page
}
