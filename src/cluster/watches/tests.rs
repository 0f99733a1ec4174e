//! A cache that does not change, and watches that are denied.

use std::time::{SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use super::*;
use crate::cluster::node::{NodeView, WatchedNode};
use crate::cluster::test_client::{Reply, serving};
use crate::model::nodes::node::OtherNode;
use crate::process::metrics::Metrics;

/// A Windows node with this resourceVersion, kernel and labels.
fn node(version: &str, kernel: &str, labels: &[(&str, &str)]) -> NodeView {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    NodeView {
        name: "w".into(),
        resource_version: version.into(),
        operating_system: "windows".into(),
        kernel_version: kernel.into(),
        labels: Arc::new(labels.collect()),
        ..NodeView::default()
    }
}

#[test]
fn a_heartbeat_makes_no_new_view_and_a_write_names_the_newest_version() {
    const KERNEL: &str = "10.0.20348.1";
    let mut building = CacheBuilder::new(&[]);
    let take = CacheBuilder::nodes();
    let cached = |view: NodeView| CachedNode {
        view: Some(view),
        other: None,
    };
    let shown = |building: &mut CacheBuilder, node: NodeView| {
        take(building, WatchEvent::One("w".into(), Some(cached(node))))
    };
    assert!(shown(&mut building, node("1", KERNEL, &[("team", "a")])));
    let before = building.cache.clone();
    for version in 2..1000 {
        let version = version.to_string();
        assert!(!shown(&mut building, node(&version, KERNEL, &[("team", "a")])));
        assert_eq!(building.cache.nodes["w"].resource_version, version);
    }
    assert_eq!(before.nodes["w"].resource_version, "1", "a cache never changes");
    let relisted = Arc::new(cached(node("1000", KERNEL, &[("team", "a")])));
    assert!(!take(
        &mut building,
        WatchEvent::All([("w".to_owned(), relisted)].into())
    ));

    // A pod may select any label, and all other fields are read too.
    for changed in [
        node("1001", KERNEL, &[("team", "b")]),
        node("1002", KERNEL, &[("team", "b"), ("agentpool", "a")]),
        node("1003", "10.0.20348.2", &[("team", "b"), ("agentpool", "a")]),
    ] {
        assert!(shown(&mut building, changed));
    }
    assert!(take(&mut building, WatchEvent::One("w".into(), None)));
    assert!(!take(&mut building, WatchEvent::One("w".into(), None)));
}

#[test]
fn a_node_that_is_not_for_windows_is_kept_with_its_labels_until_it_is_gone_or_for_windows() {
    let mut building = CacheBuilder::new(&[]);
    let take = CacheBuilder::nodes();
    let labelled = |name: &str, os: &str, pool: &str| {
        let node = json!({"metadata": {"name": name, "resourceVersion": "1", "labels": {"pool": pool}},
            "spec": {}, "status": {"nodeInfo": {"operatingSystem": os}}});
        CachedNode::from(serde_json::from_value::<WatchedNode>(node).unwrap())
    };
    let one = |os: &str, pool: &str| WatchEvent::One("l".into(), Some(labelled("l", os, pool)));
    assert!(take(&mut building, one("linux", "a")));
    assert!(!take(&mut building, one("linux", "a")), "a heartbeat");
    assert!(take(&mut building, one("linux", "b")));
    assert!(building.cache.nodes.is_empty() && building.cache.other_nodes.get("l").is_some());
    assert!(take(&mut building, one("windows", "b")));
    assert!(building.cache.nodes.contains_key("l") && building.cache.other_nodes.get("l").is_none());
    let all = |names: &[&str]| {
        let nodes = names
            .iter()
            .map(|name| ((*name).to_owned(), Arc::new(labelled(name, "linux", "a"))));
        WatchEvent::All(nodes.collect())
    };
    assert!(take(&mut building, all(&["m", "n"])));
    assert!(building.cache.nodes.is_empty());
    assert!(!take(&mut building, all(&["m", "n"])));
    assert!(take(&mut building, all(&["n"])));
    let left: Vec<&str> = building.cache.other_nodes.iter().map(OtherNode::name).collect();
    assert_eq!(left, ["n"]);
}

fn version() -> Reply {
    Reply::Json(
        200,
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
    )
}

/// An API server with one pod policy, whose watches send nothing, as on a quiet server with etcd 3.4. They end when the client
/// asked for it, and when the permission to watch is revoked.
fn api_server(rights: watch::Receiver<bool>) -> Client {
    serving(move |_, uri, _, _| {
        let mut rights = rights.clone();
        let items = match uri.path() {
            "/version" => return version(),
            "/apis" => return Reply::Json(200, json!({"groups": []})),
            path if path.ends_with(cached_kinds::POD_POLICIES.resource) => {
                json!([{"metadata": {"name": "p", "uid": "u", "generation": 1, "resourceVersion": "1"}, "spec": {}}])
            }
            _ => json!([]),
        };
        if !*rights.borrow() {
            let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                "reason": "Forbidden", "message": "cannot watch it"});
            return Reply::Json(403, refusal);
        }
        if uri.query().is_some_and(|query| query.contains("watch=true")) {
            let query = uri.query().unwrap_or_default();
            let seconds = query
                .split('&')
                .find_map(|part| part.strip_prefix("timeoutSeconds="));
            let end = Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap());
            let lost = async move { drop(tokio::time::timeout(end, rights.wait_for(|has| !has)).await) };
            let silent = lost.into_stream().filter_map(|()| async { None });
            return Reply::Stream(silent.boxed());
        }
        let list =
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        Reply::Json(200, list)
    })
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_no_longer_answered_stays_and_its_age_is_shown_and_reported() {
    let log = crate::process::test_log::Log::default();
    let _listening = log.listen();
    let (metrics, readiness) = (Metrics::new("0", None), Readiness::default());
    let staleness = WatchStaleness::new(&metrics);
    let logging = tokio::spawn(staleness.clone().log_changes());
    let (rights, has_rights) = watch::channel(true);
    let (publish, mut caches) = watch::channel(None);
    let (held, fresh) = (readiness.clone(), staleness.clone());
    let client = api_server(has_rights);
    let watching = tokio::spawn(async move { run(client, "own", held, &fresh, publish).await });
    let cache = caches.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(cache.pod_policies.contains_key("p"));

    let age = |resource: &str| {
        let text = metrics.expose();
        let start = format!("transom_watch_last_contact_timestamp_seconds{{resource=\"{resource}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        let at = value.unwrap_or_else(|| panic!("{text}")).parse::<f64>().unwrap();
        // The test skips time, but the clock of the metric does not.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64()
            - at
    };
    let logged = || log.text().matches("has not answered the watch").count();
    let watches = PARTS.into_iter().filter(|part| *part != VERSION);
    assert!(watches.clone().all(|resource| age(resource) < 60.0));

    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(36)).await;
        assert!(watches.clone().all(|resource| age(resource) < 150.0));
    }
    assert_eq!(
        logged(),
        0,
        "an hour without a change is no reason: {}",
        log.text()
    );

    while !watches.clone().all(|resource| age(resource) < 5.0) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    rights.send_replace(false);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(watches.clone().all(|resource| age(resource) >= 100.0));
    assert_eq!(logged(), 0, "not for every short gap");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(watches.clone().all(|resource| age(resource) >= 3700.0));
    assert_eq!(logged(), watches.clone().count(), "once for each: {}", log.text());
    assert!(readiness.is_ready(), "old facts are better than no webhook");
    assert!(Arc::ptr_eq(caches.borrow().as_ref().unwrap(), &cache));

    rights.send_replace(true);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(watches.clone().all(|resource| age(resource) <= 100.0));
    assert_eq!(
        log.text().matches("answers the watch again").count(),
        watches.count()
    );
    logging.abort();
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_exist_is_received_as_such_and_a_broken_watch_is_logged_once() {
    let log = crate::process::test_log::Log::default();
    let _listening = log.listen();
    let (rights, has_rights) = watch::channel(true);
    let (send, mut receive) = watch::channel::<object::ObservedObject<Secret>>(None);
    let api = Api::namespaced(api_server(has_rights), "own");
    let watching = tokio::spawn(async move {
        object::watch_object(api, "tls", "secrets", |secret| {
            drop(send.send_replace(Some(secret)));
        })
        .await;
    });
    assert_eq!(object::next(&mut receive).await, Some(None));

    rights.send_replace(false);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let broken = "cannot watch it; grant Transom's ServiceAccount list and watch on secrets";
    let warnings = log.text().matches("will be tried again").count();
    assert_eq!(warnings, 1, "{}", log.text());
    assert!(log.text().contains(broken), "{}", log.text());

    watching.abort();
    assert_eq!(object::next(&mut receive).await, None, "the watch has ended");
}

/// After a CustomResourceDefinition is created again: its kind is missing, then the version of the watch is too old, and then
/// the version of the first list too, because the cache of the API server is newer.
#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_back_is_read_within_seconds() {
    // Whether the kind is back, and how many lists and watches were answered.
    let state = Arc::new(Mutex::new((false, 0, 0)));
    let served = Arc::clone(&state);
    let status = |code: u16, reason: &str| {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": reason, "message": reason})
    };
    let client = serving(move |_, uri, _, _| {
        let mut served = served.lock().unwrap();
        let (is_back, lists, watches) = &mut *served;
        if *lists > 0 && !*is_back {
            return Reply::Json(404, status(404, "NotFound"));
        }
        if !uri.query().is_some_and(|query| query.contains("watch=true")) {
            *lists += 1;
            let metadata = json!({"resourceVersion": "1"});
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": []});
            return Reply::Json(200, list);
        }
        *watches += 1;
        if *watches <= 2 {
            // The API server sends this as an event.
            let event = json!({"type": "ERROR", "object": status(410, "Expired")});
            let events = [Bytes::from(format!("{event}\n"))];
            return Reply::Stream(futures::stream::iter(events).boxed());
        }
        Reply::Stream(futures::stream::pending().boxed())
    });
    let (send, mut receive) = watch::channel::<object::ObservedObject<Secret>>(None);
    let api = Api::namespaced(client, "own");
    let watching = tokio::spawn(async move {
        object::watch_object(api, "tls", "secrets", |secret| {
            drop(send.send_replace(Some(secret)));
        })
        .await;
    });
    assert_eq!(object::next(&mut receive).await, Some(None));
    tokio::time::sleep(Duration::from_secs(600)).await;
    state.lock().unwrap().0 = true;
    let start = tokio::time::Instant::now();
    while state.lock().unwrap().2 < 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(
        state.lock().unwrap().1,
        3,
        "one list before, and one for each expired version"
    );
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn known_api_groups_stay_while_they_cannot_be_read_and_are_read_again_soon() {
    let log = crate::process::test_log::Log::default();
    let _listening = log.listen();
    // The status of /apis, and how often it was requested.
    let served = Arc::new(Mutex::new((200, 0)));
    let answer = Arc::clone(&served);
    let client = serving(move |_, uri, _, _| {
        if uri.path() == "/version" {
            return version();
        }
        let mut served = answer.lock().unwrap();
        served.1 += 1;
        let version = json!({"groupVersion": "security.openshift.io/v1", "version": "v1"});
        let scc = json!({"name": SCC_GROUP, "versions": [version], "preferredVersion": version});
        match served.0 {
            200 => Reply::Json(200, json!({"groups": [scc]})),
            code => Reply::Json(code, json!({"kind": "Status", "code": code, "message": "down"})),
        }
    });
    let state = Arc::new(WatchState::new(Readiness::default()));
    let following = tokio::spawn(Arc::clone(&state).follow_version(client));
    let known = || {
        let building = state.building();
        (building.cache.has_scc, building.cache.has_gmsa)
    };
    let answers = |code: u16| *served.lock().unwrap() = (code, 0);
    let requests = || served.lock().unwrap().1;

    answers(503);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(known(), (false, None), "nothing was read yet");
    assert!(
        !state.building().missing.contains(&VERSION),
        "reviews do not wait for it"
    );
    answers(200);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(known(), (true, Some(false)));
    answers(503);
    tokio::time::sleep(ASK_VERSION + Duration::from_secs(60)).await;
    assert_eq!(known(), (true, Some(false)), "one failed request changes nothing");
    assert!((20..=40).contains(&requests()), "{}", requests());
    answers(200);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(requests(), 1);
    let warnings = log.text().matches(NO_GROUPS).count();
    assert_eq!(warnings, 2, "once for each time: {}", log.text());
    following.abort();
}
