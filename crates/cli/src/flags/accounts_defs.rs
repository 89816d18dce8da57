//! The options of `loadline serve` that are about accounts.

use std::time::Duration;

use clap::Args;
use loadline_accounts::Database;

use super::values::{Auto, auto_count_in, count_in, duration};

/// Accounts, and what they may cost.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Accounts")]
pub(crate) struct AccountsFlags {
    /// Have accounts under /accounts/, stored in sqlite:FILE, mysql://USER:PASSWORD@HOST/NAME
    /// (MariaDB, which is what is tested, or MySQL) or postgres://USER:PASSWORD@HOST/NAME. A password
    /// is better given in the environment, as LOADLINE_ACCOUNTS.
    #[arg(long, value_name = "URL", env = "LOADLINE_ACCOUNTS", hide_env = true)]
    pub(crate) accounts: Option<Database>,

    /// Connections to the database, at most [default: 8].
    #[arg(long, value_name = "N", requires = "accounts", value_parser = count_in(1..=1024))]
    pub(crate) accounts_pool: Option<usize>,

    /// Connections that are opened before the server listens, and kept; all others are opened when
    /// they are needed [default: 0].
    #[arg(long, value_name = "N", requires = "accounts", value_parser = count_in(0..=1024))]
    pub(crate) accounts_pool_min: Option<usize>,

    /// How long a request waits for one of them [default: 2s].
    #[arg(long, value_name = "TIME", requires = "accounts", value_parser = duration)]
    pub(crate) accounts_pool_wait: Option<Duration>,

    /// Passwords that are hashed at the same time, 19 MiB each; auto is one for two CPUs [default:
    /// auto].
    #[arg(long, value_name = "N", requires = "accounts", value_parser = auto_count_in(1..=1024))]
    pub(crate) accounts_hashes: Option<Auto<usize>>,

    /// End a session after so long without use [default: 30m].
    #[arg(long, value_name = "TIME", requires = "accounts", value_parser = duration)]
    pub(crate) accounts_idle: Option<Duration>,

    /// End a session after so long in any case [default: 12h].
    #[arg(long, value_name = "TIME", requires = "accounts", value_parser = duration)]
    pub(crate) accounts_session: Option<Duration>,
}
