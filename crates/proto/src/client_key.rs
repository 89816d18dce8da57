//! What makes two requests those of one client.

use core::net::IpAddr;

use crate::Exchange;

/// A client, as far as shares are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

/// Stands for `::/64`, in which loopback (`::1`) lies: 0 is nobody. IPv6 does not give this network out.
const LOOPBACK: u64 = 1;

impl ClientKey {
    /// Of those who have no address, or are counted with nobody.
    pub const NOBODY: Self = Self(0);

    /// An address of IPv4, or the /64 network of one of IPv6. The former stand where IPv6 has no networks
    /// to give out (`0:ffff::/32`).
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(0xffff << 32 | u64::from(u32::from(address))),
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64;
                Self(u64::try_from(network).map_or(LOOPBACK, |network| network.max(LOOPBACK)))
            }
        }
    }

    /// The one of this number.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// A number that no other client has.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Who has sent a request, perhaps by a proxy.
    #[must_use]
    pub fn of_request(exchange: &Exchange) -> Self {
        let client = exchange.client();
        client.map_or(Self::NOBODY, |client| Self::of(client.address))
    }

    /// Whether it is counted with nobody.
    #[must_use]
    pub fn is_nobody(self) -> bool {
        self == Self::NOBODY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_ipv4_address_or_a_64_network_of_ipv6() {
        let of = |text: &str| ClientKey::of(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::4"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        for address in ["0.0.0.0", "127.0.0.1", "::", "::1"] {
            assert!(!of(address).is_nobody(), "{address}");
        }
        assert_ne!(of("::1"), of("127.0.0.1"));
    }
}
