//! The quick starts of docs/how-to/install.md on a real API server, as they are written: every platform begins without a denial, goes
//! to Enforce by the steps of docs/how-to/operations.md, and back by the command of docs/how-to/emergency.md.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use transom::render::yaml_documents;

use super::documents::{merge, set, typed, words};
use super::engine::{Engine, engine};
use super::generated::{self, chart, is_up_to_date};
use super::release::{World, node, windows_pod};
use crate::support::command::transom;
use crate::support::control_plane::{Printed, wait};

const LONG: Duration = Duration::from_secs(90);

/// The files of values for platforms, by their names.
fn platforms() -> BTreeSet<String> {
    std::fs::read_dir(chart().join("platforms"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

fn values_of(platform: &str) -> (String, Value) {
    let text = super::read(&format!("platforms/{platform}.yaml"));
    let values = generated::values(&text);
    (text, values)
}

/// The policies of a platform without Helm, as the chart makes them.
fn manifest(engine: &Engine, platform: &str) -> String {
    let (text, values) = values_of(platform);
    let mut policies = engine.render(&values).unwrap().objects;
    policies.retain(|it| it["apiVersion"] == transom::api::API_VERSION);
    for policy in &mut policies {
        policy["metadata"].as_object_mut().unwrap().remove("labels");
    }
    let about: String = text
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('#'))
        .collect();
    format!(
        "{about}# Made from charts/transom/platforms/{platform}.yaml by tests/chart, for kubectl and transom check --policy; with Helm use\n\
         # that file.\n{}",
        yaml_documents(&policies)
    )
}

#[test]
fn each_platform_has_values_that_fill_the_policies_of_the_chart() {
    let Some(engine) = engine() else { return };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let platforms = platforms();
    assert_eq!(platforms.len(), 6, "{platforms:?}");
    for platform in platforms {
        let (_, values) = values_of(&platform);
        engine.request("validate", json!({"values": values})).unwrap();
        let rendered = engine.render(&values).unwrap();
        for (kind, part) in [
            ("WindowsPodPolicy", "podPolicies"),
            ("WindowsNodePolicy", "nodePolicies"),
        ] {
            let made = &rendered.object(kind, "default")["spec"];
            for (field, value) in values[part]["default"]["spec"].as_object().into_iter().flatten() {
                // The chart adds the mode of the taints, where the values have none.
                let mut made = made[field].clone();
                if field == "taints" && value["mode"].is_null() {
                    made.as_object_mut().unwrap().remove("mode");
                }
                assert_eq!(made, *value, "{platform}: {kind}.{field}");
            }
        }
        for (name, pool) in values["nodePools"].as_object().into_iter().flatten() {
            assert_eq!(
                rendered.object("WindowsNodePool", name)["spec"],
                pool["spec"],
                "{platform}"
            );
        }
        // Valid beyond its schema: the program compiles it as it does in a cluster.
        let policy = rendered.object("WindowsPodPolicy", "default").to_string();
        let read = transom::api::read_policies(policy.into_bytes());
        assert!(read.is_ok(), "{platform}: {read:?}");
        let file = root.join(format!("manifests/examples/platforms/{platform}.yaml"));
        is_up_to_date(&file, &manifest(engine, &platform));
        // What its policy wants of the API server is registered by the same values.
        let webhooks = rendered
            .object("ValidatingWebhookConfiguration", "zz-transom")
            .to_string();
        let spec = &values["podPolicies"]["default"]["spec"];
        let guarded = spec["placement"]["linuxPods"].as_str().unwrap_or("Disabled") != "Disabled";
        assert_eq!(
            webhooks.contains("linux-pods.validate.transom.dev"),
            guarded,
            "{platform}"
        );
        let labels = &values["cluster"]["nodeLabels"];
        for label in labels.as_array().into_iter().flatten() {
            assert!(
                webhooks.contains(label["key"].as_str().unwrap()),
                "{platform}: {label}"
            );
        }
    }
}

/// A bad pod as the API server takes it, or does not; nothing is made.
fn create(world: &World, name: &str) -> Printed {
    let mut pod = windows_pod(name);
    pod["spec"]["hostNetwork"] = json!(true);
    let arguments = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    world.cluster.kubectl_with(&arguments, &pod.to_string())
}

/// Waits until creating a bad pod ends as it should.
#[track_caller]
fn comes_to(world: &World, name: &str, what: &str, right: impl Fn(&Printed) -> bool) {
    let mut last = None;
    let came = wait(LONG, || {
        let printed = create(world, name);
        let right = right(&printed);
        last = Some(printed.err);
        right
    });
    assert!(came, "{name}: {what}: {last:?}\n{}", world.kubelet.logs());
}

fn tolerations(printed: &Printed) -> Vec<Value> {
    let of_the_api_server = |it: &Value| {
        it["key"]
            .as_str()
            .is_some_and(|key| key.starts_with("node.kubernetes.io/") && key != "node.kubernetes.io/os")
    };
    let mut tolerations = printed.object()["spec"]["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tolerations.retain(|it| !of_the_api_server(it));
    tolerations
}

/// The commands of a page that begin so.
fn commands(page: &str, beginning: &str) -> Vec<String> {
    typed(page)
        .into_iter()
        .filter(|it| it.starts_with(beginning))
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one procedure, step by step")]
fn every_quick_start_goes_from_audit_to_enforce_and_back() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("the quick starts of docs/how-to/install.md", &node()) else {
        return;
    };
    let starts = commands("docs/how-to/install.md", "helm install transom charts/transom ");
    let starts = starts.iter().filter(|it| it.contains("--values"));
    let steps = commands(
        "docs/how-to/operations.md",
        "helm upgrade transom charts/transom ",
    );
    let step = |words: &str| {
        let of = steps.iter().find(|it| it.contains(words));
        set(engine, of.unwrap_or_else(|| panic!("{words}: {steps:?}"))).unwrap()
    };
    // The commands of the page are for the root of the repository.
    let kubectl = |beginning: &str| {
        let found = commands("docs/how-to/emergency.md", &format!("kubectl {beginning}"));
        let command = words(found.first().unwrap_or_else(|| panic!("{beginning}")));
        let manifests = format!("{}/manifests/", env!("CARGO_MANIFEST_DIR"));
        let arguments: Vec<String> = command[1..]
            .iter()
            .map(|it| it.replace("manifests/", &manifests))
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        world.cluster.kubectl(&arguments).succeeded();
    };

    let mut walked = BTreeSet::new();
    for start in starts {
        let mut values = set(engine, start).unwrap();
        let file = words(start)
            .into_iter()
            .find(|it| it.starts_with("charts/transom/platforms/"));
        let platform = file
            .unwrap()
            .replace("charts/transom/platforms/", "")
            .replace(".yaml", "");
        // Somewhere the image is; and the Jobs of an upgrade have a test of their own.
        merge(
            &mut values,
            json!({"hooks": {"runner": "none"}, "image": {"registry": "mirror.example.com"}}),
        );
        world.deploy(
            engine,
            if walked.is_empty() { "install" } else { "upgrade" },
            &values,
        );

        let bad = format!("bad-{platform}");
        // It is asked: a line in the log says so. And nothing comes of it.
        comes_to(&world, &bad, "passes without a word", |it| {
            it.ok && it.err.is_empty() && tolerations(it).is_empty() && world.kubelet.logs().contains(&bad)
        });
        let taints = || {
            let spec = world.get("wnp", "default")["spec"].clone();
            let of_taints = &spec["taints"]["mode"];
            if of_taints.is_null() {
                spec["mode"].clone()
            } else {
                of_taints.clone()
            }
        };
        assert_eq!(taints(), "Audit", "{platform}");

        merge(&mut values, step("mode=Warn"));
        world.deploy(engine, "upgrade", &values);
        comes_to(&world, &bad, "is warned of and placed", |it| {
            it.ok && it.err.contains("Warning: ") && !tolerations(it).is_empty()
        });
        let placed = tolerations(&create(&world, &bad));
        for wanted in values["nodePolicies"]["default"]["spec"]["taints"]["required"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(
                placed
                    .iter()
                    .any(|it| it["key"] == wanted["key"] && it["value"] == wanted["value"]),
                "{platform}: {placed:?}"
            );
        }

        merge(&mut values, step("mode=Enforce"));
        world.deploy(engine, "upgrade", &values);
        comes_to(&world, &bad, "is denied", |it| {
            !it.ok && it.err.contains("denied the request")
        });

        // Where no platform keeps the taints of nodes, they go with the mode of the policy; elsewhere by a step of their own.
        let of_the_mode = ["bare-metal", "rancher"].contains(&platform.as_str());
        assert_eq!(
            taints(),
            if of_the_mode { "Reconcile" } else { "Audit" },
            "{platform}"
        );
        if platform == "aks" {
            let mut tainting = values.clone();
            merge(&mut tainting, step("taints.mode=Reconcile"));
            world.deploy(engine, "upgrade", &tainting);
            assert_eq!(taints(), "Reconcile");
        }

        // Even where a label asks for a denial, nothing is denied.
        let label = [
            "label",
            "namespace",
            "apps",
            "--overwrite",
            "transom.dev/mode=Enforce",
        ];
        world.cluster.kubectl(&label).succeeded();
        let piped = commands(
            "docs/how-to/emergency.md",
            "transom generate break-glass | kubectl apply -f -",
        );
        assert!(!piped.is_empty());
        let printed = transom(Path::new("."), &["generate", "break-glass"]).out;
        let arguments = ["apply", "-f", "-"];
        world.cluster.kubectl_with(&arguments, &printed).succeeded();
        comes_to(&world, &bad, "is warned of in an emergency", |it| {
            it.ok && it.err.contains("Warning: ") && !tolerations(it).is_empty()
        });
        // No object of Helm's is changed, so an upgrade is refused nothing, and ends no emergency.
        world.deploy(engine, "upgrade", &values);
        comes_to(&world, &bad, "is warned of after an upgrade", |it| it.ok);
        kubectl("delete wpp break-glass");
        comes_to(&world, &bad, "is denied after the emergency", |it| !it.ok);
        let label = ["label", "namespace", "apps", "transom.dev/mode-"];
        world.cluster.kubectl(&label).succeeded();
        walked.insert(platform);
    }
    assert_eq!(walked, platforms());
}
