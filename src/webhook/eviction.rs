//! The open connections of a listener, and which one is evicted when a new one needs its place.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection_stats::ConnectionStats;
use super::peer::Peer;

/// What "just now" means for the usefulness of a connection: a new client needs the time for the handshake and
/// the first request.
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
    client: Arc<Peer>,
    activity: Arc<ConnectionStats>,
}

/// A connection's entry in the set, until dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    connections: ConnectionSet,
    pub(super) client: Arc<Peer>,
    pub(super) activity: Arc<ConnectionStats>,
}

impl ConnectionSet {
    pub(super) fn enter(&self) -> ConnectionGuard {
        let mut table = self.lock();
        table.next += 1;
        let client = Arc::new(Peer::new(table.next));
        let activity = Arc::new(ConnectionStats::new(Instant::now()));
        let entry = ConnectionEntry {
            client: Arc::clone(&client),
            activity: Arc::clone(&activity),
        };
        table.by_number.insert(client.connection, entry);
        ConnectionGuard {
            connections: self.clone(),
            client,
            activity,
        }
    }

    /// Evicts the least useful connection; false if every connection is already being evicted.
    pub(super) fn make_room(&self) -> bool {
        let mut table = self.lock();
        let now = Instant::now();
        let ranks = table
            .by_number
            .iter()
            .map(|(number, entry)| (entry.rank(now), *number));
        let first = ranks
            .min()
            .and_then(|(_, number)| table.by_number.remove(&number));
        if let Some(entry) = &first {
            entry.client.gone.cancel();
        }
        first.is_some()
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
    /// The lowest is evicted first: of the least useful class, the connection that was unused for longest.
    fn rank(&self, now: Instant) -> (EvictionClass, Instant) {
        let last_good = self.activity.last_good();
        let is_recent = now.saturating_duration_since(last_good) < MOMENT;
        let class = match (self.activity.has_served(), is_recent) {
            (false, false) => EvictionClass::Unproven,
            (false, true) => EvictionClass::New,
            (true, false) if self.activity.in_flight.load(Relaxed) == 0 => EvictionClass::Idle,
            (true, _) => EvictionClass::InUse,
        };
        (class, last_good)
    }
}

/// The usefulness of a connection, in eviction order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum EvictionClass {
    /// It has not completed a review: its handshake, head or body does not end, or it sent nothing.
    Unproven,
    /// It has completed reviews, none just now, and has none in flight.
    Idle,
    /// It was accepted just now.
    New,
    /// It has completed a review just now, or has completed one and has another in flight.
    InUse,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evicts one, and returns which of these are evicted by now.
    fn evict<const N: usize>(connections: &ConnectionSet, places: &[ConnectionGuard; N]) -> [bool; N] {
        assert!(connections.make_room());
        places.each_ref().map(|place| place.client.gone.is_cancelled())
    }

    #[test]
    fn what_never_completed_a_review_goes_before_what_did_and_that_before_what_is_of_use() {
        let connections = ConnectionSet::default();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let enter = |came: Instant| {
            let mut place = connections.enter();
            place.activity = Arc::new(ConnectionStats::new(came));
            let mut table = connections.lock();
            let entry = table.by_number.get_mut(&place.client.connection).unwrap();
            entry.activity = Arc::clone(&place.activity);
            drop(table);
            place
        };
        let (idle, silent, busy) = (enter(long_ago), enter(long_ago), enter(long_ago));
        idle.activity.serve(long_ago + Duration::from_secs(1));
        busy.activity.serve(long_ago + Duration::from_secs(1));
        busy.activity.in_flight.fetch_add(1, Relaxed);
        let places = [idle, silent, enter(Instant::now()), busy];
        assert_eq!(evict(&connections, &places), [false, true, false, false]);
        assert_eq!(evict(&connections, &places), [true, true, false, false]);
        assert_eq!(evict(&connections, &places), [true, true, true, false]);
        assert_eq!(evict(&connections, &places), [true; 4]);
    }

    #[test]
    fn any_number_of_new_connections_evicts_none_that_completed_a_review_just_now() {
        let connections = ConnectionSet::default();
        let used = connections.enter();
        used.activity.serve(Instant::now());
        let newer = [(); 3].map(|()| connections.enter());
        assert!((0..3).all(|_| connections.make_room()));
        assert!(newer.iter().all(|place| place.client.gone.is_cancelled()));
        assert!(!used.client.gone.is_cancelled());
    }

    #[test]
    fn each_call_for_room_cancels_the_connection_that_was_unused_for_longest() {
        let connections = ConnectionSet::default();
        let places = [(); 3].map(|()| connections.enter());
        let cancelled = || places.each_ref().map(|place| place.client.gone.is_cancelled());
        assert!(connections.make_room());
        assert_eq!(cancelled(), [true, false, false]);
        assert!(connections.make_room() && connections.make_room());
        assert_eq!((cancelled(), connections.make_room()), ([true; 3], false));
        drop(connections.enter());
        assert!(!connections.make_room(), "what left is not there to go");
    }
}
