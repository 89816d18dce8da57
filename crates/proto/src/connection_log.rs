//! The journal of connections: a line when one is accepted, and one when it is closed. Formatted into
//! memory; a loop hands the lines on.
//!
//! ```text
//! 2026-11-22T07:39:37.000123Z accepted 17 192.0.2.7:40312
//! 2026-11-22T07:39:52.001456Z closed 17 192.0.2.7:40312 idle requests=3 in=243 out=9120 us=15001333
//! ```

use core::net::SocketAddr;
use std::fmt;
use std::io::Write as _;

use crate::{CloseReason, HttpDate};

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFormat {
    /// Words and numbers with spaces in between.
    Text,
    /// One JSON object a line, under the names of OpenTelemetry's conventions where they have one.
    Json,
}

/// What one connection has come to so far. Kept only where there is a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Its number: they count up in one server, from 1.
    pub id: u64,
    /// The other end; `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// When it was accepted, on the server's clock, in microseconds.
    pub accepted_us: u64,
    /// Requests whose answer was begun; what was refused as malformed or late is one too.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Why it was closed; means nothing before that.
    pub reason: CloseReason,
}

impl ConnectionRecord {
    /// One that was just accepted.
    #[must_use]
    pub fn new(id: u64, peer: Option<SocketAddr>, accepted_us: u64) -> Self {
        Self {
            id,
            peer,
            accepted_us,
            requests: 0,
            bytes_in: 0,
            bytes_out: 0,
            reason: CloseReason::Failed,
        }
    }
}

/// Lines of one thread that wait to be handed on, always whole.
#[derive(Debug)]
pub struct ConnectionLog {
    format: ConnectionFormat,
    lines: Vec<u8>,
    /// The second that was written last.
    second: HttpDate,
}

const US_PER_S: u64 = 1_000_000;

impl ConnectionLog {
    /// An empty log.
    #[must_use]
    pub fn new(format: ConnectionFormat) -> Self {
        Self {
            format,
            lines: Vec::new(),
            second: HttpDate::at(0),
        }
    }

    /// The lines so far; the caller takes them away.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }

    /// Adds the line of a new connection; `unix_us`: microseconds since 1970.
    pub fn accepted(&mut self, record: &ConnectionRecord, unix_us: u64) {
        self.begin("accepted", record, unix_us);
        self.end();
    }

    /// Adds the line of one that is closed, `duration_us` after it was accepted.
    pub fn closed(&mut self, record: &ConnectionRecord, unix_us: u64, duration_us: u64) {
        self.begin("closed", record, unix_us);
        let ConnectionRecord {
            requests,
            bytes_in,
            bytes_out,
            ..
        } = record;
        let reason = record.reason.name();
        match self.format {
            ConnectionFormat::Text => self.push(format_args!(
                " {reason} requests={requests} in={bytes_in} out={bytes_out} us={duration_us}"
            )),
            ConnectionFormat::Json => self.push(format_args!(
                ",\"reason\":\"{reason}\",\"requests\":{requests},\"bytes_in\":{bytes_in},\
                 \"bytes_out\":{bytes_out},\"duration_us\":{duration_us}"
            )),
        }
        self.end();
    }

    fn begin(&mut self, event: &str, record: &ConnectionRecord, unix_us: u64) {
        let seconds = unix_us / US_PER_S;
        if seconds != self.second.unix_seconds() {
            self.second = HttpDate::at(seconds);
        }
        if self.format == ConnectionFormat::Json {
            self.lines.extend_from_slice(b"{\"time\":\"");
        }
        self.lines.extend_from_slice(&self.second.rfc3339());
        self.push(format_args!(".{:06}Z", unix_us % US_PER_S));
        let id = record.id;
        let peer = record
            .peer
            .map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
        match (self.format, peer) {
            (ConnectionFormat::Text, Some(peer)) => self.push(format_args!(" {event} {id} {peer}")),
            (ConnectionFormat::Text, None) => self.push(format_args!(" {event} {id} -")),
            (ConnectionFormat::Json, peer) => {
                self.push(format_args!("\",\"event\":\"{event}\",\"connection\":{id}"));
                if let Some(peer) = peer {
                    let (address, port) = (peer.ip(), peer.port());
                    self.push(format_args!(
                        ",\"network.peer.address\":\"{address}\",\"network.peer.port\":{port}"
                    ));
                }
            }
        }
    }

    fn end(&mut self) {
        self.lines.extend_from_slice(match self.format {
            ConnectionFormat::Text => b"\n",
            ConnectionFormat::Json => b"}\n",
        });
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.lines.write_fmt(text); // to a vector: it cannot fail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: ConnectionFormat, peer: Option<&str>) -> String {
        let peer = peer.map(|peer| peer.parse().unwrap());
        let mut log = ConnectionLog::new(format);
        let mut record = ConnectionRecord::new(17, peer, 5);
        log.accepted(&record, 784_111_777_000_012);
        (record.requests, record.bytes_in, record.bytes_out) = (3, 40, 5_000);
        record.reason = CloseReason::OverCapacity;
        log.closed(&record, 784_111_778_100_000, 1_099_988);
        String::from_utf8(std::mem::take(log.lines())).unwrap()
    }

    #[test]
    fn a_line_for_the_begin_and_one_for_the_end() {
        let text = "1994-11-06T08:49:37.000012Z accepted 17 192.0.2.7:80\n\
            1994-11-06T08:49:38.100000Z closed 17 192.0.2.7:80 over_capacity requests=3 in=40 \
            out=5000 us=1099988\n";
        assert_eq!(
            lines(ConnectionFormat::Text, Some("[::ffff:192.0.2.7]:80")),
            text
        );
        let unix = text.replace("192.0.2.7:80", "-");
        assert_eq!(lines(ConnectionFormat::Text, None), unix);
        let v6 = text.replace("192.0.2.7:80", "[2001:db8::1]:80");
        assert_eq!(lines(ConnectionFormat::Text, Some("[2001:db8::1]:80")), v6);
    }

    #[test]
    fn the_same_as_json() {
        let json = "{\"time\":\"1994-11-06T08:49:37.000012Z\",\"event\":\"accepted\",\
            \"connection\":17,\"network.peer.address\":\"2001:db8::1\",\
            \"network.peer.port\":80}\n\
            {\"time\":\"1994-11-06T08:49:38.100000Z\",\"event\":\"closed\",\"connection\":17,\
            \"network.peer.address\":\"2001:db8::1\",\"network.peer.port\":80,\
            \"reason\":\"over_capacity\",\"requests\":3,\"bytes_in\":40,\"bytes_out\":5000,\
            \"duration_us\":1099988}\n";
        assert_eq!(
            lines(ConnectionFormat::Json, Some("[2001:db8::1]:80")),
            json
        );
        let unix = json.replace(
            ",\"network.peer.address\":\"2001:db8::1\",\"network.peer.port\":80",
            "",
        );
        assert_eq!(lines(ConnectionFormat::Json, None), unix);
    }
}
