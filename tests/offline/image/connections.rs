//! Registries behind mirrors and proxies.

use super::*;
use crate::support::proxy::Proxy;
use crate::support::registry::FAR_HOST;

/// The status of an image, and what is printed.
fn status(run: &CommandRun) -> (String, String) {
    let image = run.json()["images"][0].clone();
    (image["status"].as_str().unwrap().to_owned(), format!("{image:#}"))
}

#[test]
fn a_mirror_is_asked_first_and_then_the_registry() {
    let (Some(mut origin), Some(mut mirror)) = (Registry::start_or_skip(), Registry::start_or_skip()) else {
        return;
    };
    mirror.push_image(Media::Oci, "hub/shop/mirrored:1", &windows(LTSC2022));
    mirror.push_image(Media::Oci, "hub/library/web:1", &windows(LTSC2019));
    origin.push_image(Media::Oci, "shop/own:1", &windows(LTSC2025));
    let option = format!("{}={}/hub", origin.host(), mirror.host());
    let of_hub = format!("docker.io={}/hub", mirror.host());
    let home = Home::new();
    // Nothing from the cache: each look-up shows which registry answers.
    let image = |image: &str| {
        let arguments = [
            "image",
            "-o",
            "json",
            "--refresh",
            "--registry-mirror",
            &option,
            "--registry-mirror",
            &of_hub,
            image,
        ];
        home.run(&arguments)
    };
    let mirrored = origin.reference("shop/mirrored:1");
    let own = origin.reference("shop/own:1");
    let run = image(&mirrored);
    assert_eq!(status(&run).0, "found", "{}", run.out);
    assert!(run.out.contains(LTSC2022), "{}", run.out);
    // The reference is as written, and the registry is not asked for what the mirror has.
    assert_eq!(run.json()["images"][0]["reference"], mirrored.as_str());
    assert_eq!(origin.requests(), [] as [&str; 0]);
    // What the mirror does not have is asked of the registry; without a mirror it is the registry alone.
    assert_eq!(status(&image(&own)).0, "found");
    // As containerd does, the request names the registry that it is for.
    let request = format!("GET /v2/hub/shop/own/manifests/1?ns={}", origin.host());
    let requests = mirror.requests();
    assert!(requests.contains(&request), "{requests:#?}");
    assert_eq!(
        status(&home.run(&["image", "-o", "json", &mirrored])).0,
        "missing"
    );
    // A short name is one of Docker Hub, which nobody asks here.
    let run = image("web:1");
    assert!(run.out.contains(LTSC2019), "{}", run.out);
    // Without the mirror, the registry answers; without both, the message names both.
    mirror.stop();
    let run = image(&own);
    assert_eq!(status(&run).0, "found", "{}", run.out);
    origin.stop();
    let (unknown, text) = status(&image(&own));
    assert_eq!(unknown, "unknown");
    assert!(text.contains(&format!("the mirror {}", mirror.host())), "{text}");
    assert!(
        text.contains(&format!("cannot connect to {}", origin.host())),
        "{text}"
    );
}

#[test]
fn a_pull_through_cache_answers_for_a_registry_that_is_gone() {
    let Some(mut origin) = Registry::start_or_skip() else {
        return;
    };
    let digest = origin.push_index(
        "shop/billing:1.4",
        &[linux(), windows(LTSC2022).user("ContainerUser")],
    );
    let Some(mirror) = Registry::start_mirror_of(&origin) else {
        return;
    };
    let option = format!("{}={}", origin.host(), mirror.host());
    let image = origin.reference("shop/billing:1.4");
    let look_up = || Home::new().run(&["image", "-o", "json", "--registry-mirror", &option, &image]);
    let first = look_up().json()["images"][0].clone();
    assert_eq!(first["digest"], digest.as_str(), "{first:#}");
    assert_eq!(first["variants"][1]["user"], "ContainerUser");
    origin.stop();
    let again = look_up().json()["images"][0].clone();
    assert_eq!(again["variants"], first["variants"], "{again:#}");
}

#[test]
fn a_private_registry_is_reached_through_a_proxy() {
    let Some(registry) = Registry::start_with(true, true) else {
        return;
    };
    registry.push_image(Media::Oci, "shop/billing:1.4", &windows(LTSC2022));
    let proxy = Proxy::start(Some(registry.port));
    let image = format!("{FAR_HOST}/shop/billing:1.4");
    let ca = registry.ca_file();
    let url = format!("http://me:secret-of-the-proxy@127.0.0.1:{}", proxy.port);
    let home = Home::new();
    fs::write(
        home.path("docker/config.json"),
        registry.docker_config().replace(&registry.host(), FAR_HOST),
    )
    .unwrap();
    let look_up = |variables: &[(&str, &str)], options: &[&str]| {
        let variables: Vec<(&str, &Path)> = variables
            .iter()
            .map(|(name, value)| (*name, Path::new(*value)))
            .collect();
        home.run_in(
            &variables,
            &[&["image", "--refresh"], options, &[&image]].concat(),
            "",
        )
    };
    let trusting = ["--registry-ca", ca.to_str().unwrap()];
    let run = look_up(&[("HTTPS_PROXY", &url)], &trusting);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(run.out.contains(LTSC2022), "{}", run.out);
    let heads = proxy.heads();
    assert!(
        heads[0].starts_with(&format!("CONNECT {FAR_HOST}:443 HTTP/1.1\r\n")),
        "{heads:#?}"
    );
    // The credential is for the proxy; that of the registry is inside the tunnel.
    let credential = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, "me:secret-of-the-proxy");
    let lower = heads[0].to_lowercase();
    assert!(
        lower.contains(&format!("proxy-authorization: basic {credential}").to_lowercase()),
        "{heads:#?}"
    );
    assert!(!lower.contains("\r\nauthorization:"), "{heads:#?}");
    // The CA is needed behind a proxy too.
    let run = look_up(&[("HTTPS_PROXY", &url)], &[]);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.out.contains("add the CA of the registry with --registry-ca"),
        "{}",
        run.out
    );
    // Excluded from the proxy: the name is resolved here, where it has no address.
    let before = proxy.heads().len();
    let run = look_up(&[("HTTPS_PROXY", &url), ("NO_PROXY", FAR_HOST)], &trusting);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.out
            .contains(&format!("the host name {FAR_HOST} does not resolve")),
        "{}",
        run.out
    );
    assert_eq!(proxy.heads().len(), before);
    // A proxy that refuses, and none: no message has its password.
    let closed = Proxy::start(None);
    for port in [closed.port, free_port()] {
        let url = format!("http://me:secret-of-the-proxy@127.0.0.1:{port}");
        let run = look_up(&[("HTTPS_PROXY", &url)], &trusting);
        assert_eq!(run.status, 2, "{}", run.out);
        assert!(
            run.out.contains("the proxy does not connect to it"),
            "{}",
            run.out
        );
        assert!(
            !run.out.contains("secret-of-the-proxy") && !run.err.contains("secret-of-the-proxy"),
            "{}",
            run.out
        );
    }
}

#[test]
fn a_registry_without_tls_is_reached_through_a_tunnel_too() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    let proxy = Proxy::start(Some(registry.port));
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let host = format!("{FAR_HOST}:5000");
    let image = format!("{host}/app:1");
    let home = Home::new();
    let variables = [("http_proxy", Path::new(&url))];
    let run = home.run_in(&variables, &["image", "--registry-plain-http", &host, &image], "");
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(
        proxy.heads()[0].starts_with(&format!("CONNECT {host} ")),
        "{:#?}",
        proxy.heads()
    );
}
