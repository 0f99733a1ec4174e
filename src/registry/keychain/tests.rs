use super::*;

fn keychain(json: &str) -> Keychain {
    Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap()
}

/// A configuration in which each key has itself as its user.
fn with_keys(keys: &[&str]) -> Keychain {
    let entry = |key: &&str| {
        let auth = BASE64_STANDARD.encode(format!("{}:word", key.replace(':', "")));
        format!(r#""{key}": {{"auth": "{auth}"}}"#)
    };
    let entries: Vec<String> = keys.iter().map(entry).collect();
    keychain(&format!(r#"{{"auths": {{{}}}}}"#, entries.join(",")))
}

async fn users(keychain: &Keychain, registry: &str, repository: &str) -> Vec<String> {
    let found = keychain.credentials_of(registry, repository).await;
    let user = |credential: Credential| match credential.secret {
        Secret::Basic { user, password } => {
            assert_eq!(password, "word");
            user
        }
        Secret::Identity(token) => token,
    };
    found.list.into_iter().map(user).collect()
}

#[tokio::test]
async fn credentials_match_as_in_the_kubelet() {
    let all = with_keys(&[
        "registry.example",
        "registry.example/shop",
        "registry.example/shop/billing",
        "*.azurecr.io",
        "app*.k8s.example",
        "registry.example:5000",
        "*.*.deep.example",
    ]);
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "registry.example",
            "shop/billing",
            &[
                "registry.example/shop/billing",
                "registry.example/shop",
                "registry.example",
            ],
        ),
        ("registry.example", "other", &["registry.example"]),
        ("Registry.Example", "other", &["registry.example"]),
        ("registry.example:5000", "shop", &["registry.example5000"]),
        ("registry.example:5001", "shop", &[]),
        ("shop.azurecr.io", "app", &["*.azurecr.io"]),
        ("azurecr.io", "app", &[]),
        ("a.shop.azurecr.io", "app", &[]),
        ("shop.azurecr.io.evil.example", "app", &[]),
        ("app-3.k8s.example", "app", &["app*.k8s.example"]),
        ("map.k8s.example", "app", &[]),
        ("a.b.deep.example", "app", &["*.*.deep.example"]),
        ("registry.example.evil", "app", &[]),
        ("evilregistry.example", "app", &[]),
    ];
    for (registry, repository, expected) in cases {
        assert_eq!(
            users(&all, registry, repository).await,
            *expected,
            "{registry}/{repository}"
        );
    }
}

#[tokio::test]
async fn docker_hub_has_the_names_that_docker_writes() {
    for key in [
        "https://index.docker.io/v1/",
        "docker.io",
        "index.docker.io",
        "https://registry-1.docker.io/v2/",
    ] {
        assert_eq!(
            users(&with_keys(&[key]), "docker.io", "library/nginx")
                .await
                .len(),
            1,
            "{key}"
        );
    }
    let other = with_keys(&["https://registry.example/v2/shop"]);
    assert_eq!(users(&other, "registry.example", "shop/app").await.len(), 1);
    assert_eq!(users(&other, "registry.example", "app").await.len(), 0);
}

#[tokio::test]
async fn each_form_of_a_credential_is_read() {
    let forms = [
        r#"{"auth": "dTp3b3Jk"}"#,
        r#"{"auth": "dTp3b3Jk", "email": "a@b.example"}"#,
        r#"{"username": "u", "password": "word"}"#,
        r#"{"identitytoken": "u", "auth": "dTp4"}"#,
    ];
    for form in forms {
        let keychain = keychain(&format!(r#"{{"auths": {{"a.example": {form}}}}}"#));
        assert_eq!(users(&keychain, "a.example", "x").await, ["u"], "{form}");
    }
    // The file of someone who is logged in by a helper.
    assert_eq!(
        users(&keychain(r#"{"auths": {"a.example": {}}}"#), "a.example", "x")
            .await
            .len(),
        0
    );
    assert_eq!(users(&keychain("{}"), "a.example", "x").await.len(), 0);
}

#[tokio::test]
async fn keychains_are_tried_in_order_and_a_bounded_number_of_credentials() {
    let merged = Keychain::merged([
        with_keys(&["a.example"]),
        with_keys(&["a.example/x", "a.example"]),
    ]);
    assert_eq!(
        users(&merged, "a.example", "x").await,
        ["a.example", "a.example/x", "a.example"]
    );
    let many = Keychain::merged((0..10).map(|_| with_keys(&["a.example"])));
    assert_eq!(users(&many, "a.example", "x").await.len(), TRIED);
}

#[tokio::test]
async fn a_secret_starts_no_program() {
    let json = r#"{"credsStore": "of-nobody-at-all", "credHelpers": {"a.example": "of-nobody-at-all"}}"#;
    let found = keychain(json).credentials_of("a.example", "x").await;
    assert!(found.list.is_empty() && found.trouble.is_none(), "{found:?}");
}

#[test]
fn errors_and_debug_output_have_the_source_and_no_secret() {
    for (json, why) in [
        (
            r#"{"auths": {"a.example": {"auth": "hunter2"}}}"#,
            "auths[\"a.example\"]",
        ),
        (r#"{"auths": {"a.example": "hunter2"}}"#, "line 1, column"),
        ("hunter2", "line 1, column"),
    ] {
        let error = Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(
            text.starts_with("Secret shop/pull: ") && text.contains(why),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
    let keychain = with_keys(&["a.example"]);
    assert_eq!(format!("{keychain:?}"), r#"["Secret shop/pull"]"#);
    let credential = Credential {
        source: "there".to_owned(),
        secret: Secret::Identity("hunter2".to_owned()),
    };
    assert!(!format!("{credential:?} {:?}", credential.secret).contains("hunter2"));
}

#[tokio::test]
async fn the_identity_is_equal_for_equal_credentials_only() {
    let identity = async |keychain: &Keychain, registry: &str| {
        let mut material = Vec::new();
        keychain.add_identity(registry, "x", &mut material).await;
        material
    };
    let one = with_keys(&["a.example"]);
    let of_one = identity(&one, "a.example").await;
    assert_eq!(of_one, identity(&with_keys(&["a.example"]), "a.example").await);
    assert_ne!(of_one, identity(&with_keys(&["*.example"]), "a.example").await);
    assert!(!of_one.is_empty());
    assert!(identity(&one, "b.other").await.is_empty());
    assert!(identity(&Keychain::anonymous(), "a.example").await.is_empty());
}

#[tokio::test]
async fn a_helper_that_fails_hides_no_other_credential() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    // No such program is in PATH: the other entries of the file remain.
    let json = r#"{"auths": {"a.example": {"username": "u", "password": "word"}}, "credsStore": "of-nobody-at-all"}"#;
    std::fs::write(&file, json).unwrap();
    let store = CredentialStore::of_file(&file).unwrap().unwrap();
    let keychain = Keychain {
        stores: vec![Arc::new(store)],
    };
    let found = keychain.credentials_of("a.example", "x").await;
    assert_eq!(found.list.len(), 1);
    let trouble = found.trouble.unwrap();
    assert!(
        trouble.starts_with("the credential helper docker-credential-of-nobody-at-all: cannot start"),
        "{trouble}"
    );
    assert!(
        CredentialStore::of_file(&folder.path().join("none"))
            .unwrap()
            .is_none()
    );
}
