//! What the help says of defaults that the parts of a server have themselves.

use std::time::Duration;

use clap::Args as _;
use loadline_accounts::Options;
use loadline_apps::StaticOptions;
use loadline_proto::Limits;
use loadline_server::ServerOptions;
use loadline_spec::serve::ServeSpec;
use loadline_spec::values::AnyTime;

#[test]
fn defaults_in_the_help_are_those_of_the_parts() {
    let command = ServeSpec::augment_args(clap::Command::new("serve"));
    let options = ServerOptions::default();
    let accounts = Options::new("sqlite:accounts.db".parse().unwrap());
    let ms = |ms| AnyTime::clamped(Duration::from_millis(ms)).to_string();
    let time = |time| AnyTime::clamped(time).to_string();
    for (name, default) in [
        ("worker-pools", options.worker_pools.name().to_owned()),
        ("accept", options.accept.name().to_owned()),
        ("balance", options.balance.name().to_owned()),
        ("queue", options.queue.name().to_owned()),
        ("socket-io", options.socket_io.name().to_owned()),
        ("parse", options.parse.name().to_owned()),
        ("file-io", options.file_io.name().to_owned()),
        (
            "proxy-idle-timeout",
            ms(Limits::default().proxy_idle_timeout_ms),
        ),
        ("index", StaticOptions::default().index.join(" ")),
        ("accounts-pool", "auto".to_owned()),
        ("accounts-pool-min", accounts.pool_min.to_string()),
        ("accounts-pool-wait", time(accounts.pool_wait)),
        ("accounts-idle", time(accounts.session_idle)),
        ("accounts-session", time(accounts.session_max)),
    ] {
        let mut all = command.get_arguments();
        let option = all.find(|option| option.get_long() == Some(name));
        let help = option.and_then(clap::Arg::get_help).unwrap().to_string();
        let noted = format!("[default: {default}");
        assert!(help.contains(&noted), "{name}: {help}: {noted}");
    }
}
