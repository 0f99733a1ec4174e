//! `WindowsPodPolicy`: its fields and their defaults, the same for files and for the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::schema;
use crate::engine::namespace_labels::NamespaceOverrides;
use crate::model::cluster::policy::{
    Action, BuildLabel, IgnoredFields, ImageEvidence, LinuxPods, MOST_AGE_DAYS, Mode, PlacementField,
    PlacementMode,
};
use crate::model::nodes::node::Taint;
use crate::model::objects::label_selector::LabelSelector;
use crate::model::windows::os::Os;
use crate::rules::IMAGE_BASE_OLD;

/// What the policy does, and in which namespaces.
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
    printcolumn = r#"{"name": "Namespaces", "type": "integer", "jsonPath": ".status.matchedNamespaces.effectiveCount"}"#
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
    printcolumn = r#"{"name": "Problem", "type": "string", "jsonPath": ".status.message", "priority": 1}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowsPodPolicySpec {
    /// Sets the defaults of validation and placement: Audit records everything and changes nothing, Warn warns of
    /// errors and applies placement, Enforce denies errors and applies placement. Explicit settings of validation and
    /// placement take precedence.
    #[schemars(schema_with = "schema::one_of::<Mode>")]
    pub mode: Mode,
    /// If several policies select a namespace, the one with the highest number applies. If the numbers are equal, the
    /// name that sorts first applies. The policy break-glass has none: it limits the policy that applies.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// Selects namespaces by their labels. Empty: every namespace.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,
    /// What the namespace label transom.dev/mode may change: nothing (None), only to a stricter mode (Stricter), or
    /// Any.
    #[serde(default)]
    #[schemars(schema_with = "schema::namespace_overrides")]
    pub namespace_overrides: NamespaceOverrides,
    /// What findings do.
    #[serde(default)]
    pub validation: ValidationSpec,
    /// What is changed in Windows pods at their creation, so that they land on a node that can run them.
    #[serde(default)]
    pub placement: PlacementSpec,
    /// The evidence that a pod is for Windows.
    #[serde(default)]
    pub evidence: EvidenceSpec,
    /// Findings that are accepted until a date. All exemptions together may name 512 namespaces, images, users and groups,
    /// with 16 KiB of text.
    #[serde(default)]
    #[schemars(
        length(max = 256),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["name"],
            "x-kubernetes-validations" = schema::exemption_bounds(),
        )
    )]
    pub exemptions: Vec<ExemptionSpec>,
}

/// What findings do.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ValidationSpec {
    /// The strongest action of findings: Deny, Warn (a kubectl warning), Audit (audit annotations, log, metrics) or
    /// Disabled. Unset: from the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_of::<Action>")]
    pub action: Option<Action>,
    /// The action for fields that Windows ignores, that break nothing, and that the API server accepts unless spec.os
    /// is windows: Deny, Warn, Audit, or Remove (Transom removes them from pods, including those of DaemonSets).
    /// Unset: from the mode. A rule listed in rules uses its own action.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_of::<IgnoredFields>")]
    pub ignored_fields: Option<IgnoredFields>,
    /// Actions of single rules. Without an entry, errors are Deny, warnings Warn, advice Audit.
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub rules: Vec<RuleSpec>,
    /// Errors of rules that are newer than this version only warn. Unset: a new rule warns in the minor version in
    /// which it appears, and denies from the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::rules_version")]
    pub rules_version: Option<String>,
}

/// What the findings of one rule do, and when it has some.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.action) || has(self.parameters) && has(self.parameters.maxAgeDays)", "message": schema::action_or_age()},
    {"rule": format!("!has(self.parameters) || self.name == '{}'", IMAGE_BASE_OLD.name), "message": schema::age_of_other_rule()},
]))]
pub struct RuleSpec {
    /// The name of the rule, such as run-as-user.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Deny, Warn, Audit or Disabled; the weaker of this and validation.action applies. Unset: by the severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_of::<Action>")]
    pub action: Option<Action>,
    /// Settings that only some rules have.
    #[serde(default, skip_serializing_if = "RuleParameters::is_empty")]
    #[schemars(schema_with = "schema::rule_parameters")]
    pub parameters: RuleParameters,
}

/// Settings that only some rules have.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuleParameters {
    /// For image-base-old: how many days old the Windows base of an image may be. Unset: 180.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_days: Option<u16>,
}

impl RuleParameters {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_empty(&self) -> bool {
        *self == RuleParameters::default()
    }
}

impl RuleSpec {
    /// A field that the API server refuses, and why: lower case, no full stop. Files are checked for the same.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let days = 1..=MOST_AGE_DAYS;
        match (self.action, self.parameters.max_age_days) {
            (None, None) => Some(("action", schema::action_or_age())),
            (_, Some(_)) if self.name != IMAGE_BASE_OLD.name => {
                Some(("parameters", schema::age_of_other_rule()))
            }
            (_, Some(age)) if !days.contains(&age) => Some((
                "parameters.maxAgeDays",
                format!("write a number from 1 to {MOST_AGE_DAYS}"),
            )),
            _ => None,
        }
    }
}

/// Taints that Windows pods tolerate.
fn tolerated_taints(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "value", "effect"],
        "items": PoolTaint::json_schema(generator),
    })
}

/// What is changed in Windows pods at their creation.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PlacementSpec {
    /// Apply, Audit (record what it would do) or Disabled. Unset: from the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_of::<PlacementMode>")]
    pub mode: Option<PlacementMode>,
    /// The fields that placement sets: NodeSelector (kubernetes.io/os), OSName (spec.os.name, if the API server
    /// accepts the pod with it), Tolerations (of the Windows nodes' taints), WindowsBuild (the builds that run the
    /// image, if some known node or pool does not), RuntimeClass (by runtimeClasses). Unset: all that the version has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::placement_fields")]
    pub fields: Option<Vec<PlacementField>>,
    /// Taints that placement makes Windows pods tolerate, unless the toleration could make a pod worse off, in addition to those
    /// that mean Windows of known Windows nodes, of taints.required of WindowsNodePolicies, and of declared WindowsNodePools.
    /// Unset: os=windows:NoSchedule if neither of the last two states such a taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tolerated_taints")]
    pub tolerated_taints: Option<Vec<PoolTaint>>,
    /// The label by which builds are required: node.kubernetes.io/windows-build (Kubelet), or the mirror of it that a
    /// kubelet cannot write (NodeRestriction); the nodes must carry it.
    #[schemars(schema_with = "schema::one_of::<BuildLabel>")]
    pub build_label: BuildLabel,
    /// RuntimeClasses by release of Windows. Placement sets the class if it exists, fits the pod, uses process
    /// isolation and adds no overhead.
    pub runtime_classes: PlacementRuntimeClasses,
    /// The action for a Linux pod, or a pod without evidence, that could be scheduled on a Windows node: Apply gives
    /// it the nodeSelector kubernetes.io/os: linux (while placement is applied), Warn warns, Disabled does nothing.
    #[schemars(schema_with = "schema::one_of::<LinuxPods>")]
    pub linux_pods: LinuxPods,
}

impl Default for PlacementSpec {
    fn default() -> Self {
        PlacementSpec {
            mode: None,
            fields: None,
            tolerated_taints: None,
            build_label: BuildLabel::default(),
            runtime_classes: PlacementRuntimeClasses::default(),
            linux_pods: LinuxPods::Disabled,
        }
    }
}

/// The RuntimeClasses that placement may set. As in a WindowsNodePolicy, namePattern names the class of each release.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PlacementRuntimeClasses {
    /// The pattern of class names, as in a WindowsNodePolicy that creates the classes: {release} is the release
    /// (ltsc2022), {isolation} is process. Unset: only the classes of names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::class_name_pattern")]
    pub name_pattern: Option<String>,
    /// The classes of releases whose name does not follow the pattern.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["release"])
    )]
    pub names: Vec<RuntimeClassSpec>,
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

/// The evidence that a pod is for Windows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EvidenceSpec {
    /// Whether images are evidence without stronger evidence: by their names (Names), by what their registries
    /// report, else by their names (Registry), or Disabled. Registry needs the list of registries that Transom may ask:
    /// imageLookups.registries of the chart.
    #[schemars(schema_with = "schema::one_of::<ImageEvidence>")]
    pub image_evidence: ImageEvidence,
    /// With imageEvidence: Registry, how long a review may wait for a registry, in milliseconds; at most 500. With 0, a review
    /// never waits, and uses what is known already.
    #[schemars(range(min = 0, max = 500))]
    pub image_wait_milliseconds: i32,
    /// The operating system of pods without any evidence: Windows or Linux. Unset: unknown.
    #[serde(rename = "defaultOS", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::os")]
    pub default_os: Option<Os>,
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

/// Findings that are accepted until a date.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.namespaces) || has(self.images) || has(self.usernames) || has(self.groups)",
    "message": schema::WHOM,
}]))]
pub struct ExemptionSpec {
    /// A name for people.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The person or team that is responsible for it.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"\S"))]
    pub owner: String,
    /// Why.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub reason: String,
    /// The last day on which it applies, in UTC, such as 2027-03-31.
    #[schemars(length(min = 10, max = 10), extend("format" = "date"))]
    pub expires_on: String,
    /// The names of the rules that it exempts; "*" means all rules.
    #[schemars(schema_with = "schema::rule_names")]
    pub rules: Vec<String>,
    /// Namespaces; * matches any text. Unset: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_strings")]
    pub namespaces: Option<Vec<String>>,
    /// Images; * matches any text. Exempts only findings in containers with such an image. Unset: all findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::long_strings")]
    pub images: Option<Vec<String>>,
    /// User names, as the API server knows them. If usernames and groups are both unset, every user is exempt;
    /// otherwise a user must be in one of the two lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::long_strings")]
    pub usernames: Option<Vec<String>>,
    /// Groups. Unset: see usernames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::long_strings")]
    pub groups: Option<Vec<String>>,
}

/// The state of the policy.
// Every field is in the merge patch, null where there is nothing: that removes what was there, and null is never stored.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsPodPolicyStatus {
    /// The metadata.generation that this status describes.
    pub observed_generation: Option<i64>,
    /// Conditions, by type.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The settings that apply if no namespace label changes the mode; absent if no version of the policy is active.
    pub effective: Option<EffectiveSettings>,
    /// The namespaces that it selects.
    pub matched_namespaces: MatchedNamespaces,
    /// The most severe current problem; absent if there is none.
    pub message: Option<String>,
}

/// The effective settings of a policy: its own, and the rest from its mode.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveSettings {
    /// The generation that these settings come from: an earlier one while the stored one is invalid.
    pub generation: i64,
    /// What findings do at most.
    pub validation: String,
    /// The action for fields that Windows ignores.
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
    /// In how many of them it applies: no other policy takes precedence, and the API server calls Transom for their
    /// pods.
    pub effective_count: i32,
    /// The first of those that it selects, by name, 50 at most.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
}

impl MatchedNamespaces {
    /// How many namespaces are named.
    pub const MOST: usize = 50;
}
