//! Accounts as an app of `loadline serve`: opened before the server listens, closed after it has
//! drained.

use std::path::Path;
use std::time::Duration;

use loadline_accounts::{Accounts, Client, Counters, FORM_BYTES_MAX, Options};
use loadline_proto::Handler;
use loadline_tower::{Addresses, Tower};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::flags::high::Plan;
use crate::secrets::refuse_inside;
use crate::tls::hsts_max_age_s;
use loadline_spec::values::{AnyTime, Auto};

/// Where the pages are.
pub(crate) const BASE: &str = "/accounts";
/// How long the end waits for statements that are still running.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Accounts with their database open.
#[derive(Clone)]
pub(crate) struct Mounted {
    accounts: Accounts,
    runtime: Handle,
    text: String,
}

impl Mounted {
    /// Opens the database, if there is to be one. It must not lie in `root`, where it could be asked
    /// for.
    pub(crate) fn open(plan: &Plan, root: &Path) -> Result<Option<Self>, Failure> {
        let flags = &plan.flags.accounts;
        let Some(database) = plan.database.clone() else {
            return Ok(None);
        };
        if let Some(file) = database.file() {
            let named = format!("--accounts sqlite:{}", file.display());
            let follow_symlinks = plan.flags.content.follow_symlinks;
            refuse_inside(&named, file, root, follow_symlinks)?;
        }
        let mut options = Options::new(database);
        BASE.clone_into(&mut options.base);
        if let Some(Auto::Given(size)) = flags.accounts_pool {
            options.pool_size = size.saturating_u32();
            options.pool_range = None;
        }
        if let Some(min) = flags.accounts_pool_min {
            options.pool_min = min.saturating_u32();
        }
        let most = options.pool_bounds().max;
        if options.pool_min > most {
            return Err(Failure::usage(format!(
                "--accounts-pool-min {}: more than the pool may have; right would be {most} at most, \
                 or a larger --accounts-pool",
                options.pool_min
            )));
        }
        if let Some(Auto::Given(hashes)) = flags.accounts_hashes {
            options.hashes_max = hashes.get();
        }
        let time = |given: Option<AnyTime>, usual| given.map_or(usual, |time| *time);
        options.pool_wait = time(flags.accounts_pool_wait, options.pool_wait);
        options.session_idle = time(flags.accounts_idle, options.session_idle);
        options.session_max = time(flags.accounts_session, options.session_max);
        if let Some(max_age_s) = hsts_max_age_s(&plan.flags.tls) {
            options.hsts_max_age_s = max_age_s;
        }
        let text = format!(
            "loadline: accounts in {}, {} connections\n",
            options.database,
            options.pool_bounds()
        );
        let runtime = loadline_tower::runtime()
            .map_err(|error| Failure::failed(format!("the runtime of apps: {error}")))?;
        let accounts = runtime
            .block_on(Accounts::open(options))
            .map_err(|error| Failure::failed(format!("--accounts {error}")))?;
        Ok(Some(Self {
            accounts,
            runtime,
            text,
        }))
    }

    /// The line that says where accounts are and how many connections to there are to be.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The pages.
    pub(crate) fn handler(&self) -> impl Handler<Local = ()> + use<> {
        let app = Tower::on(self.runtime.clone(), self.accounts.router());
        app.body_bytes_max(FORM_BYTES_MAX as u64)
            .map_request(|request| {
                let addresses = request.extensions().get::<Addresses>();
                let client = addresses.and_then(|addresses| addresses.client);
                let client = Client {
                    address: client.map(|client| client.address),
                    is_secure: addresses.is_some_and(|addresses| addresses.is_secure),
                };
                request.extensions_mut().insert(client);
            })
    }

    /// What was counted.
    pub(crate) fn counters(&self) -> Counters {
        self.accounts.counters()
    }

    /// Ends every connection to the database.
    pub(crate) fn close(&self) {
        let closing = async { timeout(CLOSE_TIMEOUT, self.accounts.close()).await };
        if self.runtime.block_on(closing).is_err() {
            tracing::warn!("accounts: connections to the database were cut");
        }
    }
}
