//! Whether anything enforces NetworkPolicies for Windows pods, as far as objects of the cluster show it.

use std::collections::BTreeSet;

use jiff::civil::{Date, date};

use crate::model::knowledge::NodePlatform;
use crate::model::nodes::network_plugin::NetworkPlugin;

/// What shows the network engines of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkSigns {
    /// DaemonSets of known engines, as `namespace/name`.
    pub daemon_sets: BTreeSet<String>,
    /// The plugins of Windows nodes.
    pub plugins: BTreeSet<NetworkPlugin>,
}

/// Whether something enforces NetworkPolicies for Windows pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enforcement {
    /// This engine does.
    Enforced(&'static str),
    /// Only engines are known that do not.
    NotEnforced {
        /// Why the first of them does not.
        why: &'static str,
        source: &'static str,
    },
    /// No object shows it.
    Unknown,
}

/// What an engine does for Windows pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnWindows {
    Enforces,
    /// It does on nodes on which it also runs. No object shows that if it is a service of Windows.
    MayEnforce,
    /// It does until its support ends on this day.
    EnforcesUntil(Date),
    Lacks,
}

/// One engine, or a network without one, and its signs.
struct PolicyEngine {
    title: &'static str,
    daemon_sets: &'static [&'static str],
    plugin: Option<NetworkPlugin>,
    /// The only platform to which the row applies.
    platform: Option<NodePlatform>,
    /// The platform to which it does not apply.
    except: Option<NodePlatform>,
    on_windows: OnWindows,
    /// Why nothing is enforced, if it is not.
    why: &'static str,
    source: &'static str,
}

/// The last day on which AKS supports Azure Network Policy Manager on Windows nodes.
///
/// Source: <https://learn.microsoft.com/azure/aks/use-network-policies>.
pub const AZURE_NPM_ENDS: Date = date(2026, 9, 30);

const NPM: &str =
    "Azure Network Policy Manager does not run on Windows nodes; its support there ended on 2026-09-30";
const AKS_POLICIES: &str = "https://learn.microsoft.com/azure/aks/use-network-policies";
const CALICO_LIMITS: &str =
    "https://docs.tigera.io/calico/latest/getting-started/kubernetes/windows-calico/limitations";

impl PolicyEngine {
    /// An engine without any sign.
    const BASE: PolicyEngine = PolicyEngine {
        title: "",
        daemon_sets: &[],
        plugin: None,
        platform: None,
        except: None,
        on_windows: OnWindows::Lacks,
        why: "",
        source: "",
    };
}

/// Every known engine; of several that do not enforce, the first is named.
static ENGINES: [PolicyEngine; 12] = [
    PolicyEngine {
        title: "Calico",
        daemon_sets: &["calico-node-windows"],
        plugin: Some(NetworkPlugin::Calico),
        on_windows: OnWindows::Enforces,
        source: "https://docs.tigera.io/calico/latest/getting-started/kubernetes/windows-calico/operator",
        ..PolicyEngine::BASE
    },
    // On AKS and RKE2, Calico for Windows is a service of the node.
    PolicyEngine {
        title: "Calico",
        daemon_sets: &["calico-node", "canal", "rke2-canal"],
        except: Some(NodePlatform::Gke),
        on_windows: OnWindows::MayEnforce,
        source: CALICO_LIMITS,
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Calico on GKE",
        daemon_sets: &["calico-node"],
        platform: Some(NodePlatform::Gke),
        why: "Calico does not support Windows nodes of GKE",
        source: CALICO_LIMITS,
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Antrea",
        daemon_sets: &["antrea-agent-windows"],
        plugin: Some(NetworkPlugin::Antrea),
        on_windows: OnWindows::Enforces,
        source: "https://github.com/antrea-io/antrea/blob/main/docs/windows.md",
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Antrea",
        daemon_sets: &["antrea-agent"],
        on_windows: OnWindows::MayEnforce,
        source: "https://github.com/antrea-io/antrea/blob/main/docs/windows.md",
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Azure Network Policy Manager",
        daemon_sets: &["azure-npm-win"],
        on_windows: OnWindows::EnforcesUntil(AZURE_NPM_ENDS),
        why: NPM,
        source: AKS_POLICIES,
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Azure Network Policy Manager",
        daemon_sets: &["azure-npm"],
        why: NPM,
        source: AKS_POLICIES,
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Cilium",
        daemon_sets: &["cilium"],
        why: "Cilium does not run on Windows nodes",
        source: "https://github.com/cilium/cilium/issues/34929",
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "GKE Dataplane V2",
        daemon_sets: &["anetd"],
        platform: Some(NodePlatform::Gke),
        why: "GKE Dataplane V2 uses eBPF, so it does not run on Windows nodes",
        source: "https://cloud.google.com/kubernetes-engine/docs/concepts/dataplane-v2",
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "OVN-Kubernetes",
        daemon_sets: &["ovnkube-node"],
        plugin: Some(NetworkPlugin::OvnKubernetes),
        why: "OVN-Kubernetes connects Windows nodes by its hybrid overlay only, and enforces nothing there",
        source: "https://github.com/openshift/cluster-network-operator/pull/500",
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Amazon VPC CNI",
        daemon_sets: &["aws-node"],
        why: "the network policy agent of the Amazon VPC CNI does not run on Windows nodes",
        source: "https://github.com/aws/amazon-vpc-cni-k8s/issues/861",
        ..PolicyEngine::BASE
    },
    PolicyEngine {
        title: "Flannel",
        daemon_sets: &["kube-flannel-ds", "kube-flannel-ds-windows-amd64"],
        plugin: Some(NetworkPlugin::Flannel),
        why: "Flannel enforces no NetworkPolicies on Windows nodes",
        source: "https://kubernetes.io/docs/concepts/services-networking/windows-networking/#network-modes",
        ..PolicyEngine::BASE
    },
];

impl PolicyEngine {
    fn is_seen(&self, signs: &NetworkSigns, platform: Option<NodePlatform>) -> bool {
        let is_excluded = self.except.is_some() && self.except == platform;
        let is_here = (self.platform.is_none() || self.platform == platform) && !is_excluded;
        let mut names = self.daemon_sets.iter();
        is_here
            && (names.any(|name| signs.named(name).next().is_some())
                || self.plugin.is_some_and(|plugin| signs.plugins.contains(&plugin)))
    }
}

/// Whether a DaemonSet with this name is that of a known engine.
pub fn is_engine(name: &str) -> bool {
    let mut known = ENGINES.iter().flat_map(|engine| engine.daemon_sets);
    known.any(|known| *known == name)
}

impl NetworkSigns {
    /// Adds a DaemonSet, if it is that of a known engine.
    pub fn add_daemon_set(&mut self, namespace: &str, name: &str) {
        if is_engine(name) {
            self.daemon_sets.insert(format!("{namespace}/{name}"));
        }
    }

    /// The DaemonSets with this name, as `namespace/name`.
    pub fn named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        let all = self.daemon_sets.iter().map(String::as_str);
        all.filter(move |known| known.rsplit('/').next() == Some(name))
    }

    /// Whether something enforces NetworkPolicies for Windows pods. `platform`: that of the Windows nodes.
    pub fn enforcement(&self, platform: Option<NodePlatform>, today: Date) -> Enforcement {
        let (mut lacking, mut may_enforce) = (None, false);
        for engine in ENGINES.iter().filter(|engine| engine.is_seen(self, platform)) {
            match engine.on_windows {
                OnWindows::Enforces => return Enforcement::Enforced(engine.title),
                OnWindows::EnforcesUntil(day) if today <= day => return Enforcement::Enforced(engine.title),
                OnWindows::MayEnforce => may_enforce = true,
                OnWindows::EnforcesUntil(_) | OnWindows::Lacks => lacking = lacking.or(Some(engine)),
            }
        }
        match lacking {
            Some(PolicyEngine { why, source, .. }) if !may_enforce => {
                Enforcement::NotEnforced { why, source }
            }
            _ => Enforcement::Unknown,
        }
    }
}

/// What to do on a platform on which nothing enforces NetworkPolicies for Windows pods: lower case, no full stop.
pub fn remedy(platform: Option<NodePlatform>) -> &'static str {
    match platform {
        Some(NodePlatform::Aks) => {
            "use Calico as the cluster's network policy engine, or network security groups of the nodes"
        }
        Some(NodePlatform::Eks) => {
            "install Calico for Windows, or use security groups of the nodes; security groups for pods exclude Windows"
        }
        Some(NodePlatform::Gke) => {
            "use firewall rules of the VPC for the Windows nodes; GKE has no engine for them"
        }
        Some(NodePlatform::OpenShift) => {
            "use firewall rules for the Windows nodes, or a network plugin with Windows support such as Calico"
        }
        Some(NodePlatform::Rancher) => {
            "use Calico as the network plugin, or firewall rules for the Windows nodes"
        }
        None => {
            "use an engine that runs on Windows nodes, such as Calico or Antrea, or firewall rules for these nodes"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(daemon_sets: &[&str], plugins: &[NetworkPlugin]) -> NetworkSigns {
        let mut signs = NetworkSigns {
            plugins: plugins.iter().copied().collect(),
            ..NetworkSigns::default()
        };
        for name in daemon_sets {
            signs.add_daemon_set("kube-system", name);
        }
        signs
    }

    const BEFORE: Date = date(2026, 9, 30);
    const AFTER: Date = date(2026, 10, 1);

    /// What a cluster shows (DaemonSets, plugins of Windows nodes, platform) on a day, and the engine that enforces; after `-`
    /// why none does; empty if unknown.
    type ClusterRow<'r> = (
        &'r [&'r str],
        &'r [NetworkPlugin],
        Option<NodePlatform>,
        Date,
        &'r str,
    );

    const CLUSTERS: [ClusterRow<'static>; 17] = [
        // AKS.
        (
            &["azure-npm", "azure-npm-win"],
            &[],
            Some(NodePlatform::Aks),
            BEFORE,
            "Azure",
        ),
        (
            &["azure-npm", "azure-npm-win"],
            &[],
            Some(NodePlatform::Aks),
            AFTER,
            "-Azure",
        ),
        (&["azure-npm"], &[], Some(NodePlatform::Aks), BEFORE, "-Azure"),
        (
            &["cilium", "azure-cns", "azure-cns-win"],
            &[],
            Some(NodePlatform::Aks),
            AFTER,
            "-Cilium",
        ),
        (&["calico-node"], &[], Some(NodePlatform::Aks), AFTER, ""),
        (
            &["calico-node", "calico-node-windows"],
            &[],
            Some(NodePlatform::Aks),
            AFTER,
            "Calico",
        ),
        (
            &["azure-cns", "azure-cns-win"],
            &[],
            Some(NodePlatform::Aks),
            AFTER,
            "",
        ),
        // EKS.
        (
            &["aws-node"],
            &[],
            Some(NodePlatform::Eks),
            AFTER,
            "-the network policy agent",
        ),
        (
            &["aws-node", "calico-node"],
            &[],
            Some(NodePlatform::Eks),
            AFTER,
            "",
        ),
        (
            &["aws-node", "calico-node", "calico-node-windows"],
            &[],
            Some(NodePlatform::Eks),
            AFTER,
            "Calico",
        ),
        // GKE.
        (
            &["anetd"],
            &[],
            Some(NodePlatform::Gke),
            AFTER,
            "-GKE Dataplane V2",
        ),
        (
            &["calico-node"],
            &[],
            Some(NodePlatform::Gke),
            AFTER,
            "-Calico does not",
        ),
        // RKE2: the nodes of its Calico have annotations; its Flannel enforces nothing.
        (&["calico-node"], &[], Some(NodePlatform::Rancher), AFTER, ""),
        (
            &[],
            &[NetworkPlugin::Calico],
            Some(NodePlatform::Rancher),
            AFTER,
            "Calico",
        ),
        (
            &[],
            &[NetworkPlugin::Flannel],
            Some(NodePlatform::Rancher),
            AFTER,
            "-Flannel",
        ),
        // OpenShift, and Antrea.
        (
            &["ovnkube-node"],
            &[NetworkPlugin::OvnKubernetes],
            Some(NodePlatform::OpenShift),
            AFTER,
            "-OVN",
        ),
        (
            &["antrea-agent", "antrea-agent-windows"],
            &[],
            None,
            AFTER,
            "Antrea",
        ),
    ];

    #[test]
    fn the_engines_of_platforms_are_recognised() {
        for (daemon_sets, plugins, platform, today, expected) in CLUSTERS {
            let found = match signs(daemon_sets, plugins).enforcement(platform, today) {
                Enforcement::Enforced(title) => title.to_owned(),
                Enforcement::NotEnforced { why, .. } => format!("-{why}"),
                Enforcement::Unknown => String::new(),
            };
            let is_it = found.starts_with(expected) && found.is_empty() == expected.is_empty();
            assert!(
                is_it,
                "{daemon_sets:?} {plugins:?} {platform:?} {today}: {found:?}"
            );
        }
    }

    #[test]
    fn a_daemon_set_is_a_sign_by_its_whole_name_in_any_namespace() {
        let mut signs = NetworkSigns::default();
        for (namespace, name) in [
            ("shop", "my-cilium"),
            ("calico-system", "calico-node"),
            ("x", "cilium-envoy"),
        ] {
            signs.add_daemon_set(namespace, name);
        }
        assert_eq!(signs.daemon_sets, ["calico-system/calico-node".to_owned()].into());
        assert_eq!(signs.named("calico-node").count(), 1);
        assert_eq!(signs.named("node").count(), 0);
    }

    #[test]
    fn each_row_has_a_sign_and_a_source_and_a_reason_if_it_does_not_enforce() {
        for engine in &ENGINES {
            assert!(
                !engine.daemon_sets.is_empty() && engine.source.starts_with("https://"),
                "{}",
                engine.title
            );
            let enforces = matches!(engine.on_windows, OnWindows::Enforces | OnWindows::MayEnforce);
            assert_eq!(engine.why.is_empty(), enforces, "{}", engine.title);
        }
    }
}
