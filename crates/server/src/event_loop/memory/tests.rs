//! A loop whose memory runs short.

mod clients;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use loadline_base::MemoryBudget;
use loadline_proto::http2::frame::Setting;
use loadline_proto::{Body, Context, Exchange, Handler, Outcome};

use crate::event_loop::EventLoop;
use crate::event_loop::loop_group::LoopGroup;
use crate::event_loop::tests::{connect, has_rings, http2};
use crate::options::ServerOptions;
use crate::site::Site;
use crate::site::tests::{clock, site_at};
use crate::transport::Driver;
use crate::transport::ring::driver::RingDriver;
use crate::transport::socket::epoll::Epoll;

const BUDGET_BYTES: u64 = 8 << 20;

/// What all responses to a client come to is more than a seventh of the budget.
const STREAMS: u32 = 120;
const RESPONSE_BYTES: usize = 10 << 10;

/// What a share of each comes to is far more than the budget.
const CLIENTS: usize = 40;

/// Responses of this length; the most that was counted when one was made.
struct Copies {
    budget: Arc<MemoryBudget>,
    most: Arc<AtomicU64>,
}

impl Handler for Copies {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        self.most.fetch_max(self.budget.used_bytes(), Relaxed);
        exchange.response.body = Body::Bytes(vec![b'x'; RESPONSE_BYTES]);
        Outcome::Ready
    }
}

/// The requests of a client that takes no content.
fn requests() -> Vec<u8> {
    let mut no_window = Vec::new();
    let setting = Setting {
        id: Setting::INITIAL_WINDOW_SIZE,
        value: 0,
    };
    setting.write(&mut no_window);
    http2::requests(&no_window, STREAMS)
}

/// The requests of all clients come in one turn. With a share of each client's answered, none of them waited for
/// its client, so that none was closed: they held many times the budget.
fn answers_one_client_after_the_other<D: Driver>() {
    let now_us = clock();
    now_us.store(1_000_000, Relaxed);
    let budget = MemoryBudget::new(Some(BUDGET_BYTES));
    let most = Arc::<AtomicU64>::default();
    let handler = Copies {
        budget: Arc::clone(&budget),
        most: Arc::clone(&most),
    };
    let options = ServerOptions {
        loops: 1,
        ..ServerOptions::default()
    };
    let site = Arc::new(Site {
        memory: budget,
        ..site_at(now_us, handler, options)
    });
    let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
    let mut event_loop = EventLoop::<_, D>::new(0, &site, &group, None, Vec::new()).unwrap();
    let requests = requests();
    let clients: Vec<UnixStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(&mut event_loop);
            client.write_all(&requests).unwrap();
            client
        })
        .collect();
    for _ in 0..20 {
        event_loop.begin_wait();
        event_loop.wake_and_work().unwrap();
    }
    drop(clients);
    let most = most.load(Relaxed);
    assert!(most > BUDGET_BYTES / 2, "{most}: memory was never short");
    assert!(most < BUDGET_BYTES + (2 << 20), "{most}");
}

#[test]
fn while_memory_is_used_up_a_loop_answers_one_client_after_the_other() {
    answers_one_client_after_the_other::<Epoll>();
    if has_rings() {
        answers_one_client_after_the_other::<RingDriver>();
    }
}
