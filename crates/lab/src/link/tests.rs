//! What links are, as text and table; and pipes under a clock that the test moves.

use proptest::prelude::*;

use super::*;
use crate::journal::DirectionFacts;

fn link(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

#[test]
fn both_directions_may_differ() {
    let dsl = link("dsl");
    assert_eq!(dsl.down.bandwidth_bps, Some(1_500_000));
    assert_eq!(dsl.up.bandwidth_bps, Some(384_000));
    let changed = link("dsl,loss=1%,up.bandwidth=1Mbit");
    assert_eq!((changed.up.loss, changed.down.loss), (0.01, 0.01));
    assert_eq!(changed.up.bandwidth_bps, Some(1_000_000));
    assert_eq!(
        changed.down,
        Direction {
            loss: 0.01,
            ..dsl.down
        }
    );
    // What is of one direction counts, wherever it stands.
    assert_eq!(
        link("up.delay=9ms,delay=5ms"),
        link("delay=5ms,up.delay=9ms")
    );
}

#[test]
fn presets_are_read_and_come_from_somewhere() {
    for preset in PRESETS {
        assert_eq!(link(preset.name), link(preset.text), "{}", preset.name);
        assert!(!preset.source.is_empty() && !preset.about.is_empty());
    }
    assert_eq!(link("satellite").round_trip(), Duration::from_millis(558));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let table = "
        => not a link
        moon => no link moon; right would be delay=75ms
        delay=75ms,dsl => not a link
        delay=75 => delay: the unit is missing
        delay=40s => delay: too long; right would be at most 30s
        speed=1 => speed: not known; right would be delay, jitter
        left.delay=1ms => left.delay: not known
        delay=1ms,jitter=2ms => the jitter is longer than the delay
        delay=1ms,delay=2ms => delay stands there twice
        bandwidth=2MB => bandwidth: not a bandwidth; right would be 1kbit to 1Gbit
        bandwidth=0bit => bandwidth: out of range
        bandwidth=2Gbit => bandwidth: out of range
        loss=60% => loss: out of range; right would be 0% to 50%
        loss=-1% => loss: not a share
        loss=one => loss: not a share
        bandwidth=1Mbit,buffer=100 => buffer: out of range; right would be 1500
        delay=1ms,buffer=64k => a buffer without a bandwidth
        reorder=maybe => reorder: unknown; right would be on or off";
    for row in table.trim().lines() {
        let (text, part) = row.split_once("=> ").unwrap();
        let text = text.trim();
        let error = text.parse::<LinkSpec>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_table_says_the_same_as_a_text() {
    #[derive(serde::Deserialize)]
    struct Holder {
        link: LinkOrOff,
    }
    let read = |table: &str| toml::from_str::<Holder>(table).map(|holder| holder.link.0.0);
    assert_eq!(read("link = \"off\"").unwrap(), None);
    for (table, text) in [
        ("link = \"satellite\"", "satellite"),
        (
            "link = { delay = \"75ms\", bandwidth = \"2Mbit\", loss = 0.01, reorder = true }",
            "delay=75ms,bandwidth=2Mbit,loss=1%,reorder=on",
        ),
        (
            "link = { like = \"dsl\", up = { bandwidth = \"1Mbit\" }, down.loss = \"2%\" }",
            "dsl,up.bandwidth=1Mbit,down.loss=2%",
        ),
    ] {
        assert_eq!(read(table).unwrap(), Some(link(text)), "{table}");
    }
    for (table, part) in [
        ("link = { delay = 75 }", "the unit is missing"),
        ("link = { dealy = \"75ms\" }", "dealy: not known"),
        ("link = 3", "expected a link"),
    ] {
        let error = read(table).unwrap_err().to_string();
        assert!(error.contains(part), "{table}: {error}");
    }
}

#[test]
fn a_buffer_holds_what_is_on_its_way_and_64_kib_at_least() {
    let buffer = |text: &str| {
        let link = link(text);
        link.buffer_bytes(&link.down)
    };
    assert_eq!(buffer("delay=75ms,bandwidth=2Mbit"), 64 << 10);
    assert_eq!(buffer("delay=250ms,bandwidth=8Mbit"), 500_000);
    assert_eq!(buffer("bandwidth=8Mbit,buffer=3000"), 3000);
}

fn any_direction() -> impl Strategy<Value = Direction> {
    let bandwidth = prop_oneof![Just(None), (1_000_u64..=1_000_000_000).prop_map(Some)];
    let times = (0_u64..200_000, 0_u64..=100);
    (times, bandwidth, 0_u32..=500, any::<bool>(), any::<bool>()).prop_map(
        |((delay_us, jitter_percent), bandwidth_bps, loss, reorder, has_buffer)| Direction {
            delay: Duration::from_micros(delay_us),
            jitter: Duration::from_micros(delay_us * jitter_percent / 100),
            bandwidth_bps,
            loss: f64::from(loss) / 1000.0,
            buffer_bytes: bandwidth_bps.filter(|_| has_buffer).map(|_| 20_000),
            reorder,
        },
    )
}

/// Packets as they come: how long after the one before, and how large.
fn any_packets() -> impl Strategy<Value = Vec<(u64, usize)>> {
    prop::collection::vec((0_u64..3_000_000, 20_usize..=1500), 1..200)
}

/// What a pipe made of packets: for each that came through, which it was, when it came in, how large it
/// was and when it was due.
fn through(
    direction: &Direction,
    buffer_bytes: u64,
    seed: u64,
    packets: &[(u64, usize)],
) -> (Vec<(usize, u64, usize, u64)>, DirectionFacts) {
    let mut pipe = Pipe::new(direction, buffer_bytes, seed);
    let mut came = Vec::new();
    let (mut now_ns, mut refused) = (5_000, 0);
    let mut take_all = |pipe: &mut Pipe<(usize, u64, usize)>, now_ns: u64| {
        while let Some(((index, at_ns, bytes), due_ns)) = pipe.take(now_ns) {
            assert!(due_ns <= now_ns);
            came.push((index, at_ns, bytes, due_ns));
        }
    };
    for (index, (gap_ns, bytes)) in packets.iter().enumerate() {
        now_ns += gap_ns;
        take_all(&mut pipe, now_ns);
        refused += usize::from(pipe.put(now_ns, *bytes, (index, now_ns, *bytes)).is_some());
    }
    while let Some(due_ns) = pipe.due_ns() {
        take_all(&mut pipe, due_ns);
    }
    let counts = pipe.counts();
    assert_eq!(counts.packets as usize, came.len() + refused);
    assert_eq!((counts.lost + counts.dropped) as usize, refused);
    (came, counts)
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

proptest! {
    #[test]
    fn what_is_shown_is_read_again(up in any_direction(), down in any_direction()) {
        let link = LinkSpec { up, down };
        prop_assert_eq!(link.to_string().parse::<LinkSpec>(), Ok(link));
    }

    #[test]
    fn packets_come_within_delay_and_jitter_of_being_sent(
        direction in any_direction(), packets in any_packets(), seed: u64,
    ) {
        let (came, counts) = through(&direction, 20_000, seed, &packets);
        let sending = |bytes: usize| {
            direction.bandwidth_bps.map_or(0, |bps| bytes as u64 * 8_000_000_000 / bps)
        };
        let full = sending(20_000);
        for &(_, at_ns, bytes, due_ns) in &came {
            let least = at_ns + sending(bytes) + ns(direction.delay) - ns(direction.jitter);
            // Those in front of it fill the buffer at most; and it waits for one that it may not overtake.
            let most = at_ns + full + ns(direction.delay) + ns(direction.jitter) + 200;
            prop_assert!((least..=most).contains(&due_ns), "{least} {due_ns} {most}");
        }
        prop_assert!(counts.waiting_bytes_max <= 20_000);
        prop_assert!(direction.bandwidth_bps.is_some() || counts.dropped == 0);
    }

    #[test]
    fn nothing_overtakes_unless_that_is_said(
        direction in any_direction(), packets in any_packets(), seed: u64,
    ) {
        let direction = Direction { reorder: false, ..direction };
        let (came, _) = through(&direction, 20_000, seed, &packets);
        prop_assert!(came.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].3 <= pair[1].3));
    }

    #[test]
    fn the_bandwidth_is_never_exceeded(
        bps in 1_000_u64..100_000_000, packets in any_packets(), seed: u64,
    ) {
        let direction = Direction { bandwidth_bps: Some(bps), ..Direction::default() };
        let (came, _) = through(&direction, 20_000, seed, &packets);
        for pair in came.windows(2) {
            let apart_ns = pair[1].3 - pair[0].3;
            prop_assert!(apart_ns >= pair[1].2 as u64 * 8_000_000_000 / bps - 1);
        }
    }

    #[test]
    fn the_same_seed_is_the_same_fate(
        direction in any_direction(), packets in any_packets(), seed: u64,
    ) {
        let once = through(&direction, 20_000, seed, &packets);
        prop_assert_eq!(once, through(&direction, 20_000, seed, &packets));
    }
}

#[test]
fn as_many_are_lost_as_the_loss_says() {
    let direction = Direction {
        loss: 0.01,
        ..Direction::default()
    };
    let packets = vec![(1_000, 1500); 100_000];
    let (_, counts) = through(&direction, 20_000, 7, &packets);
    // 1000 are expected; four standard deviations are 126.
    assert!((874..1126).contains(&counts.lost), "{counts:?}");
}

#[test]
fn jitter_reorders_where_it_may() {
    let direction = Direction {
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(10),
        reorder: true,
        ..Direction::default()
    };
    let (came, _) = through(&direction, 20_000, 7, &[(100_000, 100); 100]);
    assert!(came.windows(2).any(|pair| pair[0].0 > pair[1].0));
    assert!(came.windows(2).all(|pair| pair[0].3 <= pair[1].3));
}

#[test]
fn a_full_buffer_drops_and_a_lost_packet_takes_its_time() {
    let direction = Direction {
        bandwidth_bps: Some(8_000),
        ..Direction::default()
    };
    let mut pipe = Pipe::new(&direction, 3000, 1);
    assert_eq!(
        [1000; 4].map(|bytes| pipe.put(0, bytes, ()).is_some()),
        [false, false, false, true]
    );
    // A thousand bytes a second: half of the first is sent, and a smaller one has room.
    assert!(pipe.put(500_000_000, 501, ()).is_some());
    assert!(pipe.put(500_000_000, 500, ()).is_none());
    assert_eq!(pipe.due_ns(), Some(1_000_000_000));
    let all_lost = Direction {
        loss: 1.0,
        ..direction
    };
    let mut pipe = Pipe::new(&all_lost, 3000, 1);
    assert_eq!(
        [1000; 4].map(|bytes| pipe.put(0, bytes, ()).is_some()),
        [true; 4]
    );
    assert_eq!((pipe.counts().lost, pipe.counts().dropped), (3, 1));
}
