//! The budget of memory: what `--memory-max auto` comes to, and whether there is memory enough beside it.

use loadline_server::{Architecture, ServerOptions, fixed_memory_bytes};
use loadline_spec::SpecError;
use loadline_spec::serve::{MEMORY_LEAST, ServeSpec};
use loadline_spec::values::Auto;
use loadline_sys::memory_limit::MemoryLimit;

/// What was worked out.
#[derive(Debug)]
pub(super) struct MemoryPlan {
    /// `None`: without a limit.
    pub(super) budget_bytes: Option<u64>,
    /// What the file cache has of it.
    pub(super) cache_bytes: u64,
    /// Why the kernel may end the server for want of memory, and how much would do.
    pub(super) warning: Option<String>,
}

/// The share that `auto` takes of what the program itself leaves. The rest is for what is not counted: apps,
/// password hashing, the kernel's buffers of sockets, and the page cache, which files are served from.
const SHARE: u64 = 2;
/// The part of it that the file cache may have: the rest must be enough for connections.
const CACHE_SHARE: u64 = 4;

/// What the program itself and the allocator take at most beside the budget. Some 40 MiB were measured, and with
/// hundreds of threads, which use all of the allocator's arenas, 124 MiB (docs/overload.md). What workers have
/// received for connections is counted when their loop has them back.
fn reserve_bytes(options: &ServerOptions) -> u64 {
    match options.architecture {
        Architecture::ThreadPerConnection | Architecture::ThreadPool => 128 << 20,
        Architecture::Reactor | Architecture::Proactor if options.workers_parse() => 64 << 20,
        Architecture::Sequential | Architecture::Reactor | Architecture::Proactor => 48 << 20,
    }
}

/// The budget of memory, of what was found.
pub(super) fn memory(
    flags: &ServeSpec,
    options: &ServerOptions,
    found: Option<MemoryLimit>,
) -> Result<MemoryPlan, SpecError> {
    // The threads and the cache leave a quarter at least for connections.
    let least = fixed_memory_bytes(options).saturating_mul(2);
    let reserve_bytes = reserve_bytes(options);
    // The budget, and what there should be for it.
    let budget = match flags.memory.memory_max.0.0 {
        None => None,
        Some(Auto::Auto) => found.map(|found| {
            let left = found.bytes().saturating_sub(reserve_bytes);
            let bytes = (left / SHARE).max(least).max(MEMORY_LEAST);
            (bytes, bytes.saturating_mul(SHARE))
        }),
        Some(Auto::Given(given)) if *given < least => {
            let why = format!("the threads alone take {} bytes", least / 2);
            let error = SpecError::new("memory-max", why, format!("at least {least}"));
            return Err(error.with_value(given));
        }
        Some(Auto::Given(given)) => Some((*given, *given)),
    };
    let warning = budget.zip(found).and_then(|((bytes, room), found)| {
        let right = room.saturating_add(reserve_bytes);
        (found.bytes() < right).then(|| warning(found, bytes, reserve_bytes, right))
    });
    let budget_bytes = budget.map(|(bytes, _)| bytes);
    let cache_max = budget_bytes.map_or(u64::MAX, |bytes| bytes / CACHE_SHARE);
    Ok(MemoryPlan {
        budget_bytes,
        cache_bytes: (**flags.content.cache_bytes).min(cache_max),
        warning,
    })
}

fn warning(found: MemoryLimit, bytes: u64, reserve_bytes: u64, right: u64) -> String {
    format!(
        "{} of memory may be too little, and the kernel may kill the server: it may use {} for connections and \
         files (--memory-max), some {} for itself, and more for apps and the kernel's buffers of sockets; right \
         would be {} or more",
        size(found.bytes()),
        size(bytes),
        size(reserve_bytes),
        size(right.next_multiple_of(1 << 20)),
    )
}

/// "512 MiB", "11.8 GiB".
pub(crate) fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes / MIB {
        mib @ 0..10_240 => format!("{mib} MiB"),
        mib => format!("{:.1} GiB", mib as f64 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use loadline_sys::affinity::CpuBudget;

    use super::*;
    use crate::flags::high::{Machine, Plan, plan};
    use crate::flags::serve_spec;

    const MIB: u64 = 1 << 20;

    /// In a control group with so much memory; `None`: nothing was found about memory.
    fn planned(line: &str, group_bytes: Option<u64>) -> Plan {
        let machine = Machine {
            budget: CpuBudget {
                affinity: 2,
                quota_milli: None,
            },
            descriptors_max: 20_000,
            memory: group_bytes.map(|bytes| MemoryLimit {
                machine_bytes: 16 << 30,
                group_bytes: Some(bytes),
            }),
            refuses_io_uring: None,
        };
        plan(serve_spec(line).unwrap(), &machine).unwrap()
    }

    #[test]
    fn auto_is_half_of_what_the_program_leaves_and_says_so_if_that_is_too_little() {
        let per_connection = "--architecture thread-per-connection";
        // Options, MiB of the group, MiB of the budget, whether there is a warning.
        for (line, group, budget, warns) in [
            ("", 1024, 488, false),
            ("", 80, 16, false),
            ("", 79, 16, true),
            ("", 20, 16, true),
            ("--socket-io worker", 128, 32, false),
            ("--parse worker", 128, 32, false),
            ("--architecture sequential", 128, 40, false),
            (per_connection, 1024, 448, false),
            (per_connection, 160, 16, false),
            (per_connection, 128, 16, true),
            ("--architecture thread-pool", 256, 64, false),
            ("--memory-max 64M", 112, 64, false),
            ("--memory-max 64M", 111, 64, true),
        ] {
            let plan = planned(line, Some(group * MIB));
            let found = (plan.memory_bytes_max, plan.memory_warning.is_some());
            assert_eq!(found, (Some(budget * MIB), warns), "{line} in {group} MiB");
        }
        let warning = planned(per_connection, Some(128 * MIB)).memory_warning;
        let warning = warning.unwrap();
        for part in ["128 MiB of memory", "16 MiB for connections", "160 MiB"] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
    }

    #[test]
    fn the_cache_has_a_quarter_at_most_and_threads_that_were_asked_for_fit() {
        let planned = |line, found| {
            let plan = planned(line, found);
            (plan.memory_bytes_max, plan.cache_bytes_max)
        };
        let found = Some(1 << 30);
        assert_eq!(planned("", found), (Some(488 * MIB), 122 * MIB));
        assert_eq!(planned("--memory-max off", found), (None, 128 * MIB));
        let given = planned("--memory-max 100M --cache-bytes 1M", found);
        assert_eq!(given, (Some(100 * MIB), MIB));
        let given = planned("--memory-max 64M", found);
        assert_eq!(given, (Some(64 * MIB), 16 * MIB));
        assert_eq!(planned("", None), (None, 128 * MIB));
        let line = "--architecture thread-pool --threads 1000";
        let (budget, cache) = planned(line, Some(64 * MIB));
        let budget = budget.unwrap();
        assert!(budget > 64 * MIB && cache == budget / 4, "{budget}");
    }

    #[test]
    fn without_a_limit_or_without_a_figure_there_is_no_warning() {
        for (line, found) in [("--memory-max off", Some(20 * MIB)), ("", None)] {
            assert_eq!(planned(line, found).memory_warning, None, "{line}");
        }
    }
}
