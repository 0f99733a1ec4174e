//! Lists of an API server whose cluster changes, that limits requests, hangs, and cuts answers short.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::cluster::test_client::{Reply, serving};

/// What each request asked for, as path and query.
pub type Requests = Arc<Mutex<Vec<String>>>;

/// Answers by the path and query of a request, and how often it came before.
pub fn server(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> (Client, Requests) {
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    let client = serving(move |_, uri, _, before| {
        let uri = uri.to_string();
        let reply = answer(&uri, before);
        seen.lock().unwrap().push(uri);
        reply
    });
    (client, requests)
}

/// A page of objects.
pub fn page_of(objects: &[Value], more: &str) -> Reply {
    Reply::Json(200, json!({"metadata": {"continue": more}, "items": objects}))
}

/// A page of objects with these names.
pub fn page(names: &[&str], more: &str) -> Reply {
    let object = |name: &&str| json!({"metadata": {"name": name, "uid": name}});
    page_of(&names.iter().map(object).collect::<Vec<_>>(), more)
}

pub fn status(code: u16, more: &Value) -> Reply {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": format!("it is {code}"), "reason": "R"});
    let fields = more.as_object().unwrap().clone();
    status.as_object_mut().unwrap().extend(fields);
    Reply::Json(code, status)
}

async fn names(client: &Client) -> (Vec<String>, Result<usize, ListError>) {
    let mut names = Vec::new();
    let read = for_each(client, Listing::new(NODES_PATH), |json| {
        let object: Value = serde_json::from_str(json).unwrap();
        names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
    })
    .await;
    (names, read)
}

#[tokio::test]
async fn a_list_continues_with_the_token_that_the_api_server_gives_for_an_expired_one() {
    let (client, _) = server(|uri, _| match uri {
        uri if uri.contains("continue=new") => page(&["c"], ""),
        uri if uri.contains("continue=old") => status(410, &json!({"metadata": {"continue": "new"}})),
        _ => page(&["a", "b"], "old"),
    });
    assert_eq!(
        names(&client).await,
        (vec!["a".into(), "b".into(), "c".into()], Ok(3))
    );
}

#[tokio::test]
async fn a_list_that_starts_again_shows_no_object_twice() {
    let (client, _) = server(|uri, before| match uri {
        uri if uri.contains("continue=old") => status(410, &json!({})),
        _ if before == 0 => page(&["a", "b"], "old"),
        _ => page(&["b", "c"], ""),
    });
    assert_eq!(
        names(&client).await,
        (vec!["a".into(), "b".into(), "c".into()], Ok(3))
    );
}

#[tokio::test(start_paused = true)]
async fn a_limited_a_late_and_a_short_answer_are_requested_again() {
    let started = tokio::time::Instant::now();
    let (client, requests) = server(|_, before| match before {
        0 => status(429, &json!({"details": {"retryAfterSeconds": 4}})),
        1 => Reply::Text(200, r#"{"metadata": {}, "items": [{"metadata": {"na"#.to_owned()),
        _ => page(&["a"], ""),
    });
    assert_eq!(names(&client).await, (vec!["a".into()], Ok(1)));
    assert_eq!(requests.lock().unwrap().len(), 3);
    assert!(
        started.elapsed() >= Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );

    let (client, _) = server(|_, before| {
        if before == 0 {
            Reply::Never
        } else {
            page(&["a"], "")
        }
    });
    assert_eq!(names(&client).await, (vec!["a".into()], Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_says_how_far_it_got_and_why() {
    for (code, why, requests) in [
        (403, ApiError::Forbidden("it is 403".to_owned()), 1),
        (404, ApiError::NotFound, 1),
        (503, ApiError::Unavailable("it is 503".to_owned()), ATTEMPTS),
    ] {
        let (client, seen) = server(move |uri, _| match uri {
            uri if uri.contains("continue=next") => status(code, &json!({})),
            _ => page(&["a", "b"], "next"),
        });
        let (names, read) = names(&client).await;
        assert_eq!(names, ["a", "b"]);
        let error = ListError {
            path: NODES_PATH.to_owned(),
            read: 2,
            why,
        };
        assert_eq!(read, Err(error));
        assert_eq!(seen.lock().unwrap().len(), 1 + requests as usize);
    }
    let (client, _) = server(|_, _| Reply::Never);
    assert_eq!(
        names(&client).await.1.unwrap_err().why,
        ApiError::Timeout(TIMEOUT)
    );
    let (client, _) = server(|_, _| status(410, &json!({})));
    let error = names(&client).await.1.unwrap_err().to_string();
    assert!(
        error.contains("the cluster changes faster than it answers"),
        "{error}"
    );
}

#[tokio::test]
async fn an_object_that_is_not_what_its_kind_says_is_named_and_the_rest_is_read() {
    #[derive(serde::Deserialize)]
    struct Object {
        spec: u32,
    }
    let (client, _) = server(|_, _| {
        let good = json!({"metadata": {"name": "good"}, "spec": 1});
        page_of(&[good, json!({"metadata": {"name": "bad"}, "spec": "x"})], "")
    });
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let listing = Listing::new("/apis/example.com/v1/things");
    let visit = |object: Object, _: &str| good.push(object.spec);
    let read = for_each_as(&client, listing, visit, |name, _| bad.push(name.to_owned())).await;
    assert_eq!((read, good, bad), (Ok(2), vec![1], vec!["bad".to_owned()]));
}

#[test]
fn every_kind_that_carries_a_pod_is_listed_and_pods_after_their_owners() {
    for kind in Kind::ALL
        .into_iter()
        .filter(|kind| kind.has_pod() && !kind.is_custom())
    {
        assert!(POD_CARRIERS.iter().any(|(listed, _)| *listed == kind), "{kind}");
    }
    assert_eq!(POD_CARRIERS.last().map(|(kind, _)| *kind), Some(Kind::Pod));
}

#[test]
fn a_namespace_has_a_list_of_its_own() {
    let jobs = Listing::of(Kind::Job, "/apis/batch/v1/jobs").in_namespace("shop");
    assert_eq!(jobs.path, "/apis/batch/v1/namespaces/shop/jobs");
    assert_eq!(jobs.resource(), "jobs");
}

#[tokio::test]
async fn one_object_is_read_by_its_kind_and_names() {
    let (client, requests) = server(|_, _| Reply::Json(200, json!({})));
    for (kind, path) in [
        (Kind::Pod, "/api/v1/namespaces/shop/pods/web"),
        (Kind::DaemonSet, "/apis/apps/v1/namespaces/shop/daemonsets/web"),
    ] {
        let listing = Listing::of_pod_carrier(kind).unwrap().in_namespace("shop");
        assert_eq!(&*listing.get(&client, "web").await.unwrap(), "{}");
        assert_eq!(
            requests.lock().unwrap().last().unwrap().trim_end_matches('?'),
            path
        );
    }
    assert_eq!(Listing::of_pod_carrier(Kind::Node), None);
}

#[test]
fn large_objects_come_in_shorter_pages() {
    assert_eq!(next_limit(100, 100), 100);
    assert_eq!(next_limit(100, 10 * LARGE), 10);
    assert_eq!(
        next_limit(10, LARGE / 10),
        20,
        "not longer than twice the last one"
    );
    assert_eq!(next_limit(100, usize::MAX), 1);
}

#[tokio::test]
async fn an_object_that_is_too_large_is_reported_after_the_others_were_read() {
    let (client, requests) = server(|uri, _| match uri {
        uri if uri.contains("continue=next") => page(&["c"], ""),
        _ => {
            let metadata = json!({"name": "large", "namespace": "shop", "uid": "large"});
            let large = json!({"metadata": metadata, "spec": "<".repeat(LARGEST)});
            let small = |name: &str| json!({"metadata": {"name": name, "uid": name}});
            page_of(&[small("a"), large, small("b")], "next")
        }
    });
    let (names, read) = names(&client).await;
    assert_eq!(names, ["a", "b", "c"]);
    let error = read.unwrap_err();
    assert_eq!(error.read, 3);
    assert_eq!(
        error.why,
        ApiError::ObjectTooLarge("shop/large has more than 20 MiB and was not read".to_owned())
    );
    // What is read after a large page is a shorter one.
    let requests = requests.lock().unwrap();
    let limits: Vec<bool> = ["limit=10", "limit=1&"]
        .iter()
        .zip(&*requests)
        .map(|(limit, uri)| format!("{uri}&").contains(limit))
        .collect();
    assert_eq!(limits, [true, true], "{requests:?}");
}

#[tokio::test]
async fn large_objects_are_read_one_after_the_other_in_the_whole_process() {
    let large = json!({"metadata": {"name": "large", "uid": "large"}, "spec": "<".repeat(2 << 20)});
    let (client, _) = server(move |_, _| Reply::Json(200, large.clone()));
    let listing = Listing::new("/api/v1/pods").in_namespace("shop");
    let first = listing.get(&client, "large").await.unwrap();
    let mut second = Box::pin(listing.get(&client, "large"));
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
    assert!(waited.is_err(), "the first one is still kept");
    drop(first);
    assert!(second.await.unwrap().len() > 2 << 20);
}
