//! Known faults of Windows nodes: the form of a row, and which nodes have the fault.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::platform_support::NodePlatform;
use super::{Knowledge, NOT_A_LINE, is_line};
use crate::model::nodes::network_plugin::NetworkPlugin;
use crate::model::nodes::node::{INSTANCE_TYPE_LABEL, NodeSigns};
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::build::Build;

/// A version of the kubelet or of containerd: major, minor, patch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Parses `v1.33.2+k3s1`, `1.7.20+azure` or `containerd://1.7.20`; a pre-release is treated as its release.
    pub fn parse(text: &str) -> Option<Version> {
        let text = text.rsplit("//").next()?.trim_start_matches('v');
        let numbers = text.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        Some(Version(parts.next()??, parts.next()??, parts.next()??))
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Version::parse(&text).ok_or_else(|| format!("{text:?} is not a version as in 1.36.2"))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> String {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A range of affected versions or revisions. A range without an end has no known fix.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Affected<V> {
    /// The first affected one that a source names; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<V>,
    /// The first one with the fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<V>,
    /// In place of `fixed`, if no source names the one with the fix: the first one for which no source reports the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<V>,
}

impl<V: Copy + PartialOrd + fmt::Display> Affected<V> {
    fn contains(&self, version: V) -> bool {
        let end = self.fixed.or(self.below);
        self.from.is_none_or(|from| from <= version) && end.is_none_or(|end| version < end)
    }

    /// Whether every version is affected.
    fn is_unbounded(&self) -> bool {
        self.from.is_none() && self.fixed.is_none() && self.below.is_none()
    }

    fn shown(&self, prefix: &str) -> String {
        match (self.from, self.fixed) {
            (Some(from), Some(fixed)) => format!("affected from {prefix}{from}, fixed in {prefix}{fixed}"),
            (Some(from), None) => format!("affected from {prefix}{from}, the fixed version is not known"),
            (None, Some(fixed)) => format!("fixed in {prefix}{fixed}"),
            (None, None) => "the fixed version is not known".to_owned(),
        }
    }

    fn problem(&self) -> Option<&'static str> {
        let end = self.fixed.or(self.below);
        if self.fixed.is_some() && self.below.is_some() {
            return Some("a range has fixed and below");
        }
        let is_empty = self.from.zip(end).is_some_and(|(from, end)| end <= from);
        is_empty.then_some("a range ends before it begins")
    }
}

/// A Windows build with affected revisions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AffectedBuild {
    /// The third number of the build, as in 20348.
    pub build: u32,
    /// The affected update revisions (UBR); absent: all.
    #[serde(default, skip_serializing_if = "Affected::is_unbounded")]
    pub revisions: Affected<u32>,
}

impl AffectedBuild {
    fn contains(&self, (build, revision): (Build, Option<u32>)) -> bool {
        let is_affected = |revision| self.revisions.contains(revision);
        build.number() == self.build && revision.map_or(self.revisions.is_unbounded(), is_affected)
    }

    fn shown(&self) -> Option<String> {
        let prefix = format!("{}.", self.build);
        (!self.revisions.is_unbounded()).then(|| self.revisions.shown(&prefix))
    }
}

/// The beginning and the end of affected machine types, as in `Standard_D` and `_v6`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineTypes {
    /// The beginning.
    pub prefix: String,
    /// The end.
    pub suffix: String,
}

string_enum! {
    /// The component with a fault.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum FaultyComponent {
        /// Windows.
        Windows = "windows",
        /// The kubelet.
        Kubelet = "kubelet",
        /// kube-proxy. Nodes do not report its version, so the version of the kubelet is used.
        KubeProxy = "kube-proxy",
        /// containerd.
        Containerd = "containerd",
        /// csi-proxy.
        CsiProxy = "csi-proxy",
        /// The network plugin.
        NetworkPlugin = "network-plugin",
        /// The distribution of Kubernetes.
        Distribution = "distribution",
        /// The machine.
        Machine = "machine",
    }
}

/// What of a Windows node decides which known faults it has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeVersions {
    /// `status.nodeInfo.kernelVersion`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// `status.nodeInfo.kubeletVersion`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubelet: String,
    /// `status.nodeInfo.containerRuntimeVersion`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_runtime: String,
    /// The label with the machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The network plugin, if an annotation names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_plugin: Option<NetworkPlugin>,
    /// The platform, if a label names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<NodePlatform>,
}

impl NodeVersions {
    /// Those of a Windows node; `None` for any other node.
    pub fn of(node: &(impl NodeSigns + ?Sized)) -> Option<Self> {
        node.has_windows().then(|| NodeVersions {
            kernel: node.kernel_version().to_owned(),
            kubelet: node.kubelet_version().to_owned(),
            container_runtime: node.container_runtime().to_owned(),
            instance_type: node.label(INSTANCE_TYPE_LABEL).map(str::to_owned),
            network_plugin: node.network_plugin(),
            platform: NodePlatform::of_labels(node.labels().keys().map(String::as_str)),
        })
    }
}

/// A node with the fault and one without it: they show what the criteria mean, and are tested.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultExamples {
    /// A node with the fault.
    pub affected: NodeVersions,
    /// A node without it.
    pub unaffected: NodeVersions,
}

/// A fault. A node has it if it matches every criterion that is not empty. Without a Windows build, a version or a machine
/// type among the criteria, no node shows the fault: the row is only listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownFault {
    /// Its id, as in `kubelet-1.31-socket`.
    pub id: String,
    /// When the row was last compared with its sources. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The component with the fault.
    pub component: FaultyComponent,
    /// Its CVEs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cves: Vec<String>,
    /// The affected Windows builds; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<AffectedBuild>,
    /// The affected kubelets; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubelet: Vec<Affected<Version>>,
    /// The affected versions of containerd; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containerd: Vec<Affected<Version>>,
    /// A part of the kubelet version that names the distribution, as in `+rke2`; empty: any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub distribution: String,
    /// The affected machine types; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine_types: Vec<MachineTypes>,
    /// The affected network plugins; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_plugins: Vec<NetworkPlugin>,
    /// The affected platform; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<NodePlatform>,
    /// Whether a matching node has the fault. If not, it depends on the workloads or on a version that nodes do not report, or
    /// only users reported it.
    #[serde(rename = "certain")]
    pub is_certain: bool,
    /// What happens: lower case, no full stop.
    pub symptom: String,
    /// What to do: lower case, no full stop.
    pub remedy: String,
    /// What could not be confirmed: lower case, no full stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<String>,
    /// The pages that document it; the first one is shown.
    pub sources: Vec<String>,
    /// Nodes with and without it; absent if no node shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<FaultExamples>,
}

impl KnownFault {
    pub(super) fn form_problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = Vec::new();
        let texts = [&self.symptom, &self.remedy].into_iter().chain(&self.unconfirmed);
        if texts.into_iter().any(|text| !is_line(text)) {
            problems.push(NOT_A_LINE.to_owned());
        }
        if self.sources.is_empty() || self.sources.iter().any(|source| !source.starts_with("https://")) {
            problems.push("it needs a source, and every source begins with https://".to_owned());
        }
        let ranges = self.kubelet.iter().chain(&self.containerd);
        let of_builds = self.windows.iter().filter_map(|of| of.revisions.problem());
        let of_ranges = ranges.filter_map(Affected::problem).chain(of_builds);
        problems.extend(of_ranges.map(str::to_owned));
        match &self.examples {
            Some(_) if !self.is_visible() => {
                problems.push("no node shows it, so it has no examples".to_owned());
            }
            None if self.is_visible() => problems.push("it has no examples".to_owned()),
            Some(examples) if self.of(&examples.affected).is_none() => {
                problems.push("the affected example does not match".to_owned());
            }
            Some(examples) if self.of(&examples.unaffected).is_some() => {
                problems.push("the unaffected example matches".to_owned());
            }
            _ => (),
        }
        problems
    }
}

/// The field of a node that shows a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultField {
    /// `status.nodeInfo.kernelVersion`.
    KernelVersion,
    /// `status.nodeInfo.kubeletVersion`.
    KubeletVersion,
    /// `status.nodeInfo.containerRuntimeVersion`.
    ContainerRuntimeVersion,
    /// The label with the machine type.
    InstanceType,
}

/// A fault that a node has, or may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFault {
    /// The id of the fault.
    pub id: String,
    /// Whether the node certainly has it.
    pub is_certain: bool,
    /// The field that shows it.
    pub field: FaultField,
    /// What the node reports, the symptom, the affected range and the source: lower case, no full stop.
    pub message: String,
    /// The symptom and the fixed version: lower case, no full stop.
    pub summary: String,
    /// What to do: lower case, no full stop.
    pub remedy: String,
    /// The page that documents it.
    pub source: String,
}

/// A fault, and the nodes that have it, or may have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultOfNodes {
    /// The fault, as the first of the nodes has it.
    pub fault: NodeFault,
    /// The names of the nodes.
    pub nodes: Vec<String>,
}

/// The values of a node that match the criteria of a row, and the affected range of the first one.
#[derive(Default)]
struct MatchedValues<'n> {
    first: Option<(FaultField, String)>,
    seen: Vec<&'n str>,
}

impl<'n> MatchedValues<'n> {
    fn add(&mut self, field: FaultField, value: &'n str, range: Option<String>) {
        self.seen.push(value);
        // The range of a version says more than a whole build of Windows.
        let is_vague = self.first.as_ref().is_none_or(|(_, range)| range.is_empty());
        if is_vague && (range.is_some() || self.first.is_none()) {
            self.first = Some((field, range.unwrap_or_default()));
        }
    }
}

impl KnownFault {
    /// Whether a node can show it.
    pub fn is_visible(&self) -> bool {
        let versions = self.kubelet.len() + self.containerd.len();
        versions + self.windows.len() + self.machine_types.len() > 0
    }

    /// What of the node matches, if every criterion but the network plugin does.
    fn matched<'n>(&self, node: &'n NodeVersions) -> Option<MatchedValues<'n>> {
        let mut matched = MatchedValues::default();
        if !self.windows.is_empty() {
            let of_node = Build::parse_kernel_version(&node.kernel)?;
            let affected = self.windows.iter().find(|build| build.contains(of_node))?;
            matched.add(FaultField::KernelVersion, &node.kernel, affected.shown());
        }
        if !self.kubelet.is_empty() {
            let version = Version::parse(&node.kubelet)?;
            let affected = self.kubelet.iter().find(|range| range.contains(version))?;
            matched.add(
                FaultField::KubeletVersion,
                &node.kubelet,
                Some(affected.shown("")),
            );
        }
        if !node.kubelet.contains(&self.distribution) {
            return None;
        }
        if !self.containerd.is_empty() {
            let runtime = node.container_runtime.as_str();
            let version = Version::parse(runtime.strip_prefix("containerd://")?)?;
            let affected = self.containerd.iter().find(|range| range.contains(version))?;
            let range = (!affected.is_unbounded()).then(|| affected.shown(""));
            matched.add(FaultField::ContainerRuntimeVersion, runtime, range);
        }
        if !self.machine_types.is_empty() {
            let machine = node.instance_type.as_deref()?;
            let is_like =
                |of: &MachineTypes| machine.starts_with(&of.prefix) && machine.ends_with(&of.suffix);
            let range = "no fixed version is known".to_owned();
            (self.machine_types.iter().any(is_like))
                .then(|| matched.add(FaultField::InstanceType, machine, Some(range)))?;
        }
        let is_elsewhere = self.platform.is_some() && self.platform != node.platform;
        (!is_elsewhere).then_some(matched)
    }

    /// The fault of this row in a node, if it matches.
    fn of(&self, node: &NodeVersions) -> Option<NodeFault> {
        let matched = self.matched(node)?;
        let (field, range) = matched.first?;
        let is_plugin_known = node.network_plugin.is_some() || self.network_plugins.is_empty();
        let is_other_plugin =
            |plugin| !self.network_plugins.is_empty() && !self.network_plugins.contains(&plugin);
        if node.network_plugin.is_some_and(is_other_plugin) || (!is_plugin_known && !self.is_certain) {
            return None;
        }
        let source = self.sources.first().cloned().unwrap_or_default();
        let mut message = format!("{}: {}", matched.seen.join(", "), self.symptom);
        if !is_plugin_known {
            let plugins: Vec<String> = self.network_plugins.iter().map(ToString::to_string).collect();
            // Writing to a string does not fail.
            let _ = write!(message, ", if the network plugin is {}", plugins.join(" or "));
        }
        let summary = match range.rsplit(", ").next() {
            None | Some("") => self.symptom.clone(),
            // Without the first affected version.
            Some(fix) => format!("{} ({fix})", self.symptom),
        };
        let mut notes: Vec<&str> = self.cves.iter().map(String::as_str).collect();
        notes.extend(Some(range.as_str()).filter(|range| !range.is_empty()));
        notes.extend(self.unconfirmed.as_deref());
        notes.push(&source);
        let _ = write!(message, " ({})", notes.join("; "));
        Some(NodeFault {
            id: self.id.clone(),
            is_certain: self.is_certain && is_plugin_known,
            field,
            message,
            summary,
            remedy: self.remedy.clone(),
            source,
        })
    }
}

impl Knowledge {
    /// The known faults of a Windows node, the certain ones first; empty for any other node.
    pub fn faults_of_node(&self, node: &(impl NodeSigns + ?Sized)) -> Vec<NodeFault> {
        let versions = NodeVersions::of(node);
        versions
            .map(|versions| self.faults_of(&versions))
            .unwrap_or_default()
    }

    /// The known faults of these versions, the certain ones first.
    pub fn faults_of(&self, node: &NodeVersions) -> Vec<NodeFault> {
        let mut faults: Vec<NodeFault> = self.faults.iter().filter_map(|fault| fault.of(node)).collect();
        faults.sort_by_key(|fault| !fault.is_certain);
        faults
    }

    /// The known faults of these nodes, each with the nodes that have it.
    pub fn faults_by_id<'n, V: Borrow<NodeVersions>>(
        &self,
        nodes: impl IntoIterator<Item = (&'n str, V)>,
    ) -> FaultsById {
        let mut all = FaultsById::default();
        for (name, versions) in nodes {
            all.add(name, self.faults_of(versions.borrow()));
        }
        all
    }
}

/// Faults, each with the nodes that have it: the certain ones first, then by id.
#[derive(Clone, Debug, Default)]
pub struct FaultsById(BTreeMap<(bool, String), FaultOfNodes>);

impl FaultsById {
    /// Adds the faults of one more node.
    pub fn add(&mut self, node: &str, faults: impl IntoIterator<Item = NodeFault>) {
        for fault in faults {
            let key = (!fault.is_certain, fault.id.clone());
            let nodes = Vec::new();
            let known = self.0.entry(key).or_insert(FaultOfNodes { fault, nodes });
            known.nodes.push(node.to_owned());
        }
    }

    /// The faults, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &FaultOfNodes> {
        self.0.values()
    }

    /// The faults that their nodes certainly have.
    pub fn certain(&self) -> impl Iterator<Item = &FaultOfNodes> {
        self.iter().filter(|found| found.fault.is_certain)
    }
}

impl IntoIterator for FaultsById {
    type Item = FaultOfNodes;
    type IntoIter = std::collections::btree_map::IntoValues<(bool, String), FaultOfNodes>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_values()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::objects::resources::Node;

    fn known() -> Arc<Knowledge> {
        Knowledge::built_in()
    }

    /// The faults of a node as its kubelet reports it; a `?` marks those that are not certain.
    fn faults(kernel: &str, kubelet: &str, runtime: &str, meta: &str) -> Vec<String> {
        let json = format!(
            r#"{{"metadata": {{"name": "w", {meta}}}, "status": {{"nodeInfo": {{"operatingSystem": "windows",
            "kernelVersion": "{kernel}", "kubeletVersion": "{kubelet}", "containerRuntimeVersion": "{runtime}"}}}}}}"#
        );
        let node: Node<'_> = serde_json::from_str(&json).unwrap();
        let mark = |fault: NodeFault| format!("{}{}", fault.id, if fault.is_certain { "" } else { "?" });
        known().faults_of_node(&node).into_iter().map(mark).collect()
    }

    #[test]
    fn a_range_says_what_is_known_of_its_ends() {
        let (from, fixed) = (Some(Version(1, 6, 0)), Some(Version(1, 6, 18)));
        for (range, text) in [
            (
                Affected {
                    fixed,
                    ..Affected::default()
                },
                "fixed in 1.6.18",
            ),
            (
                Affected {
                    below: fixed,
                    ..Affected::default()
                },
                "the fixed version is not known",
            ),
            (
                Affected {
                    from,
                    fixed,
                    below: None,
                },
                "affected from 1.6.0, fixed in 1.6.18",
            ),
            (
                Affected {
                    from,
                    fixed: None,
                    below: fixed,
                },
                "affected from 1.6.0, the fixed version is not known",
            ),
        ] {
            assert_eq!(range.shown(""), text);
        }
    }

    #[test]
    fn a_version_is_parsed_as_nodes_report_it() {
        for (text, version) in [
            ("v1.33.2+k3s1", Some(Version(1, 33, 2))),
            ("v1.34.3+rke2r1", Some(Version(1, 34, 3))),
            ("v1.31.4-gke.1", Some(Version(1, 31, 4))),
            ("containerd://1.7.20+azure", Some(Version(1, 7, 20))),
            ("containerd://1.7.20", Some(Version(1, 7, 20))),
            ("2.3.0-beta.2", Some(Version(2, 3, 0))),
            ("v1.33", None),
            ("", None),
            ("docker://20.10.9", Some(Version(20, 10, 9))),
        ] {
            assert_eq!(Version::parse(text), version, "{text}");
        }
    }

    const CALICO: &str = r#""annotations": {"projectcalico.org/IPv4Address": "10.0.0.4/24"}"#;
    const FLANNEL: &str = r#""annotations": {"flannel.alpha.coreos.com/backend-type": "vxlan"}"#;
    const ANTREA: &str = r#""annotations": {"node.antrea.io/mac-address": "x"}"#;
    const NONE: &str = r#""labels": {}"#;
    /// Versions without a known fault.
    const GOOD: (&str, &str, &str) = ("10.0.20348.4297", "v1.38.0", "containerd://2.1.9");

    /// Kernel, kubelet, runtime, metadata, and the expected faults.
    type Case<'c> = (&'c str, &'c str, &'c str, &'c str, &'c str);

    fn check(cases: &[Case<'_>]) {
        for (kernel, kubelet, runtime, meta, expected) in cases {
            let found = faults(kernel, kubelet, runtime, meta).join(" ");
            assert_eq!(found, *expected, "{kernel} {kubelet} {runtime} {meta}");
        }
    }

    #[test]
    fn revisions_of_windows_match_what_an_affected_node_reports_and_nothing_else() {
        let (good, kubelet, containerd) = GOOD;
        let (calico, flannel, antrea, none) = (CALICO, FLANNEL, ANTREA, NONE);
        let of_2019 = "kube-proxy-2019-health-check-port?";
        check(&[
            (good, kubelet, containerd, calico, ""),
            (
                "10.0.20348.2582",
                kubelet,
                containerd,
                calico,
                "windows-2022-pod-network",
            ),
            (
                "10.0.20348.2761",
                kubelet,
                containerd,
                flannel,
                "windows-2022-pod-network",
            ),
            (
                "10.0.20348.2700",
                kubelet,
                containerd,
                none,
                "windows-2022-pod-network?",
            ),
            ("10.0.20348.2700", kubelet, containerd, antrea, ""),
            ("10.0.20348.2762", kubelet, containerd, calico, ""),
            (
                "10.0.20348.2527",
                kubelet,
                containerd,
                calico,
                "windows-2022-pod-network-early?",
            ),
            ("10.0.20348.2527", kubelet, containerd, flannel, ""),
            (
                "10.0.20348.1970",
                kubelet,
                containerd,
                calico,
                "windows-2022-image-crash?",
            ),
            ("10.0.20348", kubelet, containerd, calico, ""),
            (
                "10.0.26100.4061",
                kubelet,
                containerd,
                flannel,
                "windows-2025-overlay-network?",
            ),
            ("10.0.26100.6899", kubelet, containerd, flannel, ""),
            ("10.0.17763.4737", kubelet, containerd, none, of_2019),
            (
                "10.0.17763.1757",
                kubelet,
                containerd,
                none,
                "windows-2019-gmsa? kube-proxy-2019-health-check-port?",
            ),
            ("10.0.17763.1757", kubelet, "docker://20.10.9", none, of_2019),
            ("10.0.17763.1817", kubelet, containerd, none, of_2019),
        ]);
    }

    #[test]
    fn versions_and_machine_types_match_what_an_affected_node_reports_and_nothing_else() {
        let (good, kubelet, containerd) = GOOD;
        let none = NONE;
        let machine = |size: &str| format!(r#""labels": {{"node.kubernetes.io/instance-type": "{size}"}}"#);
        let (v6, fx, old, v5) = (
            machine("Standard_D4ads_v6"),
            machine("Standard_FX4mds_v2"),
            machine("Standard_FX4mds"),
            machine("Standard_D4ds_v5"),
        );
        check(&[
            (
                good,
                "v1.34.8+rke2r1",
                containerd,
                none,
                "kubelet-subpaths-terminating? kubelet-memory-eviction-panic? kubelet-logs-on-mounted-disk?",
            ),
            (good, kubelet, containerd, &v6, "aks-v6-machines?"),
            (good, kubelet, containerd, &fx, "aks-v6-machines?"),
            (good, kubelet, containerd, &old, ""),
            (good, kubelet, containerd, &v5, ""),
            (
                good,
                kubelet,
                "containerd://1.6.6+azure",
                none,
                "cve-2026-53488? containerd-1.6-host-process? containerd-index-without-os-version? \
                 containerd-graceful-termination?",
            ),
            (
                good,
                kubelet,
                "containerd://1.6.18",
                none,
                "cve-2026-53488? containerd-1.6-host-process? containerd-graceful-termination?",
            ),
            (
                good,
                kubelet,
                "containerd://1.5.13",
                none,
                "cve-2026-53488? containerd-index-without-os-version?",
            ),
            (good, kubelet, "containerd://1.7.32", none, "cve-2026-53488?"),
            (good, kubelet, "containerd://1.7.33", none, ""),
            ("", "", "", none, ""),
        ]);
        for (version, id, has) in [
            ("v1.31.0", "kubelet-1.31-socket", true),
            ("v1.31.1+k3s1", "kubelet-1.31-unix-protocol?", true),
            ("v1.31.8", "kube-proxy-remote-endpoints?", true),
            ("v1.31.9", "kube-proxy-remote-endpoints?", false),
            ("v1.30.14", "kubelet-1.31-socket", false),
            ("v1.34.3+rke2r1", "rke2-1.34-cloud-config?", true),
            ("v1.35.0+rke2r3", "rke2-1.34-cloud-config?", true),
            ("v1.34.3", "rke2-1.34-cloud-config?", false),
            ("v1.33.2+rke2r1", "rke2-1.34-cloud-config?", false),
            ("v1.36.0+rke2r1", "rke2-1.34-cloud-config?", false),
        ] {
            let found = faults(good, version, containerd, none);
            assert_eq!(
                found.iter().any(|fault| fault == id),
                has,
                "{version} {id}: {found:?}"
            );
        }
    }

    #[test]
    fn a_message_says_what_is_not_known_and_names_cves_and_the_source() {
        let of = |kubelet: &str| {
            let node = NodeVersions {
                kubelet: kubelet.to_owned(),
                ..NodeVersions::default()
            };
            let faults = known().faults_of(&node);
            faults
                .into_iter()
                .map(|fault| fault.message)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let unknown = of("v1.34.1+rke2r1");
        assert!(
            unknown.contains("the fixed version is not known; https://github.com/rancher/rke2/issues/9591"),
            "{unknown}"
        );
        let cve = of("v1.30.2");
        assert!(
            cve.contains("(CVE-2024-5321; affected from 1.30.0, fixed in 1.30.3; https://"),
            "{cve}"
        );
        let unconfirmed = of("v1.35.0");
        assert!(
            unconfirmed.contains("fixed in 1.35.1; which older releases have it is not confirmed; https://"),
            "{unconfirmed}"
        );
    }

    #[test]
    fn the_faults_of_several_nodes_are_grouped_and_a_fault_is_certain_only_where_it_is() {
        let node = |kernel: &str, kubelet: &str, network_plugin| NodeVersions {
            kernel: kernel.to_owned(),
            kubelet: kubelet.to_owned(),
            network_plugin,
            ..NodeVersions::default()
        };
        let nodes = [
            ("a", node("10.0.20348.2700", "v1.38.0", None)),
            (
                "b",
                node("10.0.20348.2700", "v1.38.0", Some(NetworkPlugin::Calico)),
            ),
            ("c", node("10.0.20348.4297", "v1.36.9", None)),
            ("d", node("10.0.20348.4297", "v1.37.9", None)),
        ];
        let found = known().faults_by_id(nodes);
        let found: Vec<String> = (found.iter())
            .map(|FaultOfNodes { fault, nodes }| {
                format!("{} {} {}", fault.is_certain, fault.id, nodes.join(","))
            })
            .collect();
        assert_eq!(
            found,
            [
                "true windows-2022-pod-network b",
                "false kube-proxy-hns-restart c",
                "false kubelet-logs-on-mounted-disk c,d",
                "false kubelet-memory-eviction-panic c",
                "false kubelet-subpaths-terminating c",
                "false windows-2022-pod-network a",
            ]
        );
    }

    #[test]
    fn a_row_for_one_platform_matches_no_other() {
        let mut row = known()
            .faults
            .iter()
            .find(|row| row.id == "kubelet-1.31-socket")
            .unwrap()
            .clone();
        row.platform = Some(NodePlatform::Aks);
        for (platform, matches) in [
            (None, false),
            (Some(NodePlatform::Eks), false),
            (Some(NodePlatform::Aks), true),
        ] {
            let node = NodeVersions {
                kubelet: "v1.31.0".to_owned(),
                platform,
                ..NodeVersions::default()
            };
            assert_eq!(row.of(&node).is_some(), matches, "{platform:?}");
        }
    }

    #[test]
    fn a_linux_node_has_no_fault_of_windows() {
        let json = r#"{"metadata": {"labels": {"node.kubernetes.io/instance-type": "Standard_D4ads_v6"}},
            "status": {"nodeInfo": {"operatingSystem": "linux", "kubeletVersion": "v1.31.0", "containerRuntimeVersion": "containerd://1.6.6"}}}"#;
        let node: Node<'_> = serde_json::from_str(json).unwrap();
        assert_eq!(known().faults_of_node(&node), []);
    }
}
