//! `WindowsPodPolicy`: its fields and their defaults, the same for files and for the cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::engine::namespace_labels::NamespaceOverrides;
use crate::model::label_selector::LabelSelector;
use crate::model::node::Taint;
use crate::model::os::Os;
use crate::model::policy::{
    Action, BuildLabel, IgnoredFields, ImageEvidence, LinuxPods, Mode, PlacementField, PlacementMode,
};
use crate::model::workload::configured::PodTemplateKind;

/// What it does, and for which namespaces.
// The comments of the fields are what `kubectl explain` prints.
#[derive(CustomResource, Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
#[kube(
    group = "transom.dev",
    version = "v1alpha1",
    kind = "WindowsPodPolicy",
    plural = "windowspodpolicies",
    shortname = "wpp",
    category = "transom",
    status = "WindowsPodPolicyStatus",
    derive = "PartialEq",
    doc = "What Transom does with Windows pods: what findings do, what is changed in pods, for whom, and who is exempt."
)]
#[kube(printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#)]
#[kube(printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"}"#)]
#[kube(
    printcolumn = r#"{"name": "Namespaces", "type": "integer", "jsonPath": ".status.matchedNamespaces.effective"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Overridden", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Overridden')].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[kube(
    printcolumn = r#"{"name": "Validation", "type": "string", "jsonPath": ".status.effective.validation", "priority": 1}"#
)]
#[kube(
    printcolumn = r#"{"name": "Placement", "type": "string", "jsonPath": ".status.effective.placement", "priority": 1}"#
)]
#[kube(
    printcolumn = r#"{"name": "Problem", "type": "string", "jsonPath": ".status.lastProblem", "priority": 1}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowsPodPolicySpec {
    /// How much the policy does: Audit records everything and changes nothing, Warn warns of errors and applies
    /// placement, Enforce denies errors and applies placement. Settings of validation and placement that are given count
    /// instead.
    #[schemars(schema_with = "schema::mode")]
    pub mode: Mode,
    /// Of the policies that select a namespace the one with the highest number applies; ties go to the name that sorts
    /// first.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// The namespaces that it is for, by their labels; empty: every namespace.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,
    /// What the namespace label transom.dev/mode may change: nothing (None), only to a stricter mode (Stricter), or Any.
    #[serde(default)]
    #[schemars(schema_with = "schema::namespace_overrides")]
    pub namespace_overrides: NamespaceOverrides,
    /// What findings do.
    #[serde(default)]
    pub validation: ValidationSpec,
    /// What is changed in Windows pods at their creation, so that they land on a node that can run them.
    #[serde(default)]
    pub placement: PlacementSpec,
    /// What says that a pod is for Windows.
    #[serde(default)]
    pub evidence: EvidenceSpec,
    /// Users that are the controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs,
    /// ReplicationControllers and custom resources, where a platform calls them otherwise than their projects do. What they
    /// make of such an owner is denied only for what cannot run anyway, so name no user here that people or pipelines use.
    #[serde(default)]
    #[schemars(schema_with = "schema::users")]
    pub controller_usernames: Vec<String>,
    /// Custom resources that describe pods and that Transom does not know: they are evaluated like Deployments in the
    /// namespaces to which this policy applies. The webhook configurations must name them too: webhooks.podTemplates of the
    /// chart.
    #[serde(default)]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["group", "kind"])
    )]
    pub pod_templates: Vec<PodTemplateKind>,
    /// Findings that are accepted until a day.
    #[serde(default)]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub exemptions: Vec<ExemptionSpec>,
}

impl WindowsPodPolicySpec {
    /// A spec that says nothing but its mode.
    pub fn of_mode(mode: Mode) -> Self {
        WindowsPodPolicySpec {
            mode,
            priority: 0,
            namespace_selector: LabelSelector::default(),
            namespace_overrides: NamespaceOverrides::default(),
            validation: ValidationSpec::default(),
            placement: PlacementSpec::default(),
            evidence: EvidenceSpec::default(),
            controller_usernames: Vec::new(),
            pod_templates: Vec::new(),
            exemptions: Vec::new(),
        }
    }
}

/// What findings do.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ValidationSpec {
    /// What findings do at most: Deny, Warn (a kubectl warning), Audit (audit annotations, log, metrics) or Disabled.
    /// Unset: from the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::action")]
    pub action: Option<Action>,
    /// Fields of Windows pods that Windows ignores, that stop nothing, and that the API server accepts as long as spec.os
    /// does not say windows: Deny, Warn, Audit, or Remove (they are removed from pods, also from those of DaemonSets).
    /// Unset: from the mode. A rule that stands in rules goes by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ignored_fields")]
    pub ignored_fields: Option<IgnoredFields>,
    /// Rules by name, and what their findings do: Deny, Warn, Audit or Disabled. What counts is the weaker of this and
    /// action; without an entry errors are Deny, warnings Warn, advice Audit.
    #[schemars(schema_with = "schema::rule_actions")]
    pub rules: BTreeMap<String, Action>,
    /// Errors of rules that are newer than this version only warn. Unset: a new rule warns in the minor version in which
    /// it appears, and denies from the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::rules_version")]
    pub rules_version: Option<String>,
}

/// What is changed in Windows pods at their creation.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PlacementSpec {
    /// Apply, DryRun (record what it would do) or Disabled. Unset: from the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::placement_mode")]
    pub mode: Option<PlacementMode>,
    /// What is written: NodeSelector (kubernetes.io/os), OSName (spec.os.name, where the API server then refuses nothing),
    /// Tolerations (of the Windows nodes' taints), WindowsBuild (the builds that run the image, where some known node or
    /// pool does not), RuntimeClass (by runtimeClasses).
    #[schemars(schema_with = "schema::placement_fields")]
    pub fields: Vec<PlacementField>,
    /// Taints that every Windows pod is made to tolerate, beside those learned from known Windows nodes.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "value", "effect"])
    )]
    pub tolerated_taints: Vec<PoolTaint>,
    /// The label by which builds are required: node.kubernetes.io/windows-build (Kubelet), or the mirror of it that a
    /// kubelet cannot write (NodeRestriction); the nodes must carry it.
    #[schemars(schema_with = "schema::build_label")]
    pub build_label: BuildLabel,
    /// RuntimeClasses by release of Windows. Set where the class is known, agrees with the pod, isolates by process and
    /// adds no overhead.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["release"])
    )]
    pub runtime_classes: Vec<RuntimeClassSpec>,
    /// A Linux pod, or one that gives no sign, that could land on a Windows node: Apply gives it the nodeSelector
    /// kubernetes.io/os: linux (while placement is applied), Warn warns, Disabled does nothing.
    #[schemars(schema_with = "schema::linux_pods")]
    pub linux_pods: LinuxPods,
}

impl Default for PlacementSpec {
    fn default() -> Self {
        PlacementSpec {
            mode: None,
            fields: PlacementField::ALL.to_vec(),
            tolerated_taints: vec![PoolTaint {
                key: "os".into(),
                value: "windows".into(),
                effect: no_schedule(),
            }],
            build_label: BuildLabel::default(),
            runtime_classes: Vec::new(),
            linux_pods: LinuxPods::Disabled,
        }
    }
}

/// The RuntimeClass for a release of Windows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuntimeClassSpec {
    /// The release of the image, such as ltsc2022.
    #[schemars(length(min = 1, max = 63))]
    pub release: String,
    /// The name of the RuntimeClass.
    #[schemars(schema_with = "schema::runtime_class_name")]
    pub name: String,
}

/// What says that a pod is for Windows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EvidenceSpec {
    /// Whether images are evidence where nothing stronger speaks: by their names (Names), or not at all (Disabled).
    #[schemars(schema_with = "schema::image_evidence")]
    pub images: ImageEvidence,
    /// What a pod is that gives no sign at all: Windows or Linux; without it: unknown.
    #[serde(rename = "namespaceDefaultOS", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::os")]
    pub namespace_default_os: Option<Os>,
}

/// A taint of Windows nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTaint {
    /// Its key, such as os.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::QUALIFIED_NAME))]
    pub key: String,
    /// Its value, such as windows.
    #[serde(default)]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE))]
    pub value: String,
    /// What it does to pods that do not tolerate it.
    #[serde(default = "no_schedule")]
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute"]))]
    pub effect: String,
}

impl From<&PoolTaint> for Taint {
    fn from(written: &PoolTaint) -> Self {
        Taint {
            key: written.key.clone(),
            value: written.value.clone(),
            effect: written.effect.clone(),
        }
    }
}

fn no_schedule() -> String {
    "NoSchedule".to_owned()
}

/// Findings that are accepted until a day.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.namespaces) && size(self.namespaces) > 0 || has(self.images) && size(self.images) > 0 \
             || has(self.usernames) && size(self.usernames) > 0 || has(self.groups) && size(self.groups) > 0",
    "message": schema::WHOM,
}]))]
pub struct ExemptionSpec {
    /// What people call it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Who answers for it.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"\S"))]
    pub owner: String,
    /// Why.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub reason: String,
    /// The last day on which it counts, in UTC, as in 2027-03-31.
    #[schemars(length(min = 10, max = 10), extend("format" = "date"))]
    pub expires: String,
    /// The rules that it is for, by name; "*" stands for all.
    #[schemars(schema_with = "schema::rule_names")]
    pub rules: Vec<String>,
    /// Namespaces, where * stands for anything. Unset: every namespace.
    #[serde(default)]
    #[schemars(schema_with = "schema::short_strings")]
    pub namespaces: Vec<String>,
    /// Images, where * stands for anything: only findings in a container with such an image. Unset: all findings.
    #[serde(default)]
    #[schemars(schema_with = "schema::long_strings")]
    pub images: Vec<String>,
    /// User names, as the API server knows them. Without usernames and groups it is for every user, else for those in
    /// one of both lists.
    #[serde(default)]
    #[schemars(schema_with = "schema::long_strings")]
    pub usernames: Vec<String>,
    /// Groups.
    #[serde(default)]
    #[schemars(schema_with = "schema::long_strings")]
    pub groups: Vec<String>,
}

/// What became of the policy.
// Every field is written always, null where there is nothing: a merge patch with it leaves nothing old behind.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsPodPolicyStatus {
    /// The generation that this was written for.
    pub observed_generation: Option<i64>,
    /// Conditions, by type.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The settings that count where no namespace label changes the mode; null where no version of it is in force.
    pub effective: Option<EffectiveSettings>,
    /// The namespaces that it selects.
    pub matched_namespaces: MatchedNamespaces,
    /// The last thing that went wrong, in words; null where nothing is wrong.
    pub last_problem: Option<String>,
}

/// The settings of a policy, resolved: what it says itself, and the rest from its mode.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveSettings {
    /// The generation that they are of: an earlier one while the stored one cannot be used.
    pub generation: i64,
    /// What findings do at most.
    pub validation: String,
    /// What becomes of fields that Windows ignores.
    pub ignored_fields: String,
    /// What placement does.
    pub placement: String,
    /// What happens to Linux pods that could land on a Windows node.
    pub linux_pods: String,
}

/// The namespaces that a policy selects.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchedNamespaces {
    /// How many it selects.
    pub count: i32,
    /// In how many of them it counts: no other policy goes before it, and the API server asks Transom about their pods.
    pub effective: i32,
    /// The first of those that it selects, by name, 50 at most.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
}

impl MatchedNamespaces {
    /// How many namespaces are named.
    pub const MOST: usize = 50;
}
