//! `WindowsNodePolicy`: what Transom keeps true on Windows nodes, and what it reports of them.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::node_startup::{NodeStartup, StartupStatus};
use super::schema;
use crate::model::nodes::node::{BUILD_LABEL, RESTRICTED_BUILD_LABEL, Taint};
use crate::model::syntax::string_enum::string_enum;

/// What Transom maintains on the Windows nodes that the policy selects.
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
    doc = "What Transom maintains on Windows nodes (labels, taints, RuntimeClasses), and what it reports about them."
)]
#[kube(printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#)]
#[kube(printcolumn = r#"{"name": "Nodes", "type": "integer", "jsonPath": ".status.nodeCount"}"#)]
#[kube(printcolumn = r#"{"name": "Builds", "type": "string", "jsonPath": ".status.buildSummary"}"#)]
#[kube(printcolumn = r#"{"name": "Drift", "type": "integer", "jsonPath": ".status.driftedNodeCount"}"#)]
#[kube(printcolumn = r#"{"name": "Starting", "type": "integer", "jsonPath": ".status.startup.starting"}"#)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[kube(
    printcolumn = r#"{"name": "Problem", "type": "string", "jsonPath": ".status.message", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsNodePolicySpec {
    /// Sets the modes of labels and taints that have none of their own: Audit reports what differs and writes nothing;
    /// Reconcile writes it.
    pub mode: NodePolicyMode,
    /// If several policies select a node, the one with the highest number applies. If the numbers are equal, the name
    /// that sorts first applies.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// Selects Windows nodes by their labels. Empty: all Windows nodes.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: LabelSelector,
    /// The labels that Transom maintains.
    #[serde(default)]
    pub labels: NodeLabels,
    /// The taints that keep other pods away, and whether they are set or only reported.
    #[serde(default)]
    pub taints: NodeTaints,
    /// RuntimeClasses for the releases of Windows on the nodes.
    #[serde(default)]
    pub runtime_classes: NodeRuntimeClasses,
    /// When a new node gets pods: Transom removes the taint startup-taint.cluster-autoscaler.kubernetes.io/transom, which the
    /// pool or an admission policy sets, if the images are there or the timeout is over. Without it, immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<NodeStartup>,
}

/// What a policy does where it says nothing else.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[schemars(inline)]
pub enum NodePolicyMode {
    /// What differs is reported.
    #[default]
    Audit,
    /// It is written.
    Reconcile,
}

/// What is done about one part of a policy.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, JsonSchema)]
#[schemars(inline)]
pub enum PartMode {
    /// It is not looked at; what Transom wrote is removed.
    Disabled,
    /// What differs is reported, and not changed.
    Audit,
    /// It is kept correct.
    Reconcile,
}

impl From<NodePolicyMode> for PartMode {
    fn from(mode: NodePolicyMode) -> Self {
        match mode {
            NodePolicyMode::Audit => PartMode::Audit,
            NodePolicyMode::Reconcile => PartMode::Reconcile,
        }
    }
}

impl WindowsNodePolicySpec {
    fn part(&self, own: Option<PartMode>) -> PartMode {
        own.unwrap_or(self.mode.into())
    }

    /// What is done about node.kubernetes.io/windows-build.
    pub fn kubelet_label_mode(&self) -> PartMode {
        self.part(self.labels.kubelet.mode)
    }

    /// What is done about the mirror of it.
    pub fn restricted_label_mode(&self) -> PartMode {
        self.part(self.labels.node_restriction.mode)
    }

    /// What is done about each label, by its key.
    pub fn label_modes(&self) -> [(&'static str, PartMode); 2] {
        [
            (BUILD_LABEL, self.kubelet_label_mode()),
            (RESTRICTED_BUILD_LABEL, self.restricted_label_mode()),
        ]
    }

    /// What is done about taints.
    pub fn taints_mode(&self) -> PartMode {
        self.part(self.taints.mode)
    }

    /// The taints that it requires, and the entries that are ignored, with the reason.
    pub fn required_taints(&self) -> (Vec<Taint>, Vec<String>) {
        let (mut taints, ignored) = self.taints.usable();
        // What is not looked at is not required.
        if self.taints_mode() == PartMode::Disabled {
            taints.clear();
        }
        (taints, ignored)
    }

    /// What is done about RuntimeClasses: nothing, unless the policy says it.
    pub fn runtime_classes_mode(&self) -> PartMode {
        self.runtime_classes.mode.unwrap_or(PartMode::Disabled)
    }
}

/// The labels that Transom maintains.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeLabels {
    /// The label node.kubernetes.io/windows-build, which must match the node's kernel: Reconcile writes it if it is
    /// missing, stale or forged, and never removes it; Audit reports that; Disabled does not look at it.
    pub kubelet: NodeLabelMode,
    /// The same value in transom.dev.node-restriction.kubernetes.io/windows-build, which a kubelet cannot write:
    /// Reconcile writes it; Audit reports that it is missing or wrong; Disabled, or deleting the policy, removes what
    /// Transom wrote. Placement uses it if a WindowsPodPolicy has placement.buildLabel: NodeRestriction.
    pub node_restriction: NodeLabelMode,
}

/// What is done about a label.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
#[serde(default)]
pub struct NodeLabelMode {
    /// Disabled, Audit or Reconcile. Unset: spec.mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PartMode>,
}

/// The taints of Windows nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.noExecute == 'Allowed' || !has(self.required) || !self.required.exists(t, t.effect == 'NoExecute')",
    "message": "NoExecute evicts running pods; set noExecute: Allowed if that is what you want",
    "fieldPath": ".required",
}]))]
pub struct NodeTaints {
    /// Audit reports missing taints; Reconcile sets them, unless running pods would be affected; Disabled removes what
    /// Transom set. Unset: spec.mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PartMode>,
    /// The taints that every selected Windows node must have. Unset: os=windows:NoSchedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "required_taints")]
    pub required: Option<Vec<NodeTaintSpec>>,
    /// Whether a taint with effect NoExecute may be required: it evicts running pods that do not tolerate it.
    pub no_execute: NoExecute,
}

impl Default for NodeTaints {
    fn default() -> Self {
        NodeTaints {
            mode: None,
            required: None,
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

/// The taints that nodes must have. Those that Transom never sets are refused.
fn required_taints(generator: &mut SchemaGenerator) -> Schema {
    let protected = Taint::PROTECTED_PREFIXES.map(|prefix| format!("t.key.startsWith('{prefix}')"));
    let keys = Taint::PROTECTED_KEYS.map(|key| format!("t.key == '{key}'"));
    let protected: Vec<String> = protected.into_iter().chain(keys).collect();
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "effect"],
        "items": NodeTaintSpec::json_schema(generator),
        "x-kubernetes-validations": [{
            "rule": format!("self.all(t, t.key == '{}' || !({}))", Taint::SETTABLE_KEY, protected.join(" || ")),
            "message": "a taint belongs to Kubernetes, a cloud or an autoscaler, and Transom does not set such taints; remove it",
        }],
    })
}

/// One taint that nodes must have.
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

impl NodeTaints {
    /// The taints that the policy may request, and the entries that are ignored, with the reason.
    pub fn usable(&self) -> (Vec<Taint>, Vec<String>) {
        let (mut taints, mut ignored): (Vec<Taint>, Vec<String>) = (Vec::new(), Vec::new());
        let Some(written) = &self.required else {
            return (vec![Taint::no_schedule("os", "windows")], ignored);
        };
        for taint in written {
            let required = Taint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.as_str().to_owned(),
            };
            // The API server rejects these; a policy may have been stored before its schema did.
            if required.is_protected() {
                ignored.push(format!(
                    "spec.taints.required: {required} is ignored, because it belongs to Kubernetes, a cloud or an autoscaler, \
                     and Transom does not set such taints"
                ));
            } else if taint.effect == TaintEffect::NoExecute && self.no_execute == NoExecute::Forbidden {
                ignored.push(format!(
                    "spec.taints.required: {required} is ignored, because NoExecute evicts running pods: set \
                     spec.taints.noExecute: Allowed if that is what you want"
                ));
            } else if taints
                .iter()
                .any(|t| t.key == required.key && t.effect == required.effect)
            {
                ignored.push(format!(
                    "spec.taints.required: {required} is ignored, because a node can carry only one taint of each key and effect"
                ));
            } else {
                taints.push(required);
            }
        }
        (taints, ignored)
    }
}

string_enum! {
    /// What a taint does to pods that do not tolerate it.
    #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default, JsonSchema)]
    #[schemars(inline)]
    pub enum TaintEffect {
        /// They are not scheduled there.
        #[default]
        NoSchedule = "NoSchedule",
        /// They are scheduled there only if no other node fits.
        PreferNoSchedule = "PreferNoSchedule",
        /// They are evicted, too.
        NoExecute = "NoExecute",
    }
}

/// RuntimeClasses that Transom maintains, one for each release and isolation.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRuntimeClasses {
    /// Reconcile creates, updates and deletes them; Audit reports those that are missing; Disabled does neither, and removes
    /// what Transom created. Unset: Disabled, whatever spec.mode is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PartMode>,
    /// The isolations to create classes for. Unset: Process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub isolations: Option<Vec<Isolation>>,
    /// The containerd handlers. If nodes report their handlers, a handler is used only if they report it.
    pub handlers: RuntimeHandlers,
    /// The pattern of class names: {release} is the release (ltsc2022), {isolation} is process or hyperv. Without
    /// {isolation}, the names of classes for Hyper-V end in -hyperv.
    #[schemars(schema_with = "schema::class_name_pattern")]
    pub name_pattern: String,
}

impl Default for NodeRuntimeClasses {
    fn default() -> Self {
        NodeRuntimeClasses {
            mode: None,
            isolations: None,
            handlers: RuntimeHandlers::default(),
            name_pattern: "windows-{release}".to_owned(),
        }
    }
}

/// The name that a pattern gives the class for a release (`ltsc2022`, `20H2`) and an isolation, in lower case.
pub fn class_name(pattern: &str, release: &str, isolation: Isolation) -> String {
    let word = match isolation {
        Isolation::Process => "process",
        Isolation::HyperV => "hyperv",
    };
    let mut name = pattern.replace("{release}", release);
    if name.contains("{isolation}") {
        name = name.replace("{isolation}", word);
    } else if isolation == Isolation::HyperV {
        name.push_str("-hyperv");
    }
    name.to_lowercase()
}

impl NodeRuntimeClasses {
    /// The isolations to create classes for.
    pub fn isolations(&self) -> &[Isolation] {
        self.isolations.as_deref().unwrap_or(&[Isolation::Process])
    }

    /// The name of the class for a release and an isolation.
    pub fn class_name(&self, release: &str, isolation: Isolation) -> String {
        class_name(&self.name_pattern, release, isolation)
    }

    /// The handler for an isolation.
    pub fn handler(&self, isolation: Isolation) -> &str {
        match isolation {
            Isolation::Process => &self.handlers.process,
            Isolation::HyperV => &self.handlers.hyperv,
        }
    }
}

/// How containers are isolated from the node.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, JsonSchema)]
#[schemars(inline)]
pub enum Isolation {
    /// They share the node's kernel; the build of image and node must fit.
    Process,
    /// Each pod runs in a small virtual machine, which also runs older builds.
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

/// The type of the condition that says whether the guard withholds taints.
pub const TAINTS_BLOCKED: &str = "TaintsBlocked";
/// The type of the condition that says whether taints of Transom's keep workloads off the nodes that carry them.
pub const WORKLOADS_EXCLUDED: &str = "WorkloadsExcluded";

/// The state of the policy.
// Every field is in the merge patch, null where there is nothing: that removes what was there, and null is never stored.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsNodePolicyStatus {
    /// The metadata.generation that this status describes.
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
    /// How many of them differ from the policy.
    pub drifted_node_count: i32,
    /// The first of these by name, 20 at most.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub drifted_nodes: Vec<DriftedNode>,
    /// On how many nodes there is something that Transom wrote for this policy, and can remove.
    pub owned_node_count: i32,
    /// The known faults of the versions that those nodes run: the certain ones first, then by id, 32 at most.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub known_faults: Vec<KnownFaultStatus>,
    /// New nodes that wait for images, or did; absent without spec.startup.
    pub startup: Option<StartupStatus>,
    /// The most severe current problem; absent if there is none.
    pub message: Option<String>,
}

/// How many nodes run a build.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildCount {
    /// The build, such as 10.0.20348.
    pub build: String,
    /// Its release, such as ltsc2022; absent if unknown.
    // It is in a list, where a merge patch would keep null.
    #[serde(skip_serializing_if = "Option::is_none")]
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

impl WindowsNodePolicy {
    /// Whether its status says that the guard withholds its taints.
    pub fn has_blocked_taints(&self) -> bool {
        let mut conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == TAINTS_BLOCKED && condition.status == "True")
    }
}

impl WindowsNodePolicyStatus {
    /// How many drifted nodes are named.
    pub const MOST_DRIFTED: usize = 20;
}

/// A known fault of Windows, of Kubernetes or of a component, and the nodes whose versions have it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KnownFaultStatus {
    /// Its id, as `transom knowledge list` shows it.
    pub id: String,
    /// Whether the nodes certainly have it. Otherwise it depends on their workloads or on something that nodes do not report,
    /// or only users reported it.
    pub certain: bool,
    /// The symptom, and the version with the fix.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// How many nodes have it.
    pub node_count: i32,
    /// The first of these by name, 20 at most.
    pub nodes: Vec<String>,
}

impl KnownFaultStatus {
    /// How many faults a status has at most.
    pub const MOST: usize = 32;
    /// How many nodes of each.
    pub const MOST_NODES: usize = 20;
}

/// A node that differs from the policy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DriftedNode {
    /// The node.
    pub name: String,
    /// What differs, in words.
    pub message: String,
}

/// A spec with these fields for tests; without a mode of its own it writes labels and only audits taints.
#[cfg(test)]
pub(crate) fn reconciling(spec: &serde_json::Value) -> serde_json::Value {
    let mut all = serde_json::json!({"mode": "Reconcile", "taints": {"mode": "Audit"}});
    json_patch::merge(&mut all, spec);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_without_a_mode_have_that_of_the_policy_and_classes_are_managed_only_on_request() {
        use PartMode::{Audit, Disabled, Reconcile};
        let modes = |spec: serde_json::Value| {
            let spec: WindowsNodePolicySpec = serde_json::from_value(spec).unwrap();
            let taints = spec.taints.usable().0;
            assert_eq!(taints, [Taint::no_schedule("os", "windows")]);
            [
                spec.kubelet_label_mode(),
                spec.restricted_label_mode(),
                spec.taints_mode(),
                spec.runtime_classes_mode(),
            ]
        };
        assert_eq!(modes(json!({"mode": "Audit"})), [Audit, Audit, Audit, Disabled]);
        assert_eq!(
            modes(json!({"mode": "Reconcile"})),
            [Reconcile, Reconcile, Reconcile, Disabled]
        );
        let own = json!({"mode": "Audit", "labels": {"kubelet": {"mode": "Reconcile"}},
            "taints": {"mode": "Disabled"}, "runtimeClasses": {"mode": "Audit"}});
        assert_eq!(modes(own), [Reconcile, Audit, Disabled, Audit]);
        assert!(serde_json::from_value::<WindowsNodePolicySpec>(json!({})).is_err());
    }

    #[test]
    fn taints_that_can_never_be_set_are_left_out_with_the_reason() {
        let spec = json!({"mode": "Audit", "taints": {"required": [
            {"key": "node.kubernetes.io/not-ready"}, {"key": "node.kubernetes.io/os", "value": "windows"},
        ]}});
        let spec: WindowsNodePolicySpec = serde_json::from_value(spec).unwrap();
        let (taints, ignored) = spec.taints.usable();
        assert_eq!(taints, [Taint::no_schedule("node.kubernetes.io/os", "windows")]);
        assert!(
            ignored.len() == 1 && ignored[0].contains("belongs to Kubernetes"),
            "{ignored:?}"
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
