//! The client of a connection: its network, which shares are counted by, and the token that closes its
//! connection.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tokio_util::sync::CancellationToken;

/// The client of one connection; clones share it. Every request holds several: cloning takes no lock.
#[derive(Clone, Debug)]
pub(super) struct Peer(Arc<PeerState>);

/// The state of a client.
#[derive(Debug)]
pub(super) struct PeerState {
    /// The number of the connection.
    pub(super) connection: u64,
    /// The network of the client.
    pub(super) network: IpAddr,
    /// Closes the connection in any state.
    pub(super) gone: CancellationToken,
    /// Whether it presented a certificate of the client CA.
    known: AtomicBool,
}

impl Deref for Peer {
    type Target = PeerState;

    fn deref(&self) -> &PeerState {
        &self.0
    }
}

impl Peer {
    pub(super) fn new(connection: u64, address: IpAddr) -> Self {
        Self(Arc::new(PeerState {
            connection,
            network: network(address),
            gone: CancellationToken::new(),
            known: AtomicBool::new(false),
        }))
    }

    /// Records that it presented a valid certificate.
    pub(super) fn introduce(&self) {
        self.known.store(true, Relaxed);
    }

    /// Whether it presented a certificate of the client CA.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }
}

/// The addresses that count as one. One machine can use any address of an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(long) => Ipv6Addr::from_bits(long.to_bits() & (u128::MAX << 64)).into(),
        short @ IpAddr::V4(_) => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_one_machine_may_choose_count_as_one() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }
}
