use super::*;
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::ImageConfig;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn key(text: &str) -> ImageKey {
    ImageKey::of(&ImageRef::parse(text).unwrap(), Access::Shared)
}

fn own(text: &str, namespace: &str) -> ImageKey {
    let access = Access::Own {
        namespace: namespace.into(),
        secrets: vec!["pull".to_owned()].into(),
    };
    ImageKey::of(&ImageRef::parse(text).unwrap(), access)
}

/// Facts of an image with this digest, looked up at a second.
fn facts(digest: &str, second: i64) -> ImageFacts {
    ImageFacts {
        looked_up: Timestamp::from_second(second).unwrap(),
        found: Some(ImageContents {
            digest: digest.to_owned(),
            variants: vec![ImageVariant::new("windows", "amd64", "10.0.20348.2700")],
        }),
    }
}

fn missing() -> ImageFacts {
    ImageFacts {
        looked_up: Timestamp::UNIX_EPOCH,
        found: None,
    }
}

fn cache(entries: usize, bytes: usize) -> ImageCache {
    ImageCache::new(CacheLimits { entries, bytes })
}

fn due(cache: &mut ImageCache, key: &ImageKey, origin: LookupOrigin, now: Instant) -> (bool, Due) {
    let recalled = cache.recall(key, origin, now);
    (recalled.facts.is_some(), recalled.due)
}

#[test]
fn only_the_lowest_layers_are_kept() {
    let (mut cache, now) = (cache(10, 1 << 20), Instant::now());
    let web = key("registry.corp/web:1");
    let layer = |size: u64| ImageLayer {
        digest: format!("sha256:{size}"),
        size,
    };
    let mut answer = facts("sha256:1", 1);
    answer.found.as_mut().unwrap().variants[0].layers = (0..100).map(layer).collect();
    cache.answered(&web, &"shop".into(), answer, now);
    let known = cache.recall(&web, LookupOrigin::Review, now).facts.unwrap();
    let layers = &known.found.as_ref().unwrap().variants[0].layers;
    assert_eq!(*layers, (0..4).map(layer).collect::<Vec<_>>());
}

#[test]
fn a_tag_is_refreshed_before_it_expires_and_kept_while_its_registry_is_gone() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start),
        (false, Due::Now)
    );
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    for (age, review, stored) in [
        (MINUTE, (true, Due::No), (true, Due::No)),
        (6 * MINUTE, (true, Due::Refresh), (true, Due::No)),
        (11 * MINUTE, (true, Due::Now), (true, Due::No)),
        (5 * HOUR, (true, Due::Now), (true, Due::No)),
        (7 * HOUR, (true, Due::Now), (true, Due::Now)),
        (23 * HOUR, (true, Due::Now), (true, Due::Now)),
        (24 * HOUR, (false, Due::Now), (false, Due::Now)),
    ] {
        assert_eq!(
            due(&mut cache, &web, LookupOrigin::Review, start + age),
            review,
            "{age:?}"
        );
        assert_eq!(
            due(&mut cache, &web, LookupOrigin::Stored, start + age),
            stored,
            "{age:?}"
        );
    }
}

#[test]
fn a_digest_is_looked_up_again_twice_a_day_at_most() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let text = format!("registry.corp/web@sha256:{}", "a".repeat(64));
    let (web, shop) = (key(&text), "shop".into());
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start + 5 * HOUR),
        (true, Due::No)
    );
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start + 12 * HOUR),
        (true, Due::Now)
    );
}

#[test]
fn an_image_that_does_not_exist_is_known_as_missing_for_a_minute() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    cache.answered(&web, &shop, missing(), start);
    let recalled = cache.recall(&web, LookupOrigin::Review, start + MINUTE / 2);
    assert!(recalled.facts.is_some_and(|facts| facts.found.is_none()));
    assert_eq!(recalled.due, Due::No);
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start + MINUTE),
        (false, Due::Now)
    );
    // It was deleted: what an earlier look-up saw is gone.
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    cache.answered(&web, &shop, missing(), start);
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start + MINUTE),
        (false, Due::Now)
    );
}

#[test]
fn a_failure_keeps_what_is_known_and_is_retried_ever_later() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    let (mut now, mut failures) = (start + 11 * MINUTE, 0);
    while now < start + 2 * HOUR {
        if due(&mut cache, &web, LookupOrigin::Review, now) == (true, Due::Now) {
            cache.failed(&web, &shop, false, now);
            failures += 1;
        }
        now += Duration::from_secs(1);
    }
    assert!((10..20).contains(&failures), "{failures} attempts in two hours");
    // A new credential is tried immediately.
    cache.credentials_changed();
    assert_eq!(due(&mut cache, &web, LookupOrigin::Review, now), (true, Due::Now));
}

#[test]
fn a_refusal_takes_from_a_pod_what_its_secret_saw_and_an_expired_credential_of_transom_takes_nothing() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let shop = "shop".into();
    let (shared, own) = (key("registry.corp/web:1"), own("registry.corp/web:1", "shop"));
    for key in [&shared, &own] {
        cache.answered(key, &shop, facts("sha256:1", 1), start);
        cache.failed(key, &shop, true, start);
    }
    assert_eq!(
        due(&mut cache, &shared, LookupOrigin::Review, start),
        (true, Due::No)
    );
    assert_eq!(
        due(&mut cache, &own, LookupOrigin::Review, start),
        (false, Due::No)
    );
    let later = start + TAG_TTL;
    assert_eq!(
        due(&mut cache, &shared, LookupOrigin::Review, later),
        (true, Due::Now)
    );
}

#[test]
fn a_new_credential_looks_up_everything_again_and_uses_the_old_answers_until_then() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    cache.credentials_changed();
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Stored, start),
        (true, Due::Now)
    );
    cache.unchanged(&web, &shop, Timestamp::UNIX_EPOCH, start);
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start),
        (true, Due::No)
    );
}

#[test]
fn one_content_is_stored_once_and_each_access_has_its_own_answer() {
    let (mut cache, start) = (cache(1000, 1 << 20), Instant::now());
    let shop = "shop".into();
    let tag = "registry.corp/web:1";
    cache.answered(&key(tag), &shop, facts("sha256:1", 1), start);
    let one = cache.bytes();
    for number in 0..100 {
        let key = own(tag, &format!("team-{number}"));
        assert_eq!(
            due(&mut cache, &key, LookupOrigin::Review, start),
            (false, Due::Now)
        );
        cache.answered(&key, &shop, facts("sha256:1", 2), start);
    }
    assert_eq!((cache.len(), cache.contents.len()), (101, 1));
    assert!(cache.bytes() < one * 101);
    // Each answer has the time of its own look-up.
    for (key, second) in [(key(tag), 1), (own(tag, "team-7"), 2)] {
        let found = cache.recall(&key, LookupOrigin::Review, start).facts.unwrap();
        assert_eq!(found.looked_up.as_second(), second);
    }
    // The same digest in another repository is another content: its registry may describe it differently.
    cache.answered(&key("registry.corp/other:1"), &shop, facts("sha256:1", 1), start);
    assert_eq!(cache.contents.len(), 2);
}

#[test]
fn a_tag_that_moves_drops_the_content_that_nothing_else_has() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    let bytes = cache.bytes();
    for number in 2..50 {
        cache.answered(&web, &shop, facts(&format!("sha256:{}", number % 10), 1), start);
        assert_eq!((cache.contents.len(), cache.bytes()), (1, bytes), "{number}");
    }
}

#[test]
fn entries_and_bytes_are_bounded_and_a_namespace_displaces_its_own() {
    for (entries, bytes) in [(50, usize::MAX), (usize::MAX, 40_000)] {
        let (mut cache, start) = (cache(entries, bytes), Instant::now());
        let (good, bad) = ("good".into(), "bad".into());
        for number in 0..10 {
            let key = key(&format!("registry.corp/good:{number}"));
            cache.answered(&key, &good, facts(&format!("sha256:{number}"), 1), start);
        }
        for number in 0..10_000 {
            let key = key(&format!("registry.corp/bad-{number}:1"));
            match number % 3 {
                0 => drop(cache.answered(&key, &bad, facts("sha256:1", 1), start)),
                1 => drop(cache.answered(&key, &bad, missing(), start)),
                _ => cache.failed(&key, &bad, false, start),
            }
            assert!(cache.len() <= entries && cache.bytes() <= bytes, "{number}");
        }
        for number in 0..10 {
            let key = key(&format!("registry.corp/good:{number}"));
            let known = due(&mut cache, &key, LookupOrigin::Review, start);
            assert_eq!(known, (true, Due::No), "{number} with {entries} entries");
        }
        let last = key("registry.corp/bad-9999:1");
        assert!(cache.recall(&last, LookupOrigin::Review, start).facts.is_some());
    }
}

#[test]
fn the_least_recently_used_entry_goes_first() {
    let (mut cache, start) = (cache(3, usize::MAX), Instant::now());
    let shop = "shop".into();
    let keys: Vec<ImageKey> = (0..4).map(|n| key(&format!("registry.corp/web:{n}"))).collect();
    for key in &keys[..3] {
        cache.answered(key, &shop, facts("sha256:1", 1), start);
    }
    cache.recall(&keys[0], LookupOrigin::Review, start);
    cache.answered(&keys[3], &shop, facts("sha256:1", 1), start);
    let known: Vec<bool> = keys
        .iter()
        .map(|key| cache.recall(key, LookupOrigin::Review, start).facts.is_some())
        .collect();
    assert_eq!(known, [true, false, true, true]);
}

#[test]
fn a_tag_that_denied_something_is_looked_up_again() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    let at_least = Duration::from_secs(15);
    assert!(!cache.expire_tag(&web, at_least, start), "nothing is known");
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    assert!(!cache.expire_tag(&web, at_least, start), "it is new");
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, start),
        (true, Due::No)
    );
    let later = start + at_least;
    assert!(cache.expire_tag(&web, at_least, later));
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, later),
        (true, Due::Now)
    );
    cache.answered(&web, &shop, facts("sha256:2", 2), later);
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, later),
        (true, Due::No)
    );
    // A digest never means something else.
    let fixed = key(&format!("registry.corp/web@sha256:{}", "0".repeat(64)));
    cache.answered(&fixed, &shop, facts("sha256:3", 3), start);
    assert!(!cache.expire_tag(&fixed, at_least, later));
}

#[test]
fn what_is_stored_sees_a_change_and_no_confirmation() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    let stored = |cache: &mut ImageCache, now| {
        let facts = cache.recall(&web, LookupOrigin::Stored, now).facts.unwrap();
        (facts.found.is_some(), facts.looked_up.as_second())
    };
    let answer = |cache: &mut ImageCache, facts: ImageFacts, now| cache.answered(&web, &shop, facts, now);
    let gone = |second| ImageFacts {
        looked_up: Timestamp::from_second(second).unwrap(),
        found: None,
    };
    assert!(answer(&mut cache, gone(1), start), "an answer for the first time");
    assert!(!answer(&mut cache, gone(2), start + MINUTE));
    // A review looks up again what does not exist; until then nothing has changed for what is stored.
    let later = start + 3 * MINUTE;
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Review, later),
        (false, Due::Now)
    );
    assert_eq!(
        due(&mut cache, &web, LookupOrigin::Stored, later),
        (true, Due::Now)
    );
    assert_eq!(stored(&mut cache, later), (false, 1));
    assert!(answer(&mut cache, facts("sha256:1", 3), later));
    assert!(!answer(&mut cache, facts("sha256:1", 4), later));
    let looked_up = Timestamp::from_second(5).unwrap();
    cache.unchanged(&web, &shop, looked_up, later);
    assert_eq!(stored(&mut cache, later), (true, 3));
    let review = cache.recall(&web, LookupOrigin::Review, later).facts.unwrap();
    assert_eq!(review.looked_up, looked_up);
    assert!(answer(&mut cache, facts("sha256:2", 6), later));
    assert_eq!(stored(&mut cache, later), (true, 6));
}

#[test]
fn a_configuration_that_could_not_be_read_is_requested_a_few_more_times() {
    let (mut cache, start) = (cache(10, 1 << 20), Instant::now());
    let (web, shop) = (key("registry.corp/web:1"), "shop".into());
    assert!(cache.known_content(&web).is_none());
    cache.answered(&web, &shop, facts("sha256:1", 1), start);
    let attempts = |cache: &mut ImageCache| {
        let known = std::iter::from_fn(|| cache.known_content(&web));
        known.take(10).filter(|known| known.completes).count()
    };
    assert_eq!(attempts(&mut cache), usize::from(COMPLETIONS));
    // The same content again, still without: it has had its attempts.
    assert!(!cache.answered(&web, &shop, facts("sha256:1", 2), start));
    assert_eq!(attempts(&mut cache), 0);
    let mut complete = facts("sha256:1", 3);
    complete.found.as_mut().unwrap().variants[0].config = Some(ImageConfig::default());
    assert!(
        cache.answered(&web, &shop, complete, start),
        "its configuration is new"
    );
    // Of another tag with the same content it could not be read, and nothing is lost.
    let other = key("registry.corp/web:other");
    cache.answered(&other, &shop, facts("sha256:1", 3), start);
    assert_eq!(attempts(&mut cache), 0);
    assert!(cache.answered(&web, &shop, facts("sha256:2", 4), start));
    assert_eq!(attempts(&mut cache), usize::from(COMPLETIONS), "another content");
}
