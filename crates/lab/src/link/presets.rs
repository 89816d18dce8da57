//! Links by name, each with where its figures are from.

use loadline_spec::ValueError;

use super::LinkSpec;

/// A link with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// "satellite".
    pub name: &'static str,
    /// As it would be written without the name.
    pub text: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// Where the figures are from.
    pub source: &'static str,
}

const WEBPAGETEST: &str =
    "WebPageTest, www/settings/connectivity.ini.sample; half of its round trip in each direction";

/// All of them, from the fastest to the slowest.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "fibre",
        text: "delay=2ms,down.bandwidth=20Mbit,up.bandwidth=5Mbit",
        about: "fibre to the home, 20/5 Mbit/s, round trip 4 ms",
        source: WEBPAGETEST,
    },
    Preset {
        name: "cable",
        text: "delay=14ms,down.bandwidth=5Mbit,up.bandwidth=1Mbit",
        about: "cable, 5/1 Mbit/s, round trip 28 ms",
        source: WEBPAGETEST,
    },
    Preset {
        name: "dsl",
        text: "delay=25ms,down.bandwidth=1500kbit,up.bandwidth=384kbit",
        about: "DSL, 1.5/0.384 Mbit/s, round trip 50 ms",
        source: WEBPAGETEST,
    },
    Preset {
        name: "4g",
        text: "delay=35ms,bandwidth=12Mbit",
        about: "LTE, 12/12 Mbit/s, round trip 70 ms",
        source: WEBPAGETEST,
    },
    Preset {
        name: "4g-slow",
        text: "delay=75ms,down.bandwidth=1600kbit,up.bandwidth=750kbit",
        about: "the slowest quarter of 4G, 1.6/0.75 Mbit/s, round trip 150 ms",
        source: "Lighthouse, docs/throttling.md: its default for mobiles",
    },
    Preset {
        name: "3g",
        text: "delay=150ms,down.bandwidth=1600kbit,up.bandwidth=768kbit",
        about: "3G, 1.6/0.768 Mbit/s, round trip 300 ms",
        source: WEBPAGETEST,
    },
    Preset {
        name: "3g-slow",
        text: "delay=200ms,bandwidth=400kbit",
        about: "3G of emerging markets, 0.4/0.4 Mbit/s, round trip 400 ms",
        source: WEBPAGETEST,
    },
    Preset {
        name: "satellite",
        text: "delay=279ms,down.bandwidth=10Mbit,up.bandwidth=2Mbit",
        about: "a geostationary satellite, 10/2 Mbit/s, round trip 558 ms",
        source: "delay: RFC 2488, section 2; the bandwidths are an assumption",
    },
    Preset {
        name: "edge",
        text: "delay=420ms,down.bandwidth=240kbit,up.bandwidth=200kbit",
        about: "EDGE, 0.24/0.2 Mbit/s, round trip 840 ms",
        source: WEBPAGETEST,
    },
];

impl Preset {
    /// The link of a name.
    pub(super) fn named(name: &str) -> Result<LinkSpec, ValueError> {
        match PRESETS.iter().find(|preset| preset.name == name) {
            Some(preset) => preset.text.parse(),
            None => {
                let problem = format!("no link {}", name.escape_debug());
                Err(ValueError::new(problem, Self::right()))
            }
        }
    }

    /// What would be right in place of what is no link.
    pub(super) fn right() -> String {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let names = names.join(", ");
        format!("delay=75ms,bandwidth=2Mbit,loss=1%, or one of {names}")
    }
}
