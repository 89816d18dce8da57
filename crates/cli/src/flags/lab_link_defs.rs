//! The options of `loadline lab link` and of the relay as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use loadline_lab::link::LinkSpec;
use loadline_spec::load::values::Cpus;
use loadline_spec::values::Time;

pub(crate) const LAB_LINK_MORE: &str = "\
Examples:
  loadline lab link
      the links that have a name, and where their figures are from
  loadline lab link delay=75ms,bandwidth=2Mbit,loss=1%
      75 ms in each direction, so a round trip of 150 ms: ping, what comes through, a bulk transfer
  loadline lab link dsl,loss=0.5%,up.bandwidth=1Mbit
      a link by name, with other loss and, from the client to the server, another bandwidth

Exit codes:
  0    the link is as set, or links were listed
  1    links are not testable on this machine, or a measurement failed
  2    bad usage: an option, or a link
  3    something of the link is not as set
  130  interrupted";

/// The options of `loadline lab link`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabLinkFlags {
    /// The link, as in plans: a name, or delay, jitter, bandwidth, loss, buffer and reorder, for one
    /// direction with up. or down. before it [default: list the names].
    #[arg(value_name = "LINK")]
    pub(crate) link: Option<LinkSpec>,

    /// How long each property is measured.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) each: Time<100_000, 600>,

    /// Seed of what is lost, and of jitter.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) seed: u64,

    /// Write the result as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

/// The options of a relay.
#[derive(Args, Clone, Debug)]
pub(crate) struct RelayFlags {
    /// The link.
    #[arg(value_name = "LINK")]
    pub(crate) link: LinkSpec,

    /// Seed of what is lost, and of jitter.
    #[arg(long, default_value = "1")]
    pub(crate) seed: u64,

    /// CPUs that work on what the server receives.
    #[arg(long)]
    pub(crate) server_cpus: Option<Cpus>,

    /// CPUs that work on what the client receives.
    #[arg(long)]
    pub(crate) client_cpus: Option<Cpus>,
}
