//! Registries that behave as a real one in a test does not: tokens, redirects, endless responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use hyper_util::client::proxy::matcher::Matcher;

use super::*;
use crate::model::windows::build::Build;
use crate::registry::test_server::{answer, server};

const INDEX: &str = r#"{"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
    {"digest": "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "platform": {"os": "windows", "os.version": "10.0.26100.1"}}]}"#;

type Answer = Result<Arc<ImageFacts>, String>;

fn anonymous() -> Registries {
    Registries::by(Some(RegistryClient::new(RegistryConfig::default()).unwrap()))
}

async fn look_up(registries: &mut Registries, images: BTreeSet<String>) -> Vec<Answer> {
    registries.look_up(images.clone(), &|| ()).await;
    let facts = images
        .iter()
        .map(|image| registries.answers()[image].facts.clone());
    facts.collect()
}

async fn found(image: String) -> (Answer, Vec<String>) {
    let mut registries = anonymous();
    let mut answers = look_up(&mut registries, BTreeSet::from([image])).await;
    (answers.pop().unwrap(), registries.notes())
}

fn is_there(answer: &Answer) -> bool {
    let contents = answer.as_ref().unwrap().found.as_ref().unwrap();
    contents.windows_versions().revision_of(Build::new(26100)) == Some(1)
}

#[tokio::test]
async fn an_anonymous_token_is_had_where_it_is_demanded() {
    let (port, heads) = server(|head, port| {
        if head.starts_with("GET /token?service=here&scope=repository%3Aapp%3Apull ") {
            answer(200, "", r#"{"token": "for-all"}"#)
        } else if head.to_lowercase().contains("authorization: bearer for-all") {
            answer(200, "", INDEX)
        } else {
            let demand = format!(
                "www-authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\",service=\"here\"\r\n"
            );
            answer(401, &demand, "{}")
        }
    })
    .await;
    assert!(is_there(&found(format!("127.0.0.1:{port}/app:1")).await.0));
    let heads = heads.lock().unwrap().clone();
    assert_eq!(heads.len(), 3, "{heads:#?}");
    // The token server itself gets no token.
    assert!(!heads[1].to_lowercase().contains("authorization"), "{heads:#?}");
}

#[tokio::test]
async fn another_host_sees_no_token() {
    let (port, heads) = server(|head, port| {
        let lower = head.to_lowercase();
        if lower.contains("host: localhost") {
            answer(200, "", INDEX)
        } else if head.starts_with("GET /token") {
            answer(200, "", r#"{"access_token": "for-all"}"#)
        } else if lower.contains("authorization") {
            answer(307, &format!("location: http://localhost:{port}/there\r\n"), "")
        } else {
            let demand = format!("www-authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\"\r\n");
            answer(401, &demand, "{}")
        }
    })
    .await;
    assert!(is_there(&found(format!("127.0.0.1:{port}/app:1")).await.0));
    let heads = heads.lock().unwrap().clone();
    let last = heads.last().unwrap().to_lowercase();
    assert!(
        last.starts_with("get /there ") && !last.contains("authorization"),
        "{heads:#?}"
    );
}

#[tokio::test]
async fn what_a_registry_does_not_say_is_not_known_and_noted() {
    let (port, heads) = server(|head, port| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path.split('/').nth(2).unwrap_or_default() {
            "round" => answer(302, &format!("location: {path}\r\n"), ""),
            "long" => answer(200, "", &" ".repeat((4 << 20) + 1)),
            "private" => answer(401, "www-authenticate: Basic realm=\"x\"\r\n", "{}"),
            "shop" => answer(404, "", "<html>no such page</html>"),
            "missing" => answer(404, "", r#"{"errors": [{"code": "NAME_UNKNOWN"}]}"#),
            "away" => answer(302, "location: http://169.254.169.254/latest\r\n", ""),
            "thief" => answer(
                401,
                "www-authenticate: Bearer realm=\"http://tokens.example/t\"\r\n",
                "",
            ),
            _ => answer(200, "", &format!("{INDEX}{port}")),
        }
    })
    .await;
    let cases = [
        ("round", "more than 3 redirects"),
        ("long", "an answer of more than 4 MiB"),
        (
            "private",
            "the registry refused a request without credentials (401)",
        ),
        ("shop", "the registry answered 404"),
        ("away", "169.254.169.254 would be called without TLS"),
        ("thief", "tokens.example would be called without TLS"),
        ("other", "the answer is not a manifest"),
    ];
    for (repository, why) in cases {
        let (found, notes) = found(format!("127.0.0.1:{port}/{repository}:1")).await;
        assert_eq!(found, Err(why.to_owned()), "{repository}");
        let note = format!("127.0.0.1:{port}: {why} (1 image); these are not verified");
        assert_eq!(notes, [note]);
    }
    let (missing, notes) = found(format!("127.0.0.1:{port}/missing:1")).await;
    assert_eq!((missing.unwrap().found.clone(), notes), (None, vec![]));
    assert_eq!(
        heads
            .lock()
            .unwrap()
            .iter()
            .filter(|head| head.contains("/round/"))
            .count(),
        4
    );
}

#[tokio::test]
async fn a_registry_that_wants_fewer_requests_is_left_alone_and_the_most_is_500_images() {
    let (port, heads) = server(|_, _| answer(429, "", "")).await;
    let mut registries = anonymous();
    let images: BTreeSet<String> = (0..MOST_IMAGES + 3)
        .map(|tag| format!("127.0.0.1:{port}/app:{tag:03}"))
        .collect();
    let done = AtomicUsize::new(0);
    let count = || {
        done.fetch_add(1, Ordering::Relaxed);
    };
    registries.look_up(images.clone(), &count).await;
    assert_eq!(done.load(Ordering::Relaxed), images.len());
    assert!(heads.lock().unwrap().len() <= CONCURRENCY);
    let notes = registries.notes();
    assert!(
        notes[0].contains("too many requests (429) (500 images)"),
        "{notes:?}"
    );
    assert!(
        notes[0].contains("not requested: 500 images were, which is the limit (3 images)"),
        "{notes:?}"
    );
    // Nothing is requested twice.
    registries.look_up(images, &count).await;
    assert_eq!(done.load(Ordering::Relaxed), MOST_IMAGES + 3);
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_not_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut registries = Registries::by(Some(
        RegistryClient::with(
            RegistryConfig::default(),
            |_| Box::pin(async { Ok(vec![([127, 0, 0, 1], 0).into()]) }),
            Matcher::builder().build(),
        )
        .unwrap(),
    ));
    let image = format!("registry.example:{port}/app:1");
    let answers = look_up(&mut registries, BTreeSet::from([image])).await;
    let why = answers[0].as_ref().unwrap_err();
    assert!(
        why.contains("registry.example has an address that Transom never calls"),
        "{why}"
    );
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

/// In the runtime's own time, which passes only while everything waits.
#[tokio::test(start_paused = true)]
async fn all_registries_together_have_a_time() {
    // They accept the connection and never answer: each image would take ten seconds.
    let mut listeners = Vec::new();
    let mut images = BTreeSet::new();
    for _ in 0..12 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        images.insert(format!(
            "127.0.0.1:{}/app:1",
            listener.local_addr().unwrap().port()
        ));
        listeners.push(listener);
    }
    let mut registries = anonymous();
    (registries.whole, registries.left) = (Duration::from_millis(500), Duration::from_millis(500));
    let start = Instant::now();
    let answers = look_up(&mut registries, images).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(answers.len(), 12);
    let notes = registries.notes();
    assert!(
        notes[0].contains("not answered within the 500ms for all registries (1 image)"),
        "{notes:?}"
    );
    // The total time is not reset, and does not pass while nothing is requested.
    assert!(registries.left < Duration::from_millis(500));
    let again = look_up(&mut registries, BTreeSet::from(["127.0.0.1:1/app:2".to_owned()])).await;
    assert!(again[0].is_err());
    assert!(start.elapsed() < Duration::from_secs(5));
}
