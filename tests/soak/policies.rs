//! Many policies: what a thousand of them take of memory, also while they are deleted, and how soon a replica sees those of
//! a CustomResourceDefinition that was deleted and is back.

use std::io::Write as _;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::CustomResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use transom::api::WindowsPodPolicy;

use super::memory::memory_of;
use crate::support::command::printed;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};

/// What docs/contributing/measurements.md states: so many policies, each with so many exemptions (2 KB).
const POLICIES: u64 = 1_000;
const EXEMPTIONS: usize = 8;

const VALID: &str = "transom_pod_policies{state=\"valid\"} ";

/// The most that the process may have of its own, in KiB, while these policies are created, changed and deleted.
const MOST: u64 = 84 << 10;

fn policy(number: u64) -> Value {
    let exemption = |which: usize| {
        json!({
            "name": format!("legacy-{which}"), "rules": ["run-as-user", "fs-group"], "namespaces": [format!("team-{number:04}-legacy-{which}-*")],
            "expiresOn": "2030-03-31", "owner": format!("team-{number:04}@example.com"),
            "reason": format!("the chart of application {which} is replaced in the spring of the year after"),
        })
    };
    let exemptions: Vec<Value> = (0..EXEMPTIONS).map(exemption).collect();
    json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy",
        "metadata": {"name": format!("team-{number:04}")},
        "spec": {
            "mode": "Enforce", "priority": number % 100,
            "namespaceSelector": {"matchLabels": {"team": format!("team-{number:04}")}},
            "exemptions": exemptions,
        },
    })
}

#[test]
fn a_thousand_policies_are_in_memory_once_also_while_they_are_deleted() {
    let _turn = crate::beside_others();
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/policies.rs") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(cluster.client());
    install::prepare(&cluster, install::POLICIES);
    let replica = Replica::start(&cluster, "transom", &[]);
    let pid = cluster.pid("transom");
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    print(&format!("one policy: {}", memory_of(pid)));

    let api: Api<DynamicObject> = Api::all_with(client, &WindowsPodPolicy::api_resource());
    let began = Instant::now();
    runtime.block_on(
        futures::stream::iter(0..POLICIES)
            .map(|number| {
                let api = &api;
                let policy: DynamicObject = serde_json::from_value(policy(number)).unwrap();
                async move { drop(api.create(&PostParams::default(), &policy).await.unwrap()) }
            })
            .buffer_unordered(16)
            .collect::<()>(),
    );
    let seen = || replica.metric(VALID) == Some(POLICIES + 1);
    assert!(
        wait(Duration::from_secs(120), seen),
        "{}",
        cluster.end_of_log("transom")
    );
    // The leader writes the status of each, and keeps its version in a ControllerRevision.
    for number in 0..POLICIES {
        let name = format!("team-{number:04}");
        let written = || {
            let policy = runtime.block_on(api.get(&name)).unwrap();
            policy.data["status"]["observedGeneration"].is_i64()
        };
        assert!(
            wait(Duration::from_secs(300), written),
            "{name}: {}",
            cluster.end_of_log("transom")
        );
    }
    print(&format!(
        "{POLICIES} policies after {:.0?}: {}",
        began.elapsed(),
        memory_of(pid)
    ));

    runtime.block_on(
        futures::stream::iter(0..POLICIES)
            .map(|number| {
                let api = &api;
                let name = format!("team-{number:04}");
                async move {
                    let deleted = api.delete(&name, &DeleteParams::default()).await;
                    assert!(deleted.is_ok(), "{name}: {deleted:?}");
                }
            })
            .buffer_unordered(4)
            .collect::<()>(),
    );
    assert!(wait(Duration::from_secs(60), || replica.metric(VALID) == Some(1)));
    let memory = memory_of(pid);
    print(&format!("after they were deleted: {memory}"));
    assert!(memory.anonymous_peak() <= MOST, "{memory}");
}

#[test]
fn the_policies_of_a_definition_that_was_deleted_count_soon_after_it_is_back() {
    let _turn = crate::beside_others();
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/policies.rs") else {
        return;
    };
    install::prepare(&cluster, install::POLICIES);
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    assert_eq!(replica.metric(VALID), Some(1));
    cluster
        .kubectl(&["delete", "crd", "windowspodpolicies.transom.dev"])
        .succeeded();
    assert!(wait(Duration::from_secs(30), || replica.metric(VALID) == Some(0)));
    // Long enough for pauses between attempts to have grown.
    std::thread::sleep(Duration::from_secs(45));
    let definitions = printed(&["generate", "crds"]);
    let apply = ["apply", "--server-side", "-f", "-"];
    cluster.kubectl_with(&apply, &definitions).succeeded();
    let stored = || cluster.kubectl_with(&["apply", "-f", "-"], install::POLICIES).ok;
    assert!(wait(Duration::from_secs(20), stored));
    let began = Instant::now();
    let counts = || replica.metric(VALID) == Some(1);
    assert!(
        // Less than kube's own pauses between attempts: they were 83 s here.
        wait(Duration::from_secs(70), counts),
        "{}",
        cluster.end_of_log("transom")
    );
    let took = began.elapsed();
    print(&format!("the policy counts {took:.1?} after it is stored again"));
}

fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "policies: {text}");
}
