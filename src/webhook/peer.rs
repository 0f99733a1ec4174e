//! The client of a connection: its number, and the token that closes its connection.

use tokio_util::sync::CancellationToken;

/// The client of one connection. Every request holds it in an `Arc`, because cloning a token takes a lock.
#[derive(Debug)]
pub(super) struct Peer {
    /// The number of the connection.
    pub(super) connection: u64,
    /// Closes the connection in any state.
    pub(super) gone: CancellationToken,
}

impl Peer {
    pub(super) fn new(connection: u64) -> Self {
        Peer {
            connection,
            gone: CancellationToken::new(),
        }
    }
}
