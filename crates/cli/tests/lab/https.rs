//! Servers of https in a plan: whom the load trusts, and what it shows to a server that asks for a
//! certificate.

use loadline_lab::journal::Level;

use crate::bench::{Bench, said};
use crate::certificates::{params, write_client, write_server};

/// A server with a certificate.
const OF_SERVER: &str = "tls_cert = \"{plan}/c.pem\", tls_key = \"{plan}/k.pem\"";

/// A server that serves nobody without a certificate of the authority beside the plan.
const THAT_ASKS: &str = "tls_client_ca = \"{plan}/ca.pem\"";

const TRUSTED: &str = "cacert = \"{plan}/c.pem\"";

/// What a client shows.
const SHOWN: &str = "cert = \"{plan}/ada-c.pem\", key = \"{plan}/ada-k.pem\"";

/// A plan with certificates beside it.
fn bench(servers: &str, load: &str) -> Bench {
    let bench = Bench::new(&format!(
        "name = \"t\"\nfiles = {{ \"index.html\" = 93 }}\n{servers}\n[[series]]\nname = \"s\"\n\
         path = \"/index.html\"\nreplicates = 1\nduration_s = 1\nwarm_up_s = 0\na_a = false\n\
         load = {{ connections = 2, rate = 200, {load} }}\n\
         allow = {{ client_limited = true, overflows = true, steal = 1, others = 1 }}"
    ));
    let folder = bench.beside("");
    write_server(&folder, params("127.0.0.1"));
    write_client(&folder);
    bench
}

fn loadline(options: &str) -> String {
    format!("[servers.loadline]\noptions = {{ {options} }}")
}

/// Every server answers all requests, over connections with handshakes. What Loadline counts is asked for
/// without a certificate, by a socket.
fn check_answers(bench: &Bench, servers: usize) {
    let trials = bench.complete();
    bench.wait_until_nothing_runs();
    assert_eq!(trials.len(), servers);
    for trial in trials {
        let all = &trial.load.as_ref().unwrap().everything;
        assert!(all.good > 0 && all.good == all.completed, "{all:?}");
        assert!(
            all.errors_total() == 0 && all.handshakes_full > 0,
            "{all:?}"
        );
        let is_loadline = trial.levels["server"] == Level::Text("loadline".to_owned());
        let counted = is_loadline.then_some(all.completed);
        assert_eq!(trial.server.requests_counted, counted);
    }
}

/// The trial is discarded for this reason.
fn check_discarded(bench: &Bench, reason: &str) {
    let output = bench.run(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains(reason), "{}", said(&output));
    let trials = bench.journal().trials;
    assert_eq!(trials[0].discarded.len(), 1, "{trials:?}");
    assert!(trials[0].discarded[0].contains(reason), "{trials:?}");
    assert!(trials[0].load.is_none());
}

/// Loadline has https by its certificate, another server since the load says whom to trust.
#[test]
fn servers_are_trusted_by_a_file_beside_the_plan() {
    let own = "[servers.own]\ncommand = [\"{loadline}\", \"serve\", \"{root}\", \
               \"--listen=https://127.0.0.1:{port}\", \"--tls-cert={plan}/c.pem\", \
               \"--tls-key={plan}/k.pem\"]";
    let servers = format!("{}\n{own}", loadline(OF_SERVER));
    check_answers(&bench(&servers, TRUSTED), 2);
}

#[test]
fn a_server_that_asks_for_certificates_is_shown_one() {
    let server = loadline(&format!("{OF_SERVER}, {THAT_ASKS}"));
    check_answers(&bench(&server, &format!("{TRUSTED}, {SHOWN}")), 1);
}

#[test]
fn a_server_that_is_not_trusted_discards_its_trial() {
    let bench = bench(&loadline(OF_SERVER), "cacert = \"{plan}/ca.pem\"");
    check_discarded(&bench, "not signed by a trusted authority");
}

#[test]
fn a_client_without_a_certificate_discards_the_trial() {
    let server = loadline(&format!("{OF_SERVER}, {THAT_ASKS}"));
    check_discarded(&bench(&server, TRUSTED), "it asks for a client certificate");
}

#[test]
fn files_of_certificates_that_do_not_fit_are_refused_before_the_first_trial() {
    for (load, parts) in [
        (
            "cert = \"{plan}/ada-c.pem\"",
            ["--cert", "it goes with --key"],
        ),
        (
            "insecure = true, cacert = \"{plan}/c.pem\"",
            ["--cacert", "it excludes --insecure"],
        ),
    ] {
        let bench = bench(&loadline(OF_SERVER), load);
        let output = bench.run(&["--dry-run"]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        for part in parts {
            assert!(said(&output).contains(part), "{}", said(&output));
        }
    }
}
