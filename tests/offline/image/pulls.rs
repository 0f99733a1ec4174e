//! `transom image pulls` and `transom generate image-pulls` on files: what a registry reports, and what is known without it.

use std::fs;

use serde_json::Value;

use super::*;

fn pooled(name: &str, kernel: &str, pool: &str) -> Value {
    let mut node = node(name, kernel);
    node["metadata"]["labels"] = json!({"kubernetes.io/os": "windows", "agentpool": pool});
    node
}

fn workload(kind: &str, name: &str, replicas: u32, image: &str) -> Value {
    let pod = json!({"os": {"name": "windows"}, "containers": [{"name": "app", "image": image}]});
    let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}});
    if kind != "DaemonSet" {
        spec["replicas"] = json!(replicas);
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

/// Two pools, and workloads with images of this registry.
fn cluster(image: impl Fn(&str) -> String) -> String {
    let items = [
        pooled("a-1", "10.0.17763.6293", "win19"),
        pooled("b-1", "10.0.20348.2700", "win22"),
        workload("Deployment", "few", 1, &image("shop/few:1")),
        workload("Deployment", "many", 5, &image("shop/many:1")),
        workload("DaemonSet", "logs", 0, &image("ops/logs:1")),
        workload("Deployment", "gone", 2, &image("shop/gone:1")),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[test]
fn a_registry_tells_the_bytes_that_a_new_node_of_each_pool_pulls() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    // Every image of a version has the same first layer: the base.
    let few = windows(LTSC2022).layer(1 << 20);
    let many = [windows(LTSC2019).layer(3 << 20), windows(LTSC2022).layer(2 << 20)];
    let logs = [windows(LTSC2019), windows(LTSC2022).layer(5 << 20)];
    registry.push_image(Media::Docker, "shop/few:1", &few);
    registry.push_index("shop/many:1", &many);
    registry.push_index("ops/logs:1", &logs);
    let home = Home::new();
    let input = cluster(|image| registry.reference(image));
    fs::write(home.path("work/cluster.json"), &input).unwrap();
    let run = home.run(&["image", "pulls", "-o", "json", "cluster.json"]);
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{}", run.out);
    let report = run.json();
    assert_valid_reports("image-pulls", &[&report]);
    let pool = |name: &str| {
        let mut pools = report["pools"].as_array().unwrap().iter();
        pools.find(|pool| pool["pool"] == name).unwrap().clone()
    };
    let new = pool("win22");
    let images: Vec<String> = (new["images"].as_array().unwrap().iter())
        .map(|image| image["image"].as_str().unwrap().replace(&registry.host(), ""))
        .collect();
    assert_eq!(
        images,
        ["/ops/logs:1", "/shop/many:1", "/shop/gone:1", "/shop/few:1"]
    );
    let of = |at: usize, field: &str| new["images"][at][field].clone();
    let base = windows(LTSC2022).size();
    assert_eq!(of(0, "size"), logs[1].size());
    assert_eq!((of(0, "shared"), of(1, "shared")), (json!(0), json!(base)));
    assert_eq!(
        (of(2, "size"), of(2, "unknown")),
        (Value::Null, json!("the registry has no such image"))
    );
    assert_eq!(
        new["total"]["bytes"],
        logs[1].size() + many[1].size() + few.size() - 2 * base
    );
    assert_eq!(
        (&new["total"]["images"], &new["total"]["unknown"]),
        (&json!(4), &json!(1))
    );
    assert!(of(1, "digest").as_str().unwrap().starts_with("sha256:"));
    // The image for 2022 only does not run on 2019.
    let old = pool("win19");
    assert_eq!(old["images"].as_array().unwrap().len(), 3);
    assert_eq!(old["images"][1]["size"], many[0].size());
    // The plan counts the same bytes.
    let plan = home.run(&[
        "plan",
        "--to",
        "ltsc2022",
        "--registry",
        "-o",
        "json",
        "cluster.json",
    ]);
    assert_eq!(plan.json()["newNodes"][0]["pulls"], new["total"], "{}", plan.err);
    // From the cache, layers and all.
    let requests = registry.requests().len();
    let offline = home.run(&[
        "image",
        "pulls",
        "--offline",
        "-o",
        "json",
        "--pool",
        "win22",
        "cluster.json",
    ]);
    assert_eq!(
        offline.json()["pools"][0]["total"]["bytes"],
        new["total"]["bytes"]
    );
    assert_eq!(registry.requests().len(), requests);
    let text = home.run(&["image", "pulls", "--pool", "win22", "cluster.json"]);
    // The width of the columns depends on the port.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = stable(&text.out, &registry).lines().map(words).collect();
    insta::assert_snapshot!("pulls_text", lines.join("\n"));
}

#[test]
fn what_pulls_images_is_generated_without_a_registry() {
    let home = Home::new();
    fs::write(
        home.path("work/cluster.json"),
        cluster(|image| format!("corp.example/{image}")),
    )
    .unwrap();
    let generate = |arguments: &[&str]| {
        let run = home.run(&[&["generate", "image-pulls", "cluster.json"], arguments].concat());
        assert_eq!(
            (run.status, run.err.as_str()),
            (0, ""),
            "{arguments:?} {}",
            run.out
        );
        run.out
    };
    assert_eq!(
        generate(&["-o", "list", "--pool", "win22"]),
        "corp.example/ops/logs:1\ncorp.example/shop/many:1\ncorp.example/shop/gone:1\ncorp.example/shop/few:1\n"
    );
    let jobs = generate(&["--pool", "win22", "--to", "ltsc2025"]);
    assert!(
        jobs.contains("node.kubernetes.io/windows-build: \"10.0.26100\""),
        "{jobs}"
    );
    assert_eq!(jobs.matches("kind: ImagePullJob").count(), 3, "{jobs}");
    insta::assert_snapshot!(
        "pulls_daemonset",
        generate(&["-o", "daemonset", "--pool", "win22"])
    );
    // What is generated is a Windows pod that Transom does not object to.
    fs::write(home.path("work/set.yaml"), generate(&["-o", "daemonset"])).unwrap();
    let check = home.run(&["check", "--fail-on", "warning", "set.yaml"]);
    assert_eq!(check.status, 0, "{}", check.out);
    let run = home.run(&["image", "pulls", "--pool", "win21", "--offline", "cluster.json"]);
    assert!(run.status == 2 && run.err.contains("win19, win22"), "{}", run.err);
}
