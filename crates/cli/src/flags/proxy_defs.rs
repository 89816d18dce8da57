//! The options of `loadline serve` that are about proxies in front of it.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use loadline_proto::{ForwardedField, TrustedProxies, TrustedProxy};
use loadline_spec::{ValueError, spec};

use super::values::{Named, Worded, named};

spec! {
    /// Which connections come from proxies, and how these name their clients.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Behind a proxy")]
    pub(crate) struct ProxySpec {
        /// A proxy that is trusted to name its clients: an address, a network (10.0.0.0/8), or unix
        /// for all connections on Unix sockets; may be given several times.
        #[arg(long, value_name = "ADDRESS")]
        pub(crate) trust_proxy: Vec<Worded<TrustedProxy>>,

        /// The header field in which proxies name their clients; the other one is ignored [default:
        /// x-forwarded-for].
        #[arg(long, value_name = "FIELD",
            value_parser = named::<ForwardedField>())]
        pub(crate) trust_proxy_field: Option<Named<ForwardedField>>,

        /// Gone: what it did is done for all parts.
        #[arg(long, hide = true, value_name = "ADDRESS")]
        accounts_proxy: Vec<Gone>,
    }
}

impl ProxySpec {
    /// The proxies that are named.
    pub(crate) fn trusted(&self) -> TrustedProxies {
        let named: Vec<TrustedProxy> = self.trust_proxy.iter().map(|it| it.value).collect();
        let field = self.trust_proxy_field.map(|field| field.0);
        TrustedProxies::new(&named, field.unwrap_or_default())
    }
}

/// The value of `--accounts-proxy`: there is none any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gone {}

impl FromStr for Gone {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        Err(ValueError::new(
            "no such option any more",
            format!(
                "--trust-proxy {value}, or --trust-proxy unix for a proxy on a Unix socket, for \
                 accounts, logs and apps alike"
            ),
        ))
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
