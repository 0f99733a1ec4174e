//! What a registry, its token service, a mirror or a proxy that is broken or hostile can and cannot do.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::model::windows::image_facts::ImageConfig;
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::registry::LookupScope;
use crate::registry::test_server::{Requests, answer, request, server};

mod refresh;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PASSWORD: &str = "hunter2";

fn client(config: RegistryConfig) -> RegistryClient {
    RegistryClient::with(config, system_lookup, Matcher::builder().build()).unwrap()
}

async fn look_up(
    client: &RegistryClient,
    image: &str,
    keychain: &Keychain,
) -> Result<ImageFacts, LookupError> {
    let image = ImageRef::parse(image).unwrap();
    let found = client
        .look_up(&image, keychain, Detail::Configurations, None)
        .await;
    let found = found.map(|change| match change {
        ImageChange::Changed(facts) => facts,
        ImageChange::Unchanged(_) => panic!("nothing is known"),
    });
    // No message ever has a secret.
    let text = format!("{found:?}");
    assert!(
        !text.contains(PASSWORD) && !text.contains(&BASE64_STANDARD.encode(format!("u:{PASSWORD}"))),
        "{text}"
    );
    found
}

async fn look_up_anonymously(image: &str) -> Result<ImageFacts, LookupError> {
    look_up(&client(RegistryConfig::default()), image, &Keychain::anonymous()).await
}

/// User and password for these hosts.
fn keychain(hosts: &[&str]) -> Keychain {
    let auth = BASE64_STANDARD.encode(format!("u:{PASSWORD}"));
    let entries: Vec<String> = hosts
        .iter()
        .map(|host| format!(r#""{host}": {{"auth": "{auth}"}}"#))
        .collect();
    let json = format!(r#"{{"auths": {{{}}}}}"#, entries.join(","));
    Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap()
}

fn index(entries: &str) -> String {
    format!(r#"{{"schemaVersion": 2, "mediaType": "{OCI_INDEX}", "manifests": [{entries}]}}"#)
}

fn entry(digest: &str, version: &str) -> String {
    format!(
        r#"{{"digest": "{digest}", "platform": {{"os": "windows", "architecture": "amd64", "os.version": "{version}"}}}}"#
    )
}

fn manifest_of(config: &str) -> String {
    let digest = Digest::of(config.as_bytes());
    format!(
        r#"{{"schemaVersion": 2, "mediaType": "{OCI_MANIFEST}", "config": {{"digest": "{digest}"}}, "layers": [{{"size": 7}}]}}"#
    )
}

fn content(body: &str) -> String {
    answer(200, "", body)
}

fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap_or_default()
}

fn authorizations(requests: &Requests) -> Vec<Option<String>> {
    let requests = requests.lock().unwrap();
    let header = |request: &String| {
        let line = request
            .lines()
            .find(|line| line.to_lowercase().starts_with("authorization: "))?;
        Some(line["authorization: ".len()..].to_owned())
    };
    requests.iter().map(header).collect()
}

fn basic() -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("u:{PASSWORD}")))
}

#[tokio::test]
async fn only_listed_registries_are_queried() {
    let (port, requests) = server(|_, _| content(&index(""))).await;
    let listing = |items: &[&str]| {
        let allowed = Some(RegistryPatterns::parse(items.iter().copied()).unwrap());
        client(RegistryConfig {
            allowed,
            ..RegistryConfig::default()
        })
    };
    let image = format!("127.0.0.1:{port}/app:1");
    let one = format!("127.0.0.1:{port}");
    let name = format!("localhost:{port}");
    for other in [
        "127.0.0.1",
        "mcr.microsoft.com",
        "*.example",
        "localhost:1",
        &name,
    ] {
        let error = look_up(&listing(&[other]), &image, &Keychain::anonymous())
            .await
            .unwrap_err();
        assert_eq!(error.scope, LookupScope::Registry);
        assert!(
            error
                .message
                .contains("not one of the registries that Transom may ask"),
            "{error}"
        );
    }
    assert!(requests.lock().unwrap().is_empty());
    look_up(&listing(&["*.example", &one]), &image, &Keychain::anonymous())
        .await
        .unwrap();
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn content_with_another_digest_is_refused() {
    let config = r#"{"os": "windows", "architecture": "amd64"}"#;
    let lying = Digest::of(b"something else");
    let (port, _) = server(
        move |request, _| match path(request).rsplit('/').next().unwrap() {
            "lying" => answer(200, &format!("docker-content-digest: {lying}\r\n"), &index("")),
            "config" => content(&manifest_of(config)),
            "good" => {
                let digest = Digest::of(index("").as_bytes());
                answer(200, &format!("docker-content-digest: {digest}\r\n"), &index(""))
            }
            digest if digest == Digest::of(b"blob").to_string() => content("blob"),
            // Of a digest, and of the configuration.
            _ => content(&index(" ")),
        },
    )
    .await;
    let wrong = Digest::of(b"wrong").to_string();
    for image in [
        "app:lying".to_owned(),
        format!("app@{wrong}"),
        "app:config".to_owned(),
    ] {
        let error = look_up_anonymously(&format!("127.0.0.1:{port}/{image}"))
            .await
            .unwrap_err();
        assert!(
            error
                .message
                .starts_with("what it sent is not the content with the digest sha256:"),
            "{image}: {error}"
        );
        assert_eq!(error.scope, LookupScope::Image);
    }
    assert!(
        look_up_anonymously(&format!("127.0.0.1:{port}/app:good"))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_variant_without_a_valid_configuration_remains_without_one() {
    let config = r#"{"os": "windows", "architecture": "amd64", "config": {"User": "ContainerUser"}}"#;
    let linux = r#"{"os": "linux", "architecture": "amd64", "config": {"User": "root"}}"#;
    let large = format!(
        r#"{{"os": "windows", "config": {{"User": "{}"}}}}"#,
        "a".repeat(1 << 20)
    );
    let bodies = [config.to_owned(), linux.to_owned(), large];
    let (port, requests) = server(move |request, _| {
        let requested = path(request).rsplit('/').next().unwrap();
        let manifests = bodies.iter().map(|body| manifest_of(body));
        let mut all: Vec<String> = manifests.chain(bodies.clone()).collect();
        let wrong = Digest::of(b"wrong").to_string();
        let digests = all.iter().take(3).map(|it| Digest::of(it.as_bytes()).to_string());
        let digests: Vec<String> = digests.chain([wrong]).collect();
        let entries: Vec<String> = digests
            .iter()
            .map(|digest| entry(digest, "10.0.20348.1"))
            .collect();
        // Eight are read of twenty.
        let mut entries = entries.join(",");
        for _ in 0..4 {
            entries = format!("{entries},{}", entry(&digests[0], "10.0.20348.1"));
        }
        for _ in 0..12 {
            entries = format!("{entries},{}", entry(&digests[0], "10.0.20348.1"));
        }
        all.push(index(&entries));
        let found = all
            .iter()
            .find(|body| Digest::of(body.as_bytes()).to_string() == requested);
        content(found.map_or(
            if requested == "1" {
                all.last().unwrap()
            } else {
                "{}"
            },
            String::as_str,
        ))
    })
    .await;
    let facts = look_up_anonymously(&format!("127.0.0.1:{port}/app:1"))
        .await
        .unwrap();
    let variants = facts.found.unwrap().variants;
    let users: Vec<Option<&str>> = variants
        .iter()
        .map(|it| it.config.as_ref().map(|config| &*config.user))
        .collect();
    let user = Some("ContainerUser");
    assert_eq!(users[..8], [user, None, None, None, user, user, user, user]);
    assert_eq!(users[8..], [None; 12]);
    assert_eq!((variants[0].size, variants[1].size), (Some(7), None));
    let manifests = requests
        .lock()
        .unwrap()
        .iter()
        .filter(|it| it.contains("/manifests/"))
        .count();
    assert_eq!(manifests, 1 + CONFIGURATIONS);
}

#[tokio::test]
async fn a_configuration_has_at_most_one_megabyte() {
    let config = |length: usize| format!(r#"{{"os": "windows", "author": "{}"}}"#, "a".repeat(length));
    let (port, _) = server(move |request, _| {
        let length = if path(request).starts_with("/v2/large/") {
            1 << 20
        } else {
            1 << 19
        };
        let config = config(length);
        content(&if path(request).contains("/blobs/") {
            config
        } else {
            manifest_of(&config)
        })
    })
    .await;
    let error = look_up_anonymously(&format!("127.0.0.1:{port}/large:1"))
        .await
        .unwrap_err();
    assert_eq!(error.message, "an answer of more than 1 MiB");
    assert!(
        look_up_anonymously(&format!("127.0.0.1:{port}/small:1"))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_registry_that_sends_a_byte_a_second_has_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        request(&mut connection).await;
        connection
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            .await
            .unwrap();
        // From here the clock runs as fast as the timers allow.
        tokio::time::pause();
        while connection.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let error = look_up_anonymously(&format!("127.0.0.1:{port}/app:1"))
        .await
        .unwrap_err();
    assert_eq!(error.message, "no answer within 10s");
    assert_eq!(error.scope, LookupScope::Registry);
}

#[tokio::test]
async fn the_time_that_a_registry_asks_for_is_bounded() {
    let (port, _) = server(|request, _| {
        let date = jiff::fmt::rfc2822::DateTimePrinter::new();
        let date = date
            .timestamp_to_rfc9110_string(&(Timestamp::now() + Duration::from_secs(600)))
            .unwrap();
        let (status, header) = match path(request).split('/').nth(2).unwrap() {
            "seconds" => (429, "retry-after: 30\r\n".to_owned()),
            "down" => (503, "retry-after: 30\r\n".to_owned()),
            "forever" => (429, format!("retry-after: {}\r\n", u64::MAX)),
            "date" => (429, format!("retry-after: {date}\r\n")),
            "past" => (429, "retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n".to_owned()),
            "words" => (429, "retry-after: tomorrow\r\n".to_owned()),
            _ => (502, "retry-after: 30\r\n".to_owned()),
        };
        answer(status, &header, "")
    })
    .await;
    let hour = Duration::from_secs(3600);
    for (name, expected) in [
        ("seconds", Some(30..=30)),
        ("down", Some(30..=30)),
        ("forever", Some(3600..=3600)),
        ("date", Some(590..=600)),
        ("past", Some(0..=0)),
        ("words", None),
        ("else", None),
    ] {
        let error = look_up_anonymously(&format!("127.0.0.1:{port}/{name}:1"))
            .await
            .unwrap_err();
        let retry = error.retry_after.map(|retry| retry.as_secs());
        let is_expected = match (retry, &expected) {
            (Some(retry), Some(expected)) => expected.contains(&retry),
            (retry, expected) => retry.is_none() && expected.is_none(),
        };
        assert!(
            is_expected && error.retry_after.is_none_or(|retry| retry <= hour),
            "{name}: {error:?}"
        );
        assert_eq!(error.scope, LookupScope::Registry, "{name}");
    }
}

#[tokio::test]
async fn user_and_password_are_sent_to_the_registry_itself_only() {
    let config = r#"{"os": "windows", "architecture": "amd64"}"#;
    let (port, requests) = server(move |request, port| {
        let lower = request.to_lowercase();
        if lower.contains("host: localhost") {
            content(config)
        } else if !lower.contains("authorization: basic ") {
            answer(401, "www-authenticate: Basic realm=\"x\"\r\n", "{}")
        } else if path(request).contains("/blobs/") {
            answer(307, &format!("location: http://localhost:{port}/there\r\n"), "")
        } else {
            content(&manifest_of(config))
        }
    })
    .await;
    let host = format!("127.0.0.1:{port}");
    let client = client(RegistryConfig::default());
    let facts = look_up(&client, &format!("{host}/app:1"), &keychain(&[&host]))
        .await
        .unwrap();
    assert_eq!(facts.found.unwrap().variants.len(), 1);
    // Demanded once, and not sent along with the redirect.
    assert_eq!(
        authorizations(&requests),
        [None, Some(basic()), Some(basic()), None]
    );
    // Without a credential of its own, a registry gets none.
    let error = look_up(
        &client,
        &format!("{host}/app:1"),
        &keychain(&["registry.example"]),
    )
    .await
    .unwrap_err();
    assert_eq!(
        error.message,
        "the registry refused a request without credentials (401)"
    );
    assert_eq!(error.scope, LookupScope::Image);
}

#[tokio::test]
async fn credentials_are_tried_in_order_and_the_refused_one_is_named() {
    let right = BASE64_STANDARD.encode("right:word");
    let sent = format!("authorization: Basic {right}");
    let (port, _) = server(move |request, _| {
        if request.contains(&sent) {
            content(&index(""))
        } else {
            answer(401, "www-authenticate: Basic realm=\"x\"\r\n", "{}")
        }
    })
    .await;
    let host = format!("127.0.0.1:{port}");
    let image = format!("{host}/app:1");
    let client = client(RegistryConfig::default());
    let wrong = keychain(&[&host]);
    let error = look_up(&client, &image, &wrong).await.unwrap_err();
    assert_eq!(
        error.message,
        "the registry refused the credential of Secret shop/pull (401)"
    );
    let json = format!(r#"{{"auths": {{"{host}": {{"auth": "{right}"}}}}}}"#);
    let right = Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/other").unwrap();
    look_up(&client, &image, &Keychain::merged([wrong, right]))
        .await
        .unwrap();
}

/// A registry whose token service is at this host, with tokens that are valid for so many seconds.
async fn with_tokens(realm: &'static str, life: u32) -> (u16, Requests) {
    server(move |request, port| {
        let lower = request.to_lowercase();
        let is_known = lower.contains("authorization: basic ") || request.contains("refresh_token=hunter2");
        if path(request).starts_with("/token") && is_known {
            answer(
                200,
                "",
                &format!(r#"{{"token": "short-lived", "expires_in": {life}}}"#),
            )
        } else if path(request).starts_with("/token") {
            answer(401, "", "{}")
        } else if lower.contains("authorization: bearer short-lived") {
            content(&index(""))
        } else {
            let realm = format!("http://{realm}:{port}/token");
            answer(
                401,
                &format!("www-authenticate: Bearer realm=\"{realm}\",service=\"s\"\r\n"),
                "{}",
            )
        }
    })
    .await
}

#[tokio::test]
async fn tokens_are_kept_for_a_repository_and_a_credential_until_they_expire() {
    let tokens = |requests: &Requests| {
        requests
            .lock()
            .unwrap()
            .iter()
            .filter(|it| path(it).starts_with("/token"))
            .count()
    };
    for (life, expected) in [(300, 1), (0, 3)] {
        let (port, requests) = with_tokens("127.0.0.1", life).await;
        let host = format!("127.0.0.1:{port}");
        let client = client(RegistryConfig::default());
        for tag in 1..=3 {
            look_up(&client, &format!("{host}/app:{tag}"), &keychain(&[&host]))
                .await
                .unwrap();
        }
        assert_eq!(tokens(&requests), expected);
        // Another repository, and a look-up without a credential, have none of it.
        look_up(&client, &format!("{host}/other:1"), &keychain(&[&host]))
            .await
            .unwrap();
        assert_eq!(tokens(&requests), expected + 1);
        assert!(
            look_up(&client, &format!("{host}/app:1"), &Keychain::anonymous())
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_token_service_on_another_host_gets_no_credential() {
    let (port, requests) = with_tokens("localhost", 300).await;
    let (host, realm) = (format!("127.0.0.1:{port}"), format!("localhost:{port}"));
    let client = client(RegistryConfig::default());
    let error = look_up(&client, &format!("{host}/app:1"), &keychain(&[&host]))
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "the registry's token service refused a request without credentials (401); the credential of Secret shop/pull is \
         not sent to localhost, which is another host than the registry: add the same credential for localhost if that is \
         right"
    );
    assert!(
        authorizations(&requests).iter().all(Option::is_none),
        "{requests:?}"
    );
    // Unless its owner wrote that it belongs to both.
    look_up(&client, &format!("{host}/app:1"), &keychain(&[&host, &realm]))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_identity_token_is_exchanged_in_a_form() {
    let (port, requests) = with_tokens("127.0.0.1", 300).await;
    let host = format!("127.0.0.1:{port}");
    let json = format!(r#"{{"auths": {{"{host}": {{"identitytoken": "{PASSWORD}"}}}}}}"#);
    let keychain = Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap();
    look_up(
        &client(RegistryConfig::default()),
        &format!("{host}/app:1"),
        &keychain,
    )
    .await
    .unwrap();
    let requests = requests.lock().unwrap();
    assert!(requests[1].starts_with("POST /token "), "{requests:?}");
    let form = "grant_type=refresh_token&client_id=transom&service=s&scope=repository%3Aapp%3Apull&refresh_token=hunter2";
    assert!(requests[1].ends_with(form), "{requests:?}");
}

#[tokio::test]
async fn an_identity_token_is_no_password() {
    let (port, requests) = server(|_, _| answer(401, "www-authenticate: Basic realm=\"x\"\r\n", "{}")).await;
    let host = format!("127.0.0.1:{port}");
    let json = format!(r#"{{"auths": {{"{host}": {{"identitytoken": "{PASSWORD}"}}}}}}"#);
    let keychain = Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap();
    let error = look_up(
        &client(RegistryConfig::default()),
        &format!("{host}/app:1"),
        &keychain,
    )
    .await
    .unwrap_err();
    assert!(
        error.message.contains("requires a user and a password"),
        "{error}"
    );
    assert_eq!(authorizations(&requests), [None]);
}

#[tokio::test]
async fn a_mirror_is_queried_first_with_its_own_credential_and_then_the_registry() {
    let (mirror, seen_by_mirror) = server(|request, _| {
        if path(request).starts_with("/v2/proxy/there/") {
            content(&index(""))
        } else {
            answer(401, "www-authenticate: Basic realm=\"x\"\r\n", "{}")
        }
    })
    .await;
    let (own, seen) = server(|request, _| {
        if request.to_lowercase().contains("authorization: basic ") {
            content(&index(""))
        } else {
            answer(401, "www-authenticate: Basic realm=\"x\"\r\n", "{}")
        }
    })
    .await;
    let host = format!("127.0.0.1:{own}");
    let mirrors = vec![(host.clone(), format!("localhost:{mirror}/proxy"))];
    let client = client(RegistryConfig {
        mirrors,
        ..RegistryConfig::default()
    });
    look_up(&client, &format!("{host}/there:1"), &keychain(&[&host]))
        .await
        .unwrap();
    assert!(seen.lock().unwrap().is_empty());
    look_up(&client, &format!("{host}/elsewhere:1"), &keychain(&[&host]))
        .await
        .unwrap();
    assert_eq!(authorizations(&seen_by_mirror), [None, None]);
    assert_eq!(authorizations(&seen), [None, Some(basic())]);
    let requests = seen_by_mirror.lock().unwrap();
    assert!(
        requests[0].starts_with(&format!("GET /v2/proxy/there/manifests/1?ns={host} ")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_failure_of_a_mirror_is_named_with_that_of_the_registry() {
    let (mirror, _) = server(|_, _| answer(500, "", "")).await;
    let mirrors = vec![("far.example".to_owned(), format!("localhost:{mirror}"))];
    let config = RegistryConfig {
        mirrors,
        ..RegistryConfig::default()
    };
    let own: Lookup = |name| match name.as_str() {
        "localhost" => Box::pin(async { Ok(vec![([127, 0, 0, 1], 0).into()]) }),
        _ => Box::pin(async { Err(std::io::Error::other("no such host")) }),
    };
    let client = RegistryClient::with(config, own, Matcher::builder().build()).unwrap();
    let error = look_up(&client, "far.example/app:1", &Keychain::anonymous())
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        format!(
            "the host name far.example does not resolve; before that, the mirror localhost:{mirror}: the registry \
             answered 500"
        )
    );
    assert_eq!(error.scope, LookupScope::Registry);
}

#[tokio::test]
async fn a_proxy_opens_the_connection_to_the_registry() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        for answer in ["HTTP/1.1 200 OK\r\n\r\n", &content(&index(""))] {
            let request = request(&mut connection).await;
            seen.lock().unwrap().push(request);
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let proxies = || {
        Matcher::builder()
            .all(format!("http://u:{PASSWORD}@127.0.0.1:{port}"))
            .no("near.example")
            .build()
    };
    let config = RegistryConfig {
        plain_http: vec!["far.example".to_owned()],
        ..RegistryConfig::default()
    };
    let nowhere: Lookup = |_| Box::pin(async { Err(std::io::Error::other("no such host")) });
    let client = RegistryClient::with(config, nowhere, proxies()).unwrap();
    look_up(&client, "far.example/app:1", &Keychain::anonymous())
        .await
        .unwrap();
    {
        let requests = requests.lock().unwrap();
        assert!(
            requests[0].starts_with("CONNECT far.example:80 HTTP/1.1\r\n"),
            "{requests:?}"
        );
        assert!(
            requests[0].to_lowercase().contains("proxy-authorization: basic "),
            "{requests:?}"
        );
        assert!(
            requests[1].starts_with("GET /v2/app/manifests/1 "),
            "{requests:?}"
        );
        assert!(
            !requests[1].to_lowercase().contains("authorization"),
            "{requests:?}"
        );
    }
    // Excluded from the proxy, and an address that is never called stays so behind one.
    let error = look_up(&client, "near.example/app:1", &Keychain::anonymous())
        .await
        .unwrap_err();
    assert_eq!(error.message, "the host name near.example does not resolve");
    let error = look_up(&client, "169.254.169.254/app:1", &Keychain::anonymous())
        .await
        .unwrap_err();
    assert!(error.message.contains("never calls"), "{error}");
}

#[tokio::test]
async fn without_tls_only_hosts_are_queried_that_are_named_so() {
    let config = RegistryConfig {
        plain_http: vec!["registry.example:5000".to_owned()],
        ..RegistryConfig::default()
    };
    let endpoint = |image: &str| RegistryEndpoint::of(&ImageRef::parse(image).unwrap(), &config);
    let scheme = |image: &str| {
        endpoint(image)
            .uri("manifests", "1")
            .unwrap()
            .scheme_str()
            .map(str::to_owned)
    };
    assert_eq!(scheme("registry.example:5000/app:1").as_deref(), Some("http"));
    assert_eq!(scheme("registry.example/app:1").as_deref(), Some("https"));
    assert_eq!(scheme("other.example:5000/app:1").as_deref(), Some("https"));
    // A token service without TLS gets no request either.
    let other = endpoint("registry.example/app:1");
    assert!(
        other
            .allow(&"http://registry.example/token".parse().unwrap())
            .is_err()
    );
}

#[tokio::test]
async fn an_address_that_is_never_called_is_called_if_it_is_listed() {
    let allowed = |items: &[&str]| Some(RegistryPatterns::parse(items.iter().copied()).unwrap());
    let config = RegistryConfig {
        allowed: allowed(&["169.254.7.7:5000"]),
        ..RegistryConfig::default()
    };
    let image = ImageRef::parse("169.254.7.7:5000/app:1").unwrap();
    let listed = RegistryEndpoint::of(&image, &config);
    assert!(listed.uri("manifests", "1").is_ok());
    assert!(
        listed
            .allow(&"https://169.254.169.254/x".parse().unwrap())
            .is_err()
    );
    let unlisted = RegistryEndpoint::of(&image, &RegistryConfig::default());
    assert!(
        unlisted
            .uri("manifests", "1")
            .unwrap_err()
            .contains("never calls")
    );
}

#[test]
fn files_of_certificates_must_have_some() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let new = |file: &std::path::Path| {
        let ca_files = vec![file.to_owned()];
        RegistryClient::with(
            RegistryConfig {
                ca_files,
                ..RegistryConfig::default()
            },
            system_lookup,
            Matcher::builder().build(),
        )
    };
    let error = |file: &std::path::Path| new(file).err().unwrap().to_string();
    assert!(error(&file).contains(&file.display().to_string()));
    std::fs::write(&file, "no certificate").unwrap();
    assert!(error(&file).contains("no certificate in it"));
}

#[test]
fn only_a_single_variant_without_a_version_gets_that_of_its_configuration() {
    let version = |text: &str| ImageVariant::new("windows", "amd64", text).os_version;
    let completed = |variants: &[&str], of_configurations: &[(usize, &str)]| {
        let mut variants: Vec<ImageVariant> = (variants.iter())
            .map(|text| ImageVariant::new("windows", "amd64", text))
            .collect();
        let known: Vec<_> = (of_configurations.iter())
            .map(|(at, text)| (*at, version(text)))
            .collect();
        add_missing_version(&mut variants, &known);
        variants
            .iter()
            .map(|variant| variant.os_version)
            .collect::<Vec<_>>()
    };
    let (old, new) = ("10.0.17763.1", "10.0.20348.2700");
    assert_eq!(completed(&[""], &[(0, new)]), [version(new)]);
    assert_eq!(
        completed(&[old, ""], &[(0, new), (1, new)]),
        [version(old), version(new)]
    );
    // containerd pulls only one of them.
    assert_eq!(completed(&["", ""], &[(0, old), (1, new)]), [None, None]);
    assert_eq!(completed(&[""], &[]), [None]);
    assert_eq!(completed(&[""], &[(0, "")]), [None]);
}
