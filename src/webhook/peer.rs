//! The client at the other end of a connection: its network, by which shares are counted, and the end of its connection.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tokio_util::sync::CancellationToken;

/// One connection's client; a clone is the same one. Every request has several: a clone takes no lock.
#[derive(Clone, Debug)]
pub(super) struct Peer(Arc<PeerState>);

/// What is known of a client.
#[derive(Debug)]
pub(super) struct PeerState {
    /// The number of the connection.
    pub(super) connection: u64,
    /// Where the client is.
    pub(super) network: IpAddr,
    /// Ends the connection, whatever happens on it.
    pub(super) gone: CancellationToken,
    /// Whether it showed a certificate of the clients' CA.
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

    /// It has shown its certificate, and that was a good one.
    pub(super) fn introduce(&self) {
        self.known.store(true, Relaxed);
    }

    /// Whether it showed a certificate of the clients' CA.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }
}

/// What counts as one address. One machine may choose any of the addresses of a /64 of IPv6.
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
