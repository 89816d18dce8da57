//! A handler whose connections have work that waits.

use std::fs::File;

use loadline_base::OpenFile;
use loadline_proto::{Body, Outcome};

use super::*;

pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

/// Answers with a file that is to be read by somebody who may wait: its file system does not say whether
/// that would take long, and it does not count as one of this machine.
pub(crate) struct Distant {
    file: Arc<OpenFile>,
    pub(crate) content: Vec<u8>,
}

impl Distant {
    pub(crate) fn new() -> Self {
        let path = "/proc/version";
        let content = std::fs::read(path).unwrap();
        let fd = File::open(path).unwrap().into();
        let version = file::version(&fd).unwrap();
        let warm = file::read_warm(&fd, &mut [0], 0).unwrap();
        assert_eq!(warm, file::Warm::Unknown);
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

    fn handle_blocking(&self, _: &mut Exchange) {}
}
