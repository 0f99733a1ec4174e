//! Tests of assumed owners, skipped objects and custom resources.

mod custom_resources;

use jiff::civil::date;

use super::*;
use crate::engine::Decision;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::objects::object::ReviewStage;
use crate::model::objects::workload::configured::PodTemplateKind;
use crate::model::windows::os::Verdict;

const POD: &str =
    r"{nodeSelector: {kubernetes.io/os: windows}, hostPID: true, containers: [{name: a, image: a}]}";

fn input(yaml: &str) -> CheckInput {
    CheckInput {
        source: "-".to_owned(),
        bytes: yaml.replace("POD", POD).into_bytes(),
    }
}

fn parsed(yaml: &str) -> Manifests {
    Manifests::parse(vec![input(yaml)])
}

#[test]
fn an_object_with_an_owner_is_taken_for_its_controllers_where_that_is_evaluated() {
    let owned = |kind: &str, version: &str, owner: &str| {
        format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web, ownerReferences: \
             [{{apiVersion: {version}, kind: {owner}, name: o, controller: true}}]}}\nspec: {{template: {{spec: POD}}}}\n"
        )
    };
    for (object, owner) in [
        (owned("ReplicaSet", "apps/v1", "Deployment"), Some("Deployment o")),
        (
            owned("ReplicaSet", "argoproj.io/v1alpha1", "Rollout"),
            Some("Rollout o"),
        ),
        (owned("ReplicaSet", "example.com/v1", "Rollout"), None),
        (owned("Deployment", "apps/v1", "Deployment"), None),
    ] {
        let (facts, policies) = (
            Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
            PolicySet::new(Vec::new(), Policy::standalone()),
        );
        let manifests = parsed(&object);
        let mut seen = Vec::new();
        let errors = manifests
            .objects(ReviewStage::Written)
            .check(&facts, &policies, |checked| {
                seen.push((checked.owner.clone(), checked.evaluation.decision()));
            });
        let decision = if owner.is_some() {
            Decision::Allow
        } else {
            Decision::Deny
        };
        assert_eq!(
            (errors, seen),
            (vec![], vec![(owner.map(str::to_owned), decision)]),
            "{object}"
        );
    }
}

#[test]
fn kinds_with_pods_that_rules_do_not_know_are_counted() {
    let skipped = parsed(
        "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, spec: {template: {spec: POD}}}\n---\n\
         {apiVersion: example.com/v1, kind: Service, spec: {template: {spec: POD}}}\n---\n\
         {apiVersion: example.com/v1, kind: Service, spec: {template: {spec: POD}}}\n---\n\
         {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{template: {spec: {template: {spec: POD}}}}]}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, data: {containers: none}}\n---\n\
         {apiVersion: metrics.k8s.io/v1beta1, kind: PodMetrics, containers: [{name: a, usage: {cpu: 1}}]}\n---\n\
         {apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: POD}}}\n",
    )
    .skipped();
    assert_eq!(skipped.for_windows.len(), 3);
    let skipped = skipped.kinds;
    let skipped: Vec<_> = skipped
        .iter()
        .map(|(kind, count)| (kind.as_str(), *count))
        .collect();
    assert_eq!(skipped, [("JobSet", 1), ("Service.example.com", 2)]);
}

/// Operators compose pods from fields of their own, so that no path leads to a pod.
#[test]
fn what_selects_windows_nodes_is_named_with_the_argument_that_evaluates_it() {
    let yaml = "\
apiVersion: datadoghq.com/v2alpha1
kind: DatadogAgent
metadata: {name: agent}
spec: {override: {nodeAgent: {nodeSelector: {kubernetes.io/os: windows}}}}
---
{apiVersion: example.com/v1, kind: Game, metadata: {name: chess}, spec: {pods: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{image: a}]}}}}}
---
{apiVersion: example.com/v1, kind: Proxy, metadata: {name: edge}, spec: {pod: {containers: [{image: a}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}}}}
---
{apiVersion: example.com/v1, kind: Jobs, metadata: {name: nightly}, spec: {jobs: [{template: {spec: {nodeSelector: {cloud.google.com/gke-os-distribution: windows_ltsc_2022}, containers: [{image: a}]}}}]}}
---
{apiVersion: example.com/v1, kind: Both, metadata: {name: both}, spec: {nodeSelector: {kubernetes.io/os: windows}, a: {containers: [{image: a}]}, b: {containers: [{image: a}]}}}
---
{apiVersion: example.com/v1, kind: Game, metadata: {name: linux}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{image: a}]}}}}
---
{apiVersion: example.com/v1, kind: Rules, metadata: {name: none}, spec: {nodeSelector: [windows], nodeSelectorTerms: windows, text: 'kubernetes.io/os: windows'}}
---
{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: a-1}, data: {spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{image: a}]}}}}}
";
    let skipped = parsed(yaml).skipped();
    let found = skipped.for_windows.iter();
    let found = found.map(|object| (object.line, object.name.as_str(), object.pod_template.as_str()));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (1, "agent", "datadoghq.com/DatadogAgent=PATH"),
            (6, "chess", "example.com/Game=spec.pods.template"),
            (8, "edge", "example.com/Proxy=spec.pod"),
            (10, "nightly", "example.com/Jobs=PATH"),
            (12, "both", "example.com/Both=PATH"),
        ]
    );
    let kinds: Vec<_> = skipped.kinds.keys().map(String::as_str).collect();
    assert_eq!(
        kinds,
        [
            "Both",
            "ControllerRevision",
            "DatadogAgent",
            "Game",
            "Jobs",
            "Proxy"
        ]
    );
    // The argument evaluates the pods.
    for object in skipped
        .for_windows
        .iter()
        .filter(|object| !object.pod_template.ends_with("=PATH"))
    {
        let entry = PodTemplateKind::parse(&object.pod_template).unwrap();
        let mut manifests = Manifests::new(CheckSettings {
            pod_templates: vec![entry.configured().unwrap()],
            ..CheckSettings::default()
        });
        manifests.add(input(yaml));
        let left = manifests.skipped().for_windows;
        assert!(left.iter().all(|other| other.kind != object.kind), "{left:?}");
        let objects = manifests.objects(ReviewStage::Written);
        let (facts, policies) = (
            Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
            PolicySet::new(Vec::new(), Policy::standalone()),
        );
        let mut windows = Vec::new();
        objects.check(&facts, &policies, |checked| {
            if checked.evaluation.inference.verdict == Verdict::Windows {
                windows.push(checked.name);
            }
        });
        assert_eq!(windows, [object.name.as_str()]);
    }
}

/// Specs of another folder are those of another cluster.
#[test]
fn a_credential_spec_is_looked_for_among_those_of_its_cluster() {
    let spec = "{apiVersion: windows.k8s.io/v1, kind: GMSACredentialSpec, metadata: {name: gmsa-webapp1}, credspec: {}}\n";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {os: {name: windows}, securityContext: {windowsOptions: \
               {gmsaCredentialSpecName: gmsa-web}}, containers: [{name: a, image: a}]}}\n";
    let found = |files: &[(&str, SourceRole, &str)]| {
        let mut manifests = Manifests::default();
        for (name, role, text) in files {
            let source = CheckInput {
                source: (*name).to_owned(),
                bytes: text.as_bytes().to_vec(),
            };
            manifests.add_as(*role, source);
        }
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let objects = manifests.objects(ReviewStage::Written);
        objects.learn(&mut facts, &policies);
        let mut messages = Vec::new();
        objects.check(&facts, &policies, |checked| {
            let findings = checked.evaluation.findings.iter();
            let findings = findings.filter(|finding| finding.rule.name == "gmsa-name-unknown");
            messages.extend(findings.map(|finding| finding.message.to_string()));
        });
        messages
    };
    let (named, fact) = (SourceRole::Named, SourceRole::Facts);
    let unknown = [
        "no GMSACredentialSpec of the input is called \"gmsa-web\": the input has gmsa-webapp1".to_owned(),
    ];
    assert_eq!(found(&[("a/pod.yaml", named, pod)]), [""; 0]);
    assert_eq!(
        found(&[("a/pod.yaml", named, pod), ("a/spec.yaml", named, spec)]),
        unknown
    );
    assert_eq!(
        found(&[("a/pod.yaml", named, pod), ("b/spec.yaml", named, spec)]),
        [""; 0]
    );
    assert_eq!(
        found(&[("a/pod.yaml", named, pod), ("cluster/spec.yaml", fact, spec)]),
        unknown
    );
    let right = spec.replace("gmsa-webapp1", "gmsa-web");
    assert_eq!(
        found(&[("a/pod.yaml", named, pod), ("a/spec.yaml", named, &right)]),
        [""; 0]
    );
}
