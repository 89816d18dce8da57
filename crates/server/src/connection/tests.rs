//! A connection over a socket pair, whose work waits.

pub(crate) mod computed;
mod turns;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use loadline_base::OpenFile;
use loadline_proto::{Body, Outcome};

use super::*;
use crate::ServerOptions;
use crate::site::tests::{config_of, site_of};
use crate::telemetry::counters::Role;
use crate::transport::socket::{Readiness, Socket};

pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

/// Answers with a file that is to be read by somebody who may wait: its file system does not say whether
/// that would take long, and it does not count as one of this machine.
pub(crate) struct Distant {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) content: Vec<u8>,
}

impl Distant {
    pub(crate) fn new() -> Self {
        let path = "/proc/version";
        let content = std::fs::read(path).unwrap();
        let fd = File::open(path).unwrap().into();
        let version = file::version(&fd).unwrap();
        let cached = file::read_cached(&fd, &mut [0], 0).unwrap();
        assert_eq!(cached, file::CachedRead::Unknown);
        Self {
            file: Arc::new(OpenFile {
                fd,
                version,
                is_local: false,
            }),
            content,
        }
    }
}

impl Handler for Distant {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        exchange.response.body = Body::File {
            file: Arc::clone(&self.file),
            offset: 0,
            len: self.content.len() as u64,
        };
        Outcome::Ready
    }
}

/// Keeps ranges that are to be read.
#[derive(Default)]
struct Reader(Vec<Range>);

impl<H: Handler> Placement<H> for Reader {
    fn block(
        &mut self,
        exchange: Box<Exchange>,
        _steps: Arc<dyn Steps>,
        _thread: &mut ThreadContext<H>,
    ) -> Blocked {
        Blocked::Done(exchange)
    }

    fn prefetch(
        &mut self,
        range: Range,
        _client: ClientKey,
        _thread: &mut ThreadContext<H>,
    ) -> bool {
        self.0.push(range);
        false
    }

    fn start(
        &mut self,
        exchange: Box<Exchange>,
        _steps: Arc<dyn Steps>,
        _thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        TaskStart::Refused(exchange)
    }
}

/// As many bytes as the socket takes.
pub(crate) fn fill(mut socket: &UnixStream) -> usize {
    let mut full = 0;
    while let Ok(count) = socket.write(&[b'j'; 1000]) {
        full += count;
    }
    full
}

#[test]
fn a_batch_that_a_thread_has_begun_does_not_wait_for_the_disk_on_a_loop() {
    let distant = Distant::new();
    let content = distant.content.clone();
    let site = site_of(config_of(distant), ServerOptions::default());
    let thread = &mut ThreadContext::new(&site, Role::Loop);
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let full = fill(&server);
    let origin = Origin {
        peer: None,
        listener: 0,
    };
    let socket = Socket::of_loop(server, true);
    let mut connection = Connection::new(socket, origin, None, thread);
    let mut reader = Reader::default();
    client.write_all(GET).unwrap();
    connection.transport_mut().move_to_thread();
    let step = connection.drive(thread, &mut (), &mut reader);
    assert!(matches!(step, Step::Wait) && connection.transport().is_sending());
    connection.transport_mut().move_to_loop();

    client.read_exact(&mut vec![0; full]).unwrap();
    let writable = Readiness {
        writable: true,
        ..Readiness::default()
    };
    connection.transport_mut().note(writable);
    let step = connection.drive(thread, &mut (), &mut reader);
    assert!(matches!(step, Step::Wait));
    let [range] = <[_; 1]>::try_from(reader.0).expect("a range to be read");
    assert_eq!(range.len, content.len() as u64);

    // Only the server itself is awaited.
    assert!(connection.has_work_out::<()>());
    assert_eq!(connection.deadline::<()>(), None);
    assert_eq!(connection.awaits_client_since::<()>(), None);
    connection.prefetched::<()>(&mut thread.cx());
    assert!(!connection.has_work_out::<()>());
    assert!(connection.deadline::<()>() > Some(thread.now()));
    assert!(connection.awaits_client_since::<()>() >= Some(thread.now()));
    let step = connection.drive(thread, &mut (), &mut Reader::default());
    assert!(matches!(step, Step::Wait) && !connection.transport().is_sending());
    let mut bytes = vec![0; 4096];
    let count = client.read(&mut bytes).unwrap();
    assert!(bytes[..count].ends_with(&content));
}
