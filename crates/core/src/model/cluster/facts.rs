//! Facts: what is known about the cluster and the date, as plain data. This module performs no look-ups.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::config::ClusterConfig;
use super::feature_gates::FeatureGates;
use super::network_policy_engine::NetworkSigns;
use crate::model::knowledge::{Knowledge, NodePlatform, VolumeOfDriver, is_namespace_sign};
use crate::model::nodes::namespace_selector::{NodeSelector, StatedSelectors};
use crate::model::nodes::node::{
    Host, NodeLabel, NodeSigns as _, OtherNode, OtherNodes, Taint, major_minor, shared_labels,
};
use crate::model::objects::known_claims::{KnownClaims, ObjectSource, nearness};
use crate::model::objects::mirror::Witness;
use crate::model::objects::object::{Body, Object};
use crate::model::objects::pod::{ClaimSpec, Container, Toleration};
use crate::model::objects::resources::{ClaimRef, Meta, RuntimeClass, Service, StorageClass};
use crate::model::objects::workload::Kind;
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::build::{Build, ContainerIsolation};
use crate::model::windows::image_facts::ImageFacts;

/// The API group of SecurityContextConstraints.
pub const SCC_GROUP: &str = "security.openshift.io";
/// The API group of the windows-gmsa webhook and of its GMSACredentialSpecs.
pub const GMSA_GROUP: &str = "windows.k8s.io";
/// The kind of the credential specs that pods name.
pub const GMSA_KIND: &str = "GMSACredentialSpec";

string_enum! {
    /// The container runtime of the Windows nodes.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Runtime {
        /// containerd, the runtime of every supported release.
        #[default]
        Containerd = "containerd",
        /// Docker (dockershim, cri-dockerd) or the Mirantis runtime.
        Docker = "docker",
    }
}

/// The effects of a RuntimeClass on its pods.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RuntimeClassFacts {
    /// The handler that the container runtime uses.
    pub handler: String,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`: the API server adds them to the pods of the class.
    pub tolerations: Vec<Toleration<'static>>,
    /// Whether it has an overhead.
    pub has_overhead: bool,
}

impl RuntimeClassFacts {
    /// What is used of a RuntimeClass.
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

    /// Whether only Windows nodes have the handler, and the name of the class is not that of a Linux class.
    pub fn is_for_windows_by_handler(&self, name: &str) -> bool {
        is_windows_handler(&self.handler) && !LINUX_CLASSES.contains(&name)
    }

    /// The isolation of Windows containers with this handler (handlers of containerd 1.7 and of SIG Windows).
    pub fn isolation(&self) -> ContainerIsolation {
        /// `runhcs-wcow-hypervisor`, and `…-hyperv`.
        const MARK: &[u8] = b"hyperv";
        let mut parts = self.handler.as_bytes().windows(MARK.len());
        if parts.any(|part| part.eq_ignore_ascii_case(MARK)) {
            ContainerIsolation::HyperV
        } else {
            ContainerIsolation::Process
        }
    }
}

/// Whether a handler is one of containerd on Windows (hcsshim's `runhcs-wcow-process`, `runhcs-wcow-hypervisor` and
/// those for a build). Handlers `runhcs-lcow…` ran Linux containers on Windows.
pub fn is_windows_handler(handler: &str) -> bool {
    handler.to_ascii_lowercase().starts_with("runhcs-wcow")
}

/// Well-known RuntimeClass names of projects, all for Linux nodes. They are known in advance, so that the pods of
/// sandboxes and GPUs do not need a webhook call.
pub static LINUX_CLASSES: &[&str] = &[
    "crun",
    "gvisor",
    "kata",
    "kata-cc-isolation",
    "kata-clh",
    "kata-containers",
    "kata-fc",
    "kata-mshv-vm-isolation",
    "kata-qemu",
    "kata-vm-isolation",
    "nvidia",
    "nvidia-cdi",
    "nvidia-legacy",
    "runc",
    "spin",
    "wasmtime-spin-v2",
];

/// The profile that Pod Security enforces in a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PodSecurity {
    /// The privileged or the baseline profile.
    Lower,
    /// The default of the API server's configuration file, which the API does not show.
    Unknown,
    Restricted,
    /// The restricted profile of a version that exempts no pod with `spec.os.name: windows`.
    RestrictedForAll,
}

/// The minor version of the restricted profile that first exempted pods with `spec.os.name: windows`, from three fields.
///
/// Source: kubernetes, pod-security-admission/policy: `check_allowPrivilegeEscalation.go`,
/// `check_capabilities_restricted.go`, `check_seccompProfile_restricted.go`.
const EXEMPTS_WINDOWS: u32 = 25;

/// What is known about a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamespaceFacts {
    pub labels: BTreeMap<String, String>,
    /// The value of `scheduler.alpha.kubernetes.io/tolerationsWhitelist`, as written.
    pub tolerations_whitelist: Option<String>,
    /// What its annotations state about its default node selector.
    pub stated_selectors: StatedSelectors,
    /// Whether stored pods show that the API server adds [`StatedSelectors::plugin`] to the pods here.
    pub shows_selector: bool,
    /// The default node selector that is in effect: the API server adds it to the pods of its templates.
    pub node_selector: NodeSelector,
    /// Its annotations that request containers from an injector ([`is_namespace_sign`]); most namespaces have none.
    pub injections: BTreeMap<String, String>,
}

impl NamespaceFacts {
    /// Which profile Pod Security enforces here.
    pub fn pod_security(&self) -> PodSecurity {
        let label = |name: &str| self.labels.get(name).map(String::as_str);
        let version = label("pod-security.kubernetes.io/enforce-version").unwrap_or_default();
        match label("pod-security.kubernetes.io/enforce") {
            None => PodSecurity::Unknown,
            Some("privileged" | "baseline") => PodSecurity::Lower,
            // Pod Security also enforces the restricted profile for a value that it does not know.
            Some(_) => match major_minor(version) {
                Some((1, ..EXEMPTS_WINDOWS)) => PodSecurity::RestrictedForAll,
                _ => PodSecurity::Restricted,
            },
        }
    }

    /// Creates the facts from a Namespace's metadata.
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
            stated_selectors: StatedSelectors::of(|key| meta.annotations.get(key).map(ToString::to_string)),
            shows_selector: false,
            node_selector: NodeSelector::new(),
            injections: (meta.annotations.iter())
                .filter(|(key, _)| is_namespace_sign(key))
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        }
    }
}

/// A known Windows pod or template, for the rules on related objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WindowsWorkload {
    pub namespace: String,
    pub kind: String,
    pub name: String,
    /// The source it was read from.
    pub source: ObjectSource,
    /// The labels of its pods.
    pub labels: BTreeMap<String, String>,
    /// Whether its pods are HostProcess and use the network of their node, to which no NetworkPolicy applies.
    pub is_on_host_network: bool,
    /// The PersistentVolumeClaims that its pods use by name.
    pub claims: BTreeSet<String>,
    /// The prefixes of the names of a StatefulSet's own claims (`data-web-`); an ordinal follows.
    pub claim_prefixes: BTreeSet<String>,
}

impl WindowsWorkload {
    /// Creates the facts from an object that is for Windows; `None` if it has no pod.
    pub fn of(subject: &Object<'_>) -> Option<Self> {
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
            source: subject.source.clone(),
            labels: template
                .meta
                .labels
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            is_on_host_network: template.spec.host_network.0 && template.spec.has_host_process(),
            claims: named
                .map(|source| source.claim_name.to_string())
                .chain(ephemeral.map(|volume| format!("{pod}-{}", &*volume.name)))
                .collect(),
            claim_prefixes: (template.claim_templates.iter())
                .map(|claim| format!("{}-{pod}-", &*claim.metadata.name))
                .collect(),
        })
    }

    /// Whether its pods use a PersistentVolumeClaim: by name, or because it was created from a StatefulSet's template.
    pub fn uses_claim(&self, namespace: &str, name: &str) -> bool {
        let ordinal = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        let made = |prefix: &String| name.strip_prefix(prefix.as_str()).is_some_and(ordinal);
        self.namespace == namespace && (self.claims.contains(name) || self.claim_prefixes.iter().any(made))
    }
}

/// What is known about the cluster, the date and images. A clone is cheap: clones share what is known about the cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    cluster: Arc<ClusterFacts>,
    /// The same with the labels that node policies only audit; `None` if that is no different, or not prepared.
    reconciled: Option<Arc<ClusterFacts>>,
    /// What registries report about images, by reference as written. Only those of the evaluated objects are needed.
    pub images: HashMap<String, Arc<ImageFacts>>,
}

impl Deref for Facts {
    type Target = ClusterFacts;
    fn deref(&self) -> &ClusterFacts {
        &self.cluster
    }
}

impl DerefMut for Facts {
    /// Copies what is known about the cluster if clones share it. Predictions must be prepared again.
    fn deref_mut(&mut self) -> &mut ClusterFacts {
        self.reconciled = None;
        Arc::make_mut(&mut self.cluster)
    }
}

impl Facts {
    /// The newest minor version of Kubernetes that the catalogue was verified against.
    pub const KUBERNETES: u32 = 37;

    /// The minor version that a release is evaluated as: of one to three versions newer than [`Facts::KUBERNETES`], that
    /// one.
    ///
    /// # Errors
    /// The release is still newer: too much may differ.
    pub fn known_minor(minor: u32) -> Result<u32, String> {
        let newest = Facts::KUBERNETES;
        if minor > newest + 3 {
            return Err(format!(
                "this Transom knows Kubernetes up to 1.{newest}, and evaluates up to 1.{} as 1.{newest}; upgrade Transom",
                newest + 3
            ));
        }
        Ok(minor.min(newest))
    }

    /// Facts of a cluster of which only the version is known, and of a date.
    pub fn new(kubernetes: u32, today: Date) -> Self {
        Facts {
            cluster: Arc::new(ClusterFacts::new(kubernetes, today)),
            reconciled: None,
            images: HashMap::new(),
        }
    }

    /// The same facts, prepared for [`Facts::reconciled`].
    #[must_use]
    pub fn with_predictions(self) -> Self {
        Facts {
            reconciled: self.cluster.reconciled().map(Arc::new),
            ..self
        }
    }

    /// The facts as they would be if node policies wrote the labels that they only audit, as with mode Enforce; `None` if
    /// nothing would differ.
    pub fn reconciled(&self) -> Option<Facts> {
        Some(Facts {
            cluster: Arc::clone(self.reconciled.as_ref()?),
            reconciled: None,
            images: self.images.clone(),
        })
    }

    /// The same facts, with what registries report about images.
    #[must_use]
    pub fn with_images(&self, images: HashMap<String, Arc<ImageFacts>>) -> Self {
        Facts {
            cluster: Arc::clone(&self.cluster),
            reconciled: self.reconciled.clone(),
            images,
        }
    }

    /// What its registry reports about the image of a container; `None` if the container never pulls: what the node has
    /// need not be what the registry has.
    pub fn image_of(&self, container: &Container<'_>) -> Option<&ImageFacts> {
        let never_pulls = container.image_pull_policy.as_deref() == Some("Never");
        let known = self.images.get(&**container.image.as_ref()?)?;
        (!never_pulls).then_some(known)
    }

    /// Whether both were cloned from the same facts of the cluster.
    pub fn shares_cluster(&self, other: &Facts) -> bool {
        Arc::ptr_eq(&self.cluster, &other.cluster)
    }

    /// Whether these facts give the same evaluations as others, ignoring namespaces. The number and the names of
    /// equivalent nodes make no difference.
    pub fn evaluates_as(&self, other: &Facts) -> bool {
        self.images == other.images && self.cluster.evaluates_as(&other.cluster)
    }
}

/// What is known about the cluster and the date.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClusterFacts {
    /// The minor version of Kubernetes (`36` for 1.36).
    pub kubernetes: u32,
    /// The container runtime of the Windows nodes.
    pub runtime: Runtime,
    /// Today, in UTC.
    pub today: Date,
    /// Known faults of Windows nodes, and the ends of their support.
    pub knowledge: Arc<Knowledge>,
    /// The feature gates that are known to be set.
    pub feature_gates: FeatureGates,
    /// What administrators state about the cluster.
    pub config: Arc<ClusterConfig>,
    /// Whether the API server has OpenShift's SecurityContextConstraints.
    pub has_scc: bool,
    /// The default node selector of OpenShift's Scheduler, for namespaces without one; empty: none.
    pub default_node_selector: String,
    /// Whether the API server has GMSACredentialSpecs, which the windows-gmsa webhook reads; `None` if unknown.
    pub has_gmsa: Option<bool>,
    /// The names of GMSACredentialSpecs of files, each with its source.
    pub credential_specs: Vec<(String, ObjectSource)>,
    /// The API groups of injectors that are known to be there ([`Knowledge::is_of_injector`]).
    pub injector_groups: BTreeSet<String>,
    pub runtime_classes: BTreeMap<String, RuntimeClassFacts>,
    /// The names that RuntimeClasses for Windows get in this cluster; empty if the classes of the cluster are not known.
    pub windows_class_names: Arc<BTreeSet<String>>,
    /// Namespaces by name; shared between consecutive facts.
    pub namespaces: Arc<HashMap<String, NamespaceFacts>>,
    /// Declared pools of Windows nodes, which may be at zero nodes.
    pub pools: Vec<Host>,
    /// The taints that node policies require.
    pub required_taints: Vec<Taint>,
    /// Node labels that mean Windows: those of the clouds, and those of [`ClusterConfig`].
    pub node_labels: Vec<NodeLabel>,
    /// Windows workloads, for the rules on Services, claims and autoscalers.
    pub workloads: Vec<WindowsWorkload>,
    /// StorageClasses by name. Only `transom check` knows any; reviews have no facts about storage.
    pub storage_classes: BTreeMap<String, StorageClassFacts>,
    /// RuntimeClasses and StorageClasses whose definitions in several files differ: they are not known.
    pub contested_classes: HashSet<(Kind, String)>,
    /// Claims of files.
    pub claims: KnownClaims,
    /// The minor release that the API server has at least: its own, or that of the newest kubelet among the nodes of files,
    /// including Linux nodes.
    pub oldest_api_server: Option<u32>,
    /// The uids of known nodes by name: they distinguish a mirror pod from a pod that only has the annotation.
    pub node_uids: BTreeMap<String, String>,
    /// Unique endpoint addresses by (namespace, Service).
    pub backends: HashMap<(String, String), BTreeSet<String>>,
    /// The estimated characters of the environment variables for the Services of a namespace. Only `transom check` knows
    /// any.
    pub service_variables: BTreeMap<String, usize>,
    /// The signs of network engines, for the rule on NetworkPolicies. Reviews know the plugins only.
    pub network: NetworkSigns,
    /// Whether the nodes of the cluster are known: if so, a node that is not among them does not exist.
    pub knows_nodes: bool,
    /// The nodes that are not Windows nodes; shared between consecutive facts.
    pub other_nodes: Arc<OtherNodes>,
    hosts: Vec<Host>,
    /// The first of each group of equivalent hosts: indexes of `hosts`.
    sorts: Vec<usize>,
    /// The same by a hash of the properties that equivalent hosts share.
    sorts_by_hash: HashMap<u64, Vec<usize>>,
    builds: BTreeSet<Build>,
    csi: CsiDrivers,
}

/// What is known about a StorageClass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageClassFacts {
    /// The provisioner: usually the name of a CSI driver.
    pub provisioner: String,
    /// The file system that it requests.
    pub fs_type: Option<String>,
    pub parameters: BTreeMap<String, String>,
}

impl StorageClassFacts {
    /// Creates the facts from a StorageClass.
    pub fn of(class: &StorageClass<'_>) -> Self {
        // Drivers used the second key before the first became standard, and some still do.
        let keys = ["csi.storage.k8s.io/fstype", "fsType", "fstype"];
        let fs_type = keys.iter().find_map(|key| class.parameters.get(key));
        StorageClassFacts {
            provisioner: class.provisioner.to_string(),
            fs_type: fs_type.map(ToString::to_string),
            parameters: class.parameters.to_owned_map(),
        }
    }

    /// What it and a claim show about their volumes.
    pub fn volume<'v>(&'v self, claim: &'v ClaimSpec<'_>) -> VolumeOfDriver<'v> {
        let parameters = self.parameters.iter();
        VolumeOfDriver {
            driver: &self.provisioner,
            fs_type: self.fs_type.as_deref(),
            access_modes: claim.access_modes.iter().map(|mode| &**mode).collect(),
            parameters: parameters
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        }
    }
}

/// The CSI drivers that nodes have registered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct CsiDrivers {
    anywhere: BTreeSet<String>,
    /// On Windows nodes; `None` until a Windows node is known with its CSINode.
    on_windows: Option<BTreeSet<String>>,
    /// On nodes that are not, or not yet, known to be Windows nodes.
    of_others: BTreeMap<String, BTreeSet<String>>,
}

impl ClusterFacts {
    fn new(kubernetes: u32, today: Date) -> Self {
        ClusterFacts {
            kubernetes,
            today,
            knowledge: Knowledge::built_in(),
            node_labels: NodeLabel::well_known(),
            ..ClusterFacts::default()
        }
    }

    /// Whether a stored object is a mirror pod.
    pub fn is_stored_mirror(&self, subject: &Object<'_>) -> bool {
        subject.is_mirror_by(&Witness::Stored(&|node| {
            self.node_uids.get(node).map(String::as_str)
        }))
    }

    /// Adds a Windows node or pool.
    pub fn add_host(&mut self, host: Host) {
        self.builds.extend(host.build);
        if let Some(drivers) = self.csi.of_others.remove(&host.name) {
            self.csi.on_windows.get_or_insert_default().extend(drivers);
        }
        let alike = self.sorts_by_hash.entry(hash_of(&host)).or_default();
        let is_known = |at: &usize| self.hosts.get(*at).is_some_and(|known| known.is_alike(&host));
        if !alike.iter().any(is_known) {
            alike.push(self.hosts.len());
            self.sorts.push(self.hosts.len());
        }
        self.hosts.push(host);
    }

    /// Replaces every Windows node and pool; what else is known of the nodes stays.
    pub fn replace_hosts(&mut self, hosts: impl IntoIterator<Item = Host>) {
        self.hosts.clear();
        self.sorts.clear();
        self.sorts_by_hash.clear();
        self.builds.clear();
        for host in hosts {
            self.add_host(host);
        }
    }

    /// The same with the labels that node policies only audit; `None` if there are none.
    fn reconciled(&self) -> Option<ClusterFacts> {
        if self.hosts.iter().all(|host| host.audited_labels.is_empty()) {
            return None;
        }
        let mut reconciled = self.clone();
        reconciled.replace_hosts(self.hosts.iter().map(Host::reconciled));
        Some(reconciled)
    }

    /// Adds the CSI drivers of a node's CSINode, whether the node is already known or not.
    pub fn add_csi_drivers<'d>(&mut self, node: &str, drivers: impl Iterator<Item = &'d str>) {
        let drivers: BTreeSet<String> = drivers.map(str::to_owned).collect();
        self.csi.anywhere.extend(drivers.iter().cloned());
        if self.hosts.iter().any(|host| host.name == node) {
            self.csi.on_windows.get_or_insert_default().extend(drivers);
        } else {
            self.csi.of_others.insert(node.to_owned(), drivers);
        }
    }

    /// Adds the CSI drivers of a known Windows node.
    pub fn add_windows_csi_drivers(&mut self, drivers: &[String]) {
        let known = self.csi.on_windows.get_or_insert_default();
        for driver in drivers {
            if !known.contains(driver) {
                known.insert(driver.clone());
            }
        }
    }

    /// Whether a known Windows node has registered this CSI driver.
    pub fn has_csi_driver_on_windows(&self, driver: &str) -> bool {
        let known = self.csi.on_windows.as_ref();
        known.is_some_and(|known| known.contains(driver))
    }

    /// Whether Windows nodes are known and none of them has registered this CSI driver.
    pub fn lacks_csi_driver_on_windows(&self, driver: &str) -> bool {
        self.csi
            .on_windows
            .as_ref()
            .is_some_and(|known| !known.contains(driver))
    }

    /// Whether some node has registered a CSI driver of this name.
    pub fn is_csi_driver(&self, name: &str) -> bool {
        self.csi.anywhere.contains(name)
    }

    /// Adds the facts of an object: a Node, a RuntimeClass, a claim, an EndpointSlice.
    pub fn learn(&mut self, subject: &Object<'_>) {
        match &subject.body {
            Body::Node(node) => {
                self.knows_nodes = true;
                if let Some((1, minor)) = major_minor(node.kubelet_version()) {
                    self.oldest_api_server = self.oldest_api_server.max(Some(minor));
                }
                if let Some(host) = Host::of_node(&**node, None) {
                    self.network.plugins.extend(node.network_plugin());
                    self.add_host(host);
                } else if let Some(node) = OtherNode::of(&**node) {
                    Arc::make_mut(&mut self.other_nodes).insert(node);
                }
            }
            Body::RuntimeClass(class) => {
                let (class, contested) = (RuntimeClassFacts::of(class), &mut self.contested_classes);
                learn_class(&mut self.runtime_classes, contested, subject, class);
            }
            Body::StorageClass(class) => {
                let (class, contested) = (StorageClassFacts::of(class), &mut self.contested_classes);
                learn_class(&mut self.storage_classes, contested, subject, class);
            }
            Body::CsiNode(node) => {
                let drivers = node.spec.drivers.iter().map(|driver| &*driver.name);
                self.add_csi_drivers(&subject.meta.name, drivers);
            }
            Body::Claim(claim) => {
                let is_block = claim.spec.volume_mode.as_deref() == Some("Block");
                let source = subject.source.clone();
                let (name, volume) = (
                    (&*subject.namespace, &*subject.meta.name),
                    claim.spec.volume_name.as_deref(),
                );
                self.claims.add(name, source, is_block, volume);
            }
            Body::Service(service) => {
                let characters = variables_of(&subject.meta.name, service);
                let known = self.service_variables.entry(subject.namespace.to_string());
                *known.or_default() += characters;
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

    /// The default node selector that the API server adds to the pods of a template. A pod carries it already.
    pub fn node_selector_for(&self, subject: &Object<'_>) -> Option<&NodeSelector> {
        let namespace = self.namespaces.get(&*subject.namespace)?;
        let is_added = subject.kind != Kind::Pod && !namespace.node_selector.is_empty();
        is_added.then_some(&namespace.node_selector)
    }

    /// Which profile Pod Security enforces in a namespace.
    pub fn pod_security(&self, namespace: &str) -> PodSecurity {
        let known = self.namespaces.get(namespace);
        match known.map_or(PodSecurity::Unknown, NamespaceFacts::pod_security) {
            PodSecurity::Restricted | PodSecurity::Unknown if self.kubernetes < EXEMPTS_WINDOWS => {
                PodSecurity::RestrictedForAll
            }
            known => known,
        }
    }

    /// The names of the GMSACredentialSpecs that the pods of an object can name; empty if none is known.
    pub fn credential_specs_for(&self, subject: &Object<'_>) -> BTreeSet<&str> {
        let specs = self.credential_specs.iter();
        let near = specs.filter(|(_, source)| nearness(&subject.source, source).is_some());
        near.map(|(name, _)| name.as_str()).collect()
    }

    /// Whether a known Windows workload uses a PersistentVolumeClaim.
    pub fn is_claim_used_on_windows(&self, claim: &Object<'_>) -> bool {
        let (namespace, name) = (&*claim.namespace, &*claim.meta.name);
        self.workloads.iter().any(|workload| {
            workload.uses_claim(namespace, name)
                && self
                    .claims
                    .is_meant(namespace, name, &workload.source, &claim.source)
        })
    }

    /// Whether a known Windows workload uses the claim to which a PersistentVolume is bound, or one that names the volume.
    pub fn is_volume_used_on_windows(&self, volume: &Object<'_>, claim: Option<&ClaimRef<'_>>) -> bool {
        let is_used = |namespace: &str, name: &str| {
            self.workloads.iter().any(|workload| {
                workload.uses_claim(namespace, name) && nearness(&workload.source, &volume.source).is_some()
            })
        };
        let mut by_name = self.claims.of_volume(&volume.meta.name, &volume.source);
        claim.is_some_and(|claim| is_used(&claim.namespace, &claim.name))
            || by_name.any(|(namespace, name)| is_used(namespace, name))
    }

    fn evaluates_as(&self, other: &ClusterFacts) -> bool {
        let has = |facts: &ClusterFacts, sort: &Host| facts.sorts().any(|other| other.is_alike(sort));
        self.sorts.len() == other.sorts.len()
            && self.sorts().all(|sort| has(other, sort))
            && self.other_nodes.are_alike(&other.other_nodes)
            && self.without_nodes() == other.without_nodes()
    }

    /// The facts without nodes; of CSI drivers, only which exist.
    fn without_nodes(&self) -> ClusterFacts {
        let mut rest = self.clone();
        // The groups of equivalent nodes determine these.
        rest.hosts.clear();
        rest.sorts.clear();
        rest.sorts_by_hash.clear();
        rest.node_uids.clear();
        rest.other_nodes = Arc::default();
        rest.builds.clear();
        rest.csi.of_others.clear();
        rest.namespaces = Arc::default();
        rest
    }

    /// Adds a declared pool, unless the same one is known.
    pub fn add_pool(&mut self, pool: Host) {
        if !self.pools.contains(&pool) {
            self.pools.push(pool);
        }
    }

    /// Sets what administrators state about the cluster.
    pub fn set_config(&mut self, config: Arc<ClusterConfig>) {
        self.node_labels = NodeLabel::well_known();
        self.add_node_labels(&config.node_labels);
        self.config = config;
    }

    /// Adds node labels that mean Windows, each once.
    pub fn add_node_labels<'l>(&mut self, labels: impl IntoIterator<Item = &'l NodeLabel>) {
        for label in labels {
            if !self.node_labels.contains(label) {
                self.node_labels.push(label.clone());
            }
        }
    }

    /// The node labels that administrators add to those of platforms.
    pub fn stated_node_labels(&self) -> Vec<NodeLabel> {
        let known = NodeLabel::well_known();
        let added = self.node_labels.iter().filter(|label| !known.contains(label));
        added.cloned().collect()
    }

    /// The platform of the known Windows nodes and pools, by the labels of the first that shows it.
    pub fn platform(&self) -> Option<NodePlatform> {
        let mut hosts = self.sorts().chain(&self.pools);
        hosts.find_map(|host| NodePlatform::of_labels(host.labels.keys()))
    }

    /// Every known Windows node and pool.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// One of each group of equivalent Windows nodes and pools: the first of those that are equal in everything that
    /// several nodes can share. A cluster with thousands of nodes has only a few groups.
    pub fn sorts(&self) -> impl Iterator<Item = &Host> {
        self.sorts.iter().filter_map(|at| self.hosts.get(*at))
    }

    /// The distinct architectures of the known Windows nodes and pools; empty if none is known.
    pub fn architectures(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for host in self.sorts().chain(&self.pools) {
            let architecture = host.architecture();
            if !all.contains(&architecture) {
                all.push(architecture);
            }
        }
        all
    }

    /// The distinct builds of the known Windows nodes.
    pub fn builds(&self) -> &BTreeSet<Build> {
        &self.builds
    }
}

/// Adds a class. If files define it differently, it is contested.
fn learn_class<T: PartialEq>(
    known: &mut BTreeMap<String, T>,
    contested: &mut HashSet<(Kind, String)>,
    subject: &Object<'_>,
    class: T,
) {
    let name = subject.meta.name.to_string();
    let key = (subject.kind, name.clone());
    if contested.contains(&key) {
        return;
    }
    if known.get(&name).is_some_and(|other| *other != class) {
        known.remove(&name);
        contested.insert(key);
    } else {
        known.insert(name, class);
    }
}

/// About how many characters the environment variables have that the kubelet adds for a Service: an address of 12
/// characters, ports of four.
///
/// Source: kubernetes, `pkg/kubelet/envvars/envvars.go`.
fn variables_of(name: &str, service: &Service<'_>) -> usize {
    // `=` and the final NUL of each variable.
    const EACH: usize = 2;
    const ADDRESS: usize = 12;
    const PORT: usize = 4;
    const URL: usize = "tcp://:".len() + ADDRESS + PORT;
    let is_headless = service.spec.cluster_ip.as_deref() == Some("None");
    if is_headless || service.spec.r#type.as_deref() == Some("ExternalName") {
        return 0;
    }
    let variable = |suffix: usize, value: usize| name.len() + suffix + value + EACH;
    let base = variable("_SERVICE_HOST".len(), ADDRESS)
        + variable("_SERVICE_PORT".len(), PORT)
        + variable("_PORT".len(), URL);
    let of_ports = service.spec.ports.iter().map(|port| {
        let named = port
            .name
            .as_ref()
            .map_or(0, |port| variable("_SERVICE_PORT_".len() + port.len(), PORT));
        let prefix = "_PORT__TCP".len() + PORT;
        named
            + variable(prefix, URL)
            + variable(prefix + "_PROTO".len(), "tcp".len())
            + variable(prefix + "_PORT".len(), PORT)
            + variable(prefix + "_ADDR".len(), ADDRESS)
    });
    base + of_ports.sum::<usize>()
}

/// Equal for equivalent hosts.
pub fn hash_of(host: &Host) -> u64 {
    let mut hasher = DefaultHasher::new();
    (
        host.build,
        &host.taints,
        &host.planned_taints,
        host.may_be_at_zero,
    )
        .hash(&mut hasher);
    for label in shared_labels(&host.labels) {
        label.hash(&mut hasher);
    }
    hasher.finish()
}
