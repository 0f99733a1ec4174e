//! Transom beside what else stands in a cluster: DaemonSets and their controller, webhooks that inject sidecars before
//! and after it, `kubectl debug`, Pod Security, LimitRanges, quotas, PodTolerationRestriction, PodNodeSelector, and bad input. Without
//! the programs (kube-controller-manager and kube-scheduler too) this says so and proves nothing.
#![cfg(unix)]

mod daemonsets;
mod debug;
mod node_selectors;
mod revisions;
mod sidecars;
mod windows_nodes_only;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::control_plane::{ControlPlane, Printed, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::{self, Kubelets};
use crate::support::objects::{windows_pod, workload};
use serde_json::{Value, json};

const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,resourcequota-controller";
const IMAGE_2019: &str = "mcr.microsoft.com/windows/servercore:ltsc2019";
const BUILD: &str = "node.kubernetes.io/windows-build";

/// The nodes, their builds, and the taints of their pools.
const NODES: [(&str, &str, &str); 4] = [
    ("linux-a", "", ""),
    ("win-2019", "10.0.17763", "os=windows:NoSchedule"),
    ("win-2022-a", "10.0.20348", "os=windows:NoSchedule"),
    (
        "win-2022-b",
        "10.0.20348",
        "node.kubernetes.io/os=windows:NoSchedule",
    ),
];

/// RuntimeClasses, one as it should be and two that contradict themselves.
const CLASSES: &str = "
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: windows-2019}
handler: runhcs-wcow-process
scheduling:
  nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: says-linux-and-a-build}
handler: runhcs-wcow-process
scheduling:
  nodeSelector: {kubernetes.io/os: linux, node.kubernetes.io/windows-build: 10.0.20348}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: says-windows-and-linux}
handler: runhcs-wcow-process
scheduling:
  nodeSelector: {kubernetes.io/os: windows, beta.kubernetes.io/os: linux}
";

/// The annotations of a namespace by which PodTolerationRestriction goes.
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";

/// How long anything may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The cluster that the tests of this file share.
struct Place {
    cluster: ControlPlane,
    replica: Replica,
    _kubelets: Kubelets,
}

fn place() -> Option<&'static Place> {
    static PLACE: OnceLock<Result<Place, ()>> = OnceLock::new();
    let programs = programs_of_a_whole_control_plane("tests/cluster/coexistence.rs")?;
    let make = || {
        let restricts = ["--enable-admission-plugins=PodTolerationRestriction,PodNodeSelector"];
        install(ControlPlane::start_with(programs, &restricts).unwrap())
    };
    // Else every test would try it once more.
    let place = PLACE.get_or_init(|| catch_unwind(AssertUnwindSafe(make)).map_err(drop));
    let place = place.as_ref();
    Some(place.unwrap_or_else(|()| panic!("the cluster could not be made; another test says why")))
}

fn install(cluster: ControlPlane) -> Place {
    for (name, build, taint) in NODES {
        kubelet::join(&cluster, name, build);
        if !taint.is_empty() {
            cluster.kubectl(&["taint", "node", name, taint]).succeeded();
        }
    }
    cluster.kubectl_with(&["apply", "-f", "-"], CLASSES).succeeded();
    // Every informer hands everything to its controllers again each second or two, in place of each 12 hours or more.
    cluster
        .start_controllers_with(CONTROLLERS, &["--min-resync-period=1s"])
        .unwrap();
    cluster.start_scheduler().unwrap();
    let kubelets = Kubelets::start(&cluster);
    install::prepare(&cluster, install::POLICIES);
    let facts = install::cluster_config(&cluster, "{}");
    let facts = facts.each_ref().map(String::as_str);
    let replica = Replica::start(&cluster, "transom", &facts);
    install::register(&cluster, replica.port, &facts);
    replica.is_ready(&cluster);
    let place = Place {
        cluster,
        replica,
        _kubelets: kubelets,
    };
    place.cluster.create_namespace("probe", &[]);
    let mut bad = windows_pod("probe");
    bad["spec"]["hostPID"] = json!(true);
    let called = || {
        let printed = place.create("probe", &bad, &["--dry-run=server"]);
        printed.err.contains("denied the request")
    };
    assert!(wait(PATIENCE, called), "{}", place.cluster.end_of_log("transom"));
    place
}

impl Place {
    /// The Events of a namespace that tell of a pod which a controller could not make.
    fn refused_pods(&self, namespace: &str) -> String {
        let failed = ["--field-selector", "reason=FailedCreate", "-o", "name"];
        let requested = [&["get", "events", "-n", namespace][..], &failed].concat();
        self.kubectl(&requested).succeeded().out
    }

    fn kubectl(&self, args: &[&str]) -> Printed {
        self.cluster.kubectl(args)
    }

    fn create(&self, namespace: &str, object: &Value, more: &[&str]) -> Printed {
        let mut args = vec!["create", "-n", namespace, "-o", "json", "-f", "-"];
        args.extend(more);
        self.cluster.kubectl_with(&args, &object.to_string())
    }

    fn list(&self, args: &[&str]) -> Vec<Value> {
        let printed = self.kubectl(&[&["get", "-o", "json"], args].concat());
        printed.succeeded().objects()
    }

    /// The pods of a namespace that nobody has told to go.
    fn pods(&self, namespace: &str) -> Vec<Value> {
        let mut pods = self.list(&["-n", namespace, "pods"]);
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }

    /// The pods of a namespace, once so many run.
    #[track_caller]
    fn running(&self, namespace: &str, count: usize) -> Vec<Value> {
        let mut pods = Vec::new();
        let run = wait(PATIENCE, || {
            std::thread::sleep(Duration::from_millis(300));
            pods = self.pods(namespace);
            pods.len() == count && pods.iter().all(|pod| pod["status"]["phase"] == "Running")
        });
        let events = || self.kubectl(&["get", "events", "-n", namespace]).out;
        assert!(
            run,
            "{namespace}: {count} pods do not run: {pods:#?}\n{}",
            events()
        );
        pods
    }

    /// What a controller asked the API server to create in a namespace: the codes of the answers.
    fn created_by_controllers(&self, namespace: &str) -> Vec<u64> {
        let is_one = |event: &&Value| {
            let agent = event["userAgent"].as_str().unwrap_or_default();
            event["objectRef"]["namespace"] == namespace
                && event["objectRef"]["resource"] == "pods"
                && event["objectRef"]["subresource"].is_null()
                && event["verb"] == "create"
                && agent.starts_with("kube-controller-manager/")
        };
        let events = self.cluster.audit_events();
        events
            .iter()
            .filter(is_one)
            .filter_map(|event| event["responseStatus"]["code"].as_u64())
            .collect()
    }

    /// The condition of a policy as `status reason`.
    fn condition(&self, kind: &str, name: &str, condition: &str) -> String {
        let path = format!("-o=jsonpath={{.status.conditions[?(@.type=='{condition}')]['status','reason']}}");
        self.kubectl(&["get", kind, name, &path]).out
    }
}

/// How often a pod tolerates the taint of a pool, just so.
fn tolerates(pod: &Value, key: &str) -> usize {
    let all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let toleration = json!({"key": key, "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
    all.iter().filter(|other| **other == toleration).count()
}

/// The builds that placement requires, once.
fn builds(pod: &Value) -> String {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = terms["nodeSelectorTerms"].as_array().cloned().unwrap_or_default();
    assert_eq!(terms.len(), 1, "{pod}");
    let expressions = terms[0]["matchExpressions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(expressions.len(), 1, "{pod}");
    assert_eq!(expressions[0]["key"], BUILD, "{pod}");
    expressions[0]["values"].to_string()
}

fn container<'p>(pod: &'p Value, name: &str) -> Vec<&'p Value> {
    let all = pod["spec"]["containers"].as_array().unwrap();
    all.iter().filter(|container| container["name"] == name).collect()
}

#[test]
fn windows_workloads_run_in_a_restricted_namespace() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace(
        "restricted",
        &[("pod-security.kubernetes.io/enforce", "restricted")],
    );
    let mut spec = windows_pod("web")["spec"].clone();
    spec["securityContext"] =
        json!({"runAsNonRoot": true, "windowsOptions": {"runAsUserName": "ContainerUser"}});
    place
        .create("restricted", &workload("Deployment", "web", &spec, 1), &[])
        .succeeded();
    // Pod Security asks three things of a pod that does not say Windows, and Windows has none of them.
    let pods = place.running("restricted", 1);
    assert_eq!(pods[0]["spec"]["os"]["name"], "windows");
    assert!(builds(&pods[0]).contains("10.0.20348"), "{}", pods[0]);

    // What charts write for the profile costs a Windows workload nothing: it is warned of, with words that say what to do.
    let mut for_linux = spec.clone();
    for_linux["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
    for_linux["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let warned = place.create(
        "restricted",
        &workload("Deployment", "for-linux", &for_linux, 1),
        &[],
    );
    for field in ["seccompProfile", "allowPrivilegeEscalation", "capabilities"] {
        assert!(warned.ok && warned.err.contains(field), "{field}: {}", warned.err);
    }
    // What the profile does ask of Windows pods, it still asks.
    let mut root = windows_pod("root");
    root["spec"]["os"] = json!({"name": "windows"});
    let refused = place.create("restricted", &root, &[]);
    assert!(
        !refused.ok && refused.err.contains("violates PodSecurity") && refused.err.contains("runAsNonRoot"),
        "{refused:?}"
    );
}

#[test]
fn limits_and_quotas_of_a_namespace_are_nobodys_fault_and_denials_use_nothing_up() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace("limited", &[]);
    let limits = "
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, default: {cpu: 500m, memory: 1Gi}, defaultRequest: {cpu: 100m, memory: 1Gi}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: '3', requests.cpu: '1', limits.memory: 8Gi}}
";
    place
        .cluster
        .kubectl_with(&["apply", "-n", "limited", "-f", "-"], limits)
        .succeeded();
    let used = || {
        let quota = place.list(&["-n", "limited", "resourcequota/quota"]).remove(0);
        quota["status"]["used"]["pods"].as_str().map(str::to_owned)
    };
    assert!(wait(PATIENCE, || used().as_deref() == Some("0")), "{:?}", used());
    let first = place.create("limited", &windows_pod("first"), &[]).succeeded();
    assert_eq!(first.err, "", "what a LimitRange wrote is nobody's fault");
    let stored = first.object();
    assert_eq!(
        stored["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "500m", "memory": "1Gi"})
    );
    assert_eq!(stored["spec"]["os"]["name"], "windows");
    assert!(wait(PATIENCE, || used().as_deref() == Some("1")), "{:?}", used());

    let mut bad = windows_pod("bad");
    bad["spec"]["hostPID"] = json!(true);
    let denied = place.create("limited", &bad, &[]);
    assert!(
        !denied.ok && denied.err.contains("[TSM401 host-pid]"),
        "{denied:?}"
    );
    place
        .create("limited", &windows_pod("dry"), &["--dry-run=server"])
        .succeeded();
    assert_eq!(
        used().as_deref(),
        Some("1"),
        "neither a denial nor a dry run uses anything up"
    );

    let mut deployment = workload("Deployment", "web", &windows_pod("web")["spec"], 1);
    deployment["spec"]["replicas"] = json!(3);
    place.create("limited", &deployment, &[]).succeeded();
    place.running("limited", 3);
    let full = place.create("limited", &windows_pod("more"), &[]);
    assert!(
        !full.ok && full.err.contains("exceeded quota"),
        "the quota speaks for itself: {full:?}"
    );
}

#[test]
fn tolerations_that_a_namespace_does_not_allow_are_not_added() {
    let Some(place) = place() else { return };
    let allows = |list: &Value| list.to_string();
    // What the API server itself adds to every pod has to be allowed, with Transom or without.
    let with_its_own = |more: Value| {
        let own = ["not-ready", "unreachable"]
            .map(|what| json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute"}));
        json!([own[0], own[1], more])
    };
    let os = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
    let of_os = with_its_own(os.clone());
    let of_team = with_its_own(json!({"key": "team", "operator": "Exists"}));
    let by_default = json!([os]);
    // Namespace, its annotation, how often its pods tolerate `os` and `node.kubernetes.io/os`.
    let cases = [
        ("tolerates-any", None, (1, 1)),
        ("tolerates-os", Some((WHITELIST, allows(&of_os))), (1, 0)),
        ("tolerates-team", Some((WHITELIST, allows(&of_team))), (0, 0)),
        (
            "tolerates-by-default",
            Some((DEFAULTS, allows(&by_default))),
            (1, 1),
        ),
    ];
    for (namespace, annotation, expected) in cases {
        // In one request: Transom must not see the namespace without its annotation.
        let mut metadata = json!({"name": namespace});
        if let Some((key, value)) = annotation {
            metadata["annotations"] = json!({key: value});
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        place
            .cluster
            .kubectl_with(&["create", "-f", "-"], &object.to_string())
            .succeeded();
        let printed = place.create(namespace, &windows_pod("web"), &["--dry-run=server"]);
        let stored = printed.objects().pop().unwrap_or_else(|| json!(printed.err));
        assert_eq!(
            (
                tolerates(&stored, "os"),
                tolerates(&stored, "node.kubernetes.io/os")
            ),
            expected,
            "{namespace}: {stored}"
        );
        // Those of the namespace count for the pods of controllers too.
        place
            .create(
                namespace,
                &workload("Deployment", "web", &windows_pod("web")["spec"], 1),
                &[],
            )
            .succeeded();
        let made = || place.pods(namespace).len() == 1;
        assert!(
            wait(PATIENCE, made),
            "{namespace}: {}",
            place.kubectl(&["get", "events", "-n", namespace]).out
        );
        let made = place.pods(namespace).remove(0);
        assert_eq!(
            (tolerates(&made, "os"), tolerates(&made, "node.kubernetes.io/os")),
            expected,
            "{namespace}: {made}"
        );
        assert_eq!(place.refused_pods(namespace), "", "{namespace}");
    }
}

#[test]
fn a_namespace_that_is_a_moment_old_is_known_to_the_review_of_its_first_pod() {
    let Some(place) = place() else { return };
    let lenient = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "lenient"},
        "spec": {"mode": "Audit", "placement": {"mode": "Apply"}, "priority": 1, "namespaceSelector": {"matchLabels": {"team": "lenient"}}},
    });
    place.create("default", &lenient, &[]).succeeded();
    let selected = || {
        let policy = place
            .kubectl(&["get", "wpp", "lenient", "-o", "json"])
            .objects()
            .remove(0);
        policy["status"]["observedGeneration"].is_i64()
    };
    assert!(wait(PATIENCE, selected), "the policy is never observed");
    let only_what_is_set_by_default = json!(
        ["not-ready", "unreachable"]
            .map(|what| json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute"}))
    );
    // One apply makes the namespace and, a few milliseconds later, what is in it.
    for round in 0..8 {
        let name = format!("young-{round}");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": {"team": "lenient"},
            "annotations": {WHITELIST: only_what_is_set_by_default.to_string()},
        }});
        let mut bad = windows_pod("web")["spec"].clone();
        bad["hostPID"] = json!(true);
        let mut items = [
            namespace,
            windows_pod("web"),
            workload("Deployment", "bad", &bad, 1),
        ];
        for item in &mut items[1..] {
            item["metadata"]["namespace"] = json!(name);
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let printed = place
            .cluster
            .kubectl_with(&["apply", "-f", "-"], &list.to_string());
        assert!(printed.ok, "round {round}: {printed:?}");
        let stored = place
            .kubectl(&["get", "pod", "web", "-n", &name, "-o", "json"])
            .objects()
            .remove(0);
        assert_eq!(
            stored["spec"]["nodeSelector"]["kubernetes.io/os"], "windows",
            "{stored}"
        );
        assert_eq!(tolerates(&stored, "os"), 0, "{stored}");
    }
}

#[test]
fn runtime_classes_that_contradict_themselves_harm_nobody_who_does_not_name_them() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace("classes", &[]);
    for class in ["says-linux-and-a-build", "says-windows-and-linux"] {
        let mut selects = windows_pod("web")["spec"].clone();
        selects["runtimeClassName"] = json!(class);
        let mut only = selects.clone();
        only.as_object_mut().unwrap().remove("nodeSelector");
        for spec in [selects, only] {
            // Its pods would stay Pending for ever; whoever names the class is told at once.
            let denied = place.create("classes", &workload("Deployment", "web", &spec, 1), &[]);
            let reported = denied
                .err
                .lines()
                .find(|line| line.ends_with("[TSM105 mixed-os-contradiction]"));
            assert!(
                !denied.ok && reported.is_some_and(|line| line.contains(&format!("RuntimeClass ({class}"))),
                "{class}: {denied:?}"
            );
        }
    }
    let mut right = windows_pod("web")["spec"].clone();
    right["runtimeClassName"] = json!("windows-2019");
    right["containers"][0]["image"] = json!(IMAGE_2019);
    place.cluster.create_namespace("classes-right", &[]);
    place
        .create("classes-right", &workload("Deployment", "right", &right, 1), &[])
        .succeeded();
    let pods = place.running("classes-right", 1);
    assert_eq!(pods[0]["spec"]["nodeName"], "win-2019", "{}", pods[0]);
}

#[test]
fn policies_that_name_unknown_rules_or_contradict_one_another_say_so_and_the_rest_goes_on() {
    let Some(place) = place() else { return };
    place
        .cluster
        .create_namespace("contradicted", &[("team", "both")]);
    let policies = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: a-denies}
spec:
  mode: Enforce
  priority: 5
  namespaceSelector: {matchLabels: {team: both}}
  validation: {rules: [{name: rule-of-tomorrow, action: Deny}, {name: host-pid, action: Deny}]}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: b-looks-away}
spec: {mode: Audit, validation: {action: Disabled}, placement: {mode: Disabled}, priority: 5, namespaceSelector: {matchLabels: {team: both}}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: other}
spec: {mode: Audit, labels: {kubelet: {mode: Disabled}, nodeRestriction: {mode: Disabled}}, taints: {required: [{key: other, value: taint, effect: NoSchedule}]}}
";
    place
        .cluster
        .kubectl_with(&["apply", "-f", "-"], policies)
        .succeeded();
    let comes = |kind: &str, name: &str, condition: &str, expected: &str| {
        let came = wait(PATIENCE, || place.condition(kind, name, condition) == expected);
        let stored = || place.kubectl(&["get", kind, name, "-o", "yaml"]).out;
        assert!(came, "{name}: {condition} should be {expected}: {}", stored());
    };
    comes("wpp", "a-denies", "Accepted", "True PartiallyInvalid");
    comes("wpp", "a-denies", "Ready", "True Ready");
    for name in ["a-denies", "b-looks-away"] {
        comes("wpp", name, "Overlapping", "True Overlapping");
    }
    for name in ["default", "other"] {
        comes("wnp", name, "Overlapping", "True Overlapping");
    }
    let reported = || {
        let events = place.kubectl(&["get", "events.events.k8s.io", "-n", "default", "-o", "json"]);
        let events = events.succeeded().objects();
        let about = |name: &str, reason: &str| {
            events
                .iter()
                .any(|event| event["regarding"]["name"] == name && event["reason"] == reason)
        };
        about("a-denies", "PartiallyInvalid") && about("b-looks-away", "Overlapping")
    };
    assert!(
        wait(PATIENCE, reported),
        "{}",
        place.kubectl(&["get", "events", "-n", "default"]).out
    );

    // Of two that tie the first by name counts; what it knows of its rules counts too.
    let mut bad = windows_pod("bad");
    bad["spec"]["hostPID"] = json!(true);
    let denied = || {
        place
            .create("contradicted", &bad, &["--dry-run=server"])
            .err
            .contains("[TSM401 host-pid]")
    };
    assert!(
        wait(PATIENCE, denied),
        "{:?}",
        place.create("contradicted", &bad, &["--dry-run=server"])
    );
    let placed = place
        .create("contradicted", &windows_pod("web"), &["--dry-run=server"])
        .succeeded()
        .object();
    assert_eq!(placed["spec"]["os"]["name"], "windows");
    for (name, build, _) in NODES {
        let node = place.list(&["node", name]).remove(0);
        let labelled = node["metadata"]["labels"][BUILD].as_str().unwrap_or_default();
        assert_eq!(labelled, build, "{name}");
        assert!(!node["spec"]["taints"].to_string().contains("other"), "{node}");
    }
    assert_eq!(place.replica.get("/readyz").map(|(ok, _)| ok), Some(true));
    place
        .kubectl(&["delete", "wpp", "a-denies", "b-looks-away"])
        .succeeded();
    place.kubectl(&["delete", "wnp", "other"]).succeeded();
    comes("wnp", "default", "Overlapping", "");
}

#[test]
fn a_policy_whose_wish_is_not_registered_says_so_with_the_flag_that_registers_it() {
    let Some(place) = place() else { return };
    place.cluster.create_namespace("guarded", &[("team", "guarded")]);
    let policy = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: guards}
spec: {mode: Enforce, placement: {linuxPods: Warn}, priority: 4, namespaceSelector: {matchLabels: {team: guarded}}}
";
    place
        .cluster
        .kubectl_with(&["apply", "-f", "-"], policy)
        .succeeded();
    let comes = |name: &str, expected: &str| {
        let came = wait(PATIENCE, || {
            place.condition("wpp", name, "Programmed") == expected
        });
        let stored = || place.kubectl(&["get", "wpp", name, "-o", "yaml"]).out;
        assert!(came, "{name} should be {expected}: {}", stored());
    };
    comes("default", "True Programmed");
    comes("guards", "False WebhookEntryMissing");
    let message = "-o=jsonpath={.status.conditions[?(@.type=='Programmed')].message}";
    let message = place.kubectl(&["get", "wpp", "guards", message]).out;
    let (_, flags) = message
        .split_once("add to transom generate webhooks: ")
        .unwrap_or_else(|| panic!("{message}"));
    let flags: Vec<&str> = flags
        .split_whitespace()
        .map(|flag| flag.trim_matches('\''))
        .collect();
    assert_eq!(flags, ["--linux-pods-selector", "team=guarded"]);
    // The other tests of this cluster need the same facts still.
    let file = place.cluster.path("cluster-config.yaml");
    let facts = ["--cluster-config", file.to_str().unwrap()];
    let flags = [&flags[..], &facts].concat();
    install::register(&place.cluster, place.replica.port, &flags);
    comes("guards", "True Programmed");
    comes("default", "True Programmed");
    // The certificate's caBundle is in the new entry, too, before anybody is asked by it.
    assert!(wait(PATIENCE, || place
        .replica
        .get("/readyz")
        .is_some_and(|(ok, _)| ok)));
    place.kubectl(&["delete", "wpp", "guards"]).succeeded();
}
