//! A release that looks up images: with the chart's rights, credentials and CA, in a private registry with TLS.

use std::time::Duration;

use serde_json::{Value, json};

use super::engine::engine;
use super::release::{NAMESPACE, World, node, windows_pod};
use crate::support::control_plane::wait;
use crate::support::registry::{LTSC2022, Media, Registry, windows};

const A_WHILE: Duration = Duration::from_secs(60);

#[test]
fn a_release_looks_up_the_images_of_stored_workloads_with_the_rights_of_the_chart() {
    let Some(engine) = engine() else { return };
    let Some(registry) = Registry::start_with(true, true) else {
        return;
    };
    let Some(world) = World::start("a release that looks up images", &node()) else {
        return;
    };
    registry.push_image(Media::Oci, "shop/billing:1.4", &windows(LTSC2022));
    let image = registry.reference("shop/billing:1.4");
    let labels = json!({"app": "billing"});
    // Stored before Transom is installed, so no review has seen its image.
    world.create(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "billing", "namespace": "apps"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": image}]},
        }},
    }));
    world.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull", "namespace": NAMESPACE},
        "stringData": {".dockerconfigjson": registry.docker_config()},
    }));
    world.create(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "roots", "namespace": NAMESPACE},
        "data": {"ca.crt": std::fs::read_to_string(registry.ca_file()).unwrap()},
    }));
    let values = json!({
        "imageLookups": {"registries": [registry.host()], "pullSecret": "pull", "caConfigMap": {"name": "roots"}},
        "podPolicies": {"default": {"spec": {"evidence": {"imageEvidence": "Registry"}}}},
    });
    world.deploy(engine, "install", &values);
    world.is_called();
    let found = format!(
        "transom_image_lookups_total{{registry=\"{}\",outcome=\"found\"}}",
        registry.host()
    );
    let is_found = || {
        world
            .kubelet
            .metrics()
            .lines()
            .any(|line| line.starts_with(&found) && !line.ends_with(" 0"))
    };
    assert!(wait(A_WHILE, is_found), "{}", world.kubelet.logs());

    // Its pods are Windows pods, by the entry for images of listed registries.
    let mut pod = windows_pod("billing-1");
    pod["spec"].as_object_mut().unwrap().remove("nodeSelector");
    pod["spec"]["containers"][0]["image"] = json!(image);
    let is_placed = || {
        let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let created = world
            .cluster
            .kubectl_with(&create, &pod.to_string())
            .succeeded()
            .object();
        created["spec"]["nodeSelector"]["kubernetes.io/os"] == "windows"
    };
    assert!(wait(A_WHILE, is_placed), "{}", world.kubelet.logs());

    let condition = || -> Value {
        let conditions = world.get("wpp", "default")["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().into_iter().flatten();
        conditions
            .find(|it| it["type"] == "ImageRegistriesReachable")
            .cloned()
            .unwrap_or_default()
    };
    assert!(
        wait(A_WHILE, || condition()["status"] == "True"),
        "{}",
        condition()
    );
    let logs = world.kubelet.logs();
    let refused: Vec<&str> = logs
        .lines()
        .filter(|line| line.to_lowercase().contains("forbidden"))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
