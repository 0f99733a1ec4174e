//! Who holds how much of what is in flight, and who is refused first when there is no more: the client that has held most
//! for longest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::limits::{Limits, Shed};

/// What a request weighs at least, in bytes: a single byte of a body keeps the buffer that it came in.
const LEAST: usize = 16 << 10;

/// Requests that may be open for each review that may be in flight: bodies on their way, and answers.
const OPEN_FOR_EACH_REVIEW: usize = 4;

/// What is in flight in one server; a clone is the same one.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    table: Arc<Mutex<Table>>,
}

/// One request's share, given back on drop.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    number: u64,
}

impl Shares {
    /// Nothing in flight yet. It counts in `gauges`; no other code may write these.
    pub(super) fn new(limits: &Limits, gauges: Gauges) -> Self {
        let table = Table {
            open: HashMap::new(),
            next: 0,
            reviews: 0,
            bytes: 0,
            max_open: limits.max_concurrent.saturating_mul(OPEN_FOR_EACH_REVIEW),
            max_reviews: limits.max_concurrent,
            max_bytes: limits.max_bytes_in_flight,
            gauges,
        };
        Self {
            table: Arc::new(Mutex::new(table)),
        }
    }

    /// A share for a request whose head is there.
    pub(super) fn open(&self, client: &Client) -> Result<Share, Shed> {
        let mut table = self.lock();
        let now = Instant::now();
        if table.open.len() >= table.max_open {
            match table.first_refused(now) {
                Some(first) if table.gives_way(first, client) => table.refuse(first),
                _ => return Err(Shed::Open),
            }
        }
        Ok(self.take(&mut table, client, now))
    }

    /// The same, where there is room without refusing another: what is thrown away displaces no review.
    pub(super) fn open_if_free(&self, client: &Client) -> Option<Share> {
        let mut table = self.lock();
        let is_free = table.open.len() < table.max_open;
        is_free.then(|| self.take(&mut table, client, Instant::now()))
    }

    fn take(&self, table: &mut Table, client: &Client, now: Instant) -> Share {
        table.next += 1;
        let number = table.next;
        let request = Open {
            client: client.clone(),
            since: now,
            bytes: 0,
            is_review: false,
            is_judged: false,
            end: End::Unheard,
        };
        table.open.insert(number, request);
        table.tell_open();
        Share {
            shares: self.clone(),
            number,
        }
    }

    /// Whether half of the reviews that may be in flight are.
    pub(super) fn is_half_full(&self) -> bool {
        let table = self.lock();
        table.reviews * 2 >= table.max_reviews
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Takes what is missing to so many bytes; takes nothing where that cannot be had.
    pub(super) fn grow_to(&self, bytes: usize) -> Result<(), Shed> {
        self.shares.lock().grow(self.number, bytes)
    }

    /// The body is complete: from now on the request is a review in flight.
    pub(super) fn complete(&self) -> Result<(), Shed> {
        self.shares.lock().complete(self.number)
    }

    /// A review that is being judged is not refused any more; false where it was refused already.
    pub(super) fn set_judged(&self, is_judged: bool) -> bool {
        match self.shares.lock().open.get_mut(&self.number) {
            Some(open) => {
                open.is_judged = is_judged;
                true
            }
            None => false,
        }
    }

    /// The review is answered with so many bytes, which count until the client has taken them. When they have to go,
    /// their connection goes.
    pub(super) fn answer(&self, bytes: usize) -> Result<(), Shed> {
        self.shares.lock().answer(self.number, bytes)
    }

    /// Ends when the request is refused, because its client holds most.
    pub(super) async fn refused(&self) {
        let heard = match self.shares.lock().open.get_mut(&self.number) {
            Some(open) => open.hear(),
            None => return,
        };
        heard.cancelled().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.lock().remove(self.number);
    }
}

/// Where shares are shown.
#[derive(Clone, Default, Debug)]
pub(super) struct Gauges {
    pub(super) open: Gauge,
    pub(super) reviews: Gauge,
    pub(super) bytes: Gauge,
}

#[derive(Debug)]
struct Table {
    open: HashMap<u64, Open>,
    next: u64,
    reviews: usize,
    bytes: usize,
    max_open: usize,
    max_reviews: usize,
    max_bytes: usize,
    gauges: Gauges,
}

/// A request from its head to the last byte of its answer.
#[derive(Debug)]
struct Open {
    client: Client,
    since: Instant,
    bytes: usize,
    /// It is one of the reviews in flight.
    is_review: bool,
    is_judged: bool,
    end: End,
}

/// What ends with a request that is refused.
#[derive(Debug)]
enum End {
    /// Nothing waits for that: it is told when it asks for more. Most requests come and go like this.
    Unheard,
    /// What waits for that.
    Heard(CancellationToken),
    /// Its connection: it is answered, and the answer is not taken.
    Connection,
}

impl Table {
    fn grow(&mut self, number: u64, to: usize) -> Result<(), Shed> {
        let asking = self.open.get(&number).ok_or(Shed::Share)?;
        let more = to.saturating_sub(asking.bytes);
        if self.bytes.saturating_add(more) > self.max_bytes {
            let client = asking.client.clone();
            self.make_room(number, &client, more, Instant::now())?;
        }
        if let Some(asking) = self.open.get_mut(&number) {
            asking.bytes += more;
            self.bytes += more;
        }
        self.gauges.bytes.set(signed(self.bytes));
        Ok(())
    }

    /// Refuses others until there is room for so many bytes more of a request.
    fn make_room(&mut self, number: u64, client: &Client, more: usize, now: Instant) -> Result<(), Shed> {
        while self.bytes.saturating_add(more) > self.max_bytes {
            match self.first_refused(now) {
                Some(first) if first != number && self.gives_way(first, client) => self.refuse(first),
                _ => return Err(Shed::Bytes),
            }
        }
        Ok(())
    }

    fn complete(&mut self, number: u64) -> Result<(), Shed> {
        let request = self.open.get_mut(&number).ok_or(Shed::Share)?;
        if self.reviews >= self.max_reviews {
            return Err(Shed::Requests);
        }
        request.is_review = true;
        self.reviews += 1;
        self.gauges.reviews.set(signed(self.reviews));
        Ok(())
    }

    fn answer(&mut self, number: u64, bytes: usize) -> Result<(), Shed> {
        let request = self.open.get_mut(&number).ok_or(Shed::Share)?;
        self.reviews -= usize::from(std::mem::take(&mut request.is_review));
        self.bytes -= std::mem::take(&mut request.bytes);
        request.since = Instant::now();
        request.is_judged = false;
        request.end = End::Connection;
        self.gauges.reviews.set(signed(self.reviews));
        self.grow(number, bytes)
    }

    fn refuse(&mut self, number: u64) {
        let Some(request) = self.remove(number) else {
            return;
        };
        match request.end {
            End::Unheard => {}
            End::Heard(token) => token.cancel(),
            End::Connection => request.client.gone.cancel(),
        }
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let request = self.open.remove(&number)?;
        self.bytes -= request.bytes;
        self.reviews -= usize::from(request.is_review);
        self.tell_open();
        self.gauges.reviews.set(signed(self.reviews));
        self.gauges.bytes.set(signed(self.bytes));
        Some(request)
    }

    /// Whether a request makes room for what a client asks for in addition. None of its own connection does: what came
    /// first is nearer to its end. None of a client that showed its certificate does, for one that did not.
    fn gives_way(&self, number: u64, client: &Client) -> bool {
        (self.open.get(&number)).is_some_and(|request| {
            request.client.connection != client.connection
                && (client.is_known() || !request.client.is_known())
        })
    }

    /// The request that is refused first: of clients that showed no certificate before those that did, of the network that has held most for longest, of its connection of which that
    /// is true, the one of which that is true.
    fn first_refused(&self, now: Instant) -> Option<u64> {
        let mut networks: HashMap<IpAddr, u128> = HashMap::new();
        let mut connections: HashMap<u64, u128> = HashMap::new();
        let waiting = || self.open.iter().filter(|(_, request)| !request.is_judged);
        for (_, request) in waiting() {
            let burden = request.burden(now);
            *networks.entry(request.client.network).or_default() += burden;
            *connections.entry(request.client.connection).or_default() += burden;
        }
        let rank = |(number, request): &(&u64, &Open)| {
            let (network, connection) = (
                networks.get(&request.client.network).copied(),
                connections.get(&request.client.connection).copied(),
            );
            let is_unknown = !request.client.is_known();
            (is_unknown, network, connection, request.burden(now), **number)
        };
        waiting().max_by_key(rank).map(|(number, _)| *number)
    }

    fn tell_open(&self) {
        self.gauges.open.set(signed(self.open.len()));
    }
}

impl Open {
    /// A token that is cancelled when the request is refused.
    fn hear(&mut self) -> CancellationToken {
        match &self.end {
            End::Heard(token) => token.clone(),
            End::Connection => self.client.gone.clone(),
            End::Unheard => {
                let token = CancellationToken::new();
                self.end = End::Heard(token.clone());
                token
            }
        }
    }

    /// What it holds, times how long it has.
    fn burden(&self, now: Instant) -> u128 {
        let held = now.saturating_duration_since(self.since).as_micros() + 1;
        u128::try_from(self.bytes.max(LEAST))
            .unwrap_or(u128::MAX)
            .saturating_mul(held)
    }
}

/// Gauges are signed; nothing that fits into memory is too big for them.
fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shares(reviews: usize, bytes: usize) -> Shares {
        let limits = Limits {
            max_concurrent: reviews,
            max_bytes_in_flight: bytes,
            ..Limits::default()
        };
        Shares::new(&limits, Gauges::default())
    }

    fn client(connection: u64, network: u8) -> Client {
        Client::new(connection, [10, 0, 0, network].into())
    }

    fn is_refused(share: &Share) -> bool {
        !share.shares.lock().open.contains_key(&share.number)
    }

    fn in_flight(shares: &Shares) -> (usize, usize, usize) {
        let table = shares.lock();
        (table.open.len(), table.reviews, table.bytes)
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let shares = shares(1, 100);
        let one = client(1, 1);
        let first = shares.open(&one).unwrap();
        first.grow_to(60).unwrap();
        let second = shares.open(&one).unwrap();
        assert_eq!(
            second.grow_to(60),
            Err(Shed::Bytes),
            "of one connection the newer"
        );
        second.grow_to(40).unwrap();
        first.complete().unwrap();
        assert_eq!(second.complete(), Err(Shed::Requests));
        assert_eq!(in_flight(&shares), (2, 1, 100));
        drop((first, second));
        assert_eq!(in_flight(&shares), (0, 0, 0));
    }

    #[test]
    fn a_body_that_grows_past_the_bound_keeps_what_it_had() {
        let shares = shares(1, 100);
        let share = shares.open(&client(1, 1)).unwrap();
        share.grow_to(80).unwrap();
        share.grow_to(50).unwrap();
        assert_eq!(share.grow_to(101), Err(Shed::Bytes));
        assert_eq!(in_flight(&shares), (1, 0, 80));
    }

    #[test]
    fn the_network_that_holds_most_is_refused_before_the_connection_that_does() {
        let shares = shares(9, 100 << 10);
        let crowd = [1, 2, 3].map(|connection| shares.open(&client(connection, 1)).unwrap());
        for share in &crowd {
            share.grow_to(20 << 10).unwrap();
        }
        let large = shares.open(&client(4, 2)).unwrap();
        large.grow_to(40 << 10).unwrap();
        let wait = Instant::now() + Duration::from_secs(1);
        let first = shares.lock().first_refused(wait);
        assert!(crowd.iter().any(|share| Some(share.number) == first));

        let newcomer = shares.open(&client(5, 3)).unwrap();
        newcomer.grow_to(30 << 10).unwrap();
        assert_eq!(crowd.iter().filter(|share| is_refused(share)).count(), 2);
        assert!(!is_refused(&large) && !is_refused(&newcomer));
        assert_eq!(in_flight(&shares).2, 90 << 10);
    }

    #[test]
    fn of_one_network_the_connection_that_has_held_most_for_longest_is_refused() {
        let shares = shares(9, 100 << 10);
        let hoard = [(); 5].map(|()| shares.open(&client(1, 1)).unwrap());
        let honest = shares.open(&client(2, 1)).unwrap();
        honest.grow_to(30 << 10).unwrap();
        for share in &hoard {
            share.grow_to(14 << 10).unwrap();
        }
        shares.open(&client(3, 1)).unwrap().grow_to(14 << 10).unwrap();
        assert!(!is_refused(&honest));
        let refused = hoard.iter().find(|share| is_refused(share)).unwrap();
        assert_eq!(refused.complete(), Err(Shed::Share));
        assert_eq!(refused.grow_to(15 << 10), Err(Shed::Share));
    }

    #[test]
    fn what_is_being_judged_is_not_refused_and_its_answer_takes_its_connection_along() {
        let shares = shares(9, 100 << 20);
        let (one, two) = (client(1, 1), client(2, 2));
        let judged = shares.open(&one).unwrap();
        judged.grow_to(80 << 20).unwrap();
        judged.complete().unwrap();
        assert!(judged.set_judged(true));
        let waiting = shares.open(&two).unwrap();
        assert_eq!(waiting.grow_to(30 << 20), Err(Shed::Bytes));

        judged.answer(90 << 20).unwrap();
        assert_eq!(in_flight(&shares), (2, 0, 90 << 20));
        let later = Instant::now() + Duration::from_secs(1);
        (shares.lock())
            .make_room(waiting.number, &two, 30 << 20, later)
            .unwrap();
        assert!(one.gone.is_cancelled() && !two.gone.is_cancelled());
        assert!(!judged.set_judged(true));
    }

    #[test]
    fn a_client_that_showed_its_certificate_is_refused_after_all_that_did_not() {
        let shares = shares(9, 100 << 10);
        let (server, stranger) = (client(1, 1), client(2, 2));
        server.introduce();
        let review = shares.open(&server).unwrap();
        review.grow_to(60 << 10).unwrap();
        let other = shares.open(&stranger).unwrap();
        assert_eq!(
            other.grow_to(50 << 10),
            Err(Shed::Bytes),
            "it displaces none that is known"
        );
        other.grow_to(40 << 10).unwrap();
        let more = shares.open(&Client::clone(&server)).unwrap();
        more.grow_to(20 << 10).unwrap();
        assert!(is_refused(&other) && !is_refused(&review));
    }

    #[test]
    fn open_requests_are_bounded_and_the_hoard_makes_room() {
        let shares = shares(1, 100);
        let hoard: Vec<_> = (0..4).map(|_| shares.open(&client(1, 1)).unwrap()).collect();
        assert_eq!(shares.open(&client(1, 1)).unwrap_err(), Shed::Open);
        let newcomer = shares.open(&client(2, 1)).unwrap();
        assert_eq!(hoard.iter().filter(|share| is_refused(share)).count(), 1);
        newcomer.complete().unwrap();
        // The rest of the body that was refused is read only where there is room for that.
        assert!(shares.open_if_free(&client(1, 1)).is_none());
        assert_eq!(hoard.iter().filter(|share| is_refused(share)).count(), 1);
        drop(newcomer);
        assert!(shares.open_if_free(&client(1, 1)).is_some());
    }
}
