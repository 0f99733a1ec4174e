use std::collections::BTreeSet;

use jiff::Timestamp;

use super::super::cache::{LookupOrigin, TAG_TTL};
use super::*;
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::{ImageContents, ImageFacts};

const SECOND: Duration = Duration::from_secs(1);

/// Every registry of `corp` may be asked, and these by their name.
fn state() -> ServiceState {
    ServiceState::new(RegistryPatterns::parse(["*.corp", "registry.corp", "down.corp"]).unwrap())
}

fn job(text: &str, namespace: &str, due: Instant) -> Job {
    let image = ImageRef::parse(text).unwrap();
    Job {
        key: ImageKey::of(&image, Access::Shared),
        registry: image.canonical_registry().into(),
        namespace: namespace.into(),
        due,
    }
}

type LookupResult = Result<ImageChange, LookupError>;

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of the results that a look-up can have"
)]
fn found() -> LookupResult {
    Ok(ImageChange::Changed(ImageFacts {
        looked_up: Timestamp::UNIX_EPOCH,
        found: Some(ImageContents::default()),
    }))
}

fn no_route() -> LookupResult {
    Err(LookupError::registry("no route"))
}

fn request(
    state: &mut ServiceState,
    text: &str,
    namespace: &str,
    now: Instant,
) -> Result<Option<LookupEnd>, Dropped> {
    state.request(job(text, namespace, now))
}

/// The look-ups that may start now.
fn started(state: &mut ServiceState, now: Instant) -> Vec<Job> {
    std::iter::from_fn(|| state.next(now).ok()).collect()
}

fn knows(state: &mut ServiceState, text: &str, now: Instant) -> bool {
    let key = job(text, "shop", now).key;
    state
        .cache
        .recall(&key, LookupOrigin::Review, now)
        .facts
        .is_some()
}

/// Ends these look-ups, a second after they began.
fn finish(state: &mut ServiceState, jobs: &[Job], outcome: fn() -> LookupResult, now: Instant) {
    for job in jobs {
        state.finish(job, outcome(), SECOND, now);
    }
}

/// Runs everything that is due, and returns how many look-ups that were.
fn run(state: &mut ServiceState, outcome: fn() -> LookupResult, now: Instant) -> usize {
    let jobs = started(state, now);
    finish(state, &jobs, outcome, now);
    jobs.len()
}

/// The names of the registries that are unreachable.
fn unreachable(state: &ServiceState, at_least: Duration, now: Instant) -> Vec<String> {
    let unreachable = state.unreachable(at_least, now);
    unreachable.iter().map(|it| it.registry.to_string()).collect()
}

#[test]
fn many_who_ask_for_the_same_share_one_look_up() {
    let (mut state, now) = (state(), Instant::now());
    for namespace in ["shop", "billing"] {
        request(&mut state, "registry.corp/web:1", namespace, now).unwrap();
    }
    let jobs = started(&mut state, now);
    assert_eq!((jobs.len(), state.queued()), (1, 0));
    // Also while it runs.
    let mut end = request(&mut state, "registry.corp:443/web:1", "shop", now)
        .unwrap()
        .unwrap();
    assert!(started(&mut state, now).is_empty());
    assert!(end.has_changed().is_ok(), "it runs");
    let late = request(&mut state, "registry.corp/web:1", "shop", now + PATIENCE);
    assert!(late.unwrap().is_none(), "it takes too long");
    finish(&mut state, &jobs, found, now);
    assert!(end.has_changed().is_err(), "it has ended");
    end.mark_unchanged();
    assert!(knows(&mut state, "registry.corp/web:1", now));
}

#[test]
fn a_registry_that_fails_refuses_look_ups_until_one_succeeds() {
    let (mut state, mut now) = (state(), Instant::now());
    for number in 0..4 {
        request(&mut state, &format!("down.corp/web:{number}"), "shop", now).unwrap();
        request(&mut state, &format!("up.corp/web:{number}"), "shop", now).unwrap();
    }
    for _ in 0..4 {
        for job in started(&mut state, now) {
            let is_down = &*job.registry == "down.corp";
            let outcome = if is_down { no_route() } else { found() };
            state.finish(&job, outcome, SECOND, now);
        }
    }
    assert_eq!(
        state.queued(),
        1,
        "what waited is released, and one is tried again"
    );
    let refused = request(&mut state, "down.corp/web:late", "shop", now);
    assert_eq!(refused.unwrap_err(), Dropped::RegistryUnavailable);
    request(&mut state, "up.corp/web:late", "shop", now).unwrap();
    assert_eq!(run(&mut state, found, now), 1);
    // One attempt at a time, ever later.
    let mut attempts = 0;
    for _ in 0..3600 {
        now += SECOND;
        let tried = run(&mut state, no_route, now);
        assert!(tried <= 1);
        attempts += tried;
    }
    assert!((25..60).contains(&attempts), "{attempts} attempts in an hour");
    let unreachable = state.unreachable(300 * SECOND, now);
    assert_eq!(unreachable.len(), 1);
    assert_eq!(
        (&*unreachable[0].registry, &*unreachable[0].message),
        ("down.corp", "no route")
    );
    // It is back.
    now = state.next(now).unwrap_err().unwrap();
    let jobs = started(&mut state, now);
    assert_eq!(jobs.len(), 1);
    let finished = state.finish(&jobs[0], found(), SECOND, now);
    assert!(finished.recovers, "it answers again");
    request(&mut state, "down.corp/web:late", "shop", now).unwrap();
    assert_eq!(state.unreachable(Duration::ZERO, now), []);
}

#[test]
fn a_name_that_only_a_wildcard_matches_is_given_up_until_somebody_asks_for_it() {
    let (mut state, mut now) = (state(), Instant::now());
    let text = "mistake.corp/web:1";
    request(&mut state, text, "shop", now).unwrap();
    let mut attempts = 0;
    for _ in 0..3600 {
        attempts += run(&mut state, no_route, now);
        now += SECOND;
    }
    assert_eq!((attempts, state.queued()), (6, 0));
    assert!(state.pending.is_empty());
    assert_eq!(state.unreachable(Duration::ZERO, now), [], "it may not exist");
    request(&mut state, text, "shop", now).unwrap();
    assert_eq!(run(&mut state, no_route, now), 1);
    let refused = request(&mut state, text, "shop", now);
    assert_eq!(refused.unwrap_err(), Dropped::RegistryUnavailable);
    // If it ever answers, it is expected to.
    now += LONGEST_PAUSE;
    request(&mut state, text, "shop", now).unwrap();
    assert_eq!(run(&mut state, found, now), 1);
    request(&mut state, "mistake.corp/web:2", "shop", now).unwrap();
    for _ in 0..3 {
        assert_eq!(run(&mut state, no_route, now), 1);
        now += LONGEST_PAUSE;
    }
    assert_eq!(unreachable(&state, Duration::ZERO, now), ["mistake.corp"]);
}

#[test]
fn what_waits_for_a_registry_that_fails_is_released() {
    let (mut state, mut now) = (state(), Instant::now());
    let mut ends = Vec::new();
    for number in 0..100 {
        let text = format!("down.corp/web:{number}");
        ends.push(request(&mut state, &text, "shop", now).unwrap().unwrap());
    }
    // Three failures in a row; the last one is tried again later.
    for waiting in [100, 99, 1] {
        assert_eq!(run(&mut state, no_route, now), 1, "it has not answered yet");
        assert_eq!((state.queued(), state.pending.len()), (waiting, waiting));
    }
    let is_released = |end: &LookupEnd| end.has_changed().is_err();
    assert!(ends.iter().all(is_released), "who waits continues");
    // Nobody waits for the attempt that finds out whether it answers again.
    assert!(
        request(&mut state, "down.corp/web:97", "shop", now)
            .unwrap()
            .is_none()
    );
    now = state.next(now).unwrap_err().unwrap();
    assert_eq!(run(&mut state, found, now), 1);
    assert_eq!((state.queued(), state.pending.len()), (0, 0));
}

#[test]
fn an_image_that_never_answers_is_not_tried_again_while_its_registry_answers() {
    let (mut state, now) = (state(), Instant::now());
    let looked_up = [
        ("registry.corp/web:1", found as fn() -> LookupResult),
        ("registry.corp/hangs:1", no_route),
        ("registry.corp/hangs:2", no_route),
    ];
    for (text, outcome) in looked_up {
        request(&mut state, text, "shop", now).unwrap();
        assert_eq!(run(&mut state, outcome, now), 1);
    }
    assert_eq!(state.queued(), 1, "one attempt for the whole registry");
    request(&mut state, "registry.corp/web:2", "shop", now).unwrap();
    assert_eq!(run(&mut state, found, now), 1);
    assert_eq!((state.queued(), state.pending.len()), (0, 0));
}

#[test]
fn what_is_known_stays_while_the_registry_is_gone() {
    let (mut state, start) = (state(), Instant::now());
    let text = "registry.corp/web:1";
    request(&mut state, text, "shop", start).unwrap();
    assert_eq!(run(&mut state, found, start), 1);
    for minute in 1..(23 * 60) {
        let now = start + minute * 60 * SECOND;
        assert!(knows(&mut state, text, now), "after {minute} minutes");
        let _ = request(&mut state, text, "shop", now);
        run(&mut state, no_route, now);
    }
    let later = start + 24 * 3600 * SECOND + TAG_TTL;
    assert!(!knows(&mut state, text, later));
}

#[test]
fn a_million_references_of_one_namespace_are_bounded_and_others_are_served() {
    let (mut state, start) = (state(), Instant::now());
    let (mut bytes, mut dropped, mut looked_up) = (0, 0, 0);
    // Within a minute, in many registries, all of which a wildcard matches.
    for number in 0..1_000_000_u32 {
        let now = start + Duration::from_micros(u64::from(number) * 60);
        let text = format!("r{}.corp/web-{number}:1", number % 5_000);
        match request(&mut state, &text, "hostile", now) {
            Ok(_) => (),
            Err(Dropped::NamespaceLimit) => dropped += 1,
            Err(other) => panic!("{other:?}"),
        }
        if number % 100_000 == 0 {
            let good = format!("registry.corp/good:{number}");
            request(&mut state, &good, "good", now).unwrap();
        }
        if number % 1_000 == 0 {
            looked_up += run(&mut state, found, now);
        }
        if number % 100_000 == 3_000 {
            let good = format!("registry.corp/good:{}", number - 3_000);
            assert!(knows(&mut state, &good, now), "{number}");
        }
        assert!(state.queue.len_of("hostile") <= PENDING / 2 && state.pending.len() <= PENDING);
        assert!(state.registries.len() <= REGISTRIES);
        bytes = bytes.max(state.cache.bytes());
    }
    // The burst, and twenty a second.
    assert!((1_250..=1_300).contains(&looked_up), "{looked_up} look-ups");
    assert!(dropped > 990_000, "{dropped} dropped");
    assert!(bytes < CACHE.bytes && state.cache.len() <= CACHE.entries);
}

#[test]
fn any_number_of_namespaces_leaves_places_to_another_one() {
    let (mut state, now) = (state(), Instant::now());
    let mut refused = None;
    // As when the stored workloads of a cluster are listed.
    for number in 0..200_000 {
        let text = format!("registry.corp/web:{number}");
        let namespace = format!("team-{}", number % 100);
        if let Err(why) = request(&mut state, &text, &namespace, now) {
            refused.get_or_insert(why);
        }
    }
    assert_eq!(refused, Some(Dropped::NamespaceLimit));
    let (each, free) = (state.queue.len_of("team-7"), PENDING - state.queued());
    assert!(each >= 20 && free >= 20, "{each} for each, {free} free");
    for number in 0..free / 2 {
        request(&mut state, &format!("registry.corp/new:{number}"), "shop", now).unwrap();
    }
    let namespaces = (0..).map(|number| format!("other-{number}"));
    let full = namespaces
        .map(|name| request(&mut state, &format!("registry.corp/{name}:1"), &name, now))
        .find_map(Result::err);
    assert_eq!((full, state.queued()), (Some(Dropped::QueueFull), PENDING));
}

#[test]
fn registries_are_remembered_within_bounds_and_names_that_never_answer_are_forgotten_first() {
    let (mut state, mut now) = (state(), Instant::now());
    request(&mut state, "good.corp/web:1", "shop", now).unwrap();
    run(&mut state, found, now);
    for number in 0..2_000 {
        now += SECOND;
        let text = format!("r{number}.corp/web:1");
        request(&mut state, &text, &format!("team-{number}"), now).unwrap();
        run(&mut state, no_route, now);
    }
    assert_eq!(state.registries.len(), REGISTRIES);
    let answered: BTreeSet<&str> = (state.registries.iter())
        .filter(|(_, it)| it.breaker.has_answered())
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(answered, BTreeSet::from(["good.corp"]));
}

#[test]
fn no_registry_is_asked_more_often_than_the_rate() {
    let (mut state, start) = (state(), Instant::now());
    let mut looked_up = 0;
    for tenth in 0..100 {
        let now = start + Duration::from_millis(tenth * 100);
        for team in 0..50 {
            let text = format!("registry.corp/web:{tenth}-{team}");
            let _ = request(&mut state, &text, &format!("t{team}"), now);
        }
        looked_up += run(&mut state, found, now);
    }
    let (rate, burst) = RATE;
    let most = (rate * 10 + burst) as usize;
    assert!(
        (most - 10..=most).contains(&looked_up),
        "{looked_up} in ten seconds"
    );
}

#[test]
fn a_credential_that_is_refused_what_it_could_read_is_reported_until_it_reads_again() {
    let refused = || Err(LookupError::refused("the registry refused"));
    let (mut state, now) = (state(), Instant::now());
    let later = now + TAG_TTL;
    let reported = |state: &ServiceState, now| !unreachable(state, Duration::ZERO, now).is_empty();
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
    let (mut state, now) = (state(), Instant::now());
    for registry in ["a.corp", "b.corp", "good.corp"] {
        request_many(&mut state, registry, 1, now);
    }
    assert_eq!(run(&mut state, found, now), 3, "all of them answer");
    for registry in ["a.corp", "b.corp"] {
        request_many(&mut state, registry, 20, now);
    }
    let dripping = started(&mut state, now);
    assert!(dripping.len() <= 2 * SHARE, "{:?}", by_registry(&dripping));
    // Nothing of these ends for half a minute.
    let mut served = 0;
    for second in 0..30 {
        let now = now + second * SECOND;
        request_many(&mut state, "good.corp", 3, now);
        served += run(&mut state, found, now);
    }
    assert_eq!(served, 90, "all of them");
    let later = now + 30 * SECOND;
    for job in &dripping {
        state.finish(job, found(), 30 * SECOND, later);
    }
    request_many(&mut state, "good.corp", 20, later);
    let next = started(&mut state, later);
    let counts = by_registry(&next);
    assert_eq!((counts["a.corp"], counts["b.corp"]), (1, 1), "{counts:?}");
    assert_eq!(counts["good.corp"], SHARE, "{counts:?}");
    // A prompt answer gives all slots back.
    let prompt: Vec<Job> = (next.iter())
        .filter(|job| &*job.registry != "b.corp")
        .cloned()
        .collect();
    finish(&mut state, &prompt, found, later);
    let counts = started(&mut state, later);
    let counts = by_registry(&counts);
    assert!(
        counts["a.corp"] > 1 && !counts.contains_key("b.corp"),
        "{counts:?}"
    );
}

#[test]
fn any_number_of_registries_that_never_answer_leave_most_slots_to_one_that_does() {
    let (mut state, now) = (state(), Instant::now());
    request_many(&mut state, "z-good.corp", 1, now);
    assert_eq!(run(&mut state, found, now), 1);
    for number in 0..100 {
        request_many(&mut state, &format!("a{number}.corp"), 4, now);
    }
    let hostile = started(&mut state, now);
    assert_eq!(hostile.len(), SHARE);
    request_many(&mut state, "z-good.corp", 20, now);
    let good = started(&mut state, now);
    assert_eq!(by_registry(&good), BTreeMap::from([("z-good.corp", SHARE)]));
    // A slow look-up that ends lets another registry try.
    finish(&mut state, &hostile[..1], no_route, now);
    assert_eq!(started(&mut state, now).len(), 1);
}

#[test]
fn a_namespace_with_many_registries_that_never_answer_does_not_delay_a_new_one_of_another_namespace() {
    let (mut state, mut now) = (state(), Instant::now());
    for number in 0..1_000 {
        request(&mut state, &format!("a{number}.corp/web:1"), "hostile", now).unwrap();
    }
    let hostile = started(&mut state, now);
    request(&mut state, "new.corp/web:1", "shop", now).unwrap();
    // They hang until their time is over.
    now += 30 * SECOND;
    finish(&mut state, &hostile[..2], no_route, now);
    let next = started(&mut state, now);
    assert_eq!(
        by_registry(&next)["new.corp"],
        1,
        "its turn is one of the next two"
    );
}

#[test]
fn repositories_of_one_namespace_that_never_answer_close_no_registry_for_others() {
    let (mut state, mut now) = (state(), Instant::now());
    request(&mut state, "registry.corp/shop/web:0", "shop", now).unwrap();
    assert_eq!(run(&mut state, found, now), 1);
    // They hang for half a minute, in ever other repositories.
    let (mut served, mut hung) = (0, 0);
    let mut hanging: Vec<(Job, Instant)> = Vec::new();
    for second in 0..600 {
        now += SECOND;
        for number in 0..6 {
            let text = format!("registry.corp/evil/{}:1", second / 60 * 6 + number);
            let _ = request(&mut state, &text, "hostile", now);
        }
        let wanted = request(
            &mut state,
            &format!("registry.corp/shop/web:{second}"),
            "shop",
            now,
        );
        assert!(wanted.is_ok(), "{second}");
        for job in started(&mut state, now) {
            if &*job.namespace == "shop" {
                state.finish(&job, found(), SECOND, now);
                served += 1;
            } else {
                hanging.push((job, now + 30 * SECOND));
            }
        }
        hanging.retain(|(job, until)| {
            let hangs = *until > now;
            if !hangs {
                hung += 1;
                state.finish(job, no_route(), 30 * SECOND, now);
            }
            hangs
        });
        assert!(hanging.len() <= 6, "{second}");
        assert_eq!(unreachable(&state, Duration::ZERO, now), [""; 0], "{second}");
    }
    assert_eq!(served, 600, "each second one");
    assert!((15..200).contains(&hung), "{hung}");
    assert!(state.repositories.len() <= 600, "{}", state.repositories.len());
}

#[test]
fn a_registry_is_down_if_several_namespaces_see_it_fail_and_is_probed_with_another_image() {
    let (mut state, mut now) = (state(), Instant::now());
    for namespace in ["shop", "bank", "mail"] {
        request(
            &mut state,
            &format!("registry.corp/{namespace}/web:1"),
            namespace,
            now,
        )
        .unwrap();
    }
    while run(&mut state, found, now) > 0 {}
    let fail = |state: &mut ServiceState, now: &mut Instant, namespace: &str| {
        for number in 0..3 {
            let _ = request(
                state,
                &format!("registry.corp/{namespace}/gone:{number}"),
                namespace,
                *now,
            );
            run(state, no_route, *now);
            *now += SECOND;
        }
    };
    fail(&mut state, &mut now, "shop");
    assert_eq!(
        unreachable(&state, Duration::ZERO, now),
        [""; 0],
        "one namespace proves nothing"
    );
    let refused = request(&mut state, "registry.corp/shop/gone:9", "shop", now);
    assert_eq!(
        refused.unwrap_err(),
        Dropped::RegistryUnavailable,
        "its own repository is closed"
    );
    fail(&mut state, &mut now, "bank");
    assert_eq!(unreachable(&state, Duration::ZERO, now), ["registry.corp"]);
    // The images of both never answer again; the next attempt is one of a namespace that has seen no failure.
    let asked = request(&mut state, "registry.corp/mail/web:2", "mail", now).unwrap();
    assert!(asked.is_none(), "nobody waits for it");
    now = state.next(now).unwrap_err().unwrap();
    let jobs = started(&mut state, now);
    let probed: Vec<&str> = jobs.iter().map(|job| &*job.namespace).collect();
    assert_eq!(probed, ["mail"]);
    assert!(state.finish(&jobs[0], found(), SECOND, now).recovers);
    assert!(request(&mut state, "registry.corp/shop/web:2", "shop", now).is_ok());
}

#[test]
fn a_registry_that_is_down_is_probed_with_the_images_of_its_namespaces_in_turn() {
    let (mut state, mut now) = (state(), Instant::now());
    for namespace in ["shop", "bank"] {
        for number in 0..3 {
            request(
                &mut state,
                &format!("registry.corp/{namespace}:{number}"),
                namespace,
                now,
            )
            .unwrap();
        }
    }
    let mut probed = Vec::new();
    for _ in 0..600 {
        for job in started(&mut state, now) {
            probed.push(job.namespace.to_string());
            finish(&mut state, &[job], no_route, now);
        }
        now += SECOND;
    }
    let last = &probed[probed.len() - 4..];
    assert!(last.windows(2).all(|pair| pair[0] != pair[1]), "{probed:?}");
}

#[test]
fn look_ups_that_a_probe_of_another_namespace_replaces_can_be_requested_again() {
    let (mut state, mut now) = (state(), Instant::now());
    let image = |namespace: &str, number: usize| format!("mistake.corp/{namespace}{number}/web:1");
    let request_of = |state: &mut ServiceState, namespace: &str, now: Instant| {
        (0..3)
            .map(|number| request(state, &image(namespace, number), namespace, now).is_ok())
            .collect::<Vec<_>>()
    };
    for _ in 0..1200 {
        request_of(&mut state, "shop", now);
        request_of(&mut state, "bank", now);
        run(&mut state, no_route, now);
        now += SECOND;
    }
    // Only a wildcard matches its name, so whoever asks next tries it.
    while run(&mut state, no_route, now) > 0 || state.queued() > 0 {
        now += SECOND;
    }
    now += LONGEST_PAUSE;
    assert_eq!(request_of(&mut state, "shop", now), [true; 3]);
    let tried = started(&mut state, now);
    assert_eq!((tried.len(), state.queued()), (1, 2));
    assert!(request(&mut state, &image("mail", 0), "mail", now).is_ok());
    assert_eq!(state.queued(), 1, "only the one that probes");
    finish(&mut state, &tried, found, now);
    assert_eq!(request_of(&mut state, "shop", now), [true; 3]);
    while run(&mut state, found, now) > 0 {}
    let known: Vec<bool> = (0..3)
        .map(|number| knows(&mut state, &image("shop", number), now))
        .collect();
    assert_eq!(known, [true; 3]);
}

#[test]
fn too_many_requests_of_one_namespace_slow_a_registry_and_close_it_for_nobody_else() {
    fn limited() -> LookupResult {
        let error = LookupError::registry("too many requests");
        Err(LookupError {
            retry_after: Some(600 * SECOND),
            ..error
        })
    }
    let (mut state, now) = (state(), Instant::now());
    for namespace in ["shop", "hostile"] {
        request(
            &mut state,
            &format!("registry.corp/{namespace}/web:1"),
            namespace,
            now,
        )
        .unwrap();
    }
    while run(&mut state, found, now) > 0 {}
    request(&mut state, "registry.corp/evil/web:1", "hostile", now).unwrap();
    assert_eq!(run(&mut state, limited, now), 1);
    for number in 2..5 {
        request(
            &mut state,
            &format!("registry.corp/shop/web:{number}"),
            "shop",
            now,
        )
        .unwrap();
    }
    let jobs = started(&mut state, now);
    assert_eq!(jobs.len(), 1, "one at a time");
    for wait in [0, 599] {
        let later = now + wait * SECOND;
        let refused = request(&mut state, "registry.corp/evil/web:2", "hostile", later);
        assert_eq!(refused.unwrap_err(), Dropped::RegistryUnavailable, "{wait}");
    }
    finish(&mut state, &jobs, found, now);
    assert_eq!(
        started(&mut state, now).len(),
        2,
        "an answer gives all slots back"
    );
}
