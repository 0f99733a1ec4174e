//! `WindowsPodPolicy`: its fields and their defaults, the same for files and for the cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{self, OrOff, Repair};
use crate::engine::namespace_labels::NamespaceOverrides;
use crate::model::os::Os;
use crate::model::policy::{Action, Inert, ReverseGuard, Switch};
use crate::model::selector::LabelSelector;

/// What it does, and for whom. Everything has a default: those of the chart's default policy.
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
#[kube(printcolumn = r#"{"name": "Validation", "type": "string", "jsonPath": ".spec.validation"}"#)]
#[kube(printcolumn = r#"{"name": "Placement", "type": "string", "jsonPath": ".spec.placement"}"#)]
#[kube(printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"}"#)]
#[kube(
    printcolumn = r#"{"name": "Namespaces", "type": "integer", "jsonPath": ".status.matchedNamespaces.effective"}"#
)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[kube(printcolumn = r#"{"name": "Inert", "type": "string", "jsonPath": ".spec.inert", "priority": 1}"#)]
#[kube(
    printcolumn = r#"{"name": "Problem", "type": "string", "jsonPath": ".status.lastProblem", "priority": 1}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WindowsPodPolicySpec {
    /// Of the policies that select a namespace the one with the highest number counts; ties go to the name that sorts
    /// first.
    pub priority: i32,
    /// The namespaces that it is for, by their labels; empty: every namespace.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,
    /// What the namespace labels transom.dev/validation and transom.dev/placement may change: nothing (None), only
    /// to something stricter (Stricter), or Any.
    #[schemars(schema_with = "schema::namespace_overrides")]
    pub namespace_overrides: NamespaceOverrides,
    /// What findings do at most: Deny, Warn (a kubectl warning), Audit (audit annotations, log, metrics) or Off. Write
    /// "Off" with its quotes: without them YAML takes it for false.
    pub validation: OrOff<Action>,
    /// What placement does to Windows pods at their creation: Apply, DryRun (say what it would do) or Off. Write "Off"
    /// with its quotes: without them YAML takes it for false.
    pub placement: OrOff<Switch>,
    /// The parts of placement, each on or off.
    pub placement_parts: Parts,
    /// Fields of Windows pods that Windows ignores, that stop nothing, and that the API server takes as long as spec.os
    /// does not say windows: Deny (the default), Warn, Repair (they are taken out of pods, also of those of DaemonSets),
    /// or DryRun (Deny, and what Repair would do is told). A rule that stands in rules goes by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::inert")]
    pub inert: Option<Inert>,
    /// Deprecated, and of no effect beside inert: Inert is inert: Repair, DryRun is inert: DryRun, and Off is inert: Deny.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::repair")]
    pub repair: Option<OrOff<Repair>>,
    /// A Linux pod, or one that gives no sign, that could land on a Windows node: Apply gives it the nodeSelector
    /// kubernetes.io/os: linux (while placement is Apply), Warn warns, Off does nothing. Write "Off" with its quotes.
    pub reverse_guard: OrOff<ReverseGuard>,
    /// Rules by name or id, and what their findings do: Deny, Warn, Audit or "Off". What counts is the weaker of this
    /// and validation; without an entry errors are Deny, warnings Warn, advice Audit.
    #[schemars(extend("maxProperties" = 512))]
    pub rules: BTreeMap<String, OrOff<Action>>,
    /// What says that a pod is for Windows.
    pub evidence: Evidence,
    /// Taints that every Windows pod is made to tolerate, beside those learned from known Windows nodes.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "value", "effect"])
    )]
    pub tolerations: Vec<PoolTaint>,
    /// Windows pools that may be at zero nodes.
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pools: Vec<Pool>,
    /// How builds are required.
    pub build: BuildSpec,
    /// RuntimeClass names by release (ltsc2022: windows-2022). Set where the class is known, agrees with the pod,
    /// isolates by process and brings no overhead.
    #[schemars(schema_with = "schema::runtime_classes")]
    pub runtime_classes: BTreeMap<String, String>,
    /// Users that are the controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs and
    /// ReplicationControllers, where a platform calls them otherwise than Kubernetes does. What they make of such an owner
    /// is denied only for what cannot run anyway, so name no user here that people or pipelines use.
    #[schemars(schema_with = "schema::users")]
    pub controllers: Vec<String>,
    /// Findings that are lifted until a day.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub exemptions: Vec<ExemptionSpec>,
}

impl Default for WindowsPodPolicySpec {
    fn default() -> Self {
        WindowsPodPolicySpec {
            priority: 0,
            namespace_selector: LabelSelector::default(),
            namespace_overrides: NamespaceOverrides::default(),
            validation: OrOff(Action::Deny),
            placement: OrOff(Switch::Apply),
            placement_parts: Parts::default(),
            inert: None,
            repair: None,
            reverse_guard: OrOff(ReverseGuard::Off),
            rules: BTreeMap::new(),
            evidence: Evidence::default(),
            tolerations: vec![PoolTaint {
                key: "os".into(),
                value: "windows".into(),
                effect: no_schedule(),
            }],
            pools: Vec::new(),
            build: BuildSpec::default(),
            runtime_classes: BTreeMap::new(),
            controllers: Vec::new(),
            exemptions: Vec::new(),
        }
    }
}

/// The parts of placement.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools)] // five independent switches
pub struct Parts {
    /// The nodeSelector kubernetes.io/os: windows.
    pub os: bool,
    /// spec.os.name: windows, where the API server then refuses nothing.
    pub os_field: bool,
    /// Tolerations of the Windows nodes' taints.
    pub tolerations: bool,
    /// The builds that run the image, where some known node or pool does not.
    pub build: bool,
    /// runtimeClassName, by runtimeClasses.
    pub runtime_class: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            os: true,
            os_field: true,
            tolerations: true,
            build: true,
            runtime_class: true,
        }
    }
}

/// What says that a pod is for Windows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Evidence {
    /// Labels of Windows node pools, beside those of AKS and GKE, which are known.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "value"])
    )]
    pub pool_labels: Vec<PoolLabelSpec>,
    /// Whether an image can be evidence where nothing stronger speaks.
    pub images: bool,
    /// What a pod is that gives no sign at all: Windows or Linux; without it: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::os")]
    pub namespace_default_os: Option<Os>,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence {
            pool_labels: Vec::new(),
            images: true,
            namespace_default_os: None,
        }
    }
}

/// A node label that says Windows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolLabelSpec {
    /// The label's key.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::QUALIFIED_NAME))]
    pub key: String,
    /// Its value, compared without regard to case; * at its end stands for anything.
    #[schemars(length(max = 64), regex(pattern = r"^[^*]*\*?$"))]
    pub value: String,
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

fn no_schedule() -> String {
    "NoSchedule".to_owned()
}

/// A Windows pool that may be at zero nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// What people call it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Labels of its nodes that an autoscaler knows before there is a node: of its node template, or of the platform.
    /// Without the build label among them, placement lets pods go by these too.
    #[serde(default)]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// The build of its nodes, as in 10.0.20348.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::build")]
    pub build: Option<String>,
    /// The taints of its nodes.
    #[serde(default)]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "value", "effect"])
    )]
    pub taints: Vec<PoolTaint>,
    /// Extended resources that its nodes offer each pod, such as vpc.amazonaws.com/PrivateIPv4Address on EKS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 316), regex(pattern = schema::QUALIFIED_NAME)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub resources: Vec<String>,
}

/// How builds are required.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildSpec {
    /// By node-restriction.kubernetes.io/windows-build, which a kubelet cannot write; the nodes must carry it.
    pub trusted: bool,
}

/// Findings that are lifted until a day. An empty list stands for all.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExemptionSpec {
    /// Rule names or ids; empty: every rule.
    #[serde(default)]
    #[schemars(schema_with = "schema::short_strings")]
    pub rules: Vec<String>,
    /// User names, as the API server knows them. Without users and groups it is for every user, else for those in
    /// one of both lists.
    #[serde(default)]
    #[schemars(schema_with = "schema::long_strings")]
    pub users: Vec<String>,
    /// Groups.
    #[serde(default)]
    #[schemars(schema_with = "schema::long_strings")]
    pub groups: Vec<String>,
    /// Namespaces, where * stands for anything; empty: every namespace.
    #[serde(default)]
    #[schemars(schema_with = "schema::short_strings")]
    pub namespaces: Vec<String>,
    /// Images, where * stands for anything: only findings in a container with such an image; empty: all findings.
    #[serde(default)]
    #[schemars(schema_with = "schema::long_strings")]
    pub images: Vec<String>,
    /// The last day on which it counts, in UTC, as in 2027-03-31.
    #[schemars(length(min = 10, max = 10), extend("format" = "date"))]
    pub expires: String,
    /// Who answers for it.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"\S"))]
    pub owner: String,
    /// Why.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub reason: String,
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
    /// The namespaces that it selects.
    pub matched_namespaces: MatchedNamespaces,
    /// The last thing that went wrong, in words; null where nothing is wrong.
    pub last_problem: Option<String>,
    /// The last version that could be used: it counts while the one that is stored cannot be used, also for a replica that
    /// starts then. Null where there was none, or where it is longer than 262144 bytes.
    pub last_good: Option<LastGood>,
}

/// A version of a policy that could be used.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastGood {
    /// Its generation.
    pub generation: i64,
    /// Its spec, as JSON.
    pub spec: String,
}

impl LastGood {
    /// The longest spec that is kept, in bytes: an object has room for about 1.5 million.
    pub const LONGEST: usize = 256 << 10;
}

/// The namespaces that a policy selects.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchedNamespaces {
    /// How many it selects.
    pub count: i64,
    /// In how many of them it counts: no other policy goes before it, and the API server asks Transom about their pods.
    pub effective: i64,
    /// The first of those that it selects, by name, 50 at most.
    pub names: Vec<String>,
}

impl MatchedNamespaces {
    /// How many namespaces are named.
    pub const MOST: usize = 50;
}
