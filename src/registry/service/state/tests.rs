use std::collections::BTreeSet;

use super::super::cache::TAG_TTL;
use super::super::key::{Access, registry_of};
use super::*;
use crate::model::image::ImageRef;
use crate::model::image_facts::ImageContents;

fn key(text: &str) -> (ImageKey, String) {
    let image = ImageRef::parse(text).unwrap();
    (ImageKey::of(&image, Access::Shared), registry_of(&image))
}

fn found() -> LookupOutcome {
    LookupOutcome::Answered(ImageFacts {
        looked_up: Timestamp::UNIX_EPOCH,
        found: Some(ImageContents::default()),
    })
}

fn no_route() -> LookupOutcome {
    LookupOutcome::RegistryFailed {
        message: "no route".to_owned(),
        retry_after: None,
    }
}

fn request(state: &mut ServiceState, text: &str, namespace: &str, now: Instant) -> Result<(), Dropped> {
    let (key, registry) = key(text);
    state.request(&key, &registry, namespace, LookupOrigin::Review, now)
}

/// The look-ups that may start now.
fn started(state: &mut ServiceState, now: Instant) -> Vec<Job> {
    let jobs = std::iter::from_fn(|| match state.next(now) {
        Next::Start(job) => Some(job),
        Next::Wait(_) => None,
    });
    jobs.collect()
}

fn knows(state: &mut ServiceState, text: &str, now: Instant) -> bool {
    let recalled = state.cache.recall(&key(text).0, LookupOrigin::Review, now);
    recalled.facts.is_some()
}

/// Runs everything that is due, and returns how many look-ups that were.
fn run(state: &mut ServiceState, outcome: fn() -> LookupOutcome, now: Instant) -> usize {
    let jobs = started(state, now);
    for job in &jobs {
        state.finish(job, outcome(), now);
    }
    jobs.len()
}

#[test]
fn many_who_ask_for_the_same_share_one_look_up() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    for namespace in ["shop", "billing"] {
        request(&mut state, "registry.corp/web:1", namespace, now).unwrap();
    }
    let jobs = started(&mut state, now);
    assert_eq!((jobs.len(), state.queued()), (1, 0));
    // Also while it runs.
    request(&mut state, "registry.corp:443/web:1", "shop", now).unwrap();
    assert!(started(&mut state, now).is_empty());
    let mut done = state.done(&jobs[0].key, Duration::from_secs(1), now).unwrap();
    assert!(done.has_changed().is_ok(), "it runs");
    let late = now + Duration::from_secs(1);
    assert!(
        state.done(&jobs[0].key, Duration::from_secs(1), late).is_none(),
        "it takes too long"
    );
    state.finish(&jobs[0], found(), now);
    assert!(done.has_changed().is_err(), "it has ended");
    done.mark_unchanged();
    assert!(knows(&mut state, "registry.corp/web:1", now));
}

#[test]
fn a_registry_that_fails_refuses_look_ups_until_one_succeeds() {
    let (mut state, mut now) = (ServiceState::new(), Instant::now());
    for number in 0..3 {
        request(&mut state, &format!("down.corp/web:{number}"), "shop", now).unwrap();
        request(&mut state, &format!("up.corp/web:{number}"), "shop", now).unwrap();
    }
    request(&mut state, "down.corp/web:waits", "shop", now).unwrap();
    let waits = key("down.corp/web:late").0;
    for _ in 0..3 {
        for job in started(&mut state, now) {
            let outcome = if &*job.registry == "down.corp" {
                no_route()
            } else {
                found()
            };
            state.finish(&job, outcome, now);
        }
    }
    assert_eq!(state.queued(), 0, "what waited is released");
    let refused = request(&mut state, "down.corp/web:late", "shop", now);
    assert_eq!(refused, Err(Dropped::RegistryUnavailable));
    assert!(
        state.done(&waits, Duration::from_secs(1), now).is_none(),
        "nobody waits for it"
    );
    assert_eq!(request(&mut state, "up.corp/web:late", "shop", now), Ok(()));
    assert_eq!(run(&mut state, found, now), 1);
    // One attempt at a time, ever later.
    let mut attempts = 0;
    for _ in 0..3600 {
        now += Duration::from_secs(1);
        let tried = run(&mut state, no_route, now);
        assert!(tried <= 1);
        attempts += tried;
    }
    assert!((25..60).contains(&attempts), "{attempts} attempts in an hour");
    let unreachable = state.unreachable(Duration::from_secs(300), |_| true, now);
    assert_eq!(unreachable.len(), 1);
    assert_eq!(
        (&*unreachable[0].registry, &*unreachable[0].message),
        ("down.corp", "no route")
    );
    // A name that never answered, and that only a wildcard matches, is a mistake of whoever wrote it.
    assert_eq!(state.unreachable(Duration::from_secs(300), |_| false, now), []);
    // It is back.
    let Next::Wait(Some(at)) = state.next(now) else {
        panic!("there is a next attempt");
    };
    now = at;
    let jobs = started(&mut state, now);
    assert_eq!(jobs.len(), 1);
    assert!(state.finish(&jobs[0], found(), now).recovers, "it answers again");
    assert_eq!(request(&mut state, "down.corp/web:late", "shop", now), Ok(()));
    assert_eq!(state.unreachable(Duration::ZERO, |_| true, now), []);
}

#[test]
fn what_waits_for_a_registry_that_fails_is_released() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    for number in 0..100 {
        request(&mut state, &format!("down.corp/web:{number}"), "shop", now).unwrap();
    }
    let last = key("down.corp/web:99").0;
    let done = state.done(&last, Duration::from_secs(1), now).unwrap();
    // Three failures in a row.
    for waiting in [99, 98, 0] {
        assert_eq!(run(&mut state, no_route, now), 1, "it has not answered yet");
        assert_eq!(state.queued(), waiting);
    }
    assert!(done.has_changed().is_err(), "who waits for it continues");
    assert!(state.pending.is_empty());
}

#[test]
fn what_is_known_stays_while_the_registry_is_gone() {
    let (mut state, start) = (ServiceState::new(), Instant::now());
    let text = "registry.corp/web:1";
    request(&mut state, text, "shop", start).unwrap();
    assert_eq!(run(&mut state, found, start), 1);
    for minute in 1..(23 * 60) {
        let now = start + Duration::from_secs(minute * 60);
        assert!(knows(&mut state, text, now), "after {minute} minutes");
        let _ = request(&mut state, text, "shop", now);
        run(&mut state, no_route, now);
    }
    let later = start + Duration::from_secs(24 * 3600) + TAG_TTL;
    assert!(!knows(&mut state, text, later));
}

#[test]
fn a_million_references_of_one_namespace_are_bounded_and_others_are_served() {
    let (mut state, start) = (ServiceState::new(), Instant::now());
    let (mut bytes, mut dropped, mut looked_up) = (0, 0, 0);
    // Within a minute, in many registries, all of which a wildcard matches.
    for number in 0..1_000_000_u32 {
        let now = start + Duration::from_micros(u64::from(number) * 60);
        let text = format!("r{}.corp/web-{number}:1", number % 5_000);
        match request(&mut state, &text, "hostile", now) {
            Ok(()) => (),
            Err(Dropped::NamespaceLimit) => dropped += 1,
            Err(other) => panic!("{other:?}"),
        }
        if number % 100_000 == 0 {
            let good = format!("registry.corp/good:{number}");
            assert_eq!(request(&mut state, &good, "good", now), Ok(()));
            looked_up += run(&mut state, found, now);
            assert!(knows(&mut state, &good, now), "{number}");
        }
        if number % 1_000 == 0 {
            looked_up += run(&mut state, found, now);
        }
        assert!(state.queued() <= QUEUED && state.pending.len() <= QUEUED);
        assert!(state.registries.len() <= REGISTRIES && state.namespaces.len() <= 2);
        bytes = bytes.max(state.cache.bytes());
    }
    // The burst, and five a second.
    assert!((500..800).contains(&looked_up), "{looked_up} look-ups");
    assert!(dropped > 999_000, "{dropped} dropped");
    assert!(bytes < CACHE.bytes && state.cache.len() <= CACHE.entries);
}

#[test]
fn registries_and_namespaces_are_counted_within_bounds() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    request(&mut state, "registry.corp/web:1", "shop", now).unwrap();
    run(&mut state, found, now);
    for number in 0..3_000 {
        let text = format!("r{number}.corp/web:1");
        let _ = request(&mut state, &text, &format!("team-{number}"), now);
        run(&mut state, no_route, now);
    }
    assert_eq!(state.registries.len(), REGISTRIES);
    assert!(state.namespaces.len() <= NAMESPACES + 1);
    let answered: BTreeSet<&str> = (state.registries.iter())
        .filter(|(_, it)| it.breaker.has_answered())
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(
        answered,
        BTreeSet::from(["registry.corp"]),
        "names that never answer go first"
    );
}

#[test]
fn the_rate_of_a_registry_holds_for_all_namespaces_together() {
    let (mut state, start) = (ServiceState::new(), Instant::now());
    let mut looked_up = 0;
    for tenth in 0..100 {
        let now = start + Duration::from_millis(tenth * 100);
        for team in 0..50 {
            let _ = request(
                &mut state,
                &format!("registry.corp/web:{tenth}-{team}"),
                &format!("t{team}"),
                now,
            );
        }
        looked_up += run(&mut state, found, now);
    }
    let (rate, burst) = REGISTRY_RATE;
    assert!(
        looked_up <= (rate * 10 + burst) as usize,
        "{looked_up} in ten seconds"
    );
    assert!(looked_up >= (rate * 9) as usize, "{looked_up} in ten seconds");
}

#[test]
fn stored_objects_leave_half_of_the_queue_to_reviews_which_are_first_in_their_namespace() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    let mut full = None;
    for number in 0..10_000 {
        let (key, registry) = key(&format!("registry.corp/web:{number}"));
        let namespace = format!("team-{}", number / 100);
        if let Err(why) = state.request(&key, &registry, &namespace, LookupOrigin::Stored, now) {
            full.get_or_insert((number, why));
        }
    }
    assert_eq!(full, Some((QUEUED / 2, Dropped::QueueFull)));
    // Eleven namespaces wait.
    assert_eq!(request(&mut state, "registry.corp/review:1", "shop", now), Ok(()));
    assert_eq!(request(&mut state, "registry.corp/web:750", "shop", now), Ok(()));
    assert_eq!(request(&mut state, "registry.corp/new:1", "team-3", now), Ok(()));
    let mut order = Vec::new();
    while order.len() < 12 {
        for job in started(&mut state, now) {
            order.push(job.key.reference.to_string());
            state.finish(&job, found(), now);
        }
    }
    for (at, image) in [(3, "new:1"), (7, "web:750"), (11, "review:1")] {
        assert_eq!(order[at], format!("registry.corp/{image}"), "{order:?}");
    }
}

#[test]
fn stored_workloads_leave_the_rate_of_their_namespace_to_reviews() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    for number in 0..10 {
        let (key, registry) = key(&format!("registry.corp/stored-{number}:1"));
        state
            .request(&key, &registry, "shop", LookupOrigin::Stored, now)
            .unwrap();
    }
    let (_, burst) = NAMESPACE_RATE;
    for number in 0..burst {
        request(&mut state, &format!("registry.corp/new-{number}:1"), "shop", now).unwrap();
    }
    assert_eq!(
        request(&mut state, "registry.corp/late:1", "shop", now),
        Err(Dropped::NamespaceLimit)
    );
}

#[test]
fn a_credential_that_is_refused_what_it_could_read_is_reported_until_it_reads_again() {
    let refused = || LookupOutcome::ImageFailed {
        message: "the registry refused".to_owned(),
        is_refused: true,
    };
    let (mut state, now) = (ServiceState::new(), Instant::now());
    let later = now + TAG_TTL;
    let reported = |state: &ServiceState, now| !state.unreachable(Duration::ZERO, |_| false, now).is_empty();
    // What was never readable proves nothing: any author can name it.
    request(&mut state, "registry.corp/other:1", "shop", now).unwrap();
    assert_eq!(run(&mut state, refused, now), 1);
    assert!(!reported(&state, now));
    request(&mut state, "registry.corp/web:1", "shop", now).unwrap();
    assert_eq!(run(&mut state, found, now), 1);
    request(&mut state, "registry.corp/web:1", "shop", later).unwrap();
    assert_eq!(run(&mut state, refused, later), 1);
    assert!(reported(&state, later));
    request(&mut state, "registry.corp/new:1", "shop", later).unwrap();
    assert_eq!(run(&mut state, found, later), 1);
    assert!(!reported(&state, later));
}

/// Requests this many images of a registry, for namespaces of its own.
fn request_many(state: &mut ServiceState, registry: &str, number: usize, now: Instant) {
    for image in 0..number {
        let text = format!("{registry}/web-{image}:{}", state.queued());
        request(state, &text, &format!("{registry}-{}", image % 4), now).unwrap();
    }
}

/// How many of the look-ups are for each registry.
fn by_registry(jobs: &[Job]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for job in jobs {
        *counts.entry(&*job.registry).or_default() += 1;
    }
    counts
}

#[test]
fn registries_that_begin_to_drip_leave_slots_to_another_one_and_keep_one_each() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    for registry in ["a.corp", "b.corp", "good.corp"] {
        request_many(&mut state, registry, 1, now);
    }
    assert_eq!(run(&mut state, found, now), 3, "all of them answer");
    for registry in ["a.corp", "b.corp"] {
        request_many(&mut state, registry, 20, now);
    }
    let dripping = started(&mut state, now);
    assert!(dripping.len() <= 12, "{:?}", by_registry(&dripping));
    // Nothing of these ends for half a minute.
    let mut served = 0;
    for second in 0..30 {
        let now = now + Duration::from_secs(second);
        request_many(&mut state, "good.corp", 3, now);
        served += run(&mut state, found, now);
    }
    assert_eq!(served, 90, "all of them");
    let later = now + Duration::from_secs(30);
    for job in &dripping {
        state.finish(job, found(), later);
    }
    request_many(&mut state, "good.corp", 20, later);
    let next = started(&mut state, later);
    let counts = by_registry(&next);
    assert_eq!((counts["a.corp"], counts["b.corp"]), (1, 1), "{counts:?}");
    assert_eq!(counts["good.corp"], RUNNING_BY_REGISTRY, "{counts:?}");
    // A prompt answer gives all slots back.
    for job in next.iter().filter(|job| &*job.registry != "b.corp") {
        state.finish(job, found(), later);
    }
    let counts = started(&mut state, later);
    let counts = by_registry(&counts);
    assert!(
        counts["a.corp"] > 1 && !counts.contains_key("b.corp"),
        "{counts:?}"
    );
}

#[test]
fn any_number_of_registries_that_never_answer_leave_most_slots_to_one_that_does() {
    let (mut state, now) = (ServiceState::new(), Instant::now());
    request_many(&mut state, "z-good.corp", 1, now);
    assert_eq!(run(&mut state, found, now), 1);
    for number in 0..100 {
        request_many(&mut state, &format!("a{number}.hostile"), 4, now);
    }
    let hostile = started(&mut state, now);
    assert_eq!(hostile.len(), RUNNING_NOT_PROMPT);
    request_many(&mut state, "z-good.corp", 20, now);
    let good = started(&mut state, now);
    assert_eq!(by_registry(&good), BTreeMap::from([("z-good.corp", 6)]));
    // A slow look-up that ends lets another registry try.
    state.finish(&hostile[0], no_route(), now);
    assert_eq!(started(&mut state, now).len(), 1);
}
