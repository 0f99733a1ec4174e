//! The open connections of a listener, and which one is evicted when a new one needs its place.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection_stats::ConnectionStats;
use super::peer::Peer;

/// A connection that was accepted or used this recently is evicted only after all older ones: its client
/// needs the time for the handshake and the first request.
const MOMENT: Duration = Duration::from_millis(500);

/// The connections of one listener; clones share them.
#[derive(Clone, Default, Debug)]
pub(super) struct ConnectionSet(Arc<Mutex<ConnectionTable>>);

#[derive(Default, Debug)]
struct ConnectionTable {
    by_number: HashMap<u64, ConnectionEntry>,
    next: u64,
}

#[derive(Debug)]
struct ConnectionEntry {
    client: Peer,
    activity: Arc<ConnectionStats>,
}

/// A connection's entry in the set, until dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    connections: ConnectionSet,
    pub(super) client: Peer,
    pub(super) activity: Arc<ConnectionStats>,
}

impl ConnectionSet {
    /// Adds a connection.
    pub(super) fn enter(&self, address: IpAddr) -> ConnectionGuard {
        let mut table = self.lock();
        table.next += 1;
        let client = Peer::new(table.next, address);
        let activity = Arc::new(ConnectionStats::new(Instant::now()));
        let entry = ConnectionEntry {
            client: client.clone(),
            activity: Arc::clone(&activity),
        };
        table.by_number.insert(client.connection, entry);
        ConnectionGuard {
            connections: self.clone(),
            client,
            activity,
        }
    }

    /// Evicts the first connection in eviction order; false if every connection is already being evicted.
    pub(super) fn make_room(&self) -> bool {
        let mut table = self.lock();
        let now = Instant::now();
        let ranks = table.by_number.values().map(|entry| entry.rank(now));
        let Some(number) = first_to_evict(ranks) else {
            return false;
        };
        if let Some(entry) = table.by_number.remove(&number) {
            entry.client.gone.cancel();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.lock().by_number.remove(&self.client.connection);
    }
}

impl ConnectionEntry {
    fn rank(&self, now: Instant) -> EvictionRank {
        let last_good = self.activity.last_good();
        let worth = if self.client.is_known() {
            EvictionClass::Known
        } else if now.saturating_duration_since(last_good) < MOMENT {
            EvictionClass::Fresh
        } else if !self.activity.has_served() {
            EvictionClass::Unproven
        } else if self.activity.in_flight.load(Relaxed) == 0 {
            EvictionClass::Idle
        } else {
            EvictionClass::Fresh
        };
        EvictionRank {
            number: self.client.connection,
            network: self.client.network,
            worth,
            last_good,
        }
    }
}

/// The usefulness of a connection, in eviction order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum EvictionClass {
    /// It has not completed a review: its handshake, head or body does not end, or it sent nothing.
    Unproven,
    /// It has completed reviews, and has none in flight.
    Idle,
    /// It was accepted or used just now, or has a review in flight.
    Fresh,
    /// It presented a certificate of the client CA.
    Known,
}

/// What the eviction order compares.
#[derive(Clone, Copy, Debug)]
struct EvictionRank {
    number: u64,
    network: IpAddr,
    worth: EvictionClass,
    last_good: Instant,
}

/// The connection to evict first: of the least useful class, of the network with the most such connections,
/// the one that was unused for longest.
fn first_to_evict(ranks: impl Iterator<Item = EvictionRank>) -> Option<u64> {
    let mut least: Vec<EvictionRank> = Vec::new();
    for rank in ranks {
        let lowest = least.first().map_or(rank.worth, |first| first.worth);
        if rank.worth < lowest {
            least.clear();
        }
        if rank.worth <= lowest {
            least.push(rank);
        }
    }
    let mut per_network: HashMap<IpAddr, usize> = HashMap::new();
    for rank in &least {
        *per_network.entry(rank.network).or_default() += 1;
    }
    let rank = |one: &&EvictionRank| {
        let neighbours = per_network.get(&one.network).copied();
        (neighbours, Reverse((one.last_good, one.number)))
    };
    least.iter().max_by_key(rank).map(|first| first.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections by number: the last byte of the network, the class, and the seconds since the last use.
    fn first(connections: &[(u8, EvictionClass, u64)]) -> Option<u64> {
        let now = Instant::now() + Duration::from_secs(1000);
        first_to_evict(
            (0..)
                .zip(connections)
                .map(|(number, (network, worth, seconds))| EvictionRank {
                    number,
                    network: [10, 0, 0, *network].into(),
                    worth: *worth,
                    last_good: now.checked_sub(Duration::from_secs(*seconds)).unwrap(),
                }),
        )
    }

    #[test]
    fn what_never_completed_a_review_goes_before_what_did_and_that_before_what_is_of_use() {
        use EvictionClass::{Fresh, Idle, Known, Unproven};
        assert_eq!(
            first(&[(1, Known, 900), (2, Fresh, 0)]),
            Some(1),
            "a certificate counts most"
        );
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[(1, Idle, 100), (2, Unproven, 1), (3, Fresh, 0)]), Some(1));
        assert_eq!(first(&[(1, Fresh, 200), (2, Idle, 100), (3, Idle, 90)]), Some(1));
        assert_eq!(first(&[(1, Fresh, 0), (2, Fresh, 3)]), Some(1));
    }

    #[test]
    fn the_network_with_most_connections_gives_one_up_and_of_these_the_oldest() {
        use EvictionClass::Unproven;
        let two_networks = [
            (1, Unproven, 9),
            (2, Unproven, 3),
            (2, Unproven, 5),
            (2, Unproven, 4),
        ];
        assert_eq!(first(&two_networks), Some(2));
        assert_eq!(first(&two_networks[..2]), Some(0), "one each: the older");
    }

    #[test]
    fn a_connection_is_fresh_unproven_idle_and_fresh_again() {
        let connections = ConnectionSet::default();
        let place = connections.enter([10, 0, 0, 1].into());
        let worth_at = |after: u64| {
            let table = connections.lock();
            let entry = table.by_number.values().next().unwrap();
            entry.rank(Instant::now() + Duration::from_secs(after)).worth
        };
        assert_eq!(
            (worth_at(0), worth_at(1)),
            (EvictionClass::Fresh, EvictionClass::Unproven)
        );
        place.activity.serve(Instant::now());
        assert_eq!(
            (worth_at(0), worth_at(1)),
            (EvictionClass::Fresh, EvictionClass::Idle)
        );
        place.activity.in_flight.fetch_add(1, Relaxed);
        assert_eq!(worth_at(1), EvictionClass::Fresh);
        drop(place);
        assert!(!connections.make_room(), "what left is not there to go");
    }

    #[test]
    fn each_call_for_room_cancels_another_connection() {
        let connections = ConnectionSet::default();
        let places = [1, 1, 2].map(|network| connections.enter([10, 0, 0, network].into()));
        let cancelled = || places.each_ref().map(|place| place.client.gone.is_cancelled());
        assert!(connections.make_room());
        assert_eq!(cancelled(), [true, false, false]);
        assert!(connections.make_room() && connections.make_room());
        assert_eq!((cancelled(), connections.make_room()), ([true; 3], false));
    }
}
