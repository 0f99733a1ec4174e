//! Images whose names say nothing: private ones, digests, and tags for several systems. Where their pods land by what a
//! real registry reports, without Transom and with it. Without the programs (docker-registry too) this says so and
//! proves nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::workloads::{
    LINUX, ON_2019, ON_2022, ON_2025, Truth, WINDOWS, Workload, nothing, object, os_name, selector,
};
use super::{NODES, cluster, empty, fates, of, pods, report, serve};
use crate::support::control_plane::ControlPlane;
use crate::support::install::Replica;
use crate::support::kubelet::join_with;
use crate::support::registry::{LTSC2019, LTSC2022, LTSC2025, Media, Registry, linux, variant, windows};

const NO_WINDOWS: Truth = Truth::Denied("image-has-no-windows-variant");
/// An image for Linux and Server 2022, of a pod that says nothing.
const LINUX_OR_2022: Truth = Truth::RunsOn(&["linux-a", "linux-b", "win-2022", "win-23h2", "win-2025"]);
const ANYWHERE: Truth = Truth::RunsOn(&[
    "linux-a", "linux-b", "win-2019", "win-2022", "win-23h2", "win-2025",
]);

/// An image as it was pushed, and the nodes for a pod that says nothing, and for one that says Windows.
struct Pushed {
    name: &'static str,
    reference: String,
    unsaid: Truth,
    for_windows: Truth,
}

fn push_all(registry: &Registry) -> Vec<Pushed> {
    let mut all = Vec::new();
    let mut add = |name, reference: &str, unsaid, for_windows| {
        all.push(Pushed {
            name,
            reference: registry.reference(reference),
            unsaid,
            for_windows,
        });
    };
    let linux_of_both = [linux(), variant("linux", "arm64", "")];
    let base = [windows(LTSC2019), windows(LTSC2022), windows(LTSC2025)];
    let with_linux = |windows: &[_]| [&linux_of_both[..], windows].concat();

    let billing = registry.push_index("shop/billing:1.4", &[windows(LTSC2022)]);
    add("billing", "shop/billing:1.4", ON_2022, ON_2022);
    registry.push_index("shop/base:7", &base);
    add("base", "shop/base:7", WINDOWS, WINDOWS);
    let proxy = registry.push_index("edge/proxy:3", &linux_of_both);
    add("proxy", "edge/proxy:3", LINUX, NO_WINDOWS);
    let tool = registry.push_index("build/tool:1.24", &with_linux(&[windows(LTSC2022)]));
    add("tool", "build/tool:1.24", LINUX_OR_2022, ON_2022);
    registry.push_index("k8s/pause:3.10", &with_linux(&base));
    add("pause", "k8s/pause:3.10", ANYWHERE, WINDOWS);
    registry.push_buildx_index("build/cross:2", &[windows(LTSC2022).without_version_in_index()]);
    add("cross", "build/cross:2", ON_2022, ON_2022);
    registry.push_index_of(Media::Docker, "shop/list:2", &[windows(LTSC2025)]);
    add("list", "shop/list:2", ON_2025, ON_2025);
    let legacy = registry.push_image(Media::Oci, "shop/legacy:7", &windows(LTSC2019));
    add("legacy", "shop/legacy:7", ON_2019, ON_2019);
    registry.push_image(Media::Docker, "shop/edge:2", &windows(LTSC2025));
    add("edge", "shop/edge:2", ON_2025, ON_2025);
    registry.push_image(Media::Docker, "web/front:5", &linux());
    add("front", "web/front:5", LINUX, NO_WINDOWS);
    // The same contents by their digests.
    add(
        "billing-digest",
        &format!("shop/billing@{billing}"),
        ON_2022,
        ON_2022,
    );
    add("proxy-digest", &format!("edge/proxy@{proxy}"), LINUX, NO_WINDOWS);
    add(
        "tool-digest",
        &format!("build/tool@{tool}"),
        LINUX_OR_2022,
        ON_2022,
    );
    add(
        "legacy-digest",
        &format!("shop/legacy@{legacy}"),
        ON_2019,
        ON_2019,
    );
    all
}

/// Every image in every kind, each written without a word of Windows, with a selector, and with `spec.os`.
fn workloads(images: &[Pushed]) -> Vec<Workload> {
    const KINDS: [&str; 5] = ["Pod", "Deployment", "StatefulSet", "Job", "CronJob"];
    let mut all = Vec::new();
    for image in images {
        for kind in KINDS {
            for (sign, spec, truth) in [
                ("unsaid", nothing(), image.unsaid),
                ("selector", selector(), image.for_windows),
                ("os", os_name(), image.for_windows),
            ] {
                // Two signs for bare pods and Deployments are enough.
                if sign == "os" && !matches!(kind, "Pod" | "Deployment") {
                    continue;
                }
                let name = format!("{}-{}-{sign}", image.name, kind.to_lowercase());
                all.push(Workload {
                    object: object(kind, &name, spec, &image.reference),
                    name,
                    truth,
                });
            }
        }
    }
    all
}

fn policies(milliseconds: i32) -> String {
    format!(
        "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {{name: default}}
spec: {{mode: Enforce, placement: {{linuxPods: Apply}}, evidence: {{imageEvidence: Registry, imageWaitMilliseconds: {milliseconds}}}}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {{name: default}}
spec: {{mode: Reconcile}}
"
    )
}

/// Starts Transom with look-ups in this registry.
fn serve_with_look_ups(cluster: &ControlPlane, registry: &Registry, milliseconds: i32) -> Replica {
    serve(
        cluster,
        &policies(milliseconds),
        &["--image-registry", &registry.host()],
    )
}

fn cluster_and_registry() -> Option<(ControlPlane, Registry)> {
    let registry = Registry::start_or_skip()?;
    let cluster = cluster()?;
    for (name, build) in NODES {
        join_with(&cluster, name, build, &[]);
    }
    Some((cluster, registry))
}

#[test]
fn an_image_that_says_nothing_lands_where_its_registry_says_that_it_runs() {
    let Some((cluster, registry)) = cluster_and_registry() else {
        return;
    };
    let all = workloads(&push_all(&registry));
    assert!(all.len() >= 120, "{}", all.len());

    let without = fates(&cluster, "without", &all);
    let without = report("without Transom", &all, &without);
    assert!(without.len() < all.len(), "the test would prove nothing");
    cluster
        .kubectl(&["delete", "namespace", "without", "--wait=false"])
        .succeeded();
    empty(&cluster, "without");

    let _replica = serve_with_look_ups(&cluster, &registry, 500);
    let with = fates(&cluster, "with", &all);
    let with = report("with look-ups", &all, &with);
    let worse: Vec<&&str> = without.difference(&with).collect();
    assert!(worse.is_empty(), "worse off than without: {worse:?}");
    assert_eq!(with.len(), all.len(), "{}", cluster.end_of_log("transom"));
}

/// The look-up that a Deployment's review starts is there when its pod comes, without a wait. On a busy machine a pod can be
/// earlier; `imageWaitMilliseconds` then waits for the same look-up.
#[test]
fn the_first_pod_of_an_image_never_seen_is_placed_by_the_look_up_of_its_deployment() {
    const DEPLOYMENTS: usize = 50;
    const WITHOUT_WAIT: usize = 45;
    let Some((cluster, registry)) = cluster_and_registry() else {
        return;
    };
    let _replica = serve_with_look_ups(&cluster, &registry, 0);
    let placed = |namespace: &str| {
        let all = unseen(&registry, namespace, DEPLOYMENTS);
        let fates = fates(&cluster, namespace, &all);
        let right = report(
            &format!("first pods of images never seen, {namespace}"),
            &all,
            &fates,
        );
        let pods = pods(&cluster, namespace);
        let of_each: BTreeSet<usize> = all.iter().map(|it| of(&pods, &it.name).count()).collect();
        assert_eq!(of_each, [1].into(), "only the first pod of each counts");
        right.len()
    };
    let without = placed("no-wait");
    assert!(
        without >= WITHOUT_WAIT,
        "{without}: {}",
        cluster.end_of_log("transom")
    );
    cluster
        .kubectl_with(&["apply", "-f", "-"], &policies(500))
        .succeeded();
    // The policy is in force a moment later.
    std::thread::sleep(Duration::from_secs(5));
    let with = placed("with-wait");
    assert_eq!(with, DEPLOYMENTS, "{}", cluster.end_of_log("transom"));
}

/// Deployments of one pod each, whose images nobody has asked for.
fn unseen(registry: &Registry, repository: &str, deployments: usize) -> Vec<Workload> {
    let versions = [(LTSC2019, ON_2019), (LTSC2022, ON_2022), (LTSC2025, ON_2025)];
    let all = (0..deployments).zip(versions.iter().cycle());
    all.map(|(number, (version, truth))| {
        let name = format!("fresh-{number}");
        let reference = format!("{repository}/app-{number}:1");
        registry.push_index(&reference, &[windows(version)]);
        let mut object = object("Deployment", &name, nothing(), &registry.reference(&reference));
        object["spec"]["replicas"] = json!(1);
        Workload {
            name,
            object,
            truth: *truth,
        }
    })
    .collect()
}
