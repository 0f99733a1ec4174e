//! Image registries: the client and `transom plan --registry` against a real one (Debian's docker-registry), whose images
//! the test pushes. Without the program it says so and proves nothing.
#![cfg(unix)]

use std::net::TcpListener;

use serde_json::{Value, json};
use transom::model::windows::image::ImageRef;
use transom::model::windows::image_facts::{ImageConfig, ImageContents, WindowsBase};
use transom::registry::{
    Detail, ImageChange, Keychain, LookupError, LookupScope, RegistryClient, RegistryConfig,
};

use crate::support::command::transom_in;
use crate::support::registry::{LTSC2019, LTSC2022, LTSC2025, Media, Registry, linux, variant, windows};

/// The plan for workloads of these names and images, on a pool of Windows Server 2019.
fn plan(options: &[&str], images: &[(&str, &str)]) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b-1", "labels": {"kubernetes.io/os": "windows"}},
        "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": "10.0.17763.1"}}});
    let mut items = vec![node];
    for (name, image) in images {
        let pod = json!({"os": {"name": "windows"}, "containers": [{"name": "app", "image": image}]});
        items.push(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}));
    }
    plan_of(options, &items)
}

/// The plan for these objects.
fn plan_of(options: &[&str], items: &[Value]) -> Value {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    // Nothing of this user's, and nothing that an earlier plan has kept.
    let home = tempfile::tempdir().unwrap();
    let variables = ["XDG_CACHE_HOME", "DOCKER_CONFIG"].map(|name| (name, home.path()));
    let arguments = [&["plan", "--to", "ltsc2025", "-o", "json"], options, &["-"]].concat();
    transom_in(home.path(), &variables, &arguments, list.to_string()).json()
}

/// The class of a workload, and whether what is proposed for it is there.
fn reported(plan: &Value, name: &str) -> (String, Option<String>) {
    let workloads = plan["workloads"].as_array().unwrap();
    let workload = workloads.iter().find(|it| it["name"] == name).unwrap();
    let findings = workload["findings"].as_array().unwrap();
    let verified = findings.iter().find_map(|it| it["proposed"]["verified"].as_str());
    let class = workload["class"].as_str().unwrap();
    (class.to_owned(), verified.map(str::to_owned))
}

#[test]
fn a_registry_says_which_tags_are_there_and_which_builds_they_hold() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Docker, "there:1-ltsc2025", &windows(LTSC2025));
    registry.push_image(Media::Oci, "linux:1-ltsc2025", &linux());
    registry.push_image(Media::Docker, "one:1.4", &windows(LTSC2019));
    registry.push_index("both:6.0", &[linux(), windows(LTSC2019), windows(LTSC2025)]);
    let local = |name: &str| registry.reference(name);
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let images = [
        ("there", local("there:1-ltsc2019")),
        ("missing", local("missing:1-ltsc2019")),
        ("linux", local("linux:1-ltsc2019")),
        ("one", local("one:1.4")),
        ("both", local("both:6.0")),
        ("silent", format!("localhost:{unused}/app:1-ltsc2019")),
        ("metadata", "169.254.169.254/app:1-ltsc2019".to_owned()),
    ];
    let images = images.each_ref().map(|(name, image)| (*name, image.as_str()));
    let expected = [
        ("there", "newImage", Some("exists")),
        ("missing", "hyperVOnly", Some("missing")),
        ("linux", "hyperVOnly", Some("missing")),
        ("one", "hyperVOnly", None),
        ("both", "unchanged", None),
        ("silent", "newImage", None),
        ("metadata", "newImage", None),
    ];
    let requested = plan(&["--registry"], &images);
    for (name, class, verified) in expected {
        let expected = (class.to_owned(), verified.map(str::to_owned));
        assert_eq!(reported(&requested, name), expected, "{name}: {requested:#}");
    }
    let notes: Vec<&str> = requested["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for registry in [
        format!("localhost:{unused}: "),
        "169.254.169.254: 169.254.169.254 is an address that Transom never calls".to_owned(),
    ] {
        let of_it = notes
            .iter()
            .filter(|note| note.starts_with(&registry) && note.contains("not verified"));
        assert_eq!(of_it.count(), 1, "{registry}: {notes:#?}");
    }
    assert!(
        !notes
            .iter()
            .any(|note| note.starts_with(&local("").replace('/', ""))),
        "{notes:#?}"
    );
    // Without the option nothing is asked, and nothing is said of registries.
    let without_lookups = plan(&[], &images);
    assert_eq!(reported(&without_lookups, "there"), ("newImage".to_owned(), None));
    assert_eq!(reported(&without_lookups, "both").0, "unknown");
}

#[test]
fn a_workload_with_an_image_that_is_only_for_windows_is_planned() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_index("shop/billing:1.4", &[windows(LTSC2019), windows(LTSC2022)]);
    registry.push_index("shop/both:1", &[linux(), windows(LTSC2019)]);
    registry.push_image(Media::Oci, "shop/linux:1", &linux());
    registry.push_image(Media::Oci, "shop/named:1-ltsc2019", &linux());
    let owned = |kind: &str, name: &str, owner: Value, spec: Value| {
        json!({"apiVersion": if kind == "Pod" { "v1" } else { "apps/v1" }, "kind": kind, "spec": spec,
            "metadata": {"name": name, "ownerReferences": owner}})
    };
    let containers =
        |image: &str| json!({"containers": [{"name": "app", "image": registry.reference(image)}]});
    let deployment = |name: &str, image: &str| {
        let spec = json!({"template": {"spec": containers(image)}});
        owned("Deployment", name, json!([]), spec)
    };
    let controller = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b-1", "labels": {"kubernetes.io/os": "windows"}},
        "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": "10.0.17763.1"}}});
    // Its pod is ready on a node that is not a Windows node.
    let elsewhere = containers("shop/elsewhere:1");
    let mut placed = elsewhere.clone();
    placed["nodeName"] = json!("linux-1");
    let mut pod = owned(
        "Pod",
        "elsewhere-1-a",
        controller("ReplicaSet", "elsewhere-1"),
        placed,
    );
    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let items = || {
        vec![
            node.clone(),
            deployment("billing", "shop/billing:1.4"),
            deployment("both", "shop/both:1"),
            deployment("linux", "shop/linux:1"),
            deployment("named", "shop/named:1-ltsc2019"),
            deployment("elsewhere", "shop/elsewhere:1"),
            owned(
                "ReplicaSet",
                "elsewhere-1",
                controller("Deployment", "elsewhere"),
                json!({"template": {"spec": elsewhere}}),
            ),
            pod.clone(),
        ]
    };
    let planned = |plan: &Value| -> Vec<(String, String)> {
        let workloads = plan["workloads"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        workloads
            .map(|it| (text(&it["name"]), text(&it["class"])))
            .collect()
    };
    let of = |name: &str, class: &str| vec![(name.to_owned(), class.to_owned())];
    // By its name, `named` is for Windows; the registry has it for Linux.
    assert_eq!(planned(&plan_of(&[], &items())), of("named", "newImage"));
    let asked = plan_of(&["--registry"], &items());
    assert_eq!(planned(&asked), of("billing", "unchanged"), "{asked:#}");
    let requests = registry.requests();
    assert!(
        !requests.iter().any(|it| it.contains("elsewhere")),
        "{requests:#?}"
    );
    // A policy that does not use images as evidence.
    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "all"},
        "spec": {"mode": "Enforce", "evidence": {"imageEvidence": "Disabled"}}});
    let before = requests.len();
    let without = plan_of(&["--registry"], &[items(), vec![policy]].concat());
    assert_eq!(planned(&without), [], "{without:#}");
    assert_eq!(registry.requests().len(), before);
}

/// What the registry states about an image, without credentials.
async fn look_up(registry: &Registry, image: &str) -> Option<ImageContents> {
    let reference = registry.reference(image);
    let keychain = Keychain::anonymous();
    look_up_with(RegistryConfig::default(), &reference, &keychain)
        .await
        .unwrap()
}

async fn look_up_with(
    config: RegistryConfig,
    reference: &str,
    keychain: &Keychain,
) -> Result<Option<ImageContents>, LookupError> {
    let client = RegistryClient::new(config).unwrap();
    let image = ImageRef::parse(reference).unwrap();
    let detail = Detail::Configurations;
    match client.look_up(&image, keychain, detail, None).await? {
        ImageChange::Changed(facts) => Ok(facts.found),
        ImageChange::Unchanged(_) => panic!("nothing is known"),
    }
}

#[tokio::test]
async fn images_are_what_was_pushed() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let app = |version: &str| {
        let image = windows(version).user("ContainerUser").volume("c:\\data");
        let image = image.command(&["app.exe"], &["/serve"]).layer(2048);
        image
            .history("Apply image 10.0.20348.169", "2021-05-08T02:40:24.000Z")
            .history("Install update 10.0.20348.2700", "2024-09-06T22:11:41.000Z")
            .history("cmd /S /C copy app.exe", "2025-01-01T00:00:00Z")
    };
    let variants = [
        linux(),
        variant("linux", "arm64", ""),
        app(LTSC2019),
        app(LTSC2022),
        app(LTSC2025),
    ];
    for media in [Media::Docker, Media::Oci] {
        let digest = registry.push_index_of(media, "shop/billing:1.4", &variants);
        let pinned = format!("shop/billing@{digest}");
        for image in ["shop/billing:1.4", &*pinned] {
            let contents = look_up(&registry, image).await.unwrap();
            assert_eq!(contents.digest, digest);
            let systems: Vec<&str> = contents.variants.iter().map(|it| &*it.os).collect();
            assert_eq!(systems, ["linux", "linux", "windows", "windows", "windows"]);
            assert_eq!(contents.variants[0].config, None);
            for (found, pushed) in contents.windows().zip(&variants[2..]) {
                let expected = ImageConfig {
                    user: "ContainerUser".to_owned(),
                    volumes: vec!["c:\\data".to_owned()],
                    command: vec!["app.exe".to_owned(), "/serve".to_owned()],
                    base: WindowsBase::of_history("Install update 10.0.20348.2700", "2024-09-06T22:11:41Z"),
                };
                assert_eq!(found.config, Some(expected));
                assert_eq!(found.size, Some(pushed.size()));
            }
        }
        let digest = registry.push_image(media, "shop/one:1", &app(LTSC2022));
        let one = look_up(&registry, "shop/one:1").await.unwrap();
        let [found] = &*one.variants else {
            panic!("{one:?}")
        };
        assert_eq!((&one.digest, &found.digest), (&digest, &digest));
        assert_eq!(found.os_version.unwrap().build.number(), 20348);
        assert_eq!(found.config.as_ref().unwrap().user, "ContainerUser");
    }
}

#[tokio::test]
async fn an_index_by_buildx_has_its_images_and_not_its_attestations() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_buildx_index("app:1", &[linux(), windows(LTSC2022).without_version_in_index()]);
    let contents = look_up(&registry, "app:1").await.unwrap();
    assert_eq!(contents.variants.len(), 2, "{contents:?}");
    // The index states no version, and the configuration of its only Windows variant does.
    let version = contents.variants[1].os_version.unwrap();
    assert_eq!(version.build.number(), 20348);
    assert!(!contents.windows_versions().has_unversioned);
    assert_eq!(look_up(&registry, "app:2").await, None);
}

#[tokio::test]
async fn a_registry_with_tls_and_a_password_answers_its_users() {
    let Some(registry) = Registry::start_with(true, true) else {
        return;
    };
    let digest = registry.push_index(
        "shop/billing:1.4",
        &[linux(), windows(LTSC2025).user("ContainerUser")],
    );
    let reference = registry.reference("shop/billing:1.4");
    let trusting = || RegistryConfig {
        ca_files: vec![registry.ca_file()],
        ..RegistryConfig::default()
    };
    let keychain = |json: &str| Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap();
    let known = keychain(&registry.docker_config());
    let contents = look_up_with(trusting(), &reference, &known)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(contents.digest, digest);
    let windows = contents.windows().next().unwrap();
    assert_eq!(windows.config.as_ref().unwrap().user, "ContainerUser");
    // Without the CA the registry is not believed, and no credential is sent.
    let error = look_up_with(RegistryConfig::default(), &reference, &known)
        .await
        .unwrap_err();
    assert!(error.message.contains("certificate"), "{error}");
    let refused = look_up_with(trusting(), &reference, &Keychain::anonymous())
        .await
        .unwrap_err();
    assert_eq!(
        refused.message,
        "the registry refused a request without credentials (401)"
    );
    let wrong = registry.docker_config_of("somebody", "else");
    let refused = look_up_with(trusting(), &reference, &keychain(&wrong))
        .await
        .unwrap_err();
    assert_eq!(
        refused.message,
        "the registry refused the credential of Secret shop/pull (401)"
    );
}

#[tokio::test]
async fn a_registry_that_stops_and_comes_back_is_known_by_its_requests() {
    let Some(mut registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    assert!(look_up(&registry, "app:1").await.is_some());
    let requests = registry.requests();
    assert_eq!(requests[0], "GET /v2/app/manifests/1", "{requests:?}");
    assert!(
        requests[1].starts_with("GET /v2/app/blobs/sha256:"),
        "{requests:?}"
    );
    registry.stop();
    let reference = registry.reference("app:1");
    let error = look_up_with(RegistryConfig::default(), &reference, &Keychain::anonymous())
        .await
        .unwrap_err();
    assert_eq!(error.scope, LookupScope::Registry);
    registry.resume();
    assert!(look_up(&registry, "app:1").await.is_some());
}
