//! Facts: what is known of the cluster and the day, as plain data. Nothing here looks anything up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::build::{Build, Isolation};
use super::object::{Meta, Node, RuntimeClass};
use super::os::Os;
use super::pod::Toleration;
use super::subject::{Body, Subject};

/// The container runtime of the Windows nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// containerd, the runtime of every supported release.
    #[default]
    Containerd,
    /// Docker (dockershim, cri-dockerd) or the Mirantis runtime.
    Docker,
}

/// A node taint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are Kubernetes'
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    pub effect: String,
}

impl Taint {
    /// A taint with effect `NoSchedule`.
    pub fn no_schedule(key: &str, value: &str) -> Self {
        Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        }
    }

    /// Whether the taint keeps Linux pods off Windows nodes and says nothing else, so that every Windows pod may
    /// tolerate it: a key that the field uses for this, a value that says Windows, effect `NoSchedule`.
    ///
    /// Maintenance, pressure, spot, tenant and lifecycle taints are never such.
    pub fn marks_windows(&self) -> bool {
        const KEYS: [&str; 5] = [
            "os",
            "windows",
            "sku",
            "node.kubernetes.io/os",
            "kubernetes.io/os",
        ];
        let value = self.value.to_ascii_lowercase();
        let says_windows = value.starts_with("win")
            || (value == "true" && matches!(self.key.as_str(), "windows" | "os" | "sku"));
        self.effect == "NoSchedule" && KEYS.contains(&self.key.as_str()) && says_windows
    }

    /// Whether a toleration tolerates this taint.
    ///
    /// Source: `k8s.io/component-helpers/scheduling/corev1`, `ToleratesTaint`.
    pub fn is_tolerated_by(&self, toleration: &Toleration<'_>) -> bool {
        let text = |field: &Option<super::field::Str<'_>>| field.as_deref().unwrap_or_default().to_owned();
        let (key, effect) = (text(&toleration.key), text(&toleration.effect));
        if (!effect.is_empty() && effect != self.effect) || (!key.is_empty() && key != self.key) {
            return false;
        }
        match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => !key.is_empty() && text(&toleration.value) == self.value,
            Some(_) => false,
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}

/// A Windows node, or a pool that may be at zero nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// The name of the node or pool.
    pub name: String,
    /// Its build, where known.
    pub build: Option<Build>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// The containerd version that it reports, major and minor.
    pub containerd: Option<(u32, u32)>,
    /// For a pool that may be at zero: labels that an autoscaler knows its nodes will have. Empty for a node, and
    /// where nobody knows.
    pub template: BTreeMap<String, String>,
}

impl Host {
    /// Whether this is a pool whose nodes an autoscaler knows by some label, but not by this one: it would never bring
    /// a node for a pod that requires the label.
    pub fn is_template_without(&self, label: &str) -> bool {
        !self.template.is_empty() && !self.template.contains_key(label)
    }

    /// Reads a Node; `None` unless it is a Windows node.
    pub fn of_node(node: &Node<'_>) -> Option<Host> {
        let info = &node.status.node_info;
        let label = node.metadata.labels.get("kubernetes.io/os").map(|s| &**s);
        let os = if info.operating_system.is_empty() {
            label?
        } else {
            &*info.operating_system
        };
        if !os.eq_ignore_ascii_case("windows") {
            return None;
        }
        let from_kernel = Build::parse_kernel_version(&info.kernel_version).map(|(build, _)| build);
        let from_label = || Build::parse_label(node.metadata.labels.get(BUILD_LABEL)?);
        Some(Host {
            name: node.metadata.name.to_string(),
            build: from_kernel.or_else(from_label),
            taints: (node.spec.taints.iter())
                .map(|t| Taint {
                    key: t.key.to_string(),
                    value: t.value.to_string(),
                    effect: t.effect.to_string(),
                })
                .collect(),
            containerd: info
                .container_runtime_version
                .strip_prefix("containerd://")
                .and_then(major_minor),
            template: BTreeMap::new(),
        })
    }
}

/// The label that says a node's build: `10.0.20348`.
pub const BUILD_LABEL: &str = "node.kubernetes.io/windows-build";
/// Its mirror, which a kubelet may not write.
pub const TRUSTED_BUILD_LABEL: &str = "node-restriction.kubernetes.io/windows-build";
/// The label that says a node's operating system.
pub const OS_LABEL: &str = "kubernetes.io/os";
/// Its deprecated form (since 1.14).
pub const BETA_OS_LABEL: &str = "beta.kubernetes.io/os";
/// The label that says a node's architecture.
pub const ARCH_LABEL: &str = "kubernetes.io/arch";
/// Its deprecated form.
pub const BETA_ARCH_LABEL: &str = "beta.kubernetes.io/arch";

/// Reads `1.36`, `v1.36.2` or `1.7.20+x` as (1, 36) and so on.
pub fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What a RuntimeClass does to the pods that name it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuntimeClassFacts {
    /// The handler that the runtime is asked for.
    pub handler: String,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Whether it brings an overhead.
    pub has_overhead: bool,
}

impl RuntimeClassFacts {
    /// Reads a RuntimeClass.
    pub fn of(class: &RuntimeClass<'_>) -> Self {
        let selector = class.scheduling.iter().flat_map(|s| &s.node_selector);
        RuntimeClassFacts {
            handler: class.handler.to_string(),
            node_selector: selector.map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            has_overhead: class.overhead.is_some(),
        }
    }

    /// The isolation that the handler gives Windows containers (handlers of containerd 1.7 and of SIG Windows).
    pub fn isolation(&self) -> Isolation {
        let handler = self.handler.to_ascii_lowercase();
        if handler.contains("hypervisor") || handler.contains("hyperv") {
            Isolation::HyperV
        } else {
            Isolation::Process
        }
    }
}

/// What is known of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamespaceFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The value of `scheduler.alpha.kubernetes.io/tolerationsWhitelist`, as written.
    pub tolerations_whitelist: Option<String>,
}

impl NamespaceFacts {
    /// Reads a Namespace's metadata.
    pub fn of(meta: &Meta<'_>) -> Self {
        NamespaceFacts {
            labels: meta
                .labels
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            tolerations_whitelist: meta
                .annotations
                .get("scheduler.alpha.kubernetes.io/tolerationsWhitelist")
                .map(ToString::to_string),
        }
    }
}

/// What the registry says of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImageFacts {
    /// The only operating system that the image exists for.
    pub os: Option<Os>,
    /// The build of its `os.version`, where there is one only.
    pub build: Option<Build>,
}

/// A Windows pod or template that is known, for the rules on what stands around it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WindowsWorkload {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The labels of its pods.
    pub labels: BTreeMap<String, String>,
    /// The PersistentVolumeClaims that its pods name.
    pub claims: BTreeSet<String>,
    /// How the names of a StatefulSet's own claims begin (`data-web-`); an ordinal ends them.
    pub claim_prefixes: BTreeSet<String>,
}

impl WindowsWorkload {
    /// Reads a subject that has been found to be for Windows; `None` where it has no pod.
    pub fn of(subject: &Subject<'_>) -> Option<Self> {
        let template = subject.template()?;
        let named = template
            .spec
            .volumes
            .iter()
            .filter_map(|v| v.persistent_volume_claim.as_ref());
        let ephemeral = template.spec.volumes.iter().filter(|v| v.ephemeral.is_some());
        let pod = subject.meta.display_name();
        Some(WindowsWorkload {
            namespace: subject.namespace.to_string(),
            kind: subject.kind.to_string(),
            name: pod.to_owned(),
            labels: template
                .meta
                .labels
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            claims: named
                .map(|source| source.claim_name.to_string())
                .chain(ephemeral.map(|volume| format!("{pod}-{}", &*volume.name)))
                .collect(),
            claim_prefixes: (template.claim_templates.iter())
                .map(|claim| format!("{}-{pod}-", &*claim.metadata.name))
                .collect(),
        })
    }

    /// Whether its pods use a PersistentVolumeClaim: they name it, or it was made from a StatefulSet's template.
    pub fn uses_claim(&self, namespace: &str, name: &str) -> bool {
        let ordinal = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        let made = |prefix: &String| name.strip_prefix(prefix.as_str()).is_some_and(ordinal);
        self.namespace == namespace && (self.claims.contains(name) || self.claim_prefixes.iter().any(made))
    }
}

/// What is known of the cluster and the day.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The minor version of Kubernetes (`36` for 1.36).
    pub kubernetes: u32,
    /// The container runtime of the Windows nodes.
    pub runtime: Runtime,
    /// Today, in UTC.
    pub today: Date,
    /// Feature gates known to be on.
    pub feature_gates: BTreeSet<String>,
    /// RuntimeClasses by name.
    pub runtime_classes: BTreeMap<String, RuntimeClassFacts>,
    /// Namespaces by name.
    pub namespaces: HashMap<String, NamespaceFacts>,
    /// Images that the registry was asked about, by reference as written.
    pub images: HashMap<String, ImageFacts>,
    /// Windows workloads, for the rules on Services, claims and autoscalers.
    pub workloads: Vec<WindowsWorkload>,
    /// Claims in Block mode, by (namespace, name).
    pub block_claims: BTreeSet<(String, String)>,
    /// Unique endpoint addresses by (namespace, Service).
    pub backends: HashMap<(String, String), BTreeSet<String>>,
    hosts: Vec<Host>,
    builds: BTreeSet<Build>,
    taints: Vec<(Taint, BTreeSet<Option<Build>>)>,
}

impl Facts {
    /// The newest minor version of Kubernetes that the catalogue was held against.
    pub const KUBERNETES: u32 = 36;

    /// Facts of a cluster of which nothing is known but its version, and of a day.
    pub fn new(kubernetes: u32, today: Date) -> Self {
        Facts {
            kubernetes,
            runtime: Runtime::Containerd,
            today,
            feature_gates: BTreeSet::new(),
            runtime_classes: BTreeMap::new(),
            namespaces: HashMap::new(),
            images: HashMap::new(),
            workloads: Vec::new(),
            block_claims: BTreeSet::new(),
            backends: HashMap::new(),
            hosts: Vec::new(),
            builds: BTreeSet::new(),
            taints: Vec::new(),
        }
    }

    /// Adds a Windows node or pool.
    pub fn add_host(&mut self, host: Host) {
        self.builds.extend(host.build);
        for taint in &host.taints {
            match self.taints.iter_mut().find(|(known, _)| known == taint) {
                Some((_, builds)) => _ = builds.insert(host.build),
                None => self.taints.push((taint.clone(), BTreeSet::from([host.build]))),
            }
        }
        self.hosts.push(host);
    }

    /// Adds what an object tells: a Node, a RuntimeClass, a claim, an EndpointSlice.
    pub fn learn(&mut self, subject: &Subject<'_>) {
        match &subject.body {
            Body::Node(node) => {
                if let Some(host) = Host::of_node(node) {
                    self.add_host(host);
                }
            }
            Body::RuntimeClass(class) => {
                self.runtime_classes
                    .insert(subject.meta.name.to_string(), RuntimeClassFacts::of(class));
            }
            Body::Claim(claim) if claim.spec.volume_mode.as_deref() == Some("Block") => {
                self.block_claims
                    .insert((subject.namespace.to_string(), subject.meta.name.to_string()));
            }
            Body::EndpointSlice(slice) => {
                if let Some(service) = subject.meta.labels.get("kubernetes.io/service-name") {
                    let key = (subject.namespace.to_string(), service.to_string());
                    let addresses = slice.endpoints.iter().flat_map(|e| &e.addresses);
                    self.backends
                        .entry(key)
                        .or_default()
                        .extend(addresses.map(ToString::to_string));
                }
            }
            _ => {}
        }
    }

    /// Whether a known Windows workload uses a PersistentVolumeClaim.
    pub fn is_used_on_windows(&self, namespace: &str, claim: &str) -> bool {
        self.workloads
            .iter()
            .any(|workload| workload.uses_claim(namespace, claim))
    }

    /// Every known Windows node and pool.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The distinct builds of the known Windows nodes.
    pub fn builds(&self) -> &BTreeSet<Build> {
        &self.builds
    }

    /// The distinct taints of the known Windows nodes, with the builds of the nodes that carry them.
    pub fn taints(&self) -> &[(Taint, BTreeSet<Option<Build>>)] {
        &self.taints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_taints_that_say_windows_and_nothing_else_are_learned() {
        for (key, value) in [
            ("os", "windows"),
            ("os", "Windows"),
            ("os", "Win2019"),
            ("node.kubernetes.io/os", "windows"),
            ("node.kubernetes.io/os", "Windows"),
            ("node.kubernetes.io/os", "win1809"),
            ("kubernetes.io/os", "windows"),
            ("sku", "windows"),
            ("windows", "true"),
        ] {
            assert!(Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        for (key, value) in [
            ("cattle.io/os", "linux"),
            ("os", "linux"),
            ("sku", "gpu"),
            ("team", "windows"),
            ("node.kubernetes.io/unschedulable", ""),
            ("kubernetes.azure.com/scalesetpriority", "spot"),
        ] {
            assert!(!Taint::no_schedule(key, value).marks_windows(), "{key}={value}");
        }
        let evicting = Taint {
            effect: "NoExecute".into(),
            ..Taint::no_schedule("os", "windows")
        };
        assert!(!evicting.marks_windows());
    }

    #[test]
    fn tolerations_match_as_the_scheduler_does_it() {
        let taint = Taint::no_schedule("os", "windows");
        let tolerates = |json: &str| taint.is_tolerated_by(&serde_json::from_str(json).unwrap());
        assert!(tolerates(
            r#"{"key": "os", "value": "windows", "effect": "NoSchedule"}"#
        ));
        assert!(tolerates(
            r#"{"key": "os", "operator": "Equal", "value": "windows"}"#
        ));
        assert!(tolerates(r#"{"key": "os", "operator": "Exists"}"#));
        assert!(tolerates(r#"{"operator": "Exists"}"#));
        assert!(!tolerates(r#"{"key": "os", "value": "Windows"}"#));
        assert!(!tolerates(
            r#"{"key": "os", "operator": "Exists", "effect": "NoExecute"}"#
        ));
        assert!(!tolerates("{}"));
    }
}
