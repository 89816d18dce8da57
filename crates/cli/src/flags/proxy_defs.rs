//! The options of `loadline serve` that are about proxies in front of it.

use clap::Args;
use clap::builder::TypedValueParser;
use loadline_proto::{ForwardedField, TrustedProxies, TrustedProxy};

use super::values::one_of;

/// Who is a proxy, and how it says who its clients are.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Behind a proxy")]
pub(crate) struct ProxyFlags {
    /// A proxy whose word about its clients is taken: an address, a network (10.0.0.0/8), or unix for
    /// whoever comes by a Unix socket; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) trust_proxy: Vec<TrustedProxy>,

    /// The field in which it says so; the other one is passed over [default: x-forwarded-for].
    #[arg(long, value_name = "FIELD", requires = "trust_proxy",
        value_parser = one_of(FORWARDED_FIELDS, forwarded_field_name))]
    pub(crate) trust_proxy_field: Option<ForwardedField>,

    /// Gone: what it did is done for all parts.
    #[arg(long, hide = true, value_name = "ADDRESS", value_parser = gone())]
    accounts_proxy: Vec<String>,
}

impl ProxyFlags {
    /// The proxies that are named.
    pub(crate) fn trusted(&self) -> TrustedProxies {
        TrustedProxies::new(
            &self.trust_proxy,
            self.trust_proxy_field.unwrap_or_default(),
        )
    }
}

const FORWARDED_FIELDS: &[ForwardedField] =
    &[ForwardedField::XForwardedFor, ForwardedField::Forwarded];

fn forwarded_field_name(field: ForwardedField) -> &'static str {
    match field {
        ForwardedField::XForwardedFor => "x-forwarded-for",
        ForwardedField::Forwarded => "forwarded",
    }
}

/// Refuses `--accounts-proxy`, and says what takes its place.
fn gone() -> impl TypedValueParser<Value = String> {
    clap::builder::StringValueParser::new().try_map(|value| -> Result<String, String> {
        Err(format!(
            "no such option any more; right would be --trust-proxy {value}, or --trust-proxy unix for \
             a proxy on a Unix socket, for accounts, logs and apps alike"
        ))
    })
}
