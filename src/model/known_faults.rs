//! Known faults of Windows nodes as data: which versions of Windows, kubelet and containerd, machine types and network
//! plugins have them. To add a fault, add a row to [`KNOWN_FAULTS`]; every command reads this table.

use std::fmt::{self, Write as _};

use super::build::Build;
use super::network_plugin::NetworkPlugin;
use super::node::{INSTANCE_TYPE_LABEL, NodeSigns};

/// A version of the kubelet or of containerd: major, minor, patch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
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

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A range of affected versions or revisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affected<V> {
    /// The first affected one that a source names.
    pub first: V,
    /// The first one that is not affected. If the end is not known, the first one for which no source reports the fault.
    pub below: V,
    /// Whether a source names the one with the fix.
    pub is_end_known: bool,
}

impl<V: Copy + PartialOrd + Default + fmt::Display> Affected<V> {
    /// Affected from the first one until a fix.
    pub const fn fixed_in(first: V, fixed: V) -> Self {
        Affected {
            first,
            below: fixed,
            is_end_known: true,
        }
    }

    /// Affected from the first one; the one with the fix is not known, but it is below this one.
    pub const fn end_not_known(first: V, below: V) -> Self {
        Affected {
            first,
            below,
            is_end_known: false,
        }
    }

    fn contains(&self, version: V) -> bool {
        self.first <= version && version < self.below
    }

    fn shown(&self, prefix: &str) -> String {
        let Affected { first, below, .. } = self;
        if *first == V::default() {
            return if self.is_end_known {
                format!("every version before {prefix}{below} is affected")
            } else {
                "no version with the fix is known".to_owned()
            };
        }
        if self.is_end_known {
            format!("affected from {prefix}{first}, fixed in {prefix}{below}")
        } else {
            format!("affected from {prefix}{first}, the fixed version is not known")
        }
    }
}

/// A fault. A node has it if it matches every criterion that is not empty.
#[derive(Clone, Copy, Debug)]
pub struct KnownFault {
    /// Its name in outputs.
    pub name: &'static str,
    /// The affected Windows build, with the range of revisions (UBR).
    pub windows: Option<(u32, Affected<u32>)>,
    /// The affected kubelets; empty: any.
    pub kubelet: &'static [Affected<Version>],
    /// A part of the kubelet version that names the distribution, as in `+rke2`; empty: any.
    pub distribution: &'static str,
    /// The affected versions of containerd; empty: any.
    pub containerd: &'static [Affected<Version>],
    /// The beginning and the end of affected machine types; empty: any.
    pub instance_types: &'static [(&'static str, &'static str)],
    /// The affected network plugins; empty: any.
    pub network_plugins: &'static [NetworkPlugin],
    /// Whether a matching node has the fault. If not, it depends on the workloads, or only users reported it.
    pub is_certain: bool,
    /// What happens: lower case, no full stop.
    pub symptom: &'static str,
    /// What to do: lower case, no full stop.
    pub remedy: &'static str,
    /// The pages that document it; the first one is shown.
    pub sources: &'static [&'static str],
}

impl KnownFault {
    /// A row without criteria.
    const ROW: KnownFault = KnownFault {
        name: "",
        windows: None,
        kubelet: &[],
        distribution: "",
        containerd: &[],
        instance_types: &[],
        network_plugins: &[],
        is_certain: false,
        symptom: "",
        remedy: "",
        sources: &[],
    };
}

/// Calico and Flannel.
const OVERLAYS: &[NetworkPlugin] = &[NetworkPlugin::Calico, NetworkPlugin::Flannel];

/// All known faults.
pub static KNOWN_FAULTS: &[KnownFault] = &[
    KnownFault {
        name: "windows-2022-pod-network",
        windows: Some((20348, Affected::fixed_in(2582, 2762))),
        network_plugins: OVERLAYS,
        is_certain: true,
        symptom: "pods reach nothing outside their node, and nothing reaches them (KB5040437)",
        remedy: "install KB5044281 (20348.2762) or a later update on the node",
        sources: &[
            "https://github.com/microsoft/Windows-Containers/issues/516",
            "https://github.com/projectcalico/calico/issues/8529",
            "https://github.com/projectcalico/calico/issues/9019",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "windows-2022-pod-network-early",
        windows: Some((20348, Affected::fixed_in(2322, 2582))),
        network_plugins: &[NetworkPlugin::Calico],
        symptom: "a user reports that pods lose their network with Calico from this revision on; 20348.1970 worked",
        remedy: "install KB5044281 (20348.2762) or a later update on the node",
        sources: &["https://github.com/projectcalico/calico/issues/8529"],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "windows-2025-overlay-network",
        // 6899 is the revision of the update that the source announces; no source confirms that it has the fix.
        windows: Some((26100, Affected::end_not_known(0, 6899))),
        network_plugins: OVERLAYS,
        symptom: "overlay networks of pods had regressions; Microsoft announced a fix for the update of October 2025",
        remedy: "install the update of October 2025 or a later one, and test the pod network",
        sources: &[
            "https://github.com/rancher/rancher/issues/50915",
            "https://github.com/microsoft/hcsshim/pull/2483",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "windows-2019-gmsa",
        windows: Some((17763, Affected::fixed_in(0, 1817))),
        symptom: "with containerd, pods with a gMSA cannot use its identity on network shares",
        remedy: "install KB5000822 (17763.1817) or a later update on the node",
        sources: &[
            "https://github.com/kubernetes/website/pull/31412",
            "https://github.com/microsoft/Windows-Containers/issues/44",
        ],
        containerd: &[Affected::end_not_known(Version(0, 0, 0), Version(u32::MAX, 0, 0))],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "kubelet-1.31-socket",
        kubelet: &[Affected::fixed_in(Version(1, 31, 0), Version(1, 31, 1))],
        is_certain: true,
        symptom: "the kubelet does not remove its socket when it stops, and does not start again",
        remedy: "upgrade the kubelet to the last patch release of 1.31 or later",
        sources: &[
            "https://github.com/kubernetes/kubernetes/issues/126965",
            "https://github.com/kubernetes/kubernetes/pull/127100",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "kubelet-1.31-unix-protocol",
        kubelet: &[Affected::end_not_known(Version(1, 31, 0), Version(1, 31, 2))],
        symptom: "users report that the kubelet does not start after an upgrade (`protocol \"unix\" not supported`)",
        remedy: "upgrade the kubelet to the last patch release of 1.31 or later",
        sources: &[
            "https://github.com/kubernetes/kubernetes/issues/129957",
            "https://github.com/kubernetes/kubernetes/issues/129952",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "rke2-1.34-cloud-config",
        kubelet: &[
            Affected::end_not_known(Version(1, 34, 0), Version(1, 34, 4)),
            Affected::end_not_known(Version(1, 35, 0), Version(1, 35, 1)),
        ],
        distribution: "+rke2",
        symptom: "with a cloud provider, RKE2 starts the kubelet with --cloud-config, which 1.34 removed: it does not start",
        remedy: "upgrade RKE2 to a patch release of March 2026 or later",
        sources: &[
            "https://github.com/rancher/rke2/issues/9591",
            "https://github.com/rancher/rke2/issues/9671",
            "https://github.com/rancher/rke2/issues/9672",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "kube-proxy-remote-endpoints",
        // The fixes were merged after 1.32.4 and 1.33.0; the sources do not name the first release with them.
        kubelet: &[
            Affected::end_not_known(Version(1, 31, 0), Version(1, 32, 5)),
            Affected::end_not_known(Version(1, 33, 0), Version(1, 33, 1)),
        ],
        symptom: "kube-proxy of this release may fail to create an HNS endpoint if a remote one has the same address",
        remedy: "upgrade kubelet and kube-proxy to the last patch release of their minor release",
        sources: &[
            "https://github.com/kubernetes/kubernetes/pull/131427",
            "https://github.com/kubernetes/kubernetes/pull/131428",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "aks-v6-machines",
        instance_types: &[
            ("Standard_D", "_v6"),
            ("Standard_E", "_v6"),
            ("Standard_FX", "_v2"),
        ],
        symptom: "users report that nodes of this size become NotReady when many pods start at the same time",
        remedy: "use an older machine size for Windows pools, or start few pods at a time",
        sources: &["https://github.com/Azure/AKS/issues/5187"],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "containerd-1.6-host-process",
        containerd: &[Affected::fixed_in(Version(1, 6, 0), Version(1, 7, 0))],
        symptom: "HostProcess containers find no files at absolute mount paths, so in-cluster clients find no token",
        remedy: "upgrade containerd on the node to 1.7 or later, or use paths below CONTAINER_SANDBOX_MOUNT_POINT",
        sources: &[
            "https://github.com/kubernetes/kubernetes/issues/104562",
            "https://github.com/kubernetes/enhancements/pull/3311",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "containerd-index-without-os-version",
        containerd: &[Affected::fixed_in(Version(0, 0, 0), Version(1, 6, 18))],
        symptom: "images in an index without os.version (buildx 0.10 and later) fail with `no match for platform in manifest`",
        remedy: "upgrade containerd on the node to 1.6.18 or later",
        sources: &[
            "https://github.com/containerd/containerd/issues/8070",
            "https://github.com/containerd/containerd/pull/8106",
        ],
        ..KnownFault::ROW
    },
    KnownFault {
        name: "containerd-graceful-termination",
        containerd: &[Affected::fixed_in(Version(1, 6, 0), Version(1, 6, 19))],
        symptom: "containers do not get their grace period when they are stopped",
        remedy: "upgrade containerd on the node to 1.6.19 or later",
        sources: &[
            "https://github.com/containerd/containerd/pull/8157",
            "https://github.com/microsoft/Windows-Containers/issues/164",
        ],
        ..KnownFault::ROW
    },
];

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
    /// The name of the fault.
    pub name: &'static str,
    /// Whether the node certainly has it.
    pub is_certain: bool,
    /// The field that shows it.
    pub field: FaultField,
    /// What the node reports, the symptom, the affected range and the source: lower case, no full stop.
    pub message: String,
    /// What to do: lower case, no full stop.
    pub remedy: &'static str,
    /// The page that documents it.
    pub source: &'static str,
}

impl KnownFault {
    /// The fault of this row in a node, if it matches.
    fn of(&self, node: &impl NodeSigns) -> Option<NodeFault> {
        let mut field = None;
        let mut seen: Vec<String> = Vec::new();
        let mut range = String::new();
        let mut note = |of: FaultField, value: &str, affected: String| {
            if field.is_none() {
                range = affected;
            }
            field.get_or_insert(of);
            seen.push(value.to_owned());
        };
        if let Some((build, affected)) = self.windows {
            let (of_node, revision) = Build::parse_kernel_version(node.kernel_version())?;
            let matches = of_node == Build::new(build) && affected.contains(revision?);
            let affected = if affected.first == 0 && affected.is_end_known {
                format!("fixed in {build}.{}", affected.below)
            } else if affected.first == 0 {
                "the fixed revision is not known".to_owned()
            } else {
                affected.shown(&format!("{build}."))
            };
            matches.then(|| note(FaultField::KernelVersion, node.kernel_version(), affected))?;
        }
        if !self.kubelet.is_empty() {
            let version = Version::parse(node.kubelet_version())?;
            let affected = self.kubelet.iter().find(|range| range.contains(version))?;
            note(
                FaultField::KubeletVersion,
                node.kubelet_version(),
                affected.shown(""),
            );
        }
        if !node.kubelet_version().contains(self.distribution) {
            return None;
        }
        if !self.containerd.is_empty() {
            let runtime = node.container_runtime();
            let version = Version::parse(runtime.strip_prefix("containerd://")?)?;
            let affected = self.containerd.iter().find(|range| range.contains(version))?;
            note(FaultField::ContainerRuntimeVersion, runtime, affected.shown(""));
        }
        if !self.instance_types.is_empty() {
            let machine = node.label(INSTANCE_TYPE_LABEL)?;
            let is_like = |(start, end): &(&str, &str)| machine.starts_with(start) && machine.ends_with(end);
            self.instance_types.iter().any(is_like).then(|| {
                note(
                    FaultField::InstanceType,
                    machine,
                    "no fixed version is known".to_owned(),
                );
            })?;
        }
        let plugin = node.network_plugin();
        let is_plugin_known = plugin.is_some() || self.network_plugins.is_empty();
        if plugin
            .is_some_and(|plugin| !self.network_plugins.is_empty() && !self.network_plugins.contains(&plugin))
        {
            return None;
        }
        if !is_plugin_known && !self.is_certain {
            return None;
        }
        let source = self.sources.first().copied().unwrap_or_default();
        let mut message = format!("{}: {}", seen.join(", "), self.symptom);
        if !is_plugin_known {
            let plugins: Vec<String> = self.network_plugins.iter().map(ToString::to_string).collect();
            // Writing to a string does not fail.
            let _ = write!(message, ", if the network plugin is {}", plugins.join(" or "));
        }
        let _ = write!(message, " ({range}; {source})");
        Some(NodeFault {
            name: self.name,
            is_certain: self.is_certain && is_plugin_known,
            field: field?,
            message,
            remedy: self.remedy,
            source,
        })
    }
}

/// The known faults of a Windows node, the certain ones first; empty for any other node.
pub fn of_node(node: &impl NodeSigns) -> Vec<NodeFault> {
    if !node.is_windows() {
        return Vec::new();
    }
    let mut faults: Vec<NodeFault> = KNOWN_FAULTS.iter().filter_map(|fault| fault.of(node)).collect();
    faults.sort_by_key(|fault| !fault.is_certain);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::resources::Node;

    /// The faults of a node as its kubelet reports it; a `?` marks those that are not certain.
    fn faults(kernel: &str, kubelet: &str, runtime: &str, meta: &str) -> Vec<String> {
        let json = format!(
            r#"{{"metadata": {{"name": "w", {meta}}}, "status": {{"nodeInfo": {{"operatingSystem": "windows",
            "kernelVersion": "{kernel}", "kubeletVersion": "{kubelet}", "containerRuntimeVersion": "{runtime}"}}}}}}"#
        );
        let node: Node<'_> = serde_json::from_str(&json).unwrap();
        let mark = |fault: NodeFault| format!("{}{}", fault.name, if fault.is_certain { "" } else { "?" });
        of_node(&node).into_iter().map(mark).collect()
    }

    #[test]
    fn a_range_without_a_first_version_names_none() {
        let from_the_beginning = Version::default();
        let fixed = Version(1, 6, 18);
        for (range, text) in [
            (
                Affected::fixed_in(from_the_beginning, fixed),
                "every version before 1.6.18 is affected",
            ),
            (
                Affected::end_not_known(from_the_beginning, fixed),
                "no version with the fix is known",
            ),
            (
                Affected::fixed_in(Version(1, 6, 0), fixed),
                "affected from 1.6.0, fixed in 1.6.18",
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
    const GOOD: (&str, &str, &str) = ("10.0.20348.4297", "v1.36.2", "containerd://2.1.4");

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
            ("10.0.20348.1970", kubelet, containerd, calico, ""),
            ("10.0.20348", kubelet, containerd, calico, ""),
            (
                "10.0.26100.4061",
                kubelet,
                containerd,
                flannel,
                "windows-2025-overlay-network?",
            ),
            ("10.0.26100.6899", kubelet, containerd, flannel, ""),
            ("10.0.17763.4737", kubelet, containerd, none, ""),
            ("10.0.17763.1757", kubelet, containerd, none, "windows-2019-gmsa?"),
            ("10.0.17763.1757", kubelet, "docker://20.10.9", none, ""),
            ("10.0.17763.1817", kubelet, containerd, none, ""),
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
                "v1.31.0",
                containerd,
                none,
                "kubelet-1.31-socket kubelet-1.31-unix-protocol? kube-proxy-remote-endpoints?",
            ),
            (
                good,
                "v1.31.1+k3s1",
                containerd,
                none,
                "kubelet-1.31-unix-protocol? kube-proxy-remote-endpoints?",
            ),
            (good, "v1.31.2", containerd, none, "kube-proxy-remote-endpoints?"),
            (good, "v1.30.14", containerd, none, ""),
            (good, "v1.33.1", containerd, none, ""),
            (
                good,
                "v1.34.3+rke2r1",
                containerd,
                none,
                "rke2-1.34-cloud-config?",
            ),
            (
                good,
                "v1.35.0+rke2r3",
                containerd,
                none,
                "rke2-1.34-cloud-config?",
            ),
            (good, "v1.34.3", containerd, none, ""),
            (good, "v1.33.2+rke2r1", containerd, none, ""),
            (good, "v1.36.0+rke2r1", containerd, none, ""),
            (good, kubelet, containerd, &v6, "aks-v6-machines?"),
            (good, kubelet, containerd, &fx, "aks-v6-machines?"),
            (good, kubelet, containerd, &old, ""),
            (good, kubelet, containerd, &v5, ""),
            (
                good,
                kubelet,
                "containerd://1.6.6+azure",
                none,
                "containerd-1.6-host-process? containerd-index-without-os-version? containerd-graceful-termination?",
            ),
            (
                good,
                kubelet,
                "containerd://1.6.18",
                none,
                "containerd-1.6-host-process? containerd-graceful-termination?",
            ),
            (
                good,
                kubelet,
                "containerd://1.5.13",
                none,
                "containerd-index-without-os-version?",
            ),
            (good, kubelet, "containerd://1.7.20", none, ""),
            ("", "", "", none, ""),
        ]);
    }

    #[test]
    fn every_row_has_a_source_and_says_if_its_end_is_not_known() {
        let mut names: Vec<&str> = KNOWN_FAULTS.iter().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN_FAULTS.len());
        for fault in KNOWN_FAULTS {
            assert!(
                !fault.symptom.is_empty() && !fault.remedy.is_empty(),
                "{}",
                fault.name
            );
            assert!(
                fault.sources.iter().all(|source| source.starts_with("https://"))
                    && !fault.sources.is_empty(),
                "{}",
                fault.name
            );
        }
        let json = r#"{"metadata": {"labels": {"kubernetes.io/os": "windows"}}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.1+rke2r1"}}}"#;
        let node: Node<'_> = serde_json::from_str(json).unwrap();
        let fault = of_node(&node).pop().unwrap();
        assert!(
            fault.message.contains("the fixed version is not known") && fault.message.contains(fault.source),
            "{}",
            fault.message
        );
    }

    #[test]
    fn a_linux_node_has_no_fault_of_windows() {
        let json = r#"{"metadata": {"labels": {"node.kubernetes.io/instance-type": "Standard_D4ads_v6"}},
            "status": {"nodeInfo": {"operatingSystem": "linux", "kubeletVersion": "v1.31.0", "containerRuntimeVersion": "containerd://1.6.6"}}}"#;
        let node: Node<'_> = serde_json::from_str(json).unwrap();
        assert_eq!(of_node(&node), []);
    }
}
