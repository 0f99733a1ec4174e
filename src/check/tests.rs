//! Tests of assumed owners, skipped objects and custom resources.

mod custom_resources;

use jiff::civil::date;

use super::*;
use crate::engine::Decision;
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::object::ReviewStage;
use crate::model::policy::Policy;

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
    let skipped: Vec<_> = skipped
        .iter()
        .map(|(kind, count)| (kind.as_str(), *count))
        .collect();
    assert_eq!(skipped, [("JobSet", 1), ("Service.example.com", 2)]);
}
