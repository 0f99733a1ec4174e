//! Which requests wait, which ones are cancelled, and what is counted meanwhile.

use tokio::time::{advance, sleep};

use super::super::limits::{FIRST, LEAST_IN_FLIGHT, MAX_BODY};
use super::*;

const MIB: usize = 1 << 20;

/// Capacity for 4 MiB of first bytes and answers, and 20 MiB of whole bodies.
fn limiter(reviews: usize) -> InflightLimiter {
    let limits = Limits {
        max_concurrent: reviews,
        max_bytes_in_flight: LEAST_IN_FLIGHT,
        ..Limits::default()
    };
    InflightLimiter::new(&limits, &InflightGauges::default())
}

fn client(connection: u64) -> Arc<Peer> {
    Arc::new(Peer::new(connection))
}

/// A share that may wait for a second.
fn open(limiter: &InflightLimiter, client: &Arc<Peer>) -> InflightPermit {
    limiter
        .open(client, Instant::now() + Duration::from_secs(1))
        .unwrap()
}

/// A share that may not wait.
fn hasty(limiter: &InflightLimiter, client: &Arc<Peer>) -> InflightPermit {
    limiter.open(client, Instant::now()).unwrap()
}

async fn whole(limiter: &InflightLimiter, client: &Arc<Peer>, bytes: usize) -> InflightPermit {
    let inflight = open(limiter, client);
    inflight.take_whole(bytes).await.unwrap();
    inflight
}

fn is_refused(inflight: &InflightPermit) -> bool {
    inflight.slot.lock().is_none()
}

/// Open requests, reviews and bytes, as the gauges count them.
fn in_flight(limiter: &InflightLimiter) -> (i64, i64, usize) {
    let [open, reviews, bytes] =
        [&limiter.0.open, &limiter.0.reviews, &limiter.0.small].map(|pool| pool.used.get());
    (open, reviews, usize::try_from(bytes).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_given_back() {
    let limiter = limiter(1);
    let one = client(1);
    let first = open(&limiter, &one);
    first.grow_to(60).await.unwrap();
    first.complete().await.unwrap();
    let second = hasty(&limiter, &one);
    assert_eq!(second.grow_to(4 * MIB).await, Err(RejectReason::Bytes));
    second.grow_to(40).await.unwrap();
    assert_eq!(second.complete().await, Err(RejectReason::Requests));
    assert_eq!(in_flight(&limiter), (2, 1, 100));
    second.take_whole(MAX_BODY).await.unwrap();
    assert_eq!(in_flight(&limiter), (2, 1, 60 + MAX_BODY));
    drop((first, second));
    assert_eq!(in_flight(&limiter), (0, 0, 0));
    assert_eq!(limiter.0.large.free.available_permits(), MAX_BODY);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_grows_past_the_bound_keeps_what_it_had() {
    let limiter = limiter(1);
    let inflight = hasty(&limiter, &client(1));
    inflight.grow_to(80).await.unwrap();
    inflight.grow_to(50).await.unwrap();
    assert_eq!(inflight.grow_to(5 * MIB).await, Err(RejectReason::Bytes));
    assert_eq!(in_flight(&limiter), (1, 0, 80));
}

#[tokio::test(start_paused = true)]
async fn a_whole_body_waits_for_room_and_is_served_in_its_turn() {
    let limiter = limiter(9);
    let one = client(1);
    let first = whole(&limiter, &one, MAX_BODY).await;
    first.complete().await.unwrap();
    let (second, third) = (open(&limiter, &one), open(&limiter, &one));
    let release = async {
        sleep(Duration::from_millis(700)).await;
        drop(first);
    };
    let (second, third, ()) = tokio::join!(second.take_whole(MAX_BODY), third.take_whole(MIB), release);
    assert_eq!(
        (second, third),
        (Ok(()), Err(RejectReason::Bytes)),
        "first come, first served"
    );
}

#[tokio::test(start_paused = true)]
async fn a_small_body_does_not_wait_for_whole_ones() {
    let limiter = limiter(9);
    let one = client(1);
    let _large = whole(&limiter, &one, MAX_BODY).await;
    let waiting = open(&limiter, &one);
    let began = Instant::now();
    let small = async {
        hasty(&limiter, &one).grow_to(FIRST).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    };
    let (waited, ()) = tokio::join!(waiting.take_whole(MIB), small);
    assert_eq!(waited, Err(RejectReason::Bytes));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_bodies_that_wait_for_room_are_bounded() {
    let limiter = limiter(WAITING_SHARE);
    let one = client(1);
    let _large = whole(&limiter, &one, MAX_BODY).await;
    let (first, second) = (open(&limiter, &one), open(&limiter, &one));
    let waited = tokio::join!(first.take_whole(MIB), second.take_whole(MIB));
    assert_eq!(waited, (Err(RejectReason::Bytes), Err(RejectReason::Open)));
}

#[tokio::test(start_paused = true)]
async fn one_review_too_many_waits_for_a_place() {
    let limiter = limiter(1);
    let one = client(1);
    let first = open(&limiter, &one);
    first.complete().await.unwrap();
    let second = open(&limiter, &one);
    let release = async {
        sleep(Duration::from_millis(900)).await;
        drop(first);
    };
    let (second, ()) = tokio::join!(second.complete(), release);
    assert_eq!(second, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn who_keeps_transom_waiting_gives_way_to_another_connection() {
    let limiter = limiter(9);
    let (one, two) = (client(1), client(2));
    let hoard = whole(&limiter, &one, MAX_BODY).await;
    advance(STALL_TIMEOUT).await;
    let own = hasty(&limiter, &one);
    assert_eq!(
        own.take_whole(MIB).await,
        Err(RejectReason::Bytes),
        "none of its own connection gives way"
    );
    whole(&limiter, &two, MAX_BODY).await;
    assert!(is_refused(&hoard));
    assert_eq!(hoard.complete().await, Err(RejectReason::Slow));
    assert_eq!(hoard.grow_to(15).await, Err(RejectReason::Slow));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_fast_enough_gives_way_to_none_until_it_stops() {
    let limiter = limiter(9);
    let (one, two) = (client(1), client(2));
    let coming = whole(&limiter, &one, MAX_BODY).await;
    for mebibytes in 1..=10 {
        advance(Duration::from_millis(70)).await;
        coming.received(mebibytes << 20);
    }
    let hasty = hasty(&limiter, &two);
    assert_eq!(hasty.take_whole(MIB).await, Err(RejectReason::Bytes));
    advance(STALL_TIMEOUT).await;
    whole(&limiter, &two, MIB).await;
    assert!(is_refused(&coming));

    let trickle = whole(&limiter, &one, MAX_BODY).await;
    for bytes in 1..=3 {
        advance(Duration::from_millis(100)).await;
        trickle.received(bytes);
    }
    whole(&limiter, &two, MIB).await;
    assert!(is_refused(&trickle));
}

#[tokio::test(start_paused = true)]
async fn a_review_that_waits_for_transom_gives_way_to_none() {
    let limiter = limiter(9);
    let waiting = whole(&limiter, &client(1), MAX_BODY).await;
    waiting.complete().await.unwrap();
    let other = open(&limiter, &client(2));
    assert_eq!(other.take_whole(MIB).await, Err(RejectReason::Bytes));
    assert!(!is_refused(&waiting));
}

#[tokio::test(start_paused = true)]
async fn no_more_slow_requests_give_way_than_needed_and_the_most_silent_first() {
    let limiter = limiter(9);
    let mut hoard = Vec::new();
    for connection in 1..=5 {
        hoard.push(whole(&limiter, &client(connection), 4 * MIB).await);
        advance(Duration::from_millis(1)).await;
    }
    advance(STALL_TIMEOUT).await;
    let _newcomer = whole(&limiter, &client(9), 7 * MIB).await;
    let refused: Vec<_> = hoard.iter().map(is_refused).collect();
    assert_eq!(refused, [true, true, false, false, false]);
    assert_eq!(in_flight(&limiter), (4, 0, 19 * MIB));
}

#[tokio::test(start_paused = true)]
async fn what_is_being_evaluated_is_not_refused_and_its_answer_takes_its_connection_along() {
    let limiter = limiter(9);
    let (one, two) = (client(1), client(2));
    let evaluated = whole(&limiter, &one, MAX_BODY).await;
    evaluated.complete().await.unwrap();
    let waiting = open(&limiter, &two);
    assert_eq!(waiting.take_whole(MIB).await, Err(RejectReason::Bytes));

    evaluated.answer(4 * MIB).await.unwrap();
    assert_eq!(in_flight(&limiter), (2, 0, 4 * MIB));
    let next = open(&limiter, &two);
    next.grow_to(MIB).await.unwrap();
    assert!(one.gone.is_cancelled() && !two.gone.is_cancelled());
    assert!(is_refused(&evaluated));
}

#[tokio::test(start_paused = true)]
async fn open_requests_are_bounded_and_the_hoard_makes_room() {
    let limiter = limiter(1);
    let hoard: Vec<_> = (0..4).map(|_| open(&limiter, &client(1))).collect();
    let until = Instant::now();
    assert_eq!(limiter.open(&client(1), until).unwrap_err(), RejectReason::Open);
    let newcomer = open(&limiter, &client(2));
    assert_eq!(hoard.iter().filter(|inflight| is_refused(inflight)).count(), 1);
    newcomer.complete().await.unwrap();
    // The rest of the rejected body is read only if capacity is free.
    assert!(limiter.open_if_free(&client(1)).is_none());
    assert_eq!(hoard.iter().filter(|inflight| is_refused(inflight)).count(), 1);
    drop(newcomer);
    assert!(limiter.open_if_free(&client(1)).is_some());
}
