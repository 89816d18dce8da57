//! A client over TLS. Its requests may be sent as streams of HTTP/2, whose frames go in records of odd sizes.

use std::net::SocketAddr;

use loadline_base::Buffer;
use loadline_proto::{Fault, Layer};
use loadline_tls::{TlsClient, TlsLayer};

use crate::client::Client;
use crate::translated::Translated;

/// Lengths of records: the shortest, the longest, and some that fit into nothing.
pub const RECORDS: [usize; 7] = [1, 16_384, 4097, 13, 9999, 16_383, 2];

/// A new connection to `localhost`, which is at this address.
pub fn connect(client: &TlsClient, address: SocketAddr, is_http2: bool) -> Client {
    let mut hello = Buffer::default();
    if !is_http2 {
        let tls = client.connect("localhost", &mut hello).unwrap();
        return Client::connect_over(address, Box::new(tls), &hello);
    }
    let client = client.asking_for(&[&b"h2"[..]]);
    let tls = client.connect("localhost", &mut hello).unwrap();
    let mut client = Client::connect_over(address, Box::new(Streams::over(tls)), &hello);
    client.is_http2 = true;
    client
}

/// HTTP/1 as streams over TLS.
#[derive(Debug)]
struct Streams {
    tls: TlsLayer,
    translated: Translated,
    /// Frames that wait for the end of the handshake.
    unsent: Vec<u8>,
    /// Records of frames that were sent.
    record_count: usize,
    has_finished: bool,
}

impl Streams {
    fn over(tls: TlsLayer) -> Self {
        let mut unsent = Vec::new();
        let translated = Translated::new("https", &mut unsent);
        Self {
            tls,
            translated,
            unsent,
            record_count: 0,
            has_finished: false,
        }
    }

    fn send_frames(&mut self, frames: &[u8], out: &mut Buffer) {
        self.unsent.extend_from_slice(frames);
        if !self.tls.is_open() || self.has_finished {
            return;
        }
        let mut rest = &self.unsent[..];
        while !rest.is_empty() {
            let len = RECORDS[self.record_count % RECORDS.len()];
            let (record, behind) = rest.split_at(len.min(rest.len()));
            self.tls.send(record, out);
            self.record_count += 1;
            rest = behind;
        }
        self.unsent.clear();
    }
}

impl Layer for Streams {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        let (mut frames, mut answer) = (Buffer::default(), Buffer::default());
        self.tls.received(bytes, &mut frames, out)?;
        self.translated.received(&mut frames, plain, &mut answer)?;
        self.send_frames(&answer, out);
        Ok(())
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        let mut frames = Buffer::default();
        self.translated.send(plain, &mut frames);
        self.send_frames(&frames, out);
    }

    fn finish(&mut self, out: &mut Buffer) {
        self.has_finished = true;
        self.tls.finish(out);
    }

    fn is_open(&self) -> bool {
        self.tls.is_open()
    }

    fn has_ended(&self) -> bool {
        self.tls.has_ended() || self.translated.has_ended()
    }
}
