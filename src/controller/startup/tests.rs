//! What the gate plans, writes and reports, without a cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hyper::Method;
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::api::core::v1::{Pod, Taint as NodeTaint};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::gate::{GatePlan, GateRule, GatedNode, ReleaseReason, plan};
use super::memory::{StartupMemory, StartupOutcome};
use super::news::who_refuses;
use super::puller::puller_pod;
use super::pulls::{PullProgress, PullerPod, is_pulling, shown_by};
use super::survey::{WantedImage, needed, wanted};
use super::{PullerAccount, StartupController, StartupMetrics, StartupParts, StartupSettings};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::{FailedImage, ImagePuller, NodeStartup, StartupImageSource};
use crate::cluster::cache::ClusterCache;
use crate::cluster::errors::ApiError;
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::{Snapshot, SnapshotBuilder};
use crate::cluster::test_client::answering;
use crate::controller::leader_loop::Controller as _;
use crate::controller::startup_states::StartupStates;
use crate::controller::writer::Writer;
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::{NodeReadiness, Taint};
use crate::plan::{ImagePull, PoolPulls, PullTotal};
use crate::process::metrics::Metrics;
use crate::process::server_clock::ServerClock;

mod simulation;

const START: Timestamp = Timestamp::UNIX_EPOCH;
const NO_OTHERS: BTreeMap<String, PullProgress> = BTreeMap::new();

fn at(seconds: i64) -> Timestamp {
    START + seconds.seconds()
}

fn node(name: &str, created: i64) -> NodeView {
    NodeView {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created: Some(at(created)),
        taints: vec![NodeTaint {
            key: Taint::STARTUP_KEY.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..NodeTaint::default()
        }],
        ..NodeView::default()
    }
}

fn by_pods(timeout_seconds: i32, max_concurrent_nodes: i32) -> NodeStartup {
    NodeStartup {
        image_source: StartupImageSource::Listed,
        puller: ImagePuller::Pods,
        timeout_seconds,
        max_concurrent_nodes,
        ..NodeStartup::default()
    }
}

fn gated(node: NodeView, startup: Option<NodeStartup>, missing: Option<&[&str]>) -> GatedNode {
    let rule = startup.map_or(GateRule::Open, |startup| GateRule::Policy {
        name: "p".to_owned(),
        startup,
    });
    GatedNode {
        node: Arc::new(node),
        rule,
        missing: missing.map(|images| images.iter().map(ToString::to_string).collect()),
        all_failed: None,
        share_is_over: None,
        is_idle: false,
    }
}

fn released(plan: &GatePlan<'_>) -> Vec<ReleaseReason> {
    plan.released.iter().map(|(_, why)| *why).collect()
}

#[test]
fn a_node_is_released_at_once_if_nothing_gates_it_else_when_it_is_warm_or_late() {
    let startup = || Some(by_pods(100, 1));
    let cases = [
        (None, None, 0, vec![ReleaseReason::Open]),
        (startup(), Some(&["a"][..]), 99, vec![]),
        (startup(), Some(&["a"][..]), 100, vec![ReleaseReason::Late]),
        (startup(), Some(&[][..]), 0, vec![ReleaseReason::Warm]),
        // What it needs is not known.
        (startup(), None, 99, vec![]),
        (startup(), None, 100, vec![ReleaseReason::Late]),
    ];
    for (number, (startup, missing, now, expected)) in cases.into_iter().enumerate() {
        let nodes = [gated(node("a", 0), startup, missing)];
        let plan = plan(at(now), &nodes, Some(&[]));
        assert_eq!(released(&plan), expected, "case {number}");
        assert_eq!(plan.next.is_some(), expected.is_empty(), "case {number}");
    }
    // None of the missing images can be pulled, since 10.
    let failing = [GatedNode {
        all_failed: Some(at(10)),
        ..gated(node("a", 0), startup(), Some(&["a"]))
    }];
    assert_eq!(released(&plan(at(69), &failing, None)), []);
    assert_eq!(plan(at(69), &failing, None).next, Some(at(70)));
    assert_eq!(released(&plan(at(70), &failing, None)), [ReleaseReason::Failed]);
    assert_eq!(released(&plan(at(100), &failing, None)), [ReleaseReason::Late]);
    let shared = [GatedNode {
        share_is_over: Some(at(50)),
        ..gated(node("a", 0), startup(), Some(&["a"]))
    }];
    assert_eq!(plan(at(49), &shared, None).next, Some(at(50)));
    assert_eq!(released(&plan(at(50), &shared, None)), [ReleaseReason::Late]);
    let held = GatedNode {
        rule: GateRule::Held(None),
        ..gated(node("a", 0), None, None)
    };
    let held = [held];
    assert_eq!(released(&plan(at(779), &held, None)), []);
    assert_eq!(released(&plan(at(780), &held, None)), [ReleaseReason::Late]);
}

#[test]
fn without_the_right_or_with_another_puller_no_pod_is_created() {
    let none = NodeStartup {
        puller: ImagePuller::None,
        ..by_pods(100, 1)
    };
    let nodes = [gated(node("a", 0), Some(none), Some(&["x"]))];
    assert!(plan(at(0), &nodes, Some(&[])).created.is_empty());
    let nodes = [gated(node("a", 0), Some(by_pods(100, 1)), Some(&["x"]))];
    assert!(plan(at(0), &nodes, None).created.is_empty());
    assert_eq!(plan(at(0), &nodes, Some(&[])).created.len(), 1);
}

fn puller(node: &str, images: &[(&str, PullProgress)]) -> PullerPod {
    PullerPod {
        name: format!("pod-{node}"),
        uid: String::new(),
        node_uid: format!("uid-{node}"),
        policy: "p".to_owned(),
        created: Some(at(0)),
        deleting: false,
        is_acknowledged: true,
        has_ended: false,
        rejected: None,
        secrets: Vec::new(),
        images: images
            .iter()
            .map(|(image, progress)| ((*image).to_owned(), progress.clone()))
            .collect(),
    }
}

#[test]
fn a_pod_is_replaced_when_other_images_are_missing_and_deleted_when_its_node_does_not_wait() {
    let deleted = |missing: &[&str], pod: PullerPod, now: i64| {
        let nodes = [gated(node("a", 0), Some(by_pods(100, 1)), Some(missing))];
        plan(at(now), &nodes, Some(&[pod])).deleted.len()
    };
    let failed = || PullProgress::Failed("no".to_owned());
    assert_eq!(
        deleted(&["x"], puller("a", &[("x", PullProgress::Pulling)]), 0),
        0
    );
    assert_eq!(deleted(&["x"], puller("a", &[("x", failed())]), 0), 0);
    // Another image is needed: not before the kubelet has tried those that the pod has.
    let one = |progress| puller("a", &[("x", progress)]);
    assert_eq!(deleted(&["x", "y"], one(PullProgress::Pulling), 0), 0);
    assert_eq!(deleted(&["y"], one(PullProgress::Pulled), 0), 1);
    assert_eq!(deleted(&["x", "y"], one(failed()), 0), 1);
    // Kubelets that remove the pulled one would pull it again.
    let both = puller("a", &[("x", failed()), ("y", PullProgress::Pulled)]);
    assert_eq!(deleted(&["x"], both, 0), 1);
    assert_eq!(deleted(&["x"], puller("gone", &[("x", failed())]), 0), 1);
    assert_eq!(deleted(&[], one(PullProgress::Pulled), 0), 1, "it is warm");
    // The kubelet rejected it.
    let ended = || PullerPod {
        has_ended: true,
        ..one(PullProgress::Pulling)
    };
    assert_eq!(deleted(&["x"], ended(), 29), 0);
    assert_eq!(deleted(&["x"], ended(), 30), 1);
}

#[test]
fn a_leader_that_does_not_know_what_is_missing_deletes_no_pod_of_a_node_that_waits() {
    let pods = [puller("a", &[("x", PullProgress::Pulling)])];
    let deleted = |startup: NodeStartup, missing: Option<&[&str]>, now: i64| {
        let nodes = [gated(node("a", 0), Some(startup), missing)];
        plan(at(now), &nodes, Some(&pods)).deleted.len()
    };
    assert_eq!(deleted(by_pods(100, 1), None, 0), 0);
    assert_eq!(deleted(by_pods(100, 1), Some(&["x"]), 0), 0);
    assert_eq!(deleted(by_pods(100, 1), None, 100), 1, "it waits no longer");
    let none = NodeStartup {
        puller: ImagePuller::None,
        ..by_pods(100, 1)
    };
    assert_eq!(deleted(none, None, 0), 1, "another program pulls");
}

#[test]
fn a_slot_whose_kubelet_does_nothing_is_given_to_a_ready_node() {
    let ready = |name: &str, created: i64| NodeView {
        readiness: NodeReadiness::Since(None),
        ..node(name, created)
    };
    let wait = |node: NodeView| gated(node, Some(by_pods(100, 1)), Some(&["x"]));
    let idle = || PullerPod {
        is_acknowledged: false,
        ..puller("silent", &[("x", PullProgress::Pulling)])
    };
    let planned = |nodes: &[GatedNode], pods: &[PullerPod], now: i64| {
        let plan = plan(at(now), nodes, Some(pods));
        let created: Vec<String> = plan.created.iter().map(|new| new.node.name.clone()).collect();
        (created, plan.deleted.len())
    };
    let both = [wait(node("silent", 0)), wait(ready("r", 5))];
    assert_eq!(
        planned(&both, &[], 5),
        (vec!["r".to_owned()], 0),
        "Ready nodes come first"
    );
    assert_eq!(planned(&both, &[idle()], 14), (vec![], 0));
    assert_eq!(planned(&both, &[idle()], 15), (vec![], 1));
    let pulls = [puller("silent", &[("x", PullProgress::Pulling)])];
    assert_eq!(
        planned(&both, &pulls, 15),
        (vec![], 0),
        "its kubelet has acknowledged it"
    );
    let hangs = NodeView {
        readiness: NodeReadiness::NotReady,
        ..node("silent", 0)
    };
    let after_hang = [wait(hangs), wait(ready("r", 5))];
    assert_eq!(planned(&after_hang, &pulls, 15), (vec![], 1), "and then hung");
    assert_eq!(
        planned(&after_hang[..1], &pulls, 15),
        (vec![], 0),
        "no node could use its slot"
    );
    let silent = [wait(node("silent", 0)), wait(node("silent-2", 5))];
    assert_eq!(
        planned(&silent, &[idle()], 15),
        (vec![], 0),
        "no node could use it"
    );
    let leaving = [PullerPod {
        deleting: true,
        ..idle()
    }];
    assert_eq!(planned(&both, &leaving, 15), (vec![], 0), "its slot is free soon");
}

#[test]
fn a_ready_node_whose_kubelet_does_nothing_gets_no_slot_before_another_one() {
    let ready = |name: &str, created: i64| NodeView {
        readiness: NodeReadiness::Since(None),
        ..node(name, created)
    };
    let idle = |at_first: bool| PullerPod {
        is_acknowledged: !at_first,
        ..puller("a", &[("x", PullProgress::Pulling)])
    };
    let mut memory = StartupMemory::default();
    let mut is_idle = |pods: &[&PullerPod], now: i64| {
        let wanted = [want("x")];
        let news = memory.observe((&ready("a", 0), "p"), Some(&wanted), (pods, &NO_OTHERS), at(now));
        news.is_idle
    };
    assert!(!is_idle(&[&idle(true)], 14));
    assert!(is_idle(&[&idle(true)], 15));
    assert!(is_idle(&[], 20), "the pod was deleted");
    let again = PullerPod {
        created: Some(at(30)),
        ..idle(true)
    };
    assert!(is_idle(&[&again], 31), "the new pod proves nothing yet");
    assert!(!is_idle(&[&idle(false)], 32));

    let wait = |node: NodeView, is_idle: bool| GatedNode {
        is_idle,
        ..gated(node, Some(by_pods(100, 1)), Some(&["x"]))
    };
    let both = [wait(ready("a", 0), true), wait(ready("b", 5), false)];
    let plan_of = |nodes: &[GatedNode], pods: &[PullerPod]| {
        let plan = plan(at(20), nodes, Some(pods));
        let created: Vec<String> = plan.created.iter().map(|new| new.node.name.clone()).collect();
        (created, plan.deleted.len())
    };
    assert_eq!(plan_of(&both, &[]), (vec!["b".to_owned()], 0));
    assert_eq!(plan_of(&both, &[idle(true)]), (vec![], 1));
    assert_eq!(
        plan_of(&both[..1], &[]),
        (vec!["a".to_owned()], 0),
        "nobody else waits"
    );
    let two = [wait(ready("a", 0), true), wait(ready("b", 5), true)];
    assert_eq!(
        plan_of(&two, &[idle(true)]),
        (vec![], 0),
        "the other one does nothing, either"
    );
}

#[test]
fn what_pods_of_another_program_show_is_seen_and_what_they_cannot_pull_is_news() {
    let container = |name: &str, image: &str, state: &Value| {
        let id = if state["terminated"].is_object() {
            "sha256:1"
        } else {
            ""
        };
        json!({"name": name, "image": image, "imageID": id, "ready": false, "restartCount": 0, "state": state})
    };
    let failing = json!({"waiting": {"reason": "ErrImagePull", "message": "denied"}});
    let prepull = |state: &Value| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "prepull"},
            "spec": {"initContainers": [{"name": "i", "image": "docker.io/library/small:1"}],
                "containers": [{"name": "c", "image": "docker.io/library/other:1"}]},
            "status": {"phase": "Pending",
                "initContainerStatuses": [container("i", "small:1", &json!({"terminated": {"exitCode": 0}}))],
                "containerStatuses": [container("c", "other:1", state)]},
        }))
        .unwrap()
    };
    let starting = json!({"waiting": {"reason": "PodInitializing"}});
    let ended = |pod: Pod| {
        let mut pod = json!(pod);
        pod["status"]["phase"] = json!("Failed");
        serde_json::from_value::<Pod>(pod).unwrap()
    };
    let mut memory = StartupMemory::default();
    let wanted = [want("small:1"), want("other:1")];
    let mut see = |pods: &[Pod], now: i64| {
        let others = shown_by(pods);
        memory.observe((&node("a", 0), "p"), Some(&wanted), (&[], &others), at(now))
    };
    assert_eq!(see(&[], 0).missing.unwrap().len(), 2);
    let news = see(&[prepull(&failing)], 10);
    assert_eq!(news.missing, Some(vec!["other:1".to_owned()]));
    assert_eq!(news.all_failed, Some(at(10)));
    let failed = [FailedImage {
        node: "a".to_owned(),
        image: "other:1".to_owned(),
        message: "ErrImagePull without a pull Secret: denied".to_owned(),
    }];
    assert_eq!(news.failures, failed);
    assert_eq!(see(&[prepull(&failing)], 20).failures, [], "it is known");
    // Another pod may be able to pull it, but one that has ended may not.
    let news = see(&[prepull(&failing), ended(prepull(&starting))], 30);
    assert_eq!(news.all_failed, Some(at(10)));
    let news = see(&[prepull(&failing), prepull(&starting)], 40);
    assert_eq!(news.all_failed, None);
    assert_eq!(see(&[prepull(&failing)], 50).all_failed, Some(at(50)));
    let news = see(&[prepull(&failing), prepull(&json!({"running": {}}))], 60);
    assert_eq!(news.missing, Some(Vec::new()));

    // The kubelet pulls nothing after an init container whose image fails.
    let mut stopped = json!(prepull(&starting));
    stopped["status"]["initContainerStatuses"][0] = container("i", "small:1", &failing);
    let shown = shown_by(&[serde_json::from_value(stopped).unwrap()]);
    let why = "its pod stops at docker.io/library/small:1, which cannot be pulled";
    assert_eq!(
        shown["docker.io/library/other:1"],
        PullProgress::Failed(why.to_owned())
    );
}

#[test]
fn an_image_that_a_webhook_changed_is_the_one_that_was_asked_for() {
    let failing = json!([{"name": "c", "image": "mirror.example/x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]);
    for (statuses, expected) in [
        (json!([]), PullProgress::Pulling),
        (
            failing,
            PullProgress::Failed(
                "a webhook changed it to mirror.example/x: ErrImagePull without a pull Secret: not found"
                    .to_owned(),
            ),
        ),
    ] {
        let mut changed = pod(&statuses);
        let asked = BTreeMap::from([(
            "transom.dev/images".to_owned(),
            r#"["registry.example/x"]"#.to_owned(),
        )]);
        changed.metadata.annotations = Some(asked);
        changed.spec.as_mut().unwrap().containers[0].image = Some("mirror.example/x".to_owned());
        let images = PullerPod::of(changed).images;
        assert_eq!(images, [("registry.example/x".to_owned(), expected)]);
    }
}

#[test]
fn what_keeps_pods_that_pull_away_is_named() {
    let rejected = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Failed", "reason": "OutOfpods", "message": "too many"}});
    let mut of_kubelet = PullerPod::of(serde_json::from_value(rejected).unwrap());
    of_kubelet.node_uid = "uid-a".to_owned();
    let mut memory = StartupMemory::default();
    let missing = ["x".to_owned()];
    memory.observe(
        (&node("a", 0), "p"),
        Some(&[want("x")]),
        (&[&of_kubelet], &NO_OTHERS),
        at(0),
    );
    let why = memory.finish("uid-a", StartupOutcome::Late, Some(&missing));
    assert_eq!(
        why["x"],
        "the kubelet did not accept the pod that pulls it: OutOfpods: too many"
    );
    for (answer, part) in [
        (
            "pods \"p\" is forbidden: exceeded quota: all, requested: pods=1",
            "a ResourceQuota",
        ),
        (
            "minimum memory usage per Container is 50Mi, but request is 1Mi",
            "a LimitRange",
        ),
        (
            "ValidatingAdmissionPolicy 'transom-pods' denied request: Transom must not create a pod that pulls images with a \
             field in its spec",
            "another webhook or admission plugin changed the pod",
        ),
        (
            "admission webhook \"x\" denied the request: no",
            "exempt Transom's namespace from this webhook",
        ),
    ] {
        let error = ApiError::Forbidden(answer.to_owned());
        assert!(who_refuses(&error).contains(part), "{answer}");
    }
    assert_eq!(who_refuses(&ApiError::NotFound), "");
}

fn pod(statuses: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Pending", "containerStatuses": statuses},
    }))
    .unwrap()
}

#[test]
fn a_reason_after_the_pull_proves_the_image_and_one_of_the_pull_names_the_failure() {
    let waiting = |reason: &str| {
        pod(
            &json!([{"name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": "why"}}}]),
        )
    };
    let progress = |pod: Pod| PullerPod::of(pod).images.remove(0).1;
    for reason in [
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    ] {
        assert_eq!(progress(waiting(reason)), PullProgress::Pulled, "{reason}");
        assert!(!is_pulling(&waiting(reason), at(0)));
    }
    for reason in ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"] {
        let failed = |with: &str| PullProgress::Failed(format!("{reason} {with}: why"));
        assert_eq!(progress(waiting(reason)), failed("without a pull Secret"));
        let mut private = waiting(reason);
        let secrets = json!([{"name": "a"}, {"name": "b"}]);
        private.spec.as_mut().unwrap().image_pull_secrets = serde_json::from_value(secrets).unwrap();
        assert_eq!(progress(private), failed("with the pull Secrets a, b"));
        assert!(
            !is_pulling(&waiting(reason), at(0)),
            "it waits for its next attempt"
        );
    }
    for pulling in [waiting("ContainerCreating"), waiting(""), pod(&json!([]))] {
        assert!(is_pulling(&pulling, at(0)));
        assert_eq!(progress(pulling), PullProgress::Pulling);
    }
    // What waits for a volume, or for an init container that runs, pulls nothing.
    let hanging = |field: &str, value: Value, after: i64| {
        let mut hanging = json!(pod(&json!([])));
        hanging["status"]["startTime"] = json!(START.to_string());
        hanging["status"][field] = value;
        is_pulling(&serde_json::from_value(hanging).unwrap(), at(after))
    };
    let sandbox = |status: &str| json!([{"type": "PodReadyToStartContainers", "status": status}]);
    assert!(hanging("conditions", sandbox("False"), 10) && !hanging("conditions", sandbox("False"), 60));
    assert!(hanging("conditions", sandbox("True"), 600));
    let init = json!([{"name": "i", "image": "y", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"running": {}}}]);
    assert!(!hanging("initContainerStatuses", init, 10));
    let ended = |image: &str| {
        pod(
            &json!([{"name": "c", "image": "x", "imageID": image, "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}]),
        )
    };
    assert_eq!(progress(ended("")), PullProgress::Pulling);
    assert_eq!(progress(ended("sha256:1")), PullProgress::Pulled);
}

#[test]
fn the_pod_has_the_shape_in_which_no_container_is_created() {
    let startup = NodeStartup {
        pull_secrets: serde_json::from_value(json!([{"name": "s"}])).unwrap(),
        ..by_pods(100, 1)
    };
    let nodes = [gated(node("a", 0), Some(startup), Some(&["x", "y"]))];
    let plan = plan(at(40), &nodes, Some(&[]));
    let pod = json!(puller_pod(
        &plan.created[0],
        "transom-system",
        "transom-image-puller",
        at(40)
    ));
    let container = |name: &str, image: &str| {
        json!({"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": ["transom-puller-never-runs"],
            "securityContext": {"runAsNonRoot": true, "windowsOptions": {"runAsUserName": "ContainerAdministrator"}},
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}})
    };
    let expected = json!({
        "nodeName": "a", "nodeSelector": {"kubernetes.io/os": "windows"}, "os": {"name": "windows"},
        "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never", "serviceAccountName": "transom-image-puller",
        "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "s"}], "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": 60, "containers": [container("image-0", "x"), container("image-1", "y")],
    });
    assert_eq!(pod["spec"], expected);
    let meta = &pod["metadata"];
    assert!(meta["name"].as_str().unwrap().starts_with("transom-pull-"));
    assert_eq!(meta["annotations"]["transom.dev/node"], "a");
    assert_eq!(meta["ownerReferences"][0]["uid"], "uid-a");
}

fn pull(image: &str, size: Option<u64>, shared: u64) -> ImagePull {
    ImagePull {
        image: image.to_owned(),
        workloads: Vec::new(),
        daemon_set: false,
        replicas: 1,
        process_isolation: true,
        digest: None,
        size,
        shared: Some(shared),
        unknown: None,
        namespace: "shop".to_owned(),
    }
}

#[test]
fn images_are_wanted_in_order_within_the_limit_and_the_disk() {
    let pulls_of = |images| PoolPulls {
        pool: "p".to_owned(),
        build: None,
        nodes: 1,
        selector: BTreeMap::new(),
        images,
        total: PullTotal::default(),
    };
    let pulls = pulls_of(vec![
        pull("a", Some(100), 0),
        pull("b", None, 0),
        pull("c", Some(150), 100),
        pull("d", Some(20), 0),
    ]);
    let too_long = pulls_of(vec![pull(&"a".repeat(400_000), None, 0), pull("b", None, 0)]);
    assert_eq!(needed(too_long).len(), 1, "it could not be stored in a pod");
    let pulls = needed(pulls);
    let names = |max: Option<&str>, storage: Option<u64>| {
        let startup = NodeStartup {
            images: vec!["first".to_owned(), "d".to_owned()],
            max_image_size: max.map(|max| IntOrString::String(max.to_owned())),
            ..NodeStartup::default()
        };
        let wanted = wanted(&startup, Some(&pulls), storage).unwrap();
        wanted.into_iter().map(|image| image.image).collect::<Vec<_>>()
    };
    assert_eq!(names(None, None), ["first", "d", "a", "b", "c"]);
    // c adds 50 bytes.
    assert_eq!(names(Some("150"), None), ["first", "d", "a", "b", "c"]);
    assert_eq!(names(Some("149"), None), ["first", "d", "a", "b"]);
    assert_eq!(
        names(Some("149"), Some(500)),
        ["first", "d", "a", "b"],
        "300 bytes of the disk, for 120 compressed bytes"
    );
    assert_eq!(
        names(Some("149"), Some(400)),
        ["first", "d", "b"],
        "240 bytes of the disk, for 96 compressed bytes: neither a fits, nor c, whose layers a would have brought"
    );
    assert_eq!(wanted(&NodeStartup::default(), None, None), None);
    let listed = NodeStartup {
        image_source: StartupImageSource::Listed,
        ..NodeStartup::default()
    };
    assert_eq!(wanted(&listed, None, None), Some(Vec::new()));
}

fn want(image: &str) -> WantedImage {
    WantedImage {
        image: image.to_owned(),
        bytes: Some(10),
        size: Some(10),
        namespace: "shop".into(),
    }
}

#[test]
fn what_was_seen_is_not_missing_again_and_a_failure_is_news_once() {
    let mut memory = StartupMemory::default();
    let wanted = [want("nginx:1"), want("b.example/x")];
    let with = |images: &[&str]| NodeView {
        images: images.iter().map(ToString::to_string).collect(),
        ..node("a", 0)
    };
    let full = "docker.io/library/nginx:1";
    let news = memory.observe((&with(&[full]), "p"), Some(&wanted), (&[], &NO_OTHERS), at(0));
    assert_eq!(news.missing, Some(vec!["b.example/x".to_owned()]));
    assert_eq!(news.pulled_bytes, 0, "it was there before");
    let failing = puller("a", &[("b.example/x", PullProgress::Failed("denied".to_owned()))]);
    let failures = |memory: &mut StartupMemory| {
        let news = memory.observe(
            (&with(&[]), "p"),
            Some(&wanted),
            (&[&failing], &NO_OTHERS),
            at(10),
        );
        assert_eq!(
            news.missing,
            Some(vec!["b.example/x".to_owned()]),
            "nginx was seen"
        );
        news.failures.len()
    };
    assert_eq!((failures(&mut memory), failures(&mut memory)), (1, 0));
    let states = memory.states();
    assert_eq!((states["p"].starting, states["p"].failed.len()), (1, 1));
    let news = memory.observe(
        (&with(&["b.example/x:latest"]), "p"),
        Some(&wanted),
        (&[], &NO_OTHERS),
        at(0),
    );
    assert_eq!((news.missing, news.pulled_bytes), (Some(Vec::new()), 10));
    assert!(memory.finish("uid-a", StartupOutcome::Warm, None).is_empty());
    assert_eq!(
        (memory.states()["p"].warm, memory.states()["p"].failed.len()),
        (1, 0)
    );
    memory.retain(|_, _| true, |_| false, BTreeMap::from([("p".to_owned(), 2)]));
    assert!(memory.states().is_empty(), "the policy has changed");
}

#[test]
fn a_node_is_hopeless_since_the_last_of_its_missing_images_failed() {
    let mut memory = StartupMemory::default();
    let wanted = [want("x"), want("y"), want("z")];
    let failed = || PullProgress::Failed("denied".to_owned());
    let mut all_failed = |now: i64, images: &[(&str, PullProgress)]| {
        let pod = puller("a", images);
        let news = memory.observe(
            (&node("a", 0), "p"),
            Some(&wanted),
            (&[&pod], &NO_OTHERS),
            at(now),
        );
        news.all_failed
    };
    let (x, z) = (("x", failed()), ("z", PullProgress::Pulled));
    assert_eq!(all_failed(1, &[x.clone(), ("y", PullProgress::Pulling)]), None);
    assert_eq!(all_failed(5, &[x.clone(), ("y", failed())]), None, "z may arrive");
    assert_eq!(
        all_failed(6, &[x.clone(), ("y", failed()), z.clone()]),
        Some(at(5))
    );
    assert_eq!(all_failed(9, &[x.clone(), ("y", failed())]), Some(at(5)));
    let y = ("y", PullProgress::Pulled);
    assert_eq!(all_failed(10, &[x, y.clone()]), Some(at(1)));
    assert_eq!(
        all_failed(11, &[("x", PullProgress::Pulled), y]),
        None,
        "it is warm"
    );
}

#[test]
fn a_node_that_another_client_released_no_longer_waits() {
    let mut memory = StartupMemory::default();
    let wanted = [want("x")];
    for (name, finished) in [("a", false), ("b", true), ("c", false)] {
        memory.observe((&node(name, 0), "p"), Some(&wanted), (&[], &NO_OTHERS), at(0));
        if finished {
            memory.finish(&format!("uid-{name}"), StartupOutcome::Warm, None);
        }
    }
    let generations = || BTreeMap::from([("p".to_owned(), 1)]);
    let counts = |memory: &StartupMemory| {
        let states = memory.states();
        (states["p"].starting, states["p"].warm)
    };
    memory.retain(|_, _| true, |uid| uid != "uid-b", generations());
    assert_eq!(counts(&memory), (2, 0), "the policy is new to it");
    memory.observe((&node("b", 0), "p"), Some(&wanted), (&[], &NO_OTHERS), at(0));
    memory.finish("uid-b", StartupOutcome::Warm, None);
    memory.retain(|_, _| true, |uid| uid == "uid-c", generations());
    assert_eq!(counts(&memory), (1, 1));
}

/// A snapshot with the node `a`, which has the startup taint since 1970, and a policy with this `startup`.
fn snapshot(startup: &Value) -> Snapshot {
    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
        "metadata": {"name": "p", "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!({"startup": startup}))});
    let node = NodeView {
        operating_system: "windows".to_owned(),
        resource_version: "7".to_owned(),
        ..node("a", 0)
    };
    let cache = ClusterCache {
        kubernetes: 36,
        nodes: [("a".to_owned(), Arc::new(node))].into(),
        node_policies: [("p".to_owned(), Arc::new(serde_json::from_value(policy).unwrap()))].into(),
        ..ClusterCache::default()
    };
    let today = jiff::civil::date(2026, 1, 1);
    SnapshotBuilder::new(Facts::new(36, today), []).take(&Arc::new(cache), None, START)
}

type SentBodies = Arc<Mutex<Vec<String>>>;

/// A controller without the right to create pods, what it publishes, and the bodies that it sends to nodes and Events.
fn controller() -> (StartupController, watch::Receiver<Arc<StartupStates>>, SentBodies) {
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let bodies = Arc::clone(&sent);
    let client = answering(move |method, uri, body| {
        if *method != Method::GET {
            bodies.lock().unwrap().push(body.to_owned());
        }
        let event = serde_json::from_str(body).unwrap_or_default();
        match uri.path() {
            "/api/v1/nodes/a" => (
                200,
                json!({"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "8"}}),
            ),
            path if path.ends_with("/events") => (201, event),
            path => (404, json!({"kind": "Status", "code": 404, "message": path})),
        }
    });
    let (publish, published) = watch::channel(Arc::default());
    let parts = StartupParts {
        settings: StartupSettings::default(),
        account: PullerAccount {
            namespace: "transom-system".to_owned(),
            name: None,
        },
        writer: Writer::new(client, None, 50),
        clock: ServerClock::default(),
        images: None,
        metrics: StartupMetrics::new(&Metrics::new("0", None)),
        publish,
    };
    (StartupController::new(parts), published, sent)
}

#[tokio::test(start_paused = true)]
async fn a_late_node_is_released_though_pods_are_refused_and_workloads_cannot_be_read() {
    let (mut controller, published, sent) = controller();
    let _ = controller.pass(&snapshot(&json!({"puller": "Pods"}))).await;
    let patch: Value = serde_json::from_str(&sent.lock().unwrap()[0]).unwrap();
    assert_eq!(
        patch,
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": null}})
    );
    let event: Value = serde_json::from_str(&sent.lock().unwrap()[1]).unwrap();
    assert_eq!(
        (&event["reason"], &event["type"]),
        (&json!("ImagesLate"), &json!("Warning"))
    );
    let state = published.borrow()["p"].clone();
    assert_eq!((state.starting, state.late), (0, 1));
    assert_eq!(state.problem.unwrap().0, "PullerNotAllowed");
    // The watch does not show the write yet: nothing is written again.
    let _ = controller.pass(&snapshot(&json!({"puller": "Pods"}))).await;
    assert_eq!(sent.lock().unwrap().len(), 2);
    controller.lost();
    assert!(published.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_policy_that_gates_it_is_released_without_an_event() {
    let (mut controller, published, sent) = controller();
    let _ = controller.pass(&snapshot(&Value::Null)).await;
    assert_eq!(sent.lock().unwrap().len(), 1);
    assert!(published.borrow().is_empty());
}
