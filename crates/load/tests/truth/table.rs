//! What is checked over which protocol: at each commit, by `./x test --all`, or not at all.
//!
//! At each commit what is most likely to differ: the client sends by other code over TLS and over HTTP/2,
//! and the times of an open loop begin where a request is due.

/// One `#[test]` for each check and protocol, so that a failure is named.
macro_rules! over_protocols {
    ($($file:ident::$check:ident: $http1:ident $http1_tls:ident $http2:ident $http2_tls:ident,)*) => {
        $(mod $check {
            over_protocols!(@$http1 $file $check http1 Http1);
            over_protocols!(@$http1_tls $file $check http1_tls Http1Tls);
            over_protocols!(@$http2 $file $check http2 Http2);
            over_protocols!(@$http2_tls $file $check http2_tls Http2Tls);
        })*
    };
    (@always $file:ident $check:ident $name:ident $protocol:ident) => {
        #[test]
        fn $name() {
            let _turn = crate::run::turn();
            crate::$file::$check(crate::protocol::Protocol::$protocol);
        }
    };
    (@long $file:ident $check:ident $name:ident $protocol:ident) => {
        #[test]
        #[ignore = "long: some seconds that nothing else may take"]
        fn $name() {
            let _turn = crate::run::turn();
            crate::$file::$check(crate::protocol::Protocol::$protocol);
        }
    };
    (@never $file:ident $check:ident $name:ident $protocol:ident) => {};
}

over_protocols! {
    //                                               HTTP/1.1, TLS, HTTP/2, HTTP/2 with TLS
    distributions::constant_times_in_a_closed_loop: always long long long,
    distributions::constant_times_in_an_open_loop: always long long long,
    distributions::exponential_times_in_a_closed_loop: always long long long,
    distributions::exponential_times_in_an_open_loop: always always always always,
    distributions::two_kinds_of_times_in_a_closed_loop: long long long long,
    distributions::two_kinds_of_times_in_an_open_loop: long long long long,
    // Over the others the client computes more for a request. What that may add to a time is bounded
    // where all times are the same.
    distributions::no_time_at_all: always never never never,
    queues::a_queue_before_one_server: always always long always,
    queues::a_queue_before_two_servers: long long long long,
    stalls::a_stall_before_one_connection: always long long long,
    stalls::a_stall_with_a_connection_for_each: always long long long,
    stalls::a_stall_in_a_closed_loop: always long long long,
    h2load::an_open_loop_beside_h2load: long long long long,
}
