//! The options of `loadline serve` that are about accounts.

use clap::Args;
use loadline_accounts::Database;
use loadline_spec::spec;
use loadline_spec::values::{AnyTime, Auto, Count};

use super::values::Worded;

spec! {
    /// Accounts, and what they may cost.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Accounts")]
    pub(crate) struct AccountsSpec {
        /// Serve accounts under /accounts/, stored in sqlite:FILE, mysql://USER:PASSWORD@HOST/NAME
        /// (MariaDB, which is tested, or MySQL) or postgres://USER:PASSWORD@HOST/NAME. A URL with a
        /// password is better given in the environment, as LOADLINE_ACCOUNTS.
        #[arg(long, value_name = "URL", env = "LOADLINE_ACCOUNTS", hide_env = true)]
        pub(crate) accounts: Option<Worded<Database>>,

        /// Connections to the database, at most [default: 8].
        #[arg(long, value_name = "N")]
        pub(crate) accounts_pool: Option<Count<1, 1024>>,

        /// Connections to the database that are opened before the server listens, and kept; others are
        /// opened when needed [default: 0].
        #[arg(long, value_name = "N")]
        pub(crate) accounts_pool_min: Option<Count<0, 1024>>,

        /// How long a request waits for a connection to the database [default: 2s].
        #[arg(long, value_name = "TIME")]
        pub(crate) accounts_pool_wait: Option<AnyTime>,

        /// Passwords that are hashed at the same time, with 19 MiB each; auto is one for every two CPUs
        /// [default: auto].
        #[arg(long, value_name = "N")]
        pub(crate) accounts_hashes: Option<Auto<Count<1, 1024>>>,

        /// End a session after this time without use [default: 30m].
        #[arg(long, value_name = "TIME")]
        pub(crate) accounts_idle: Option<AnyTime>,

        /// End a session after this time, used or not [default: 12h].
        #[arg(long, value_name = "TIME")]
        pub(crate) accounts_session: Option<AnyTime>,
    }
}
