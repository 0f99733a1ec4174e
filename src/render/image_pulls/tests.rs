//! The texts and the objects, from plain values.

use serde_json::{Value, json};

use super::*;
use crate::model::windows::build::Build;
use crate::plan::{PULLS_SCHEMA, TargetBuild};

fn image(name: &str, size: Option<u64>, shared: Option<u64>) -> ImagePull {
    ImagePull {
        image: name.to_owned(),
        workloads: vec!["Deployment shop/web".to_owned()],
        daemon_set: false,
        replicas: 3,
        process_isolation: true,
        digest: None,
        size,
        shared,
        unknown: size
            .is_none()
            .then(|| "the registry has no such image".to_owned()),
        namespace: "shop".to_owned(),
    }
}

fn pool() -> PoolPulls {
    let logs = ImagePull {
        daemon_set: true,
        replicas: 0,
        ..image("corp.example/logs:1", Some(3 << 30), Some(0))
    };
    let host_process = ImagePull {
        process_isolation: false,
        ..image("corp.example/host:1", None, None)
    };
    PoolPulls {
        pool: "Win 22".to_owned(),
        build: Some(TargetBuild(Build::new(20348))),
        nodes: 2,
        selector: [("kubernetes.io/os".to_owned(), "windows".to_owned())].into(),
        images: vec![
            logs,
            image("corp.example/shop/web:1.4", Some(512), Some(0)),
            host_process,
        ],
        total: PullTotal {
            images: 3,
            bytes: (3 << 30) + 512,
            unknown: 1,
        },
    }
}

#[test]
fn the_text_says_unknown_and_never_zero() {
    let pulls = ImagePulls {
        schema: PULLS_SCHEMA,
        to: None,
        pools: vec![pool()],
        notes: vec!["a note".to_owned()],
    };
    let mut out = Vec::new();
    image_pulls_text(&pulls, None, &mut anstream::StripStream::new(&mut out)).unwrap();
    let text = String::from_utf8(out).unwrap();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    assert_eq!(
        lines,
        [
            "Win 22: Windows Server 2022 (10.0.20348), 2 nodes",
            "a new node pulls 3 images, at least 3.0 GiB compressed: the size of 1 is unknown",
            "",
            "IMAGE RUNS IN REPLICAS SIZE SHARED",
            "corp.example/logs:1 Deployment shop/web each node 3.0 GiB 0 B",
            "corp.example/shop/web:1.4 Deployment shop/web 3 512 B 0 B",
            "corp.example/host:1 Deployment shop/web 3 unknown unknown",
            "the registry has no such image",
            "note: a note",
        ]
    );
}

#[test]
fn the_sum_names_what_it_does_not_contain() {
    let of = |images, bytes, unknown| {
        pull_total(&PullTotal {
            images,
            bytes,
            unknown,
        })
    };
    assert_eq!(of(0, 0, 0), "no image of a known Windows workload");
    assert_eq!(of(1, 0, 1), "1 image of unknown size");
    assert_eq!(of(2, 3 << 20, 0), "2 images, 3.0 MiB compressed");
    assert_eq!(
        of(2, 3 << 20, 1),
        "2 images, at least 3.0 MiB compressed: the size of 1 is unknown"
    );
}

#[test]
fn a_job_per_image_selects_the_nodes_of_its_pool_and_never_ends() {
    let jobs = pull_jobs(&[pool(), pool()]);
    let names: Vec<&Value> = jobs.iter().map(|job| &job["metadata"]["name"]).collect();
    assert_eq!(
        names,
        [
            "pull-win-22-web-1-4",
            "pull-win-22-host-1",
            "pull-win-22-web-1-4-2",
            "pull-win-22-host-1-2"
        ]
    );
    let spec = &jobs[0]["spec"];
    assert_eq!(spec["image"], "corp.example/shop/web:1.4");
    assert_eq!(
        spec["selector"],
        json!({"matchLabels": {"kubernetes.io/os": "windows"}})
    );
    assert_eq!(spec["completionPolicy"], json!({"type": "Never"}));
}

#[test]
fn a_daemonset_pulls_one_image_after_another_and_runs_nothing_but_exit() {
    let sets = pull_daemon_sets(&[pool()]);
    let pod = &sets[0]["spec"]["template"]["spec"];
    let init = pod["initContainers"].as_array().unwrap();
    let images: Vec<&Value> = init.iter().map(|container| &container["image"]).collect();
    assert_eq!(images, ["corp.example/shop/web:1.4"]);
    assert_eq!(init[0]["command"], json!(["cmd.exe", "/c", "exit 0"]));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(
        pod["securityContext"]["windowsOptions"]["runAsUserName"],
        "ContainerUser"
    );
    assert!(pull_daemon_sets(&[]).is_empty());
}

#[test]
fn the_list_has_every_image_once_in_order() {
    assert_eq!(
        pull_list(&[pool(), pool()]),
        [
            "corp.example/logs:1",
            "corp.example/shop/web:1.4",
            "corp.example/host:1"
        ]
    );
}
