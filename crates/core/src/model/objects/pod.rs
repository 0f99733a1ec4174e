//! The pod view: every field of a pod that Transom uses, borrowed from the bytes; everything else is skipped.
//!
//! Field names and meanings follow `k8s.io/api/core/v1`. `IsPresent` marks fields of which only the presence matters.

use serde::Deserialize;

use super::k8s_struct::k8s_structs;
use crate::model::syntax::json_types::{Flag, IsPresent, List, Map, Quantity, SharedList, Str, nullable};

k8s_structs! {
    #![derive(Deserialize, Clone, PartialEq, Debug, Default)]

    /// `v1.PodSpec`.
    pub struct PodSpec<'a> {
        pub os: Option<PodOs<'a>>,
        pub node_name: Option<Str<'a>>,
        pub node_selector: Map<'a>,
        pub affinity: Option<Affinity<'a>>,
        pub tolerations: List<Toleration<'a>>,
        pub topology_spread_constraints: List<SpreadConstraint<'a>>,
        pub runtime_class_name: Option<Str<'a>>,
        pub priority_class_name: Option<Str<'a>>,
        pub init_containers: SharedList<Container<'a>>,
        pub containers: SharedList<Container<'a>>,
        pub ephemeral_containers: SharedList<Container<'a>>,
        pub volumes: SharedList<Volume<'a>>,
        #[serde(deserialize_with = "nullable")]
        pub security_context: PodSecurityContext<'a>,
        pub host_network: Flag,
        #[serde(rename = "hostPID")]
        pub host_pid: Flag,
        #[serde(rename = "hostIPC")]
        pub host_ipc: Flag,
        pub host_users: Option<bool>,
        pub share_process_namespace: Option<bool>,
        pub dns_policy: Option<Str<'a>>,
        pub dns_config: Option<DnsConfig<'a>>,
        pub resources: Option<Resources<'a>>,
        pub overhead: Map<'a, Quantity<'a>>,
        pub resource_claims: List<serde::de::IgnoredAny>,
        pub termination_grace_period_seconds: Option<i64>,
        pub restart_policy: Option<Str<'a>>,
        pub enable_service_links: Option<bool>,
        pub image_pull_secrets: List<LocalObjectReference<'a>>,
    }

    /// `v1.LocalObjectReference`.
    pub struct LocalObjectReference<'a> {
        pub name: Str<'a>,
    }

    /// `v1.PodOS`.
    pub struct PodOs<'a> {
        pub name: Option<Str<'a>>,
    }

    /// `v1.Affinity`.
    pub struct Affinity<'a> {
        pub node_affinity: Option<NodeAffinity<'a>>,
        pub pod_affinity: Option<PodAffinity<'a>>,
        pub pod_anti_affinity: Option<PodAffinity<'a>>,
    }

    /// `v1.PodAffinity` and `v1.PodAntiAffinity`: the terms that the scheduler requires.
    pub struct PodAffinity<'a> {
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        pub required: List<PodAffinityTerm<'a>>,
    }

    /// `v1.PodAffinityTerm`: the label that defines the domains.
    pub struct PodAffinityTerm<'a> {
        pub topology_key: Str<'a>,
    }

    /// `v1.NodeAffinity`.
    pub struct NodeAffinity<'a> {
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        pub required: Option<NodeSelector<'a>>,
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        pub preferred: List<PreferredTerm<'a>>,
    }

    /// `v1.NodeSelector`: terms, ORed.
    pub struct NodeSelector<'a> {
        pub node_selector_terms: List<NodeSelectorTerm<'a>>,
    }

    /// `v1.PreferredSchedulingTerm`.
    pub struct PreferredTerm<'a> {
        pub preference: NodeSelectorTerm<'a>,
    }

    /// `v1.NodeSelectorTerm`: expressions, ANDed.
    pub struct NodeSelectorTerm<'a> {
        pub match_expressions: List<Expression<'a>>,
        pub match_fields: List<Expression<'a>>,
    }

    /// `v1.NodeSelectorRequirement`.
    pub struct Expression<'a> {
        pub key: Str<'a>,
        pub operator: Str<'a>,
        pub values: List<Str<'a>>,
    }

    /// `v1.Toleration`.
    pub struct Toleration<'a> {
        pub key: Option<Str<'a>>,
        pub operator: Option<Str<'a>>,
        pub value: Option<Str<'a>>,
        pub effect: Option<Str<'a>>,
        pub toleration_seconds: Option<i64>,
    }

    /// `v1.TopologySpreadConstraint`: the fields that define the domains.
    pub struct SpreadConstraint<'a> {
        pub topology_key: Str<'a>,
        pub when_unsatisfiable: Option<Str<'a>>,
        pub max_skew: Option<i64>,
        pub min_domains: Option<i64>,
        pub node_affinity_policy: Option<Str<'a>>,
        pub node_taints_policy: Option<Str<'a>>,
    }

    /// `v1.Container` and `v1.EphemeralContainer`.
    pub struct Container<'a> {
        pub name: Str<'a>,
        pub image: Option<Str<'a>>,
        pub image_pull_policy: Option<Str<'a>>,
        pub command: List<Str<'a>>,
        pub args: List<Str<'a>>,
        pub working_dir: Option<Str<'a>>,
        pub env: List<EnvVar<'a>>,
        pub ports: List<ContainerPort<'a>>,
        pub resources: Option<Resources<'a>>,
        pub volume_mounts: List<VolumeMount<'a>>,
        pub volume_devices: List<VolumeDevice<'a>>,
        #[serde(deserialize_with = "nullable")]
        pub security_context: SecurityContext<'a>,
        #[serde(deserialize_with = "nullable")]
        pub lifecycle: Lifecycle<'a>,
        pub startup_probe: Option<Handler<'a>>,
        pub liveness_probe: Option<Handler<'a>>,
        pub readiness_probe: Option<Handler<'a>>,
        pub termination_message_path: Option<Str<'a>>,
        pub restart_policy: Option<Str<'a>>,
    }

    /// `v1.EnvVar`: its name and a literal value.
    pub struct EnvVar<'a> {
        pub name: Str<'a>,
        pub value: Option<Str<'a>>,
    }

    /// `v1.ContainerPort`.
    pub struct ContainerPort<'a> {
        pub name: Option<Str<'a>>,
        pub protocol: Option<Str<'a>>,
    }

    /// `v1.ResourceRequirements`.
    pub struct Resources<'a> {
        pub limits: Map<'a, Quantity<'a>>,
        pub requests: Map<'a, Quantity<'a>>,
        pub claims: List<serde::de::IgnoredAny>,
    }

    /// `v1.VolumeMount`.
    pub struct VolumeMount<'a> {
        pub name: Str<'a>,
        pub mount_path: Str<'a>,
        pub sub_path: Option<Str<'a>>,
        pub sub_path_expr: Option<Str<'a>>,
        pub mount_propagation: Option<Str<'a>>,
        pub recursive_read_only: Option<Str<'a>>,
        pub bind_mount_options: IsPresent,
    }

    /// `v1.VolumeDevice`.
    pub struct VolumeDevice<'a> {
        pub name: Str<'a>,
    }

    /// `v1.Lifecycle`.
    pub struct Lifecycle<'a> {
        pub stop_signal: Option<Str<'a>>,
        pub post_start: Option<Handler<'a>>,
        pub pre_stop: Option<Handler<'a>>,
    }

    /// `v1.LifecycleHandler` and `v1.Probe`; only a command is used.
    pub struct Handler<'a> {
        pub exec: Option<ExecAction<'a>>,
    }

    /// `v1.ExecAction`.
    pub struct ExecAction<'a> {
        pub command: List<Str<'a>>,
    }

    /// `v1.PodSecurityContext`.
    pub struct PodSecurityContext<'a> {
        pub app_armor_profile: Option<Profile<'a>>,
        pub se_linux_options: Option<Map<'a>>,
        pub seccomp_profile: Option<Profile<'a>>,
        pub fs_group: IsPresent,
        pub fs_group_change_policy: Option<Str<'a>>,
        pub sysctls: List<serde::de::IgnoredAny>,
        pub run_as_user: IsPresent,
        pub run_as_group: IsPresent,
        pub supplemental_groups: Option<List<serde::de::IgnoredAny>>,
        pub supplemental_groups_policy: Option<Str<'a>>,
        pub se_linux_change_policy: Option<Str<'a>>,
        pub run_as_non_root: Option<bool>,
        pub windows_options: Option<WindowsOptions<'a>>,
    }

    /// `v1.SecurityContext` of a container.
    pub struct SecurityContext<'a> {
        pub app_armor_profile: Option<Profile<'a>>,
        pub se_linux_options: Option<Map<'a>>,
        pub seccomp_profile: Option<Profile<'a>>,
        pub capabilities: Option<Capabilities>,
        pub read_only_root_filesystem: Option<bool>,
        pub privileged: Option<bool>,
        pub allow_privilege_escalation: Option<bool>,
        pub proc_mount: Option<Str<'a>>,
        pub run_as_user: IsPresent,
        pub run_as_group: IsPresent,
        pub run_as_non_root: Option<bool>,
        pub windows_options: Option<WindowsOptions<'a>>,
    }

    /// `v1.SeccompProfile` and `v1.AppArmorProfile`.
    pub struct Profile<'a> {
        pub r#type: Option<Str<'a>>,
    }

    /// `v1.WindowsSecurityContextOptions`.
    pub struct WindowsOptions<'a> {
        pub host_process: Option<bool>,
        pub run_as_user_name: Option<Str<'a>>,
        pub gmsa_credential_spec_name: Option<Str<'a>>,
        pub gmsa_credential_spec: Option<Str<'a>>,
    }

    /// `v1.PodDNSConfig`.
    pub struct DnsConfig<'a> {
        pub searches: List<Str<'a>>,
        pub options: List<DnsOption<'a>>,
    }

    /// `v1.PodDNSConfigOption`.
    pub struct DnsOption<'a> {
        pub name: Option<Str<'a>>,
    }

    /// `v1.Volume`: its name and the used sources.
    pub struct Volume<'a> {
        pub name: Str<'a>,
        pub empty_dir: Option<EmptyDir<'a>>,
        pub host_path: Option<HostPath<'a>>,
        pub secret: Option<FileSource>,
        pub config_map: Option<FileSource>,
        #[serde(rename = "downwardAPI")]
        pub downward_api: Option<FileSource>,
        pub projected: Option<Projected>,
        pub persistent_volume_claim: Option<ClaimSource<'a>>,
        pub ephemeral: Option<EphemeralSource<'a>>,
        pub csi: Option<CsiSource<'a>>,
        pub nfs: IsPresent,
        pub image: IsPresent,
        pub iscsi: IsPresent,
        pub fc: IsPresent,
        pub rbd: IsPresent,
        pub cephfs: IsPresent,
        pub glusterfs: IsPresent,
        pub cinder: IsPresent,
        pub flocker: IsPresent,
        pub quobyte: IsPresent,
        #[serde(rename = "scaleIO")]
        pub scale_io: IsPresent,
        pub storageos: IsPresent,
        pub portworx_volume: IsPresent,
        pub photon_persistent_disk: IsPresent,
        pub git_repo: IsPresent,
        pub flex_volume: IsPresent,
    }

    /// `v1.EmptyDirVolumeSource`.
    pub struct EmptyDir<'a> {
        pub medium: Option<Str<'a>>,
        pub mode: IsPresent,
    }

    /// `v1.HostPathVolumeSource`.
    pub struct HostPath<'a> {
        pub path: Str<'a>,
        pub r#type: Option<Str<'a>>,
    }

    /// `v1.CSIVolumeSource` and `v1.CSIPersistentVolumeSource`.
    pub struct CsiSource<'a> {
        pub driver: Str<'a>,
        pub fs_type: Option<Str<'a>>,
        pub volume_attributes: Map<'a>,
    }

    /// `v1.PersistentVolumeClaimVolumeSource`.
    pub struct ClaimSource<'a> {
        pub claim_name: Str<'a>,
    }

    /// `v1.EphemeralVolumeSource`.
    pub struct EphemeralSource<'a> {
        pub volume_claim_template: Option<ClaimTemplate<'a>>,
    }

    /// `v1.PersistentVolumeClaimTemplate`, and the templates of a StatefulSet.
    pub struct ClaimTemplate<'a> {
        pub spec: ClaimSpec<'a>,
    }

    /// `v1.PersistentVolumeClaimSpec`.
    pub struct ClaimSpec<'a> {
        pub access_modes: List<Str<'a>>,
        pub volume_mode: Option<Str<'a>>,
        pub storage_class_name: Option<Str<'a>>,
        pub volume_name: Option<Str<'a>>,
        pub resources: ClaimResources<'a>,
    }

    /// `v1.VolumeResourceRequirements`.
    pub struct ClaimResources<'a> {
        pub requests: Map<'a, Quantity<'a>>,
    }
}

impl Toleration<'_> {
    /// A copy that borrows nothing.
    pub fn detached(&self) -> Toleration<'static> {
        let text = |field: &Option<Str<'_>>| field.as_ref().map(|text| text.to_string().into());
        Toleration {
            key: text(&self.key),
            operator: text(&self.operator),
            value: text(&self.value),
            effect: text(&self.effect),
            toleration_seconds: self.toleration_seconds,
        }
    }
}

/// The three lists of containers of a pod, in the order in which the API server visits them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ContainerList {
    Init,
    /// `containers`
    App,
    Ephemeral,
}

impl ContainerList {
    /// Every list, in the order in which containers start.
    pub const ALL: [ContainerList; 3] = [ContainerList::Init, ContainerList::App, ContainerList::Ephemeral];

    /// The name of the field.
    pub fn field(self) -> &'static str {
        match self {
            ContainerList::Init => "initContainers",
            ContainerList::App => "containers",
            ContainerList::Ephemeral => "ephemeralContainers",
        }
    }
}

/// The path of the terms of the required node affinity below a pod spec; [`PodSpec::required_terms`] returns them.
pub const REQUIRED_TERMS: &[&str] = &[
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
];

impl<'a> PodSpec<'a> {
    /// The containers of one list.
    pub fn list(&self, list: ContainerList) -> &[Container<'a>] {
        match list {
            ContainerList::Init => &self.init_containers,
            ContainerList::App => &self.containers,
            ContainerList::Ephemeral => &self.ephemeral_containers,
        }
    }

    /// The containers of one list, for modification.
    pub fn list_mut(&mut self, list: ContainerList) -> &mut [Container<'a>] {
        match list {
            ContainerList::Init => self.init_containers.make_mut(),
            ContainerList::App => self.containers.make_mut(),
            ContainerList::Ephemeral => self.ephemeral_containers.make_mut(),
        }
    }

    /// All init, app and ephemeral containers, each with its list and index.
    pub fn visit_containers(&self) -> impl Iterator<Item = (ContainerList, usize, &Container<'a>)> {
        ContainerList::ALL
            .into_iter()
            .flat_map(move |list| self.list(list).iter().enumerate().map(move |(i, c)| (list, i, c)))
    }

    /// The images of all containers, as written; an image of several containers occurs as often.
    pub fn images(&self) -> impl Iterator<Item = &str> {
        let images = (self.visit_containers()).filter_map(|(_, _, container)| container.image.as_deref());
        images.filter(|image| !image.is_empty())
    }

    /// The pod's Windows options.
    pub fn windows_options(&self) -> Option<&WindowsOptions<'a>> {
        self.security_context.windows_options.as_ref()
    }

    /// Whether a container is effectively HostProcess: its own value, else the pod's.
    pub fn is_host_process(&self, container: &Container<'a>) -> bool {
        let own = container.windows_options().and_then(|w| w.host_process);
        own.or_else(|| self.windows_options()?.host_process)
            .unwrap_or(false)
    }

    /// Whether any container is effectively HostProcess.
    pub fn has_host_process(&self) -> bool {
        self.visit_containers().any(|(_, _, c)| self.is_host_process(c))
    }

    /// The effective `runAsUserName` of a container: its own value, else the pod's.
    pub fn run_as_user_name<'s>(&'s self, container: &'s Container<'a>) -> Option<&'s str> {
        let own = container
            .windows_options()
            .and_then(|w| w.run_as_user_name.as_deref());
        own.or_else(|| self.windows_options()?.run_as_user_name.as_deref())
    }

    /// The effective `runAsNonRoot` of a container: its own value, else the pod's.
    pub fn run_as_non_root(&self, container: &Container<'a>) -> Option<bool> {
        let own = container.security_context.run_as_non_root;
        own.or(self.security_context.run_as_non_root)
    }

    /// Whether the pod is already bound to a node.
    pub fn is_bound(&self) -> bool {
        self.node_name.as_deref().is_some_and(|name| !name.is_empty())
    }

    /// The name in `spec.os`.
    pub fn os_name(&self) -> Option<&str> {
        self.os.as_ref()?.name.as_deref()
    }

    /// The terms of the required node affinity (ORed); empty if there is none.
    pub fn required_terms(&self) -> &[NodeSelectorTerm<'a>] {
        self.required_node_affinity()
            .map_or(&[], |required| &required.node_selector_terms.0)
    }

    /// The required node affinity.
    pub fn required_node_affinity(&self) -> Option<&NodeSelector<'a>> {
        self.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()
    }
}

impl SpreadConstraint<'_> {
    /// Whether pods that would violate it are not scheduled: the default.
    pub fn is_required(&self) -> bool {
        self.when_unsatisfiable.as_deref() != Some("ScheduleAnyway")
    }

    /// Whether the domains include only nodes that the pod's selectors match: the default.
    pub fn honors_affinity(&self) -> bool {
        self.node_affinity_policy.as_deref() != Some("Ignore")
    }

    /// Whether the domains include only nodes whose taints the pod tolerates; by default they include all.
    pub fn honors_taints(&self) -> bool {
        self.node_taints_policy.as_deref() == Some("Honor")
    }
}

impl NodeSelectorTerm<'_> {
    /// Whether the term is empty, and so matches no node.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }
}

impl<'a> Container<'a> {
    /// The container's own Windows options.
    pub fn windows_options(&self) -> Option<&WindowsOptions<'a>> {
        self.security_context.windows_options.as_ref()
    }

    /// Whether it keeps running, if it is an init container.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// 0644, the file mode that the API server sets by default.
pub const DEFAULT_MODE: i64 = 0o644;

/// `v1.Capabilities`.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Capabilities {
    pub add: List<serde::de::IgnoredAny>,
    pub drop: List<serde::de::IgnoredAny>,
}

/// A volume source that writes files with modes: secret, configMap, downwardAPI.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSource {
    pub default_mode: Option<i64>,
    pub default_user: IsPresent,
    pub items: List<FileItem>,
}

/// `v1.KeyToPath` and `v1.DownwardAPIVolumeFile`, and the projections that are one file: mode and owner.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct FileItem {
    pub mode: Option<i64>,
    pub user: IsPresent,
}

/// `v1.ProjectedVolumeSource`.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Projected {
    pub default_mode: Option<i64>,
    pub default_user: IsPresent,
    pub sources: List<Projection>,
}

/// `v1.VolumeProjection`.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Projection {
    pub secret: Option<FileSource>,
    pub config_map: Option<FileSource>,
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<FileSource>,
    pub service_account_token: Option<FileItem>,
    pub cluster_trust_bundle: Option<FileItem>,
    pub pod_certificate: Option<FileItem>,
}
