//! TUN devices: network interfaces whose packets a process reads and writes.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;

use libc::{c_char, ifreq};

/// Makes an interface of this name in the calling thread's network namespace: without an address, and
/// not up. It ends with the file. Each read is one IP packet, each write another, without anything
/// before them; neither waits.
///
/// # Errors
/// There is no `/dev/net/tun`, the process may not open it or make an interface (`CAP_NET_ADMIN`), or
/// the name is taken or too long.
pub fn open(name: &str) -> io::Result<File> {
    const DEVICE: &str = "/dev/net/tun";
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{DEVICE}: {}", short(&error)));
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(named)?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    order(&file, libc::TUNSETIFF, &mut request).map_err(named)?;
    Ok(file)
}

/// Gives an interface of the calling thread's namespace an IPv4 address in a network with so many bits
/// in common, and brings it up.
///
/// # Errors
/// There is no such interface, or the process may not (`CAP_NET_ADMIN`).
pub fn set_up(name: &str, address: Ipv4Addr, prefix_bits: u8) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mask = u32::MAX
        .checked_shl(32 - u32::from(prefix_bits))
        .unwrap_or(0);
    for (number, address) in [
        (libc::SIOCSIFADDR, address),
        (libc::SIOCSIFNETMASK, Ipv4Addr::from(mask)),
    ] {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_addr = socket_address(address);
        order(&socket, number, &mut request)?;
    }
    bring_up(name)
}

/// Gives an interface of the calling thread's namespace a queue of so many packets in front of whoever reads
/// them, in place of 500.
///
/// # Errors
/// There is no such interface, or the process may not (`CAP_NET_ADMIN`, outside of user namespaces).
pub fn set_queue(name: &str, packets: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_metric = packets.into(); // what the kernel reads for this order is a number
    order(&socket, libc::SIOCSIFTXQLEN, &mut request)
}

/// Brings an interface of the calling thread's namespace up.
///
/// # Errors
/// As [`set_up`].
pub fn bring_up(name: &str) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    order(&socket, libc::SIOCSIFFLAGS, &mut request)
}

fn request(name: &str) -> io::Result<ifreq> {
    // SAFETY: numbers and bytes alone, for which zeros are valid; the pointer among them may be null.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // The kernel wants a zero behind the name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::other(format!(
            "{name}: too long for an interface"
        )));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as c_char;
    }
    Ok(request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data: [c_char; 14] = [0; 14];
    // Two bytes of a port, which an interface has not, then the address.
    for (place, byte) in data[2..].iter_mut().zip(address.octets()) {
        *place = byte as c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn order(to: &impl AsFd, number: libc::Ioctl, request: &mut ifreq) -> io::Result<()> {
    // SAFETY: each of the orders above reads and writes an `ifreq`, which lives through the call.
    let done = unsafe { libc::ioctl(to.as_fd().as_raw_fd(), number, std::ptr::from_mut(request)) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Without the number behind it.
fn short(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::network::{inside, new_namespace};
    use crate::wait_readable;

    #[test]
    fn packets_are_read_and_written_whole() {
        let made = new_namespace().and_then(|namespace| {
            inside(&namespace, || {
                let mut tun = open("test")?;
                set_up("test", Ipv4Addr::new(10, 9, 8, 1), 24)?;
                set_queue("test", 10)?;
                let ours = UdpSocket::bind("10.9.8.1:0")?;
                ours.send_to(b"hello", "10.9.8.2:7")?;
                let mut packet = vec![0; 1500];
                // Others may be there before it: what the kernel says by itself over a new interface.
                let read = loop {
                    wait_readable(&[tun.as_fd()], Some(5_000))?;
                    let read = tun.read(&mut packet)?;
                    if packet[..read].ends_with(b"hello") {
                        break read;
                    }
                };
                let packet = &mut packet[..read];
                // Sent back: the addresses change places, then the ports. Neither changes a checksum.
                for index in 12..16 {
                    packet.swap(index, index + 4);
                }
                packet.swap(20, 22);
                packet.swap(21, 23);
                assert_eq!(tun.write(packet)?, read);
                let mut answer = [0; 16];
                let (read, from) = ours.recv_from(&mut answer)?;
                assert_eq!(
                    (&answer[..read], from.to_string()),
                    (&b"hello"[..], "10.9.8.2:7".into())
                );
                Ok(())
            })
        });
        skip_or(made);
    }

    /// What this machine does not allow is said, and is no failure.
    fn skip_or(made: io::Result<()>) {
        use io::ErrorKind::{NotFound, PermissionDenied};
        match made {
            Err(error) if [NotFound, PermissionDenied].contains(&error.kind()) => {
                let _ = writeln!(io::stderr(), "\nskipped: {error}");
            }
            made => made.unwrap(),
        }
    }

    #[test]
    fn names_that_are_too_long_are_refused() {
        assert!(request("fifteen-letters").is_ok());
        assert!(request("sixteen-letters-").is_err());
    }
}
