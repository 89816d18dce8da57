//! Echo requests (ICMP, RFC 792): what `ping` sends.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// Type, code, checksum, identifier, sequence number: two bytes each, the first two together.
const HEADER_BYTES: usize = 8;
/// Content of a request, as `ping` has it.
const CONTENT_BYTES: usize = 56;

/// A socket for echo requests. All of its waits have an end.
#[derive(Debug)]
pub struct EchoSocket {
    socket: UdpSocket,
    identifier: u16,
}

impl EchoSocket {
    /// One in the calling thread's network namespace. `identifier` distinguishes its requests from those
    /// of others.
    ///
    /// # Errors
    /// The process may not (`CAP_NET_RAW`).
    pub fn open(identifier: u16, timeout: Duration) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            flags,
            Some(ipproto::ICMP),
        )?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        Ok(Self { socket, identifier })
    }

    /// The same socket, for another thread.
    ///
    /// # Errors
    /// At the descriptor limit.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            identifier: self.identifier,
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// There is no way there.
    pub fn send(&self, to: Ipv4Addr, sequence: u16) -> io::Result<()> {
        let packet = request(self.identifier, sequence);
        self.socket.send_to(&packet, (to, 0)).map(drop)
    }

    /// Waits for the next reply to one of its requests, and returns that one's number; `None`: what came
    /// was something else, or nothing came.
    ///
    /// # Errors
    /// The network is gone.
    pub fn receive(&self) -> io::Result<Option<u16>> {
        let mut packet = [0; 256];
        match self.socket.recv(&mut packet) {
            Ok(read) => Ok(reply(&packet[..read], self.identifier)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn request(identifier: u16, sequence: u16) -> [u8; HEADER_BYTES + CONTENT_BYTES] {
    let mut packet = [0; HEADER_BYTES + CONTENT_BYTES];
    packet[0] = REQUEST;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The sequence number of a reply, as a raw socket has it: with the header of IP before it.
fn reply(packet: &[u8], identifier: u16) -> Option<u16> {
    let header_bytes = usize::from(packet.first()? & 0xf) * 4;
    let message = packet.get(header_bytes..)?.first_chunk::<HEADER_BYTES>()?;
    let [kind, _, _, _, one, two, three, four] = *message;
    let is_ours = kind == REPLY && u16::from_be_bytes([one, two]) == identifier;
    is_ours.then(|| u16::from_be_bytes([three, four]))
}

/// The checksum of the Internet (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        // RFC 1071, section 3: the sum of this is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&request(7, 9)), 0);
    }

    #[test]
    fn a_reply_is_read_behind_its_header() {
        let mut packet = vec![0x45; 20];
        packet.extend(request(7, 9));
        assert_eq!(reply(&packet, 7), None); // still a request
        packet[20] = REPLY;
        assert_eq!(reply(&packet, 7), Some(9));
        assert_eq!(reply(&packet, 8), None);
        for cut in 0..28 {
            assert_eq!(reply(&packet[..cut], 7), None);
        }
    }

    #[test]
    fn the_loopback_replies() {
        let socket = match EchoSocket::open(4711, Duration::from_secs(5)) {
            Ok(socket) => socket,
            Err(error) => {
                // Past the capture of the test's output.
                let message = format!("\nskipped: an echo request: {error}\n");
                return io::stderr().write_all(message.as_bytes()).unwrap();
            }
        };
        socket.send(Ipv4Addr::LOCALHOST, 3).unwrap();
        // The request itself arrives here, too.
        let answer = (0..100).find_map(|_| socket.receive().unwrap());
        assert_eq!(answer, Some(3));
    }
}
