//! Walks over a fake API server whose content changes and which denies some requests.

use serde_json::{Value, json};

use super::*;
use crate::cluster::list::MOST_RESTARTS;
use crate::cluster::list::POD_CARRIERS;
use crate::cluster::list::tests::{page, server, status};
use crate::cluster::test_client::Reply;

fn failure(code: u16, more: Option<&str>) -> Reply {
    status(code, &json!({"metadata": {"continue": more}}))
}

async fn names(client: &Client, namespaces: &[&str]) -> (Vec<String>, Vec<UnreadPart>) {
    let mut names = Vec::new();
    let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
    let unlisted = walk(client, &namespaces, &[], |met| {
        if let ListItem::Object(kind, json) = met {
            let json: Value = serde_json::from_str(json).unwrap();
            names.push(format!("{kind} {}", json["metadata"]["name"].as_str().unwrap()));
        }
    });
    let unlisted = unlisted.await;
    (names, unlisted)
}

#[tokio::test]
async fn a_list_whose_place_has_expired_goes_on_where_the_api_server_says() {
    let (client, _) = server(|uri, _| match uri {
        uri if !uri.starts_with("/api/v1/pods") => page(&[], ""),
        uri if uri.contains("continue=new") => page(&["c"], ""),
        uri if uri.contains("continue=old") => failure(410, Some("new")),
        _ => page(&["a", "b"], "old"),
    });
    let (names, unlisted) = names(&client, &[]).await;
    assert_eq!(names, ["Pod a", "Pod b", "Pod c"]);
    assert_eq!(unlisted, []);
}

#[tokio::test]
async fn a_list_that_is_begun_anew_brings_no_object_twice() {
    let (client, _) = server(|uri, before| match uri {
        uri if !uri.starts_with("/api/v1/pods") => page(&[], ""),
        uri if uri.contains("continue=old") => failure(410, None),
        _ if before == 0 => page(&["a", "b"], "old"),
        _ => page(&["b", "c"], ""),
    });
    let (names, unlisted) = names(&client, &[]).await;
    assert_eq!(names, ["Pod a", "Pod b", "Pod c"]);
    assert_eq!(unlisted, []);
}

#[tokio::test]
async fn a_list_that_expires_for_ever_is_given_up_and_the_others_are_read() {
    let (client, requested) = server(|uri, _| match uri {
        uri if uri.starts_with("/api/v1/pods") => page(&["p"], ""),
        uri if !uri.starts_with("/apis/batch/v1/jobs") => page(&[], ""),
        uri if uri.contains("continue=old") => failure(410, None),
        _ => page(&["a"], "old"),
    });
    let (names, unlisted) = names(&client, &[]).await;
    assert_eq!(names, ["Job a", "Pod p"]);
    let [jobs] = unlisted.as_slice() else {
        panic!("{unlisted:?}")
    };
    assert_eq!(
        (jobs.resource.as_str(), jobs.read, jobs.is_forbidden),
        ("jobs", 1, false)
    );
    let tries = requested
        .lock()
        .unwrap()
        .iter()
        .filter(|uri| uri.contains("/jobs?"))
        .count();
    assert_eq!(tries, 2 * (MOST_RESTARTS as usize + 1));
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_listed_is_named_and_what_fails_once_is_requested_again() {
    let (client, _) = server(|uri, before| match uri {
        uri if uri.starts_with("/apis/apps/v1/daemonsets") => failure(403, None),
        uri if uri.starts_with("/api/v1/pods") && before == 0 => failure(503, None),
        uri if uri.starts_with("/api/v1/pods") => page(&["p"], ""),
        _ => page(&[], ""),
    });
    let (names, unlisted) = names(&client, &[]).await;
    assert_eq!(names, ["Pod p"]);
    let daemon_sets = UnreadPart {
        is_custom: false,
        resource: "daemonsets".to_owned(),
        namespace: None,
        why: "it is 403".to_owned(),
        is_forbidden: true,
        is_unknown: false,
        read: 0,
    };
    assert_eq!(unlisted, [daemon_sets]);
}

#[tokio::test]
async fn named_namespaces_are_listed_one_by_one_and_finished_pods_left_out() {
    let (client, requested) = server(|_, _| page(&[], ""));
    names(&client, &["a", "b"]).await;
    let requested = requested.lock().unwrap();
    assert_eq!(requested.len(), 2 * POD_CARRIERS.len());
    assert!(
        requested
            .iter()
            .any(|uri| uri.starts_with("/apis/apps/v1/namespaces/a/deployments?"))
    );
    let pods = requested.last().unwrap();
    assert!(pods.starts_with("/api/v1/namespaces/b/pods?"), "{pods}");
    assert!(
        pods.contains("limit=10") && pods.contains("status.phase"),
        "{pods}"
    );
}
