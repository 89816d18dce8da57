//! A claim that one thread is a bottleneck, which is judged where it is the limit.

use super::*;

#[test]
fn a_bottleneck_is_judged_where_one_thread_is_the_limit() {
    let claim = "One reactor with threads is a bottleneck";
    for (several, thread, cpus, verdict, undecided) in [
        (1500.0, 0.98, 1.3, Reproduced, None),
        (950.0, 0.98, 1.3, NotReproduced, None),
        (1500.0, 0.6, 1.98, NotTestable, Some(Undecided::FewCpus)),
        (
            1500.0,
            0.6,
            1.3,
            NotTestable,
            Some(Undecided::ClientLimited),
        ),
    ] {
        let mut made = Made::new("P1");
        for (model, numbers, rate) in [
            ("single reactor, threads", "1 x 16", 1000.0),
            (SEVERAL, "2 x 16", several),
        ] {
            let levels = [("model", model), ("numbers", numbers), ("service_us", "0")];
            let values = [
                (GoodPerS, rate),
                (Metric::BusiestThreadShare, thread),
                (Metric::CpuUserShare, cpus / 2.0),
                (Metric::CpuKernelShare, cpus / 2.0),
            ];
            made.cell("best", (&levels, &values), 0.01);
            made.each(|trial| "0-1".clone_into(&mut trial.server.cpus));
        }
        let found = made.claim(claim);
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert_eq!(found.undecided, undecided, "{found:?}");
    }
}
