//! What is requested again of an image that is known.

use super::*;

const CONFIG_OF_IMAGE: &str =
    r#"{"os": "windows", "architecture": "amd64", "config": {"User": "ContainerUser"}}"#;

/// An index with one Windows image.
fn index_of(version: &str) -> String {
    let manifest = Digest::of(manifest_of(CONFIG_OF_IMAGE).as_bytes()).to_string();
    index(&entry(&manifest, version))
}

fn known(digest_of: &str, config: Option<ImageConfig>) -> ImageContents {
    let variant = ImageVariant {
        digest: Digest::of(manifest_of(CONFIG_OF_IMAGE).as_bytes()).to_string(),
        config,
        ..ImageVariant::new("windows", "amd64", "10.0.20348.1")
    };
    ImageContents {
        digest: Digest::of(digest_of.as_bytes()).to_string(),
        variants: vec![variant],
    }
}

/// A registry whose tag is this index, and that answers a HEAD of it like this.
async fn registry(index: String, head: impl Fn(&str) -> String + Send + 'static) -> (u16, Requests) {
    server(move |request, _| {
        if request.starts_with("HEAD ") {
            return head(request);
        }
        let asked = path(request).rsplit('/').next().unwrap();
        let all = [manifest_of(CONFIG_OF_IMAGE), CONFIG_OF_IMAGE.to_owned()];
        let of_digest = all
            .iter()
            .find(|body| Digest::of(body.as_bytes()).to_string() == asked);
        content(of_digest.unwrap_or(&index))
    })
    .await
}

/// The answer to a HEAD, with the digest of this content.
fn head_of(text: &str) -> String {
    let digest = Digest::of(text.as_bytes());
    answer(200, &format!("docker-content-digest: {digest}\r\n"), "")
}

async fn again(port: u16, known: &ImageContents, completes: bool) -> Result<ImageChange, LookupError> {
    let text = format!("127.0.0.1:{port}/app:1");
    let image = ImageRef::parse(&text).unwrap();
    let known = KnownImage {
        contents: known,
        completes,
    };
    client(RegistryConfig::default())
        .look_up(
            &image,
            &Keychain::anonymous(),
            Detail::Configurations,
            Some(known),
        )
        .await
}

/// The method and the kind of each request.
fn kinds(requests: &Requests) -> Vec<String> {
    let requests = requests.lock().unwrap();
    let kind = |request: &String| {
        let method = request.split(' ').next().unwrap();
        format!("{method} {}", path(request).split('/').nth(3).unwrap())
    };
    requests.iter().map(kind).collect()
}

#[tokio::test]
async fn a_head_with_the_known_digest_is_the_only_request() {
    let index = index_of("10.0.20348.1");
    let known = known(&index, Some(ImageConfig::default()));
    let (port, requests) = registry(index.clone(), move |_| head_of(&index)).await;
    let change = again(port, &known, true).await.unwrap();
    assert!(matches!(change, ImageChange::Unchanged(_)), "{change:?}");
    assert_eq!(kinds(&requests), ["HEAD manifests"]);
    let accepts = requests.lock().unwrap()[0].to_lowercase();
    assert!(
        accepts.contains(OCI_INDEX),
        "a HEAD negotiates like a GET: {accepts}"
    );
}

#[tokio::test]
async fn a_head_with_another_digest_is_followed_by_a_get_with_all_configurations() {
    let (before, now) = (index_of("10.0.20348.1"), index_of("10.0.20348.2"));
    let known = known(&before, Some(ImageConfig::default()));
    let head = now.clone();
    let (port, requests) = registry(now.clone(), move |_| head_of(&head)).await;
    let ImageChange::Changed(facts) = again(port, &known, false).await.unwrap() else {
        panic!("it has changed");
    };
    let found = facts.found.unwrap();
    assert_eq!(found.digest, Digest::of(now.as_bytes()).to_string());
    assert_eq!(found.user(), Some("ContainerUser"));
    assert_eq!(
        kinds(&requests),
        ["HEAD manifests", "GET manifests", "GET manifests", "GET blobs"]
    );
}

#[tokio::test]
async fn a_registry_without_head_or_without_a_digest_is_asked_by_get() {
    for head in [
        answer(405, "", ""),
        answer(404, "", ""),
        answer(403, "", ""),
        answer(200, "", ""),
        answer(200, "docker-content-digest: sha256:no\r\n", ""),
    ] {
        let index = index_of("10.0.20348.1");
        let known = known(&index, Some(ImageConfig::default()));
        let (port, requests) = registry(index, move |_| head.clone()).await;
        let change = again(port, &known, false).await.unwrap();
        assert!(matches!(change, ImageChange::Unchanged(_)), "{change:?}");
        assert_eq!(kinds(&requests), ["HEAD manifests", "GET manifests"]);
    }
}

#[tokio::test]
async fn a_registry_that_wants_fewer_requests_gets_no_get_after_the_head() {
    for status in [429, 503] {
        let index = index_of("10.0.20348.1");
        let known = known(&index, None);
        let head = answer(status, "retry-after: 120\r\n", "");
        let (port, requests) = registry(index, move |_| head.clone()).await;
        let error = again(port, &known, true).await.unwrap_err();
        assert_eq!(error.scope, LookupScope::Registry);
        assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
        assert_eq!(kinds(&requests), ["HEAD manifests"]);
    }
}

#[tokio::test]
async fn a_head_is_authorized_like_a_get() {
    let index = index_of("10.0.20348.1");
    let known = known(&index, Some(ImageConfig::default()));
    let (port, requests) = registry(index.clone(), move |request| {
        if request.to_lowercase().contains("authorization: basic") {
            head_of(&index)
        } else {
            answer(401, "www-authenticate: Basic realm=\"images\"\r\n", "")
        }
    })
    .await;
    let host = format!("127.0.0.1:{port}");
    let image = format!("{host}/app:1");
    let change = client(RegistryConfig::default())
        .look_up(
            &ImageRef::parse(&image).unwrap(),
            &keychain(&[&host]),
            Detail::Configurations,
            Some(KnownImage {
                contents: &known,
                completes: false,
            }),
        )
        .await
        .unwrap();
    assert!(matches!(change, ImageChange::Unchanged(_)), "{change:?}");
    assert_eq!(kinds(&requests), ["HEAD manifests", "HEAD manifests"]);
    assert_eq!(authorizations(&requests), [None, Some(basic())]);
}

#[tokio::test]
async fn a_configuration_that_could_not_be_read_is_requested_again_if_that_is_wanted() {
    let index = index_of("10.0.20348.1");
    let known = known(&index, None);
    let (port, requests) = registry(index.clone(), move |_| head_of(&index)).await;
    let change = again(port, &known, false).await.unwrap();
    assert!(matches!(change, ImageChange::Unchanged(_)), "{change:?}");
    assert_eq!(kinds(&requests), ["HEAD manifests"]);
    let ImageChange::Changed(facts) = again(port, &known, true).await.unwrap() else {
        panic!("its configuration is new");
    };
    let found = facts.found.unwrap();
    assert_eq!(
        (&found.digest, found.user()),
        (&known.digest, Some("ContainerUser"))
    );
    assert_eq!(
        kinds(&requests)[1..],
        ["HEAD manifests", "GET manifests", "GET blobs"]
    );
}
