//! Where servers bend, and rates that stand beside those of another machine.

use super::*;

fn bends(threads: f64, events: f64) -> Made {
    let mut made = Made::new("P5");
    let servers = [("threads", threads), ("event-loop", events)];
    for series in ["rates", "slower"] {
        for (server, bend) in servers {
            for rate in ["500", "1000", "1200", "1300", "1500", "1600", "2500"] {
                let offered: f64 = rate.parse().unwrap();
                let good = offered.min(bend);
                let levels = [("server", server), ("rate_per_s", rate)];
                let values = [(GoodPerS, good), (ErrorShare, 1.0 - good / offered)];
                made.cell(series, (&levels, &values), 0.0);
            }
        }
    }
    made
}

#[test]
fn where_servers_bend() {
    let claims = [
        "Threads win",
        "The event loop bends later",
        "It bends at 1.15 to 1.25 times",
    ];
    for (threads, events, verdicts) in [
        // Between 1200 and 1300, and between 1500 and 1600: 1.15 to 1.33.
        (1250.0, 1550.0, [NotReproduced, Reproduced, Reproduced]),
        (1600.0, 600.0, [Reproduced, NotReproduced, NotReproduced]),
        // A bend above all that was asked for lies above the other, and by more than 1.34.
        (1250.0, 9999.0, [NotReproduced, Reproduced, NotReproduced]),
        // The same two rates on the grid are no bends that are the same.
        (1210.0, 1250.0, [NotTestable, NotTestable, NotReproduced]),
        (9999.0, 9999.0, [NotTestable; 3]),
    ] {
        let found = bends(threads, events).verdicts(claims);
        assert_eq!(found, verdicts, "{threads}, {events}");
    }
    // Nor would they be in any number of blocks.
    let claim = bends(1210.0, 1250.0).claim(claims[0]);
    assert_eq!(claim.undecided, Some(Undecided::RatesApart), "{claim:?}");
    let Claim { why, .. } = bends(9999.0, 9999.0).claim(claims[0]);
    let unseen = "threads: no bend is seen up to 2500/s";
    assert!(why.starts_with(unseen), "{why}");
}

/// More blocks of some rates are no runs in which a server bends nowhere.
#[test]
fn blocks_of_some_rates_alone_say_nothing_about_a_bend() {
    let claims = [
        "The event loop bends at about",
        "The event loop bends later",
    ];
    let mut made = bends(1250.0, 1550.0);
    let expected = claims.map(|claim| made.claim(claim));
    for mut trial in made.run.trials.clone() {
        let of = |factor: &str| trial.levels[factor].to_string();
        if of("server") == "event-loop" && of("rate_per_s") == "500" {
            trial.block += 5;
            trial.number += 1000;
            made.run.trials.push(trial);
        }
    }
    assert_eq!(claims.map(|claim| made.claim(claim)), expected);
}

/// Mean latencies of threads and the event loop with a part of a core, by rate.
fn latencies(threads: [f64; 6], events: [f64; 6]) -> Made {
    let mut made = Made::new("P5");
    for (server, times, bend) in [("threads", threads, 1250.0), ("event-loop", events, 9999.0)] {
        for (rate, time) in ["200", "600", "1000", "1200", "1400", "2600"]
            .iter()
            .zip(times)
        {
            let offered: f64 = rate.parse().unwrap();
            let levels = [("server", server), ("rate_per_s", *rate)];
            let values = [(GoodPerS, offered.min(bend)), (MeanUs, time)];
            made.cell("slower", (&levels, &values), 0.01);
        }
    }
    made
}

#[test]
fn latency_bends_where_it_is_twice_the_lowest() {
    let (low, high) = (300.0, 9000.0);
    let claims = [
        "The latency of threads rises",
        "The latency of the event loop rises",
    ];
    for (threads, events, verdicts) in [
        // Threads: latency between 600 and 1000, throughput between 1200 and 1400.
        (
            [400.0, low, high, high, high, high],
            [low; 6],
            [Reproduced, Reproduced],
        ),
        // Up to twice the lowest is no bend; the lowest is not that of the first rate.
        (
            [590.0, low, 550.0, high, high, high],
            [low; 6],
            [Reproduced, Reproduced],
        ),
        (
            [low; 6],
            [low, low, high, high, high, high],
            [NotReproduced, NotReproduced],
        ),
        ([low; 6], [low; 6], [NotReproduced, NotTestable]),
    ] {
        let found = latencies(threads, events).verdicts(claims);
        assert_eq!(found, verdicts, "{threads:?}, {events:?}");
    }
    // Where times do not count a bend may lie anywhere: between 600 and 1400, over 1200 to 1400.
    let mut made = latencies([low, low, high, high, high, high], [low; 6]);
    for trial in &mut made.run.trials {
        if ["1000", "1200"]
            .map(level)
            .contains(&trial.levels["rate_per_s"])
        {
            trial
                .times_discarded
                .push("The client was late.".to_owned());
        }
    }
    let claim = made.claim(claims[0]);
    assert_eq!(claim.verdict, NotTestable, "{claim:?}");
    assert_eq!(claim.undecided, Some(Undecided::Discarded), "{claim:?}");
    let Claim { why, .. } = latencies([low; 6], [low; 6]).claim(claims[1]);
    let unseen = "event-loop: no bend of the latency is seen up to 2600/s";
    assert!(why.starts_with(unseen), "{why}");
}

#[test]
fn apache_goes_on_with_some_decrease() {
    for (at_10000, errors, verdict) in [
        (4000.0, 0.0, Reproduced),
        // A plateau is no decrease, a collapse is not to go on, and neither is to fail at 4000.
        (5000.0, 0.0, NotReproduced),
        (1000.0, 0.0, NotReproduced),
        (4000.0, 0.3, NotReproduced),
    ] {
        let mut made = Made::new("P5");
        for (rate, good) in [
            ("2500", 2500.0),
            ("4000", 4000.0),
            ("6000", 5000.0),
            ("8000", 9000.0), // under --full alone
            ("10000", at_10000),
        ] {
            let levels = [("server", "apache"), ("rate_per_s", rate)];
            made.cell(
                "rates",
                (&levels, &[(GoodPerS, good), (ErrorShare, errors)]),
                0.01,
            );
        }
        let claim = made.claim("Apache goes on");
        assert_eq!(claim.verdict, verdict, "{claim:?}");
        assert!(claim.why.contains("those at 6000/s"), "{claim:?}");
    }
}

#[test]
fn absolute_rates_stand_beside_those_of_another_machine() {
    let made = bends(1250.0, 9999.0);
    for (claim, why) in [
        (
            "Threads bend at 1200",
            "threads: highest rate of which 99 % is answered well: 1200 (1200 to 1200, 95 % interval); \
             published: 1200 to 1300/s. An absolute rate speaks of the machine.",
        ),
        (
            "The event loop bends at about 1500",
            "event-loop: highest rate of which 99 % is answered well (event-loop: in 5 of 5 runs none was \
             lost, and it is more): 2500 (2500 to 2500, 95 % interval); published: 1500/s. An absolute \
             rate speaks of the machine.",
        ),
        (
            "Threads fail at 2500",
            "threads: share of requests that fail at 2500/s: 0.5 (0.5 to 0.5, 95 % interval of 5 blocks); \
             published: all. An absolute rate speaks of the machine.",
        ),
        (
            "The event loop answers more than 1000",
            "event-loop: good answers a second, the most at any rate above 1000/s: 2500 (2500 to 2500, \
             95 % interval); published: over 1000/s. An absolute rate speaks of the machine.",
        ),
    ] {
        let found = made.claim(claim);
        assert_eq!((found.verdict, found.why.as_str()), (NotComparable, why));
    }
    let mut made = Made::new("P3");
    let levels = [("model", "several event loops"), ("rate_per_s", "200000")];
    made.cell("rates", (&levels, &[(CompletedPerS, 90_000.0)]), 0.02);
    let claim = made.claim("Several event loops complete");
    assert_eq!(claim.verdict, NotComparable);
    assert_eq!(claim.published, "190,965/s");
    assert!(claim.interval.unwrap().contains(90_000.0));
}
