//! `WindowsNodePolicy`: what Transom keeps true on Windows nodes, and what it reports of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_policy::PoolTaint;
use super::schema;
use crate::model::string_enum::string_enum;

/// What Transom keeps true on the Windows nodes that it selects.
#[derive(CustomResource, Serialize, Deserialize, Clone, PartialEq, Debug, Default, JsonSchema)]
#[kube(
    group = "transom.dev",
    version = "v1alpha1",
    kind = "WindowsNodePolicy",
    plural = "windowsnodepolicies",
    shortname = "wnp",
    category = "transom",
    status = "WindowsNodePolicyStatus",
    derive = "PartialEq",
    doc = "What Transom keeps true on Windows nodes (labels, taints, RuntimeClasses), and what it reports of them."
)]
#[kube(printcolumn = r#"{"name": "Taints", "type": "string", "jsonPath": ".spec.taints.mode"}"#)]
#[kube(printcolumn = r#"{"name": "Nodes", "type": "integer", "jsonPath": ".status.nodeCount"}"#)]
#[kube(printcolumn = r#"{"name": "Builds", "type": "string", "jsonPath": ".status.buildSummary"}"#)]
#[kube(printcolumn = r#"{"name": "Drift", "type": "integer", "jsonPath": ".status.driftedNodeCount"}"#)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[kube(
    printcolumn = r#"{"name": "Problem", "type": "string", "jsonPath": ".status.lastProblem", "priority": 1}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsNodePolicySpec {
    /// Of the policies that select a node the one with the highest number applies; ties go to the name that sorts first.
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// The nodes that it is for, among the Windows nodes; empty: all of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: LabelSelector,
    /// The labels that are kept true.
    pub labels: NodeLabels,
    /// The taints that keep other pods away, and whether they are set or only reported.
    pub taints: NodeTaints,
    /// RuntimeClasses for the releases of Windows on the nodes.
    pub runtime_classes: NodeRuntimeClasses,
    /// Pools of Windows nodes that may be at zero nodes. Placement knows the pools of every policy.
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pools: Vec<Pool>,
    /// Labels of nodes that say Windows, beside those of AKS, GKE and OpenShift, which are known. Those of every policy
    /// are evidence.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"])
    )]
    pub pool_labels: Vec<PoolLabelSpec>,
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

/// A label of nodes that says Windows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.valuePrefix) != (has(self.values) && size(self.values) > 0)",
    "message": schema::VALUES_OR_PREFIX,
}]))]
pub struct PoolLabelSpec {
    /// The label's key.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::QUALIFIED_NAME))]
    pub key: String,
    /// Its values that say Windows, compared with regard to case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_values")]
    pub values: Vec<String>,
    /// Or how such values begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_value_prefix")]
    pub value_prefix: Option<String>,
}

/// Which labels are kept true.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeLabels {
    /// node.kubernetes.io/windows-build is what the kernel says: Correct writes it where it is missing, stale or forged,
    /// and never removes it; Disabled leaves it alone.
    pub kubelet: KubeletLabel,
    /// The same value in transom.dev.node-restriction.kubernetes.io/windows-build, which a kubelet cannot write; removed
    /// when the policy goes. Placement uses it where a WindowsPodPolicy says placement.buildLabel: NodeRestriction.
    pub node_restriction: Management,
}

/// Whether the kubelet's label of the build is corrected.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum KubeletLabel {
    /// It is corrected.
    #[default]
    Correct,
    /// It is left alone.
    Disabled,
}

/// Whether Transom creates, updates and removes something.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum Management {
    /// It does.
    #[default]
    Managed,
    /// It does not.
    Disabled,
}

/// The taints of Windows nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.noExecute == 'Allowed' || !self.required.exists(t, t.effect == 'NoExecute')",
    "message": "NoExecute evicts running pods; set noExecute: Allowed if that is what you want",
    "fieldPath": ".required",
}]))]
pub struct NodeTaints {
    /// Report says what is missing; Apply sets it, unless pods that run today would be hurt.
    pub mode: TaintMode,
    /// The taints that every selected Windows node is to carry.
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub required: Vec<NodeTaintSpec>,
    /// Whether a taint with effect NoExecute may be required: it evicts what runs and does not tolerate it.
    pub no_execute: NoExecute,
}

impl Default for NodeTaints {
    fn default() -> Self {
        NodeTaints {
            mode: TaintMode::Report,
            required: vec![NodeTaintSpec {
                key: "os".to_owned(),
                value: "windows".to_owned(),
                effect: TaintEffect::NoSchedule,
            }],
            no_execute: NoExecute::Forbidden,
        }
    }
}

/// Whether taints with effect NoExecute may be required.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum NoExecute {
    /// They may not.
    #[default]
    Forbidden,
    /// They may.
    Allowed,
}

/// Whether taints are set or only reported.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum TaintMode {
    /// What is missing is reported.
    #[default]
    Report,
    /// What is missing is set.
    Apply,
}

/// One taint that nodes are to carry.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaintSpec {
    /// Its key, such as os.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::QUALIFIED_NAME))]
    pub key: String,
    /// Its value, such as windows.
    #[serde(default)]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE))]
    pub value: String,
    /// What it does to pods that do not tolerate it; NoExecute only with noExecute: Allowed.
    #[serde(default)]
    pub effect: TaintEffect,
}

string_enum! {
    /// What a taint does to pods that do not tolerate it.
    #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
    #[schemars(inline)]
    pub enum TaintEffect {
        /// They are not scheduled there.
        #[default]
        NoSchedule = "NoSchedule",
        /// They are scheduled there only where nothing else fits.
        PreferNoSchedule = "PreferNoSchedule",
        /// They are evicted, too.
        NoExecute = "NoExecute",
    }
}

/// RuntimeClasses that Transom keeps, one for each release and isolation.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.namePattern.contains('{release}')",
    "message": "it must contain {release}, or all releases would share one RuntimeClass",
    "fieldPath": ".namePattern",
}]))]
pub struct NodeRuntimeClasses {
    /// Whether Transom creates, updates and deletes them.
    pub management: Management,
    /// The isolations that there are classes for.
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub isolations: Vec<Isolation>,
    /// The containerd handlers; used only where the nodes report them, as far as they report any.
    pub handlers: RuntimeHandlers,
    /// The names of the classes. {release} stands for the release (ltsc2022), {isolation} for process or hyperv; where
    /// there is no {isolation}, classes for Hyper-V end in -hyperv.
    #[schemars(
        length(min = 1, max = 100),
        regex(pattern = r"^([a-z0-9]|\{release\}|\{isolation\})([-.a-z0-9]|\{release\}|\{isolation\})*$")
    )]
    pub name_pattern: String,
}

impl Default for NodeRuntimeClasses {
    fn default() -> Self {
        NodeRuntimeClasses {
            management: Management::Disabled,
            isolations: vec![Isolation::Process],
            handlers: RuntimeHandlers::default(),
            name_pattern: "windows-{release}".to_owned(),
        }
    }
}

impl NodeRuntimeClasses {
    /// The name of the class for a release (`ltsc2022`, `20H2`) and an isolation, in lower case.
    pub fn class_name(&self, release: &str, isolation: Isolation) -> String {
        let word = match isolation {
            Isolation::Process => "process",
            Isolation::HyperV => "hyperv",
        };
        let mut name = self.name_pattern.replace("{release}", release);
        if name.contains("{isolation}") {
            name = name.replace("{isolation}", word);
        } else if isolation == Isolation::HyperV {
            name.push_str("-hyperv");
        }
        name.to_lowercase()
    }

    /// The handler for an isolation.
    pub fn handler(&self, isolation: Isolation) -> &str {
        match isolation {
            Isolation::Process => &self.handlers.process,
            Isolation::HyperV => &self.handlers.hyperv,
        }
    }
}

/// How containers are kept apart from the node.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, JsonSchema)]
#[schemars(inline)]
pub enum Isolation {
    /// They share the node's kernel; the build of image and node must fit.
    Process,
    /// Each pod gets a small virtual machine, and with it older builds.
    HyperV,
}

/// The names of containerd's handlers.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeHandlers {
    /// The handler for process isolation.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::DNS_LABEL))]
    pub process: String,
    /// The handler for Hyper-V isolation.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::DNS_LABEL))]
    pub hyperv: String,
}

impl Default for RuntimeHandlers {
    fn default() -> Self {
        RuntimeHandlers {
            process: "runhcs-wcow-process".to_owned(),
            hyperv: "runhcs-wcow-hypervisor".to_owned(),
        }
    }
}

/// What became of the policy.
// Every field is written always, null where there is nothing: a merge patch with it leaves nothing old behind.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsNodePolicyStatus {
    /// The generation that this was written for.
    pub observed_generation: Option<i64>,
    /// Conditions, by type.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many Windows nodes it applies to.
    pub node_count: i32,
    /// Those nodes by build, the oldest first.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub builds: Vec<BuildCount>,
    /// The same in one line.
    pub build_summary: Option<String>,
    /// How many of them differ from what they should be.
    pub drifted_node_count: i32,
    /// The first of these by name, 20 at most.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub drifted_nodes: Vec<DriftedNode>,
    /// The last thing that went wrong, in words; null where nothing is wrong.
    pub last_problem: Option<String>,
}

/// How many nodes run a build.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildCount {
    /// The build, such as 10.0.20348.
    pub build: String,
    /// Its release, such as ltsc2022; null where it is not known.
    pub release: Option<String>,
    /// How many nodes.
    pub node_count: i32,
}

impl BuildCount {
    /// The counts in one line, for `status.buildSummary`: `ltsc2019 2, ltsc2022 5`.
    pub fn summary(builds: &[BuildCount]) -> Option<String> {
        let mut line = String::new();
        for count in builds {
            let name = count.release.as_deref().unwrap_or(&count.build);
            let comma = if line.is_empty() { "" } else { ", " };
            let _ = write!(line, "{comma}{name} {}", count.node_count);
        }
        Some(line).filter(|line| !line.is_empty())
    }
}

impl WindowsNodePolicyStatus {
    /// How many drifted nodes are named.
    pub const MOST_DRIFTED: usize = 20;
}

/// A node that differs from what it should be.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DriftedNode {
    /// The node.
    pub name: String,
    /// What differs, in words.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_spec_reports_and_manages_no_class() {
        let spec: WindowsNodePolicySpec = serde_json::from_str("{}").unwrap();
        assert_eq!(spec, WindowsNodePolicySpec::default());
        assert_eq!(spec.taints.mode, TaintMode::Report);
        assert_eq!(
            (
                spec.labels.kubelet,
                spec.labels.node_restriction,
                spec.runtime_classes.management
            ),
            (KubeletLabel::Correct, Management::Managed, Management::Disabled)
        );
    }

    #[test]
    fn classes_of_a_release_differ_by_isolation_and_are_in_lower_case() {
        let mut classes = NodeRuntimeClasses::default();
        assert_eq!(classes.class_name("20H2", Isolation::Process), "windows-20h2");
        assert_eq!(
            classes.class_name("ltsc2022", Isolation::HyperV),
            "windows-ltsc2022-hyperv"
        );
        classes.name_pattern = "{isolation}.{release}".to_owned();
        assert_eq!(
            classes.class_name("ltsc2022", Isolation::HyperV),
            "hyperv.ltsc2022"
        );
        assert_eq!(
            classes.class_name("ltsc2022", Isolation::Process),
            "process.ltsc2022"
        );
    }

    #[test]
    fn builds_are_summed_up_in_one_line() {
        let count = |build: &str, release: Option<&str>, nodes| BuildCount {
            build: build.to_owned(),
            release: release.map(str::to_owned),
            node_count: nodes,
        };
        let builds = [
            count("10.0.17763", Some("ltsc2019"), 2),
            count("10.0.29999", None, 1),
        ];
        assert_eq!(
            BuildCount::summary(&builds).as_deref(),
            Some("ltsc2019 2, 10.0.29999 1")
        );
        assert_eq!(BuildCount::summary(&[]), None);
    }
}
