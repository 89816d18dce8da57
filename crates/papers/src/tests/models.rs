//! Servers that a paper compares are what it compares, and differ in nothing else.

use std::collections::BTreeSet;

use super::*;

/// In the paper a main reactor accepts connections and distributes them.
#[test]
fn several_reactors_of_p1_get_their_connections_from_a_main_one() {
    for grid in [Grid::default(), full()] {
        let plan = plan(Paper::named("P1").unwrap(), &grid);
        let mut found = BTreeSet::new();
        for cell in Cells::of(&plan, &[0, 1], &[]).unwrap().cells {
            let ServerSpec::Loadline(set) = &cell.serve else {
                continue; // the app of the uploads, which has no such option
            };
            let sizes = &set.architecture;
            let are_several = sizes.loops.given().is_some_and(|count| count.get() > 1);
            if are_several && sizes.architecture.0.to_string() == "reactor" {
                let accept = sizes.accept.as_ref().map(ToString::to_string);
                assert_eq!(accept.as_deref(), Some("handoff"), "{:?}", cell.levels);
                found.insert(cell.series);
            }
        }
        assert!(found.len() > 10, "{found:?}");
    }
}

/// In the prototypes they do under either design: what differs is who receives and sends. The older ring has a command
/// of its own.
#[test]
fn p2s_workers_parse_under_each_arm() {
    let paper = Paper::named("P2").unwrap();
    assert!(paper.text().contains("--parse=worker"));
    for grid in [Grid::default(), full()] {
        let plan = plan(paper, &grid);
        let mut found = BTreeSet::new();
        for cell in Cells::of(&plan, &[0, 1], &[]).unwrap().cells {
            let ServerSpec::Loadline(set) = &cell.serve else {
                continue;
            };
            let (of, arm) = (&set.architecture, cell.levels.get("arm"));
            let arm = arm.map(ToString::to_string).unwrap_or_default();
            if arm == "loop alone" || of.architecture.0.to_string() == "thread-pool" {
                continue; // hands nothing over, or has threads of another kind
            }
            let parse = of.parse.as_ref().map(ToString::to_string);
            let socket_io = of.socket_io.as_ref().map(ToString::to_string);
            let by_workers = [parse, socket_io].map(|it| it.as_deref() == Some("worker"));
            let expected = [arm != "workers", arm == "workers"];
            assert_eq!(by_workers, expected, "{:?}", cell.levels);
            found.insert(arm);
        }
        let arms = ["workers", "loop", "kernel"];
        assert!(arms.iter().all(|arm| found.contains(*arm)), "{found:?}");
    }
}

/// Threads send files by sendfile alone. A loop by itself copies them to clients on the same machine.
#[test]
fn p5s_event_loop_sends_the_file_as_its_threads_do() {
    for grid in [Grid::default(), full()] {
        let plan = plan(Paper::named("P5").unwrap(), &grid);
        let mut count = 0;
        for cell in Cells::of(&plan, &[0, 1], &[]).unwrap().cells {
            let ServerSpec::Loadline(set) = &cell.serve else {
                continue;
            };
            if cell.server == "event-loop" {
                let file_io = set.architecture.file_io.as_ref().map(ToString::to_string);
                assert_eq!(file_io.as_deref(), Some("sendfile"), "{:?}", cell.levels);
                count += 1;
            }
        }
        assert!(count > 0);
    }
}

/// Where bends are compared, neither server's is known more exactly than the other's.
#[test]
fn p5_asks_threads_and_the_event_loop_for_the_same_rates() {
    for grid in [Grid::default(), full()] {
        let plan = plan(Paper::named("P5").unwrap(), &grid);
        let cells = Cells::of(&plan, &[0, 1], &[]).unwrap().cells;
        let rates = |series: &str, server: &str| -> BTreeSet<u32> {
            let own = cells.iter().filter(|cell| {
                let name = plan.series[cell.series].name.as_str();
                name == series && cell.server.as_str() == server
            });
            let rates = own.map(|cell| cell.levels["rate_per_s"].to_string());
            rates.map(|rate| rate.parse().unwrap()).collect()
        };
        for series in ["rates", "slower"] {
            let (threads, event_loop) = (rates(series, "threads"), rates(series, "event-loop"));
            assert_eq!(threads, event_loop, "{series}");
            assert!(threads.len() >= 10, "{series}: {threads:?}");
        }
        if grid.full {
            let threads = rates("rates", "threads");
            let bending: Vec<&u32> = threads.range(3500..=7000).collect();
            let mut steps = bending.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(steps.all(|step| step <= 250), "{bending:?}");
        }
    }
}
