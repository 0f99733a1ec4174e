//! Registries with TLS and a password: which credentials are used, what is said of them, and whose answers are kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::support::registry::{PASSWORD, USER};

/// A private registry with one image.
fn private() -> Option<(Registry, String)> {
    let registry = Registry::start_with(true, true)?;
    registry.push_image(Media::Oci, "shop/billing:1.4", &windows(LTSC2022));
    let image = registry.reference("shop/billing:1.4");
    Some((registry, image))
}

fn image(home: &Home, registry: &Registry, options: &[&str], image: &str) -> CommandRun {
    let ca = registry.ca_file();
    let ca = ca.to_str().unwrap();
    home.run(&[&["image", "--registry-ca", ca], options, &[image]].concat())
}

#[test]
fn a_private_image_is_found_with_the_credentials_of_docker() {
    let Some((registry, billing)) = private() else {
        return;
    };
    let home = Home::new();
    // Not without the CA.
    let run = home.run(&["image", &billing]);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.out.contains("add the CA of the registry with --registry-ca"),
        "{}",
        run.out
    );
    // With the CA: the failure without it is not repeated.
    let run = image(&home, &registry, &[], &billing);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.out.contains("refused a request without credentials"),
        "{}",
        run.out
    );
    // Now with credentials: the failure without them is not repeated.
    fs::write(home.path("docker/config.json"), registry.docker_config()).unwrap();
    let run = image(&home, &registry, &[], &billing);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(run.out.contains("windows(10.0.20348.2700)/amd64"), "{}", run.out);
    // A wrong password: the message names the file, and nobody's secret.
    let wrong = "not my secret";
    let auth = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("{USER}:{wrong}"));
    let config = json!({"auths": {registry.host(): {"auth": auth}}});
    fs::write(home.path("docker/config.json"), config.to_string()).unwrap();
    let run = image(&home, &registry, &[], &billing);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(
        run.out.contains("refused") && run.out.contains("config.json"),
        "{}",
        run.out
    );
    assert!(
        !run.out.contains(wrong) && !run.out.contains(&auth),
        "{}",
        run.out
    );
}

#[test]
fn the_ca_of_a_registry_may_come_from_a_pipe() {
    let Some((registry, billing)) = private() else {
        return;
    };
    let home = Home::new();
    fs::write(home.path("docker/config.json"), registry.docker_config()).unwrap();
    let ca = fs::read_to_string(registry.ca_file()).unwrap();
    let run = home.run_in(&[], &["image", "--registry-ca", "/dev/stdin", &billing], &ca);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
}

#[test]
fn the_answer_for_one_credential_is_not_given_for_another() {
    let Some((mut registry, billing)) = private() else {
        return;
    };
    let home = Home::new();
    fs::write(home.path("docker/config.json"), registry.docker_config()).unwrap();
    assert_eq!(image(&home, &registry, &[], &billing).status, 0);
    registry.stop();
    assert_eq!(image(&home, &registry, &["--offline"], &billing).status, 0);
    fs::remove_file(home.path("docker/config.json")).unwrap();
    let run = image(&home, &registry, &["--offline"], &billing);
    assert_eq!(run.status, 2, "{}", run.out);
    assert!(!run.out.contains("10.0.20348"), "{}", run.out);
    for file in home.cached() {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains(PASSWORD) && !text.contains(USER), "{text}");
    }
}

#[test]
fn a_credential_helper_is_queried() {
    let Some((registry, billing)) = private() else {
        return;
    };
    let home = Home::new();
    fs::create_dir(home.path("bin")).unwrap();
    let helper = home.path("bin/docker-credential-shop");
    let answer = json!({"ServerURL": registry.host(), "Username": USER, "Secret": PASSWORD});
    let script = format!("#!/bin/sh\n[ \"$1\" = get ] || exit 1\ncat > /dev/null\necho '{answer}'\n");
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let config = json!({"credHelpers": {registry.host(): "shop"}});
    fs::write(home.path("docker/config.json"), config.to_string()).unwrap();
    let run = image(&home, &registry, &[], &billing);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
}
