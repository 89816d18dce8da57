//! `loadline lab run --until-decided`: what is said of the plan's comparisons, and the blocks that they
//! still need.

use loadline_lab::analysis::Run;
use loadline_lab::decide::{Looks, Pair, Verdict, cells, judge, named, pairs};
use loadline_lab::journal::{self, AddedBlocks, Line};
use loadline_lab::runner::Prepared;

use crate::failure::Failure;
use crate::flags::lab_defs::LabRunFlags;
use crate::say;

/// When it is looked; `None`: never.
pub(super) fn looks(flags: &LabRunFlags, prepared: &Prepared) -> Result<Option<Looks>, Failure> {
    if !flags.until_decided {
        return Ok(None);
    }
    if pairs(&prepared.plan, &prepared.expansion).is_empty() {
        return Err(Failure::usage(
            "--until-decided: no series of the plan says what is to be decided; right would be compare = \
             { metric = \"good_per_s\", with = { loops = 1 } }",
        ));
    }
    let blocks_max = flags.blocks_max as u32;
    if let Some(other) = prepared.added.iter().find(|it| it.blocks_max != blocks_max) {
        return Err(Failure::usage(format!(
            "--blocks-max {blocks_max}: the run in {} was gone on with up to {} blocks, and when to look \
             follows from that; right would be the same",
            flags.out.display(),
            other.blocks_max
        )));
    }
    let looks = Looks::new(prepared.blocks_planned, blocks_max);
    looks.map(Some).map_err(Failure::usage)
}

/// Says how comparisons stand (with --quiet, too: it is the answer), and adds blocks for those that are not decided; says whether there are
/// any.
pub(super) fn add_blocks(
    prepared: &mut Prepared,
    flags: &LabRunFlags,
    looks: &Looks,
) -> Result<bool, Failure> {
    let run = Run::read(&flags.out).map_err(Failure::failed)?;
    let (plan, expansion) = (&prepared.plan, &mut prepared.expansion);
    let mut undecided: Vec<Pair> = Vec::new();
    for pair in pairs(plan, expansion) {
        let verdict = judge(&pair, plan, expansion, &run, looks.level());
        say(&format!("{}: {}", named(&pair, expansion), words(&verdict)));
        if !verdict.is_decided {
            undecided.push(pair);
        }
    }
    let blocks = expansion.block_count();
    let Some(next) = looks.after(blocks).filter(|_| !undecided.is_empty()) else {
        return Ok(false);
    };
    let added = AddedBlocks {
        count: next - blocks,
        blocks_max: flags.blocks_max as u32,
        cells: cells(&undecided),
    };
    say(&format!(
        "{} not decided: {} more blocks of {} cells",
        undecided.len(),
        added.count,
        added.cells.len()
    ));
    if let Some(store) = &mut prepared.store {
        let line = Line::Blocks(added.clone());
        store.append(&line).map_err(Failure::failed)?;
    }
    let grown = expansion.add_blocks(prepared.head.seed, &added);
    grown.map_err(Failure::failed)?;
    prepared.recorded = journal::read(&flags.out).map_err(Failure::failed)?.trials;
    Ok(true)
}

fn words(verdict: &Verdict) -> String {
    let Some(ratio) = &verdict.ratio else {
        return "no ratio, since there are too few blocks, or 0 in one of them".to_owned();
    };
    let what = match verdict.is_decided {
        true => "decided",
        false => "not decided",
    };
    let (low, high, level) = (ratio.low, ratio.high, ratio.level * 100.0);
    format!("{what}, {low:.3} to {high:.3} ({level:.1} % interval)")
}
