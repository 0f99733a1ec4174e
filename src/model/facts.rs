//! Facts: what is known of the cluster and the day, as plain data. Nothing here looks anything up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::build::{Build, Isolation};
use super::node::{BUILD_LABELS, Host, Taint};
use super::object::{Meta, RuntimeClass};
use super::os::Os;
use super::pod::Toleration;
use super::subject::{Body, Subject};

/// The annotation by which OpenShift says on a pod which SecurityContextConstraints wrote its defaults into it.
pub const SCC_ANNOTATION: &str = "openshift.io/scc";
/// The API group of SecurityContextConstraints.
pub const SCC_GROUP: &str = "security.openshift.io";

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

/// What a RuntimeClass does to the pods that name it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RuntimeClassFacts {
    /// The handler that the runtime is asked for.
    pub handler: String,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`: the API server adds them to the pods that name the class.
    pub tolerations: Vec<Toleration<'static>>,
    /// Whether it brings an overhead.
    pub has_overhead: bool,
}

impl RuntimeClassFacts {
    /// Reads a RuntimeClass.
    pub fn of(class: &RuntimeClass<'_>) -> Self {
        let selector = class.scheduling.iter().flat_map(|s| &s.node_selector);
        let tolerations = class.scheduling.iter().flat_map(|s| &s.tolerations);
        RuntimeClassFacts {
            handler: class.handler.to_string(),
            node_selector: selector.map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            tolerations: tolerations.map(Toleration::detached).collect(),
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
    /// Whether Pod Security enforces its restricted profile here.
    pub fn is_restricted(&self) -> bool {
        let enforced = self.labels.get("pod-security.kubernetes.io/enforce");
        enforced.is_some_and(|profile| profile == "restricted")
    }

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
    /// Whether the API server has OpenShift's SecurityContextConstraints.
    pub has_scc: bool,
    /// RuntimeClasses by name.
    pub runtime_classes: BTreeMap<String, RuntimeClassFacts>,
    /// Namespaces by name; shared by the facts of one moment and the next.
    pub namespaces: Arc<HashMap<String, NamespaceFacts>>,
    /// Images that the registry was asked about, by reference as written.
    pub images: HashMap<String, ImageFacts>,
    /// Windows workloads, for the rules on Services, claims and autoscalers.
    pub workloads: Vec<WindowsWorkload>,
    /// Claims in Block mode, by (namespace, name).
    pub block_claims: BTreeSet<(String, String)>,
    /// Unique endpoint addresses by (namespace, Service).
    pub backends: HashMap<(String, String), BTreeSet<String>>,
    hosts: Vec<Host>,
    offers_private_ipv4: bool,
    builds: BTreeSet<Build>,
    taints: Vec<(Taint, BTreeSet<Option<Build>>)>,
    /// Labels of the build, with the builds of nodes that carry each.
    labelled: BTreeSet<(&'static str, Build)>,
    /// The same of nodes that do not.
    unlabelled: BTreeSet<(&'static str, Build)>,
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
            has_scc: false,
            runtime_classes: BTreeMap::new(),
            namespaces: Arc::default(),
            images: HashMap::new(),
            workloads: Vec::new(),
            block_claims: BTreeSet::new(),
            backends: HashMap::new(),
            hosts: Vec::new(),
            offers_private_ipv4: false,
            builds: BTreeSet::new(),
            taints: Vec::new(),
            labelled: BTreeSet::new(),
            unlabelled: BTreeSet::new(),
        }
    }

    /// Adds a Windows node or pool.
    pub fn add_host(&mut self, host: Host) {
        self.builds.extend(host.build);
        self.offers_private_ipv4 |= host.offers_private_ipv4;
        if let Some(build) = host.build.filter(|_| !host.may_be_at_zero) {
            for label in BUILD_LABELS {
                let builds = if host.unlabelled.contains(&label) {
                    &mut self.unlabelled
                } else {
                    &mut self.labelled
                };
                builds.insert((label, build));
            }
        }
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
                if let Some(host) = Host::of_node(&**node) {
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

    /// Whether some known Windows node gives each pod an address of a VPC, where the pod asks for one.
    pub fn offers_private_ipv4(&self) -> bool {
        self.offers_private_ipv4
    }

    /// Whether there are nodes of these builds, and none of them says so by this label: a pod that requires it would stay
    /// Pending beside them.
    pub fn none_is_labelled(&self, label: &'static str, builds: &[Build]) -> bool {
        let has = |known: &BTreeSet<_>| builds.iter().any(|build| known.contains(&(label, *build)));
        has(&self.unlabelled) && !has(&self.labelled)
    }

    /// The distinct taints of the known Windows nodes, with the builds of the nodes that carry them.
    pub fn taints(&self) -> &[(Taint, BTreeSet<Option<Build>>)] {
        &self.taints
    }
}
