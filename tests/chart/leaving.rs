//! Releases that wrote to nodes and made RuntimeClasses, and go: by the cleanup's own account, beside another
//! installation, and where the API server refuses half.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::container::account;
use super::engine::{Engine, engine};
use super::release::{NAMESPACE, World, cleanup, definitions, node};
use super::{rendered, trust};
use crate::support::command::{printed, program};
use crate::support::control_plane::wait;

pub const CLASS: &str = "windows-ltsc2022";

/// A node whose taints nobody has set yet.
pub fn untainted() -> Value {
    let mut node = node();
    node["spec"] = json!({});
    node
}

/// The pool that the leader creates for the node: its value, and a hash of `agentpool=win`.
const POOL: &str = "win-08bb3946";

/// Installs the release with everything that it can write, and waits until it has.
pub fn install(world: &World, engine: &Engine, more: &Value) {
    let mut values = json!({"replicaCount": 1, "shutdown": {"drainDelay": "0s"}, "nodePolicies": {"default": {"spec": {"taints": {"mode": "Reconcile"}, "runtimeClasses": {"mode": "Reconcile"}}}}, "rbac": {"runtimeClasses": true}});
    let more = more.as_object().unwrap().clone();
    values.as_object_mut().unwrap().extend(more);
    world.deploy(engine, "install", &values);
    let written = || {
        taints(world) == json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}])
            && world.has(&["runtimeclass", CLASS])
            && world.has(&["wnpool", POOL])
    };
    assert!(wait(Duration::from_secs(60), written), "{}", world.kubelet.logs());
}

/// The taints of the node but for the one that the API server puts on every new one.
fn taints(world: &World) -> Value {
    let mut taints = world.get("node", "win-1")["spec"]["taints"].clone();
    if let Some(list) = taints.as_array_mut() {
        list.retain(|it| it["key"] != "node.kubernetes.io/not-ready");
    }
    taints
}

/// Of a node, what Transom may write, but for the build label, which stays.
fn of_ours(node: &Value) -> [Value; 3] {
    let mut labels = node["metadata"]["labels"].clone();
    labels
        .as_object_mut()
        .unwrap()
        .remove("node.kubernetes.io/windows-build");
    [
        labels,
        node["metadata"]["annotations"].clone(),
        node["spec"]["taints"].clone(),
    ]
}

#[test]
fn a_release_takes_back_what_it_wrote_unless_another_installation_keeps_it() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("what a release takes back", &untainted()) else {
        return;
    };
    let before = world.get("node", "win-1");
    install(&world, engine, &json!({}));
    trust::the_account_writes_only_what_is_transoms(&world, CLASS);

    // Another release, which nobody runs, goes: what the first one keeps is not touched, not even for a moment.
    let second = |what: &str, more: &Value| {
        let done = world.request_as(engine, what, "second", "second", more);
        done.unwrap_or_else(|error| panic!("{error}\n{}", world.kubelet.jobs()))
    };
    let mut values = json!({"podPolicies": {"default": {"create": false}}, "nodePolicies": {"default": {"create": false}}});
    let install = json!({ "values": values });
    let refused = world.request_as(engine, "install", "second", "second", &install);
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("webhooks.allowSecondRelease: another Transom is registered in this cluster, as ValidatingWebhookConfiguration zz-transom"),
        "{refused}"
    );
    values["webhooks"] = json!({"allowSecondRelease": true});
    second("install", &json!({ "values": values }));
    let version = |kind: &str, name: &str| world.get(kind, name)["metadata"]["resourceVersion"].clone();
    let kept = [version("node", "win-1"), version("runtimeclass", CLASS)];
    second("uninstall", &json!({}));
    let jobs = world.kubelet.jobs();
    let reported = "kept: the labels and taints of nodes, RuntimeClasses, node pools, and reports: Transom is also registered as zz-transom";
    assert!(jobs.contains(reported), "{jobs}");
    assert_eq!([version("node", "win-1"), version("runtimeclass", CLASS)], kept);
    let configuration = ["mutatingwebhookconfiguration", "zz-second-transom"];
    assert!(!world.has(&configuration));

    // What Helm leaves of a test that failed or was interrupted.
    let rendered = engine.render(&json!({})).unwrap();
    let mut left_by_test = rendered::of_hook(&rendered, "test");
    left_by_test.retain(|it| it["kind"] != "Job");
    assert_eq!(left_by_test.len(), 5, "{left_by_test:#?}");
    for object in &left_by_test {
        world.create(object);
    }

    // What Helm leaves of a Job before an upgrade that failed.
    let hooks = rendered.objects.iter();
    let failed: Vec<&Value> = hooks
        .filter(|it| it["metadata"]["name"] == "transom-pre-upgrade")
        .collect();
    assert_eq!(failed.len(), 4, "{failed:#?}");
    for object in failed {
        world.create(object);
    }
    let ended = || {
        world
            .kubelet
            .jobs()
            .contains("windowspodpolicies.transom.dev unchanged")
    };
    assert!(wait(Duration::from_secs(30), ended), "{}", world.kubelet.jobs());

    world
        .request(engine, "uninstall", &json!({}))
        .unwrap_or_else(|error| panic!("{error}\n{}", world.kubelet.jobs()));
    assert_eq!(world.left(), definitions(), "{}", world.kubelet.jobs());
    let jobs = world.kubelet.jobs();
    let at = |line: &str| jobs.find(line).unwrap_or_else(|| panic!("{line}\n{jobs}"));
    // Without the policies, the account could create pods that are stored.
    let permission = at("RoleBinding transom-test deleted");
    let binding = at("ValidatingAdmissionPolicyBinding transom-test deleted");
    assert!(permission < binding && binding < at("ValidatingAdmissionPolicy transom-test deleted"));
    assert_eq!(of_ours(&world.get("node", "win-1")), of_ours(&before));
}

/// The rights of the cleanup's own account, but for deleting one configuration, scaling, and the Secret.
fn half(engine: &Engine) -> Value {
    let rendered = engine.render(&json!({})).unwrap();
    let rules = |kind: &str| {
        rendered.object(kind, "transom-pre-delete")["rules"]
            .as_array()
            .unwrap()
            .clone()
    };
    let mut left = Vec::new();
    let mut withheld = 0;
    for mut rule in [rules("ClusterRole"), rules("Role")].concat() {
        let verbs = rule["verbs"].as_array().unwrap().clone();
        let resources = rule["resources"].as_array_mut().unwrap();
        let before = resources.len();
        resources.retain(|it| match it.as_str().unwrap() {
            "validatingwebhookconfigurations" => !verbs.contains(&json!("delete")),
            "deployments/scale" | "secrets" => false,
            _ => true,
        });
        withheld += before - resources.len();
        if !resources.is_empty() {
            left.push(rule);
        }
    }
    assert_eq!(withheld, 3, "{left:#?}");
    Value::from(left)
}

/// `--dry-run`, and the answer "no" on a terminal, show what would be removed and change nothing.
fn nothing_is_removed_by_looking_or_by_no(world: &World) {
    let before = world.left();
    let arguments = [
        "--transom-namespace",
        NAMESPACE,
        "--kubeconfig",
        &world.kubeconfig,
    ];
    let shown = printed(&[&["uninstall", "--dry-run"], &arguments[..]].concat());
    for line in [
        "will be removed:",
        "  ValidatingWebhookConfiguration zz-transom",
        "  RuntimeClass windows-ltsc2022",
        "  Secret transom-certificates",
        "dry run: nothing was removed",
    ] {
        assert!(shown.lines().any(|it| it.starts_with(line)), "{line}\n{shown}");
    }
    assert!(shown.starts_with("cluster: "), "{shown}");

    // `script` gives the program a terminal.
    let requested = format!("{} uninstall {}", program().display(), arguments.join(" "));
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &requested, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    terminal.stdin.take().unwrap().write_all(b"no\n").unwrap();
    let answered = terminal.wait_with_output().unwrap();
    let shown = String::from_utf8(answered.stdout).unwrap();
    assert_eq!(answered.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("Remove all of this?") && shown.contains("nothing was removed"),
        "{shown}"
    );
    assert_eq!(world.left(), before);
}

#[test]
fn a_cleanup_that_is_refused_half_does_the_other_half_and_the_rest_later() {
    let Some(engine) = engine() else { return };
    let Some(mut world) = World::start("a cleanup that is refused half", &untainted()) else {
        return;
    };
    let before = world.get("node", "win-1");
    install(&world, engine, &json!({"hooks": {"runner": "none"}}));
    let half = account(&world.cluster, "half", &half(engine));
    // No node is left to run anything.
    world.kubelet.leave();
    nothing_is_removed_by_looking_or_by_no(&world);

    let done = cleanup(half.to_str().unwrap(), &["--hook", "pre-delete"]);
    let message = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(1), "{message}");
    // Kept versions of policies carry a uid in their name.
    let beginning = |line: &str| match line.strip_prefix("ControllerRevision policy-") {
        Some(_) => "ControllerRevision policy-… deleted".to_owned(),
        None => line.split(": ").take(2).collect::<Vec<_>>().join(": "),
    };
    let lines: Vec<String> = message.lines().map(beginning).collect();
    assert_eq!(
        lines,
        [
            "MutatingWebhookConfiguration zz-transom deleted",
            "Node win-1: Transom's labels and taints were removed",
            "RuntimeClass windows-ltsc2022 deleted",
            "1 WindowsNodePools (win-08bb3946) deleted",
            "ControllerRevision policy-… deleted",
            "Lease transom deleted",
            "FAILED: ValidatingWebhookConfiguration zz-transom",
            "FAILED: Deployment transom cannot be scaled to 0",
            "FAILED: Secret transom-certificates",
            "the policies remain, and their status is no longer updated; --crds deletes them with their definitions",
            "3 could not be done: run transom uninstall again when that is fixed",
        ],
        "{message}"
    );
    for line in message.lines().filter(|line| line.starts_with("FAILED")) {
        assert!(line.contains("is forbidden"), "{line}");
    }
    assert_eq!(of_ours(&world.get("node", "win-1")), of_ours(&before));

    let done = cleanup(&world.kubeconfig, &[]);
    let message = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{message}");
    let fixed = [
        "ValidatingWebhookConfiguration zz-transom deleted",
        "Deployment transom scaled to 0",
        "Secret transom-certificates deleted",
    ];
    assert_eq!(message.lines().take(3).collect::<Vec<_>>(), fixed, "{message}");
    world.request(engine, "uninstall", &json!({})).unwrap();
    let left: Vec<String> = (world.left().into_iter())
        .filter(|it| !it.ends_with("/half"))
        .collect();
    assert_eq!(left, definitions());
}
