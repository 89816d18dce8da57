//! Servers that a paper compares are what it compares, and differ in nothing else.

use super::*;

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
