use std::net::TcpListener;

use super::*;
use crate::registry::RegistryConfig;

const SECOND: Duration = Duration::from_secs(1);

/// A service for registries of this machine.
fn service(registry: &str) -> (ImageService, Metrics) {
    let registries = RegistryPatterns::parse([registry]).unwrap();
    let config = RegistryConfig {
        allowed: Some(registries.clone()),
        ..RegistryConfig::default()
    };
    let metrics = Metrics::new("0.0.0", None);
    let client = RegistryClient::new(config).unwrap();
    let service = ImageService::new(client, registries, NoCredentials, &metrics);
    (service, metrics)
}

/// A registry that refuses connections.
fn closed() -> String {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    format!("127.0.0.1:{port}")
}

fn known(service: &ImageService, references: &[&str]) -> KnownImages {
    service.known(&images(references))
}

fn images(references: &[&str]) -> PodImages {
    PodImages {
        namespace: "shop".to_owned(),
        references: references.iter().map(|&text| text.to_owned()).collect(),
        ..PodImages::default()
    }
}

#[tokio::test]
async fn a_registry_that_refuses_connections_is_waited_for_until_it_is_known_to_be_down() {
    let registry = closed();
    let (service, metrics) = service(&registry);
    tokio::spawn(service.clone().run());
    let mut waits = 0;
    while let Some(pending) = known(&service, &[&format!("{registry}/shop/web:{waits}")]).pending {
        // Far longer than a refused connection takes.
        tokio::time::timeout(20 * SECOND, pending).await.unwrap();
        waits += 1;
    }
    assert_eq!(waits, 3, "after three failures nothing waits for it");
    let again = known(&service, &[&format!("{registry}/shop/web:0")]);
    assert!(
        again.pending.is_none(),
        "nor for an image that is tried again later"
    );
    let exposed = metrics.expose();
    let labels = format!("registry=\"{registry}\",outcome=\"unreachable\"");
    assert!(
        exposed.contains(&format!("transom_image_lookups_total{{{labels}}} 3")),
        "{exposed}"
    );
    let dropped = "transom_image_lookups_dropped_total{reason=\"registry_unavailable\"} 2";
    assert!(exposed.contains(dropped), "{exposed}");
}

#[tokio::test]
async fn only_images_of_listed_registries_are_queued_and_each_once() {
    let (service, _) = service("registry.corp");
    let known = known(
        &service,
        &[
            "registry.corp/web:1",
            "registry.corp/web:1",
            "quay.io/web:1",
            "not an image",
            "nginx",
        ],
    );
    assert!(known.images.is_empty() && known.pending.is_some());
    assert_eq!(service.state().queued(), 1);
    // What an earlier version of an object had is not looked up for it.
    let previous = images(&["registry.corp/old:1"]);
    assert!(service.recalled(&previous).is_empty());
    assert_eq!(service.state().queued(), 1);
    assert!(service.prepare(&previous));
    assert_eq!(service.state().queued(), 2);
}

#[tokio::test]
async fn facts_are_found_by_the_reference_as_written() {
    let (service, metrics) = service("docker.io");
    let facts = ImageFacts::of(Vec::new(), jiff::Timestamp::UNIX_EPOCH);
    service.learn("docker.io/library/nginx:latest", facts);
    let known = known(&service, &["nginx", "index.docker.io/library/nginx"]);
    let mut references: Vec<&str> = known.images.keys().map(String::as_str).collect();
    references.sort_unstable();
    assert_eq!(references, ["index.docker.io/library/nginx", "nginx"]);
    assert!(known.pending.is_none());
    service.report();
    assert!(metrics.expose().contains("transom_image_cache_entries 1"));
}

#[tokio::test]
async fn a_look_up_is_waited_for_only_while_it_is_new() {
    let (service, _) = service("registry.corp");
    assert!(known(&service, &["registry.corp/web:1"]).pending.is_some());
    tokio::time::pause();
    tokio::time::advance(state::PATIENCE).await;
    assert!(known(&service, &["registry.corp/web:1"]).pending.is_none());
}

/// A review never waits for the state: a namespace with any number of references gets its answer from memory.
#[tokio::test]
async fn many_references_of_one_namespace_use_bounded_memory() {
    let registry = closed();
    let (service, _) = service(&registry);
    tokio::time::pause();
    for number in 0..50_000 {
        known(&service, &[&format!("{registry}/shop/web-{number}:1")]);
    }
    let state = service.state();
    assert_eq!(state.queued(), 1_024, "a namespace leaves as many places free");
    assert_eq!((state.cache.len(), state.cache.bytes()), (0, 0));
}
