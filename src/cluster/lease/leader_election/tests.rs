//! Leader election as a table of cases, and two replicas with pauses, skewed clocks, lost answers and an unreachable
//! API server.

use proptest::prelude::*;

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held_by(holder: &str, since: Instant) -> LeaseView {
    LeaseView {
        spec: LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(10),
            ..LeaseSpec::default()
        },
        since,
        exists: true,
    }
}

#[test]
fn a_lease_is_taken_only_when_its_holder_gave_it_up_or_let_it_lapse() {
    let start = Instant::now();
    let wait = |after| LeaseAction::Wait {
        until: start + seconds(after),
    };
    let longer = |reported| LeaseView {
        spec: LeaseSpec {
            lease_duration_seconds: Some(reported),
            ..held_by("other", start).spec
        },
        ..held_by("other", start)
    };
    let deleted = LeaseView {
        exists: false,
        ..held_by("other", start)
    };
    let table = [
        ("never seen", None, 0, LeaseAction::Acquire),
        ("ours", Some(held_by("me", start)), 0, LeaseAction::Renew),
        (
            "ours, long not renewed",
            Some(held_by("me", start)),
            100,
            LeaseAction::Renew,
        ),
        ("another's", Some(held_by("other", start)), 0, wait(10)),
        (
            "another's, just not over",
            Some(held_by("other", start)),
            9,
            wait(10),
        ),
        ("lapsed", Some(held_by("other", start)), 10, LeaseAction::Acquire),
        ("given up", Some(held_by("", start)), 0, LeaseAction::Acquire),
        ("deleted under its holder", Some(deleted.clone()), 9, wait(10)),
        ("deleted and waited out", Some(deleted), 10, LeaseAction::Acquire),
        ("a longer one", Some(longer(15)), 12, wait(15)),
        ("an endless one", Some(longer(i32::MAX)), 12, wait(60)),
        ("a shorter one", Some(longer(1)), 5, wait(10)),
        ("nonsense", Some(longer(-5)), 5, wait(10)),
    ];
    for (name, lease, after, expected) in table {
        let now = start + seconds(after);
        assert_eq!(decide(lease.as_ref(), "me", now), expected, "{name}");
    }
}

/// An API server that stores one Lease.
#[derive(Default)]
struct FakeLeaseServer {
    lease: Option<Lease>,
    version: u64,
}

impl FakeLeaseServer {
    fn write(&mut self, mut lease: Lease) -> Result<Lease, ()> {
        let stored = self.lease.as_ref();
        let stored = stored.and_then(|lease| lease.metadata.resource_version.as_ref());
        if lease.metadata.resource_version.as_ref() != stored {
            return Err(());
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Ok(lease)
    }
}

enum FakeLeaseAnswer {
    Read(Result<Option<Lease>, ()>),
    Write(Instant, Result<Lease, ()>),
}

/// A replica, with its pending requests.
struct ElectionReplica {
    elector: Elector,
    /// The error of its wall clock, in seconds.
    skew: i64,
    sleeps_until: Instant,
    /// A write in flight: when it arrives, when it was sent, and whether its answer is lost.
    sent: Option<(Instant, Instant, Lease, bool)>,
    /// An answer in flight.
    answer: Option<(Instant, FakeLeaseAnswer)>,
}

/// A fault of one replica: from when, for how long, and which.
#[derive(Clone, Debug)]
enum ElectionFault {
    /// Its process is paused.
    Paused,
    /// Its requests never arrive.
    Unreachable,
    /// Its requests arrive, but the answers do not.
    Deaf,
    /// A user deletes the Lease.
    LeaseDeleted,
}

type ElectionFaults = Vec<(usize, u64, u64, ElectionFault)>;

fn troubles() -> impl Strategy<Value = ElectionFaults> {
    let trouble = prop_oneof![
        3 => Just(ElectionFault::Paused),
        3 => Just(ElectionFault::Unreachable),
        3 => Just(ElectionFault::Deaf),
        1 => Just(ElectionFault::LeaseDeleted),
    ];
    proptest::collection::vec((0..2_usize, 0..240_000_u64, 100..30_000_u64, trouble), 0..12)
}

/// The result of a simulated run.
struct Run {
    /// The longest time without a leader after the last fault, in milliseconds.
    idle_after: u64,
    overlap: Option<u64>,
    changes: usize,
}

const TICK: u64 = 50;
const CALM: u64 = 270_000;
const END: u64 = 330_000;

fn simulate(troubles: &ElectionFaults, skews: [i64; 2], latency: u64) -> Run {
    let start = Instant::now();
    let mut server = FakeLeaseServer::default();
    let mut replicas = [0, 1].map(|number: usize| ElectionReplica {
        elector: Elector::new("transom".to_owned(), format!("replica-{number}")),
        skew: skews[number],
        sleeps_until: start,
        sent: None,
        answer: None,
    });
    let mut run = Run {
        idle_after: 0,
        overlap: None,
        changes: 0,
    };
    let (mut idle, mut leader, mut deletable) = (0, None, 0);
    for millis in (0..END).step_by(usize::try_from(TICK).unwrap()) {
        let now = start + Duration::from_millis(millis);
        // A replica that never read a holder cannot wait for it: see `decide`.
        let seen_by_both = replicas.iter().all(|replica| replica.elector.view.is_some());
        for (number, replica) in replicas.iter_mut().enumerate() {
            let suffers = |what: fn(&ElectionFault) -> bool| {
                troubles.iter().any(|(who, from, lasts, trouble)| {
                    *who == number && (*from..from + lasts).contains(&millis) && what(trouble)
                })
            };
            let deleted = troubles.iter().any(|(_, from, _, trouble)| {
                matches!(trouble, ElectionFault::LeaseDeleted) && (millis..millis + TICK).contains(from)
            });
            // Nor can one that did not notice that the Lease was created again between two deletions.
            if deleted && seen_by_both && millis >= deletable {
                server.lease = None;
                deletable = millis + 90_000;
            }
            replica.go_on(
                now,
                millis,
                &mut server,
                latency,
                [
                    suffers(|trouble| matches!(trouble, ElectionFault::Paused)),
                    suffers(|trouble| matches!(trouble, ElectionFault::Unreachable)),
                    suffers(|trouble| matches!(trouble, ElectionFault::Deaf)),
                ],
            );
        }
        let holds: Vec<usize> = (0..2)
            .filter(|number| replicas[*number].elector.until().is_some_and(|until| now < until))
            .collect();
        if holds.len() > 1 {
            run.overlap.get_or_insert(millis);
        }
        if let Some(new) = holds.first().filter(|new| leader != Some(**new)) {
            leader = Some(*new);
            run.changes += 1;
        }
        idle = if holds.is_empty() && millis >= CALM {
            idle + TICK
        } else {
            0
        };
        run.idle_after = run.idle_after.max(idle);
    }
    run
}

impl ElectionReplica {
    fn go_on(
        &mut self,
        now: Instant,
        millis: u64,
        server: &mut FakeLeaseServer,
        latency: u64,
        [paused, unreachable, deaf]: [bool; 3],
    ) {
        // A message in flight arrives even if its sender is paused.
        if let Some((_, started, lease, lost)) = self.sent.take_if(|(arrives, ..)| *arrives <= now) {
            let result = server.write(lease);
            let result = if lost { Err(()) } else { result };
            let back = now + Duration::from_millis(if lost { 2_000 } else { latency });
            self.answer = Some((back, FakeLeaseAnswer::Write(started, result)));
        }
        if paused || self.sent.is_some() {
            return;
        }
        if let Some((_, answer)) = self.answer.take_if(|(arrives, _)| *arrives <= now) {
            match answer {
                FakeLeaseAnswer::Read(lease) => self.elector.read(now, lease),
                FakeLeaseAnswer::Write(started, lease) => self.elector.wrote(started, now, lease),
            }
        }
        if self.answer.is_some() || now < self.sleeps_until {
            return;
        }
        let seconds = 1_700_000_000 + self.skew + i64::try_from(millis / 1_000).unwrap();
        let later = now + Duration::from_millis(latency);
        let gives_up = now + Duration::from_secs(2);
        match self.elector.next(now, Timestamp::from_second(seconds).unwrap()) {
            ElectionStep::Sleep(wake) => self.sleeps_until = wake,
            ElectionStep::Read if unreachable || deaf => {
                self.answer = Some((gives_up, FakeLeaseAnswer::Read(Err(()))));
            }
            ElectionStep::Read => {
                self.answer = Some((later, FakeLeaseAnswer::Read(Ok(server.lease.clone()))));
            }
            ElectionStep::Write(_) if unreachable => {
                self.answer = Some((gives_up, FakeLeaseAnswer::Write(now, Err(()))));
            }
            ElectionStep::Write(lease) => self.sent = Some((later, now, *lease, deaf)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_replicas_never_lead_at_once_and_one_leads_again_when_the_trouble_is_over(
        troubles in troubles(),
        skews in [-20_000..20_000_i64, -20_000..20_000_i64],
        latency in 10..900_u64,
    ) {
        let run = simulate(&troubles, skews, latency);
        prop_assert_eq!(run.overlap, None, "two leaders at this millisecond");
        prop_assert!(run.changes >= 1);
        prop_assert!(run.idle_after <= 15_000, "no leader for {} ms", run.idle_after);
    }
}

#[test]
fn a_leader_that_stops_is_followed_within_fifteen_seconds_whatever_its_clock_showed() {
    for skew in [-36_000, 0, 36_000] {
        let stops = vec![
            (0, 60_000, 300_000, ElectionFault::Paused),
            (1, 0, 5_000, ElectionFault::Paused),
        ];
        let run = simulate(&stops, [skew, 0], 20);
        assert_eq!((run.overlap, run.changes), (None, 2), "clock off by {skew} s");
    }
}

#[test]
fn a_leader_that_gives_up_is_followed_at_once() {
    let now = Instant::now();
    let (mut server, wall) = (FakeLeaseServer::default(), Timestamp::UNIX_EPOCH);
    let mut one = Elector::new("transom".to_owned(), "one".to_owned());
    let mut two = Elector::new("transom".to_owned(), "two".to_owned());
    one.read(now, Ok(None));
    let ElectionStep::Write(lease) = one.next(now, wall) else {
        panic!("it is free")
    };
    one.wrote(now, now, server.write(*lease));
    two.read(now, Ok(server.lease.clone()));
    assert!(matches!(two.next(now, wall), ElectionStep::Sleep(_)));
    assert_eq!(one.until(), Some(now + ACT));

    server.write(one.release().unwrap()).unwrap();
    assert_eq!(one.until(), None);
    let next = now + RENEW;
    two.read(next, Ok(server.lease.clone()));
    let ElectionStep::Write(lease) = two.next(next, wall) else {
        panic!("it was given up")
    };
    two.wrote(next, next, server.write(*lease));
    assert_eq!(two.until(), Some(next + ACT));
    one.read(next, Ok(server.lease.clone()));
    assert_eq!(one.release(), None, "it is no longer its own");
}
