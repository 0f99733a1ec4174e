//! The chart on a real API server: what it makes of a matrix of values is accepted, and Helm installs it, upgrades it
//! and takes it away again.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tempfile::TempDir;
use transom::render::yaml_documents;

use super::engine::{Engine, REGISTRY, engine};
use super::generated::is_up_to_date;
use super::read;
use crate::support::command::{program, transom};
use crate::support::control_plane::ControlPlane;

/// The kinds of other projects that the chart can make objects of, with no schema: the API server checks only that
/// they are objects.
const FOREIGN: [(&str, &str, &str, &str); 4] = [
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("cert-manager.io", "v1", "Issuer", "issuers"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
];

fn start() -> Option<(&'static Engine, ControlPlane)> {
    let engine = engine()?;
    let cluster = ControlPlane::start_or_skip("the chart on an API server")?;
    Some((engine, cluster))
}

fn apply(cluster: &ControlPlane, objects: &str) {
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], objects)
        .succeeded();
}

/// The kinds that the chart needs of others.
pub fn define_foreign(cluster: &ControlPlane) {
    for (group, version, kind, plural) in FOREIGN {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        });
        apply(cluster, &definition.to_string());
    }
    cluster.wait_for_definitions();
}

/// The kinds that the chart needs of others, and its own.
pub fn define(cluster: &ControlPlane) {
    define_foreign(cluster);
    for file in ["windowspodpolicies", "windowsnodepolicies", "windowsnodepools"] {
        apply(cluster, &read(&format!("crds/{file}.yaml")));
    }
    cluster.wait_for_definitions();
    for namespace in ["transom-system", "other"] {
        cluster.create_namespace(namespace, &[]);
    }
    cluster.create_namespace(
        "restricted",
        &[("pod-security.kubernetes.io/enforce", "restricted")],
    );
}

/// Every switch of the chart, in the combinations in which it changes what is made.
pub fn matrix() -> Vec<Value> {
    let all_monitoring = json!({"serviceMonitor": {"enabled": true, "labels": {"release": "prometheus"}},
                                "prometheusRule": {"enabled": true}, "dashboard": {"enabled": true}});
    vec![
        json!({}),
        json!({"replicaCount": 1, "podDisruptionBudget": {"enabled": false}, "hooks": {"runner": "none"}, "crds": {"upgrade": false}}),
        json!({"replicaCount": 5, "podDisruptionBudget": {"maxUnavailable": "40%"}, "resources": {}}),
        json!({"hooks": {"runner": "argocd"}, "uninstall": {"keepNodeLabels": true, "keepTaints": true, "keepRuntimeClasses": true}}),
        json!({"certificates": {"mode": "cert-manager"}}),
        json!({"certificates": {"mode": "cert-manager", "certManager": {"issuerRef": {"name": "corp", "kind": "ClusterIssuer"}}}}),
        json!({"certificates": {"mode": "provided", "secretName": "mine", "provided": {"caKey": ""}}}),
        json!({"certificates": {"mode": "provided", "secretName": "mine", "provided": {"caKey": "root.pem", "certKey": "a.pem", "privateKeyKey": "b.pem"}}}),
        json!({"hostNetwork": true, "ports": {"webhook": 10260, "health": 10261}}),
        json!({"mode": "Audit", "webhooks": {"failurePolicy": "Fail", "timeoutSeconds": 1}}),
        json!({"podPolicies": {"default": null, "main": {"spec": {
            "mode": "Warn", "priority": 10, "namespaceOverrides": "Any",
            "namespaceSelector": {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]},
            "validation": {"action": "Deny", "ignoredFields": "Remove", "rulesVersion": "0.1", "rules": [{"name": "run-as-user", "action": "Warn"}, {"name": "host-process-requires-host-network", "action": "Disabled"}]},
            "placement": {"mode": "Audit", "linuxPods": "Apply", "buildLabel": "NodeRestriction", "fields": ["NodeSelector", "RuntimeClass"],
                          "runtimeClasses": {"names": [{"release": "ltsc2022", "name": "windows-2022"}]}},
            "evidence": {"imageEvidence": "Disabled", "defaultOS": "Linux"},
            "exemptions": [{"name": "x", "rules": ["*"], "namespaces": ["a"], "expiresOn": "2027-03-31", "owner": "a", "reason": "b"}],
        }}}, "nodePolicies": {"default": {"spec": {"taints": {"mode": "Reconcile", "noExecute": "Allowed", "required": [{"key": "os", "value": "windows", "effect": "NoExecute"}]},
            "labels": {"kubelet": {"mode": "Disabled"}, "nodeRestriction": {"mode": "Reconcile"}},
            "runtimeClasses": {"mode": "Reconcile", "isolations": ["Process", "HyperV"]}}}},
             "cluster": {"nodeLabels": [{"key": "pool", "valuePrefixes": ["win"]}, {"key": "team", "values": ["a", "b"]}]},
             "rbac": {"runtimeClasses": true}, "admissionPolicies": {"noExecuteTaints": true},
             "nodePools": {"w": {"spec": {"nodeSelector": {"matchLabels": {"pool": "win"}},
                 "template": {"build": "10.0.20348", "taints": [{"key": "os", "value": "windows"}]}}}}}),
        json!({"podPolicies": {"default": {"create": false}}, "nodePolicies": {"default": {"create": false}}, "webhooks": {"excludedNamespaces": []}}),
        json!({"mode": "Audit", "cluster": {"podTemplates": [{"group": "example.com", "kind": "GameServerSet", "path": "spec.template"},
               {"group": "example.org", "kind": "Proxy", "path": "spec.podSpec", "resource": "proxies"}]}}),
        json!({"webhooks": {"linuxPods": {"enabled": true}, "defaultOS": {"enabled": true, "namespaceSelector": {"matchLabels": {"os": "windows"}}}, "annotations": {"a": "b"}}}),
        json!({"metrics": all_monitoring, "networkPolicy": {"enabled": true, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}], "egress": [{"ports": [{"port": 443}]}]}}),
        json!({"networkPolicy": {"enabled": true}, "service": {"ipFamilyPolicy": "SingleStack", "annotations": {"a": "b"}}}),
        json!({"image": {"digest": format!("sha256:{}", "a".repeat(64)), "registry": "", "pullPolicy": "Always"}, "imagePullSecrets": [{"name": "pull"}], "global": {"imageRegistry": "mirror.example.com:5000"}}),
        json!({"priorityClassName": "system-cluster-critical", "tolerations": [{"key": "infra", "operator": "Exists"}], "nodeSelector": {"kubernetes.io/os": "linux", "pool": "infra"},
               "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "transom"}}}]}},
               "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}),
        json!({"commonLabels": {"team": "platform"}, "commonAnnotations": {"note": "all"}, "podLabels": {"x": "y"}, "podAnnotations": {"p": "q"}, "nameOverride": "guard"}),
        json!({"fullnameOverride": "windows-guard", "serviceAccount": {"name": "someone", "annotations": {"eks.amazonaws.com/role-arn": "x"}}}),
        json!({"serviceAccount": {"create": false, "name": "existing"}, "rbac": {"create": false}}),
        json!({"proxy": {"https": "http://proxy.example.com:3128", "noProxy": "10.0.0.0/8,.corp"}, "server": {"log": {"format": "text", "filter": "info,audit=warn"}, "featureGates": ["WinDSR=false", "ContainerStopSignals=true"]},
               "extraArgs": ["--tls-poll=1s"], "extraEnv": [{"name": "A", "value": "b"}], "extraVolumes": [{"name": "v", "emptyDir": {}}], "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}]}),
        json!({"tracing": {"endpoint": "http://collector:4318", "ratio": 1}, "admissionPolicies": {"enabled": false},
               "rbac": {"nodePolicies": true, "runtimeClasses": true}}),
        // `--set` makes a text of it.
        json!({"certificates": {"mode": "cert-manager"}, "tracing": {"endpoint": "https://collector:4318", "ratio": "0.01"},
               "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "headers", "key": "headers"}}}]}),
        json!({"probe": {"enabled": true, "namespace": "other"}, "reports": {"enabled": true}}),
        json!({"nodeStartup": {"admissionPolicy": {"enabled": true, "nodeSelector": {"matchLabels": {"agentpool": "win"}}}, "imagePuller": {"enabled": true}},
               "nodePolicies": {"default": {"spec": {"startup": {"imageSource": "Listed", "images": ["a:1"], "puller": "Pods", "pullSecrets": [{"name": "pull"}]}}}}}),
        json!({"imageLookups": {"registries": ["mcr.microsoft.com", "*.azurecr.io", "registry.corp:5000"], "pullSecret": "pull", "pullSecretNamespaces": ["other"],
                          "plainHTTP": ["registry.corp:5000"], "caConfigMap": {"name": "roots"}},
               "mode": "Audit", "podPolicies": {"default": {"spec": {"evidence": {"imageEvidence": "Registry", "imageWaitMilliseconds": 250}}}}}),
        json!({"clientCertificates": {"caConfigMap": {"name": "webhook-clients"}, "names": ["kube-apiserver"], "required": true}}),
        json!({"listenAddress": "0.0.0.0", "dnsPolicy": "Default", "shutdown": {"drainDelay": "0s", "drainTimeout": "1m", "terminationGracePeriodSeconds": 90}, "server": {"limits": {"maxConcurrent": 8, "maxBytesInFlight": "24MiB"}}}),
        json!({"deploymentAnnotations": {"reloader.stakater.com/auto": "true"}, "metrics": {"serviceMonitor":
               {"enabled": true, "relabelings": [{"targetLabel": "cluster", "replacement": "east"}], "metricRelabelings": [{"action": "labeldrop", "regex": "le"}]}},
               "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more", "namespace": "{{ .Release.Namespace }}"}}]}),
        json!({"mode": "Audit", "hooks": {"runner": "argocd"}, "webhooks": {"allowSecondRelease": true},
               "rbac": {"runtimeClasses": true}, "nodePolicies": {"default": {"spec": {"runtimeClasses": {"mode": "Reconcile"}}}}}),
        json!({"podPolicies": {"default": {"spec": {"evidence": {"defaultOS": "Linux"}, "namespaceSelector": {"matchLabels": {"team": "a"}}}},
               "second": {"spec": {"mode": "Audit", "priority": 5, "placement": {"linuxPods": "Warn"}, "namespaceSelector": {"matchLabels": {"team": "b"}}}}},
               "nodePolicies": {"default": {"create": false}, "east": {"spec": {"mode": "Audit", "nodeSelector": {"matchLabels": {"zone": "east"}}}},
               "west": {"spec": {"nodeSelector": {"matchLabels": {"zone": "west"}}}}}}),
    ]
}

/// The pod templates among the objects.
fn templates(objects: &[Value]) -> impl Iterator<Item = (&str, &Value)> {
    let with_one = objects
        .iter()
        .filter(|it| it["kind"] == "Deployment" || it["kind"] == "Job");
    with_one.map(|it| (it["kind"].as_str().unwrap(), &it["spec"]["template"]))
}

#[test]
fn every_value_makes_objects_that_the_api_server_takes_to_the_last_field() {
    let Some((engine, cluster)) = start() else { return };
    define(&cluster);
    let mut kinds = BTreeSet::new();
    for values in matrix() {
        engine.request("validate", json!({"values": values})).unwrap();
        let rendered = engine.render(&values).unwrap();
        kinds.extend(
            rendered
                .objects
                .iter()
                .map(|it| it["kind"].as_str().unwrap().to_owned()),
        );
        let dry_run = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ];
        let printed = cluster.kubectl_with(&dry_run, &rendered.list());
        assert!(printed.ok, "{values}\n{}", printed.err);
        assert_eq!(printed.err, "", "{values}");
        assert_eq!(
            printed.out.lines().count(),
            rendered.objects.len(),
            "{values}\n{}",
            printed.out
        );
        for object in &rendered.objects {
            if object["metadata"]["name"] == "transom-more" {
                // One of extraObjects, which are rendered as they are.
                continue;
            }
            let labels = &object["metadata"]["labels"];
            assert_eq!(labels["app.kubernetes.io/name"], "transom", "{object:#}");
            assert_eq!(labels["app.kubernetes.io/instance"], "transom", "{object:#}");
            let is_registration = object["kind"].as_str().unwrap().ends_with("WebhookConfiguration");
            assert!(
                !is_registration || !object.to_string().contains("caBundle"),
                "{object:#}"
            );
        }
        // Restricted is what the host network is not, and what a privileged class in another namespace does not change.
        for (kind, template) in templates(&rendered.objects) {
            // Jobs only connect out.
            let on_the_host = kind == "Deployment" && values["hostNetwork"] == true;
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]});
            // The ServiceAccount and the Secrets are not there.
            pod["spec"].as_object_mut().unwrap().remove("priorityClassName");
            pod["spec"]["containers"][0]["volumeMounts"] = json!([]);
            pod["spec"]["volumes"] = json!([]);
            let create = ["create", "-n", "restricted", "--dry-run=server", "-f", "-"];
            let printed = cluster.kubectl_with(&create, &pod.to_string());
            assert_eq!(printed.ok, !on_the_host, "{kind} of {values}\n{}", printed.err);
        }
    }
    let expected = [
        "Certificate",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "Issuer",
        "Job",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "WindowsNodePolicy",
        "WindowsNodePool",
        "WindowsPodPolicy",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn a_release_has_its_own_names_wherever_it_is_installed() {
    let Some(engine) = engine() else { return };
    let rendered = engine.render_as("win", "other", &json!({})).unwrap();
    assert_eq!(rendered.names("Deployment"), ["win-transom"]);
    assert_eq!(rendered.names("MutatingWebhookConfiguration"), ["zz-win-transom"]);
    let webhooks = rendered.object("ValidatingWebhookConfiguration", "zz-win-transom");
    let service = &webhooks["webhooks"][0]["clientConfig"]["service"];
    assert_eq!(
        (&service["name"], &service["namespace"]),
        (&json!("win-transom"), &json!("other"))
    );
    let excluded = &webhooks["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert!(
        excluded.as_array().unwrap().contains(&json!("other")),
        "{excluded}"
    );
    // In `default` the Role for events is the release's own; the other one is that of the uninstall. There is no test, because
    // the webhooks are not called for their own namespace.
    assert_eq!(
        engine
            .render_as("win", "default", &json!({}))
            .unwrap()
            .names("Role")
            .len(),
        2
    );
}

/// The objects for those who do not use Helm: those of the chart, and the namespace that they are in.
pub fn objects_without_helm(engine: &Engine, values: &Value) -> Vec<Value> {
    let mut values = values.clone();
    values["hooks"] = json!({"runner": "none"});
    let rendered = engine.render(&values).unwrap();
    let restricted = "pod-security.kubernetes.io/enforce";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": "transom-system", "labels": {restricted: "restricted"}}});
    let mut objects = vec![namespace];
    objects.extend(rendered.objects);
    // In the order in which they are needed; what registers the webhooks comes last but the policies.
    let last = [
        "Deployment",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "WindowsPodPolicy",
        "WindowsNodePolicy",
        "WindowsNodePool",
    ];
    objects.sort_by_key(|object| {
        last.iter()
            .position(|kind| object["kind"] == *kind)
            .map_or(0, |at| at + 1)
    });
    for object in &mut objects {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove("helm.sh/chart");
            labels.remove("app.kubernetes.io/managed-by");
        }
    }
    objects
}

/// Their manifest, with these values for registries.
fn install_manifest(engine: &Engine, images: &Value) -> String {
    let objects = objects_without_helm(engine, &json!({"imageLookups": images}));
    // The chart refuses the placeholder; whoever applies the manifest replaces it.
    let image = |registry: &str| format!("{registry}/transom/transom:");
    let documents = yaml_documents(&objects).replace(&image(REGISTRY), &image("registry.example.com"));
    format!(
        "# Transom without Helm, made from the chart's default values by tests/chart. The registry of the image is a placeholder:\n\
         # set yours in a kustomization, as docs/how-to/install.md shows.\n\
         #   kubectl apply --server-side --field-manager=helm -f manifests/crds.yaml\n\
         #   kubectl wait --for=condition=Established crd --all\n\
         #   kubectl apply --server-side -k transom\n\
         # To be rid of it: transom uninstall, then kubectl delete -f manifests/install.yaml\n{documents}"
    )
}

#[test]
fn the_manifests_install_what_the_chart_installs() {
    let Some(engine) = engine() else { return };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    is_up_to_date(
        &root.join("manifests/install.yaml"),
        &install_manifest(engine, &json!({})),
    );
    let Some(cluster) = ControlPlane::start_or_skip("the manifests") else {
        return;
    };
    let file = |name: &str| root.join("manifests").join(name).display().to_string();
    let apply = |name: &str| {
        let printed = cluster.kubectl(&["apply", "--server-side", "--validate=strict", "-f", &file(name)]);
        assert_eq!(printed.err, "", "{name}");
        printed.succeeded().out.lines().count()
    };
    assert_eq!(apply("crds.yaml"), 3);
    cluster.wait_for_definitions();
    assert!(apply("install.yaml") > 10);
    // Over the policies of install.yaml, which have the same names.
    for entry in std::fs::read_dir(root.join("manifests/examples/platforms")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(apply(&format!("examples/platforms/{name}")) >= 2);
    }
}

#[test]
fn the_generated_manifests_have_what_the_chart_has_for_registries() {
    let Some(engine) = engine() else { return };
    let images = json!({"registries": ["mcr.microsoft.com", "*.azurecr.io", "registry.corp:5000"], "pullSecret": "pull"});
    let chart = install_manifest(engine, &images).replace("registry.example.com", "ghcr.io");
    let image = chart.lines().find_map(|line| line.trim().strip_prefix("image: "));
    let registries = "mcr.microsoft.com,*.azurecr.io,registry.corp:5000";
    let folder = tempfile::tempdir().unwrap();
    let generated = transom(
        folder.path(),
        &[
            "generate",
            "install",
            "--image",
            image.unwrap().trim_matches('"'),
            "--image-registry",
            registries,
            "--image-pull-secret",
            "pull",
        ],
    );
    let objects = |text: &str| {
        let parsed = transom::manifest::parse(text.as_bytes().to_vec());
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        let objects = parsed
            .documents
            .iter()
            .map(|it| serde_json::from_str(it.json()).unwrap());
        let mut objects: Vec<Value> = objects.collect();
        // Lists without an order.
        for object in &mut objects {
            for list in ["/spec/template/spec/containers/0/env", "/rules"] {
                if let Some(items) = object.pointer_mut(list).and_then(Value::as_array_mut) {
                    items.sort_by_key(ToString::to_string);
                }
            }
        }
        objects
    };
    assert_eq!(generated.status, 0, "{}", generated.err);
    let (generated, chart) = (objects(&generated.out), objects(&chart));
    assert_eq!(generated.len(), chart.len());
    for (generated, chart) in generated.iter().zip(&chart) {
        assert_eq!(
            generated, chart,
            "{} {}",
            chart["kind"], chart["metadata"]["name"]
        );
    }
}

/// A folder with the manifests, and next to them the kustomization of docs/how-to/install.md.
pub fn kustomization() -> (TempDir, String) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = super::documents::blocks("docs/how-to/install.md", &["yaml"]).0;
    let mut written = page
        .into_iter()
        .filter(|block| block.contains("kind: Kustomization"));
    let text = written
        .next()
        .expect("docs/how-to/install.md has a kustomization");
    let folder = tempfile::tempdir().unwrap();
    super::rendered::copy(&root.join("manifests"), &folder.path().join("manifests"));
    std::fs::create_dir(folder.path().join("transom")).unwrap();
    (folder, text)
}

fn write_objects(file: &std::path::Path, objects: &[Value]) {
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    std::fs::write(file, documents.join("\n---\n")).unwrap();
}

#[test]
fn a_kustomization_sets_the_image_and_starts_with_audit() {
    let Some(cluster) = ControlPlane::start_or_skip("the kustomizations") else {
        return;
    };
    let (folder, text) = kustomization();
    let transom = folder.path().join("transom");
    let path = transom.display().to_string();
    let build = |text: &str| {
        std::fs::write(transom.join("kustomization.yaml"), text).unwrap();
        let built = cluster.kubectl(&["kustomize", &path]).succeeded().out;
        let parsed = transom::manifest::parse(built.into_bytes());
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        let objects = parsed.documents.iter().map(transom::manifest::Document::json);
        objects
            .map(|json| serde_json::from_str(json).unwrap())
            .collect::<Vec<Value>>()
    };
    let find = |objects: &[Value], kind: &str| {
        let mut found = objects.iter().filter(|it| it["kind"] == kind);
        let object = found.next().unwrap_or_else(|| panic!("there is no {kind}"));
        assert!(found.next().is_none(), "there are two {kind}");
        object.clone()
    };
    let modes = |objects: &[Value]| {
        ["WindowsPodPolicy", "WindowsNodePolicy"].map(|kind| find(objects, kind)["spec"]["mode"].clone())
    };

    // Without the overlay it is what install.yaml is, but for the image.
    let (enforcing, overlay): (Vec<&str>, Vec<&str>) = {
        let lines = text.lines();
        lines.partition(|line| !line.contains("components:") && !line.contains("manifests/audit"))
    };
    assert!(!overlay.is_empty(), "{text}");
    let whole = build(&enforcing.join("\n"));
    let installed = std::fs::read(folder.path().join("manifests/install.yaml")).unwrap();
    let installed = transom::manifest::parse(installed).documents.len();
    assert_eq!(whole.len(), installed);
    assert_eq!(modes(&whole), ["Enforce", "Reconcile"]);

    let audit = build(&text);
    assert_eq!(audit.len(), installed);
    assert_eq!(modes(&audit), ["Audit", "Audit"]);
    let of_nodes = &find(&audit, "WindowsNodePolicy")["spec"];
    assert!(!of_nodes.to_string().contains("Reconcile"), "{of_nodes}");
    let image = find(&audit, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert!(
        image.as_str().unwrap().starts_with("REGISTRY/transom/transom:"),
        "{image}"
    );

    // The policies of a platform are patches of those that are installed.
    let mut platforms = 0;
    for entry in std::fs::read_dir(folder.path().join("manifests/examples/platforms")).unwrap() {
        let path = entry.unwrap().path();
        let parsed = transom::manifest::parse(std::fs::read(&path).unwrap());
        let objects = (parsed.documents.iter()).map(|it| serde_json::from_str(it.json()).unwrap());
        // Pools are new objects, not patches.
        let (pools, policies): (Vec<Value>, Vec<Value>) =
            objects.partition(|object: &Value| object["kind"] == "WindowsNodePool");
        write_objects(&transom.join("platform.yaml"), &policies);
        write_objects(&transom.join("pools.yaml"), &pools);
        let resources = if pools.is_empty() {
            "resources:"
        } else {
            "resources:\n- pools.yaml"
        };
        let text = text.replace("resources:", resources);
        let patched = build(&format!("{text}\npatches:\n- path: platform.yaml\n"));
        for policy in policies.iter().chain(&pools) {
            let is_it = |made: &&Value| {
                made["kind"] == policy["kind"] && made["metadata"]["name"] == policy["metadata"]["name"]
            };
            let made = patched.iter().find(is_it).unwrap();
            for (field, value) in policy["spec"].as_object().unwrap() {
                assert_eq!(&made["spec"][field], value, "{}: {field}", path.display());
            }
        }
        platforms += 1;
    }
    assert_eq!(platforms, 6);

    // As the page applies it. An image has a name in lower case.
    std::fs::write(
        transom.join("kustomization.yaml"),
        text.replace("REGISTRY", "mirror.example.com"),
    )
    .unwrap();
    let definitions = folder.path().join("manifests/crds.yaml").display().to_string();
    for arguments in [
        &["apply", "--server-side", "-f", &definitions][..],
        &[
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ],
        &["apply", "--server-side", "--validate=strict", "-k", &path],
    ] {
        let printed = cluster.kubectl(arguments);
        assert_eq!(printed.err, "", "{arguments:?}");
        printed.succeeded();
    }
    let policies = cluster
        .kubectl(&["get", "wpp,wnp", "-o", "json"])
        .succeeded()
        .objects();
    assert_eq!(modes(&policies), ["Audit", "Audit"]);
}

#[test]
fn what_is_in_the_way_in_a_cluster_is_named() {
    let Some((engine, cluster)) = start() else { return };
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let request = |what: &str, values: Value| {
        let request = json!({"cluster": kubeconfig, "name": "transom", "namespace": "transom-system", "values": values});
        engine.request(what, request)
    };
    // A configuration of that name, of somebody else.
    let foreign = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                         "metadata": {"name": "zz-transom"}, "webhooks": []});
    apply(&cluster, &foreign.to_string());
    let error = request("install", json!({})).unwrap_err();
    let named = "MutatingWebhookConfiguration \"zz-transom\" in namespace \"\" exists and cannot be imported";
    assert!(error.contains(named), "{error}");
    cluster
        .kubectl(&["delete", "mutatingwebhookconfiguration", "zz-transom"])
        .succeeded();

    let without_jobs = json!({"hooks": {"runner": "none"}});
    request("install", without_jobs.clone()).unwrap();
    // Definitions of an older version: they do not know a field that the values have.
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/priority";
    let with_it = json!({"hooks": {"runner": "none"}, "podPolicies": {"default": {"spec": {"priority": 1}}}});
    let older = json!([{"op": "remove", "path": field}]).to_string();
    let patch = [
        "patch",
        "crd",
        "windowspodpolicies.transom.dev",
        "--type=json",
        "-p",
        &older,
    ];
    cluster.kubectl(&patch).succeeded();
    let error = request("upgrade", with_it.clone()).unwrap_err();
    let cure = documented_apply();
    assert!(
        error.contains("podPolicies.default.spec.priority: the CustomResourceDefinition")
            && error.contains(&cure),
        "{error}"
    );
    // The cure cures, and so does the program.
    let upgraded = std::process::Command::new(program())
        .args(["crds", "apply", "--kubeconfig", &kubeconfig])
        .output()
        .unwrap();
    assert!(upgraded.status.success(), "{upgraded:?}");
    request("upgrade", without_jobs.clone()).unwrap();
    // What the API server alone can see (a rule in CEL) comes back with the field.
    let bad = json!({"hooks": {"runner": "none"}, "nodePolicies": {"default": {"spec": {"runtimeClasses": {"namePattern": "windows"}}}}});
    let error = request("upgrade", bad).unwrap_err();
    assert!(error.contains("it must contain {release}"), "{error}");
    // The definitions stay at an uninstall, and Helm installs over those that the program applied.
    request_uninstall(engine, &kubeconfig);
    request("install", without_jobs.clone()).unwrap();
    request_uninstall(engine, &kubeconfig);

    // So it does over older ones that somebody applied as the documentation says; kubectl's own field manager would be
    // in the way, which is why it says one.
    let definition = "windowspodpolicies.transom.dev";
    let older = super::older::definition(&read("crds/windowspodpolicies.yaml")).to_string();
    let (_, documented) = cure.split_once("kubectl ").unwrap();
    let documented: Vec<&str> = documented.split(' ').collect();
    let undocumented: Vec<&str> = documented
        .iter()
        .copied()
        .filter(|it| *it != "--field-manager=helm")
        .collect();
    for (command, works) in [(undocumented, false), (documented, true)] {
        cluster.kubectl(&["delete", "crd", definition]).succeeded();
        cluster.kubectl_with(&command, &older).succeeded();
        let established = ["wait", "--for=condition=Established", "crd", definition];
        cluster.kubectl(&established).succeeded();
        let installed = request("install", without_jobs.clone());
        match installed {
            Ok(_) => assert!(works, "{command:?} is in nobody's way"),
            Err(error) => assert!(!works && error.contains("conflict"), "{command:?}: {error}"),
        }
    }
    let now = cluster
        .kubectl(&["get", "crd", definition, "-o", "json"])
        .succeeded();
    assert!(
        super::older::knows_it(&now.object()),
        "the installation did not bring it up to date"
    );
}

/// How docs/how-to/upgrade.md says that definitions are applied by hand.
fn documented_apply() -> String {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/how-to/upgrade.md");
    let page = std::fs::read_to_string(page).unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("transom generate crds | kubectl "));
    line.unwrap().to_owned()
}

fn request_uninstall(engine: &Engine, kubeconfig: &str) {
    let request = json!({"cluster": kubeconfig, "name": "transom", "namespace": "transom-system"});
    engine.request("uninstall", request).unwrap();
}
