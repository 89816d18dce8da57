//! The same over HTTP/2: counts exactly, latency as well as over HTTP/1, whether or not requests share a
//! connection. The stub takes the frames apart by code of its own.

use loadline_load::{Http2Plan, Plan};

use crate::distributions::{check_closed_exponential_by, check_exponential_by};
use crate::run;

/// As many clients, ten to a connection.
fn ten_to_a_connection(plan: Plan) -> Plan {
    Plan {
        connections: plan.connections / 10,
        http2: Some(Http2Plan::new(&plan.mix, 10, Vec::new())),
        ..plan
    }
}

#[test]
fn an_open_loop_over_http2_reports_what_passed_from_due() {
    let _turn = run::turn();
    let by = &ten_to_a_connection;
    check_exponential_by("exponential, open loop, HTTP/2", &run::stub, by);
}

#[test]
#[ignore = "long: some seconds that nothing else may take"]
fn a_closed_loop_over_http2_reports_what_its_clients_waited() {
    let _turn = run::turn();
    let by = &ten_to_a_connection;
    check_closed_exponential_by("exponential, closed loop, HTTP/2", &run::stub, by);
}
