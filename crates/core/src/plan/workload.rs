//! A workload as the planner stores it: the parts of its template that matter for another build, and where
//! its pods are.

use std::collections::{BTreeMap, BTreeSet};

use super::between_pods::PodConstraint;
use super::constraints::{SchedulingContext, TargetNodes};
use super::new_nodes::NewNode;
use super::nodes::NodePool;
use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, UpgradeClass};
use super::planned_cluster::PlannedCluster;
use super::requirements::Requirements;
use super::resource_list::ResourceList;
use super::workload_images::{ImageUse, WorkloadIsolation};
use crate::model::knowledge::Knowledge;
use crate::model::nodes::memory_limits::{NO_OOM_KILLER, largest_below, mebibytes};
use crate::model::nodes::node::Host;
use crate::model::nodes::node_affinity::Match;
use crate::model::objects::pod::{Container, ContainerList, WindowsOptions};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::shown;
use crate::model::windows::build::{Build, ContainerIsolation, RELEASES};
use crate::model::windows::image::ImageRef;
use crate::rules::scheduling::Constraints;
use crate::rules::{self, KnownVersions, PodCx, Rule};

const MEMORY: &str = "https://kubernetes.io/docs/concepts/configuration/windows-resource-management/#resource-management-memory";
const GMSA: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/configure-gmsa/#configure-gmsas-and-windows-nodes-in-active-directory";
const DRAIN: &str = "https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/";
const HOST_PROCESS: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/";

/// The annotation that names the main container of a pod.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The maximum number of containers that are read per pod; real manifests have fewer.
pub(super) const MOST_CONTAINERS: usize = 128;
/// The longest image that is read, in bytes: a reference is shorter.
const LONGEST_IMAGE: usize = 1_024;
/// The maximum number of findings of one kind that are kept per workload.
const MOST: usize = 32;
/// The maximum number of words of a command that are compared.
const MOST_WORDS: usize = 64;

/// A group-managed service account that a workload uses.
pub(super) struct ServiceAccountUse {
    pub path: String,
    /// The name of its credential spec; empty if the credential spec is inline in the pod.
    pub name: String,
    /// Whether the credential spec configures how a node outside the domain retrieves the password.
    pub asks_by_plug_in: bool,
}

/// What a container runs, apart from the version of its image.
#[derive(PartialEq, Eq)]
pub(super) struct Program {
    /// The repository of its image.
    repository: String,
    /// Its command and arguments, with the names and numbers of Windows builds replaced.
    words: Vec<String>,
}

impl Program {
    /// The program of a container; `None` if its image is no reference, or an image of Microsoft that runs nothing by itself.
    fn of(container: &Container<'_>, knowledge: &Knowledge) -> Option<Self> {
        let image = ImageRef::parse(container.image.as_deref()?).ok()?;
        let words = container.command.iter().chain(&container.args).take(MOST_WORDS);
        let words: Vec<String> = words.map(|word| without_builds(word)).collect();
        (!words.is_empty() || !knowledge.lists(&image)).then(|| Program {
            repository: image.familiar_name(),
            words,
        })
    }
}

/// A text without what tells apart the variants of a program for several Windows builds.
fn without_builds(text: &str) -> String {
    let mut text = text.to_owned();
    for release in RELEASES {
        let number = release.build.to_string();
        for build in [release.name, number.as_str(), number.trim_start_matches("10.0.")] {
            text = text.replace(build, "*");
        }
    }
    text
}

/// A workload for Windows.
pub(super) struct PlannedWorkload {
    pub key: WorkloadName,
    /// The pod that it was read from, if its own object was not visited.
    pub read_from: Option<String>,
    pub is_daemon_set: bool,
    pub replicas: Option<u64>,
    /// Whether its controller creates no pods until somebody changes it.
    pub rests: bool,
    pub requests: ResourceList,
    pub images: Vec<ImageUse>,
    pub kernel: WorkloadIsolation,
    /// Its findings, except those about images, accounts and other workloads.
    pub findings: Vec<PlanFinding>,
    pub accounts: Vec<ServiceAccountUse>,
    /// What its main container runs; `None` if that is not known.
    pub program: Option<Program>,
    /// The repositories of all its containers except init and ephemeral ones.
    pub repositories: BTreeSet<String>,
    /// The pools with a node that meets the requirements of its template, regardless of its images: registries are
    /// asked later.
    pub selected_pools: Vec<usize>,
    /// The new nodes that its pods may be scheduled on, by index, regardless of its images.
    pub lands_on: Vec<usize>,
    /// Of a DaemonSet, the names of the new nodes among them: it has a pod on each node, not on one of a pool.
    pub lands_on_each: BTreeSet<String>,
    /// The pools that keep their build and that its pods can or may be scheduled on, by index, regardless of its images.
    pub stays_on: BTreeMap<usize, Match>,
    /// What it requires with regard to other pods.
    pub constraints: Vec<PodConstraint>,
    /// Its pods, by pool.
    pub pods: BTreeMap<usize, u64>,
    /// Of a DaemonSet, the names of the nodes with its pods.
    pub nodes: BTreeSet<String>,
    /// Its pods without a node.
    pub pending: u64,
    /// A node of the new build on which one of its pods is ready.
    pub ready_on: Option<String>,
}

impl PlannedWorkload {
    /// Whether both run the same program: the main containers do, and one pod has all images of the other. A shared
    /// sidecar is not enough.
    pub(super) fn runs_same_program(&self, other: &PlannedWorkload) -> bool {
        let one_has_all = self.repositories.is_subset(&other.repositories)
            || other.repositories.is_subset(&self.repositories);
        self.program.is_some() && self.program == other.program && one_has_all
    }

    /// Whether it is known on which builds its images run.
    pub(super) fn knows_builds(&self, versions: &BTreeMap<&str, Option<KnownVersions>>) -> bool {
        let is_known = |used: &ImageUse| {
            let known = versions.get(&*used.image).and_then(Option::as_ref);
            known.is_some_and(|image| !image.has_unversioned())
        };
        match self.kernel {
            WorkloadIsolation::Known(ContainerIsolation::HostProcess) => true,
            WorkloadIsolation::Known(_) => self.images.iter().all(is_known),
            WorkloadIsolation::InDoubt => false,
        }
    }

    /// The pools that its template may run in unchanged, with the known versions of images.
    pub(super) fn fits(
        &self,
        pools: &[NodePool],
        versions: &BTreeMap<&str, Option<KnownVersions>>,
    ) -> Vec<usize> {
        let fails = |host: Build, isolation: ContainerIsolation| {
            let mut images = self.images.iter();
            images.any(|used| {
                let known = versions.get(&*used.image).and_then(Option::as_ref);
                known.is_some_and(|image| image.fail_on(host, isolation))
            })
        };
        let may_run = |pool: &&usize| {
            let build = pools.get(**pool).and_then(|pool| pool.build);
            match (build, self.kernel) {
                (Some(host), WorkloadIsolation::Known(isolation)) => !fails(host, isolation),
                _ => true,
            }
        };
        self.selected_pools.iter().filter(may_run).copied().collect()
    }
}

/// The input for reading a workload.
pub(super) struct WorkloadContext<'r, 'c> {
    pub cx: PodCx<'c>,
    pub scheduling: &'r SchedulingContext<'r>,
    /// `None` if nothing is upgraded.
    pub target_nodes: Option<&'r TargetNodes<'r>>,
    pub planned: &'r PlannedCluster,
    /// Whether it is a pod that placement and the scheduler have modified.
    pub as_placed: bool,
}

impl WorkloadContext<'_, '_> {
    /// The workload, with one pod and without its images.
    pub(super) fn workload(&self, key: WorkloadName) -> PlannedWorkload {
        let requirements = Requirements::of(&self.cx, self.as_placed);
        let (lands_on, lands_on_each) = self.lands_on(&requirements);
        PlannedWorkload {
            key,
            read_from: None,
            is_daemon_set: false,
            replicas: Some(1),
            rests: false,
            requests: ResourceList::default(),
            images: Vec::new(),
            kernel: self.kernel(),
            findings: self
                .target_nodes
                .map_or_else(Vec::new, |target| self.findings(target, &requirements)),
            accounts: self.accounts(),
            program: self.program(),
            repositories: self.repositories(),
            selected_pools: self.selected_pools(&requirements),
            lands_on,
            lands_on_each,
            stays_on: self.stays_on(&requirements),
            constraints: PodConstraint::all_of(&self.cx),
            pods: BTreeMap::new(),
            nodes: BTreeSet::new(),
            pending: 0,
            ready_on: None,
        }
    }

    fn kernel(&self) -> WorkloadIsolation {
        let names_class = self
            .cx
            .spec
            .runtime_class_name
            .as_deref()
            .is_some_and(|name| !name.is_empty());
        if self.cx.spec.has_host_process() {
            WorkloadIsolation::Known(ContainerIsolation::HostProcess)
        } else if names_class && self.cx.runtime_class().is_none() {
            WorkloadIsolation::InDoubt
        } else {
            WorkloadIsolation::Known(self.cx.isolation())
        }
    }

    /// The field path and image of each container; of equal images, the first.
    pub(super) fn images(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for container in self.cx.containers().take(MOST_CONTAINERS) {
            let image = container.image.as_deref().unwrap_or_default();
            if image.len() > LONGEST_IMAGE {
                continue;
            }
            if !found.iter().any(|(_, known)| known == image) {
                found.push((container.at(&["image"]).named(), image.to_owned()));
            }
        }
        found
    }

    /// The program of the main container: the one that `kubectl logs` shows without `-c`.
    fn program(&self) -> Option<Program> {
        let containers = self.cx.spec.list(ContainerList::App);
        let named = self.cx.meta.annotations.get(DEFAULT_CONTAINER);
        let named = named.and_then(|name| containers.iter().find(|container| *container.name == **name));
        Program::of(named.or(containers.first())?, &self.cx.facts.knowledge)
    }

    /// The repositories of the images of its app containers.
    fn repositories(&self) -> BTreeSet<String> {
        let containers = self.cx.spec.list(ContainerList::App).iter();
        containers.take(MOST_CONTAINERS).filter_map(repository).collect()
    }

    /// The pools with a node that meets the requirements of the template, regardless of its images.
    fn selected_pools(&self, requirements: &Requirements<'_>) -> Vec<usize> {
        let constraints = Constraints::new(self.cx.spec, None);
        let lacks = |host: &Host| matches!(constraints.lacking_resource(host), Some((_, Match::No)));
        let nodes = self.scheduling.nodes.all();
        let mut pools: Vec<usize> = nodes
            .filter(|node| requirements.matches(&node.host) == Match::Yes && !lacks(&node.host))
            .map(|node| node.pool)
            .collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }

    /// The new nodes that its pods may be scheduled on: by index and, of a DaemonSet, the names of their hosts.
    fn lands_on(&self, requirements: &Requirements<'_>) -> (Vec<usize>, BTreeSet<String>) {
        let is_daemon_set = self.cx.subject.kind.is_daemon_set();
        let (mut nodes, mut names) = (Vec::new(), BTreeSet::new());
        for (index, node) in self.planned.new_nodes.iter().enumerate() {
            let hosts = node.hosts.iter();
            let mut hosts = hosts
                .filter(|host| self.scheduling.may_land(&self.cx, requirements, host))
                .peekable();
            if hosts.peek().is_some() {
                nodes.push(index);
            }
            if is_daemon_set {
                names.extend(hosts.map(|host| host.name.clone()));
            }
        }
        (nodes, names)
    }

    /// The pools that keep their build and that its pods may be scheduled on, by index, with whether that is known.
    fn stays_on(&self, requirements: &Requirements<'_>) -> BTreeMap<usize, Match> {
        let landing = |pool: &NewNode| {
            let hosts = pool.hosts.iter();
            hosts
                .map(|host| self.scheduling.landing(&self.cx, requirements, host))
                .max()
        };
        let pools = self.planned.staying.iter().enumerate();
        pools
            .filter_map(|(index, pool)| Some((index, landing(pool)?)))
            .filter(|(_, landing)| *landing != Match::No)
            .collect()
    }

    /// The findings of its template, except those about images and accounts.
    fn findings(&self, target_nodes: &TargetNodes<'_>, requirements: &Requirements<'_>) -> Vec<PlanFinding> {
        let mut plan_findings = target_nodes.obstacles(&self.cx, requirements);
        plan_findings.truncate(MOST);
        plan_findings.extend(
            PodConstraint::all_of(&self.cx)
                .iter()
                .filter_map(PodConstraint::changed),
        );
        plan_findings.extend(target_nodes.lost_preference(&self.cx));
        plan_findings.extend(self.memory(target_nodes, requirements));
        if self.cx.spec.has_host_process() {
            plan_findings.extend(self.host_process(target_nodes));
        }
        let subject = self.cx.subject;
        if subject.kind == Kind::Pod && subject.meta.controller().is_none() {
            plan_findings.push(no_controller());
        }
        plan_findings
    }

    /// Memory limits above what each node of the new build has that its pods may be scheduled on.
    fn memory(&self, target_nodes: &TargetNodes<'_>, requirements: &Requirements<'_>) -> Option<PlanFinding> {
        let may_land = |host: &&Host| self.scheduling.may_land(&self.cx, requirements, host);
        let nodes = target_nodes.known.iter().filter(may_land);
        let memory = nodes.map(|host| {
            let node = self.scheduling.nodes.get(&host.name)?;
            node.allocatable.as_ref().map(|all| all.memory_bytes)
        });
        let limit = self.cx.spec.memory_limit();
        let largest = largest_below(limit, memory)?;
        let message = format!(
            "its memory limits ({}) are above what any node of {} has that it may be scheduled on ({}): {NO_OOM_KILLER}",
            mebibytes(limit),
            target_nodes.target.with_product(),
            mebibytes(largest)
        );
        let path = self.cx.at(&["containers"]).named();
        let source = FindingSource::row("memory of Windows nodes", MEMORY);
        let finding = PlanFinding::new(UpgradeClass::Unchanged, path, message, source);
        Some(finding.remedy("lower the limits, or use larger nodes").note())
    }

    fn host_process(&self, target_nodes: &TargetNodes<'_>) -> Vec<PlanFinding> {
        let mut findings = Vec::new();
        rules::HOST_PROCESS_HYPERV.run_regardless(&self.cx, &mut findings);
        let blocked = |path: String, message: &str, rule: &Rule, remedy: &str| {
            PlanFinding::new(UpgradeClass::Blocked, path, message, FindingSource::rule(rule)).remedy(remedy)
        };
        let mut all: Vec<PlanFinding> = (findings.iter())
            .map(|it| blocked(it.path.named(), &it.message, it.rule, &it.remedy))
            .collect();
        let path = self
            .cx
            .at(&["securityContext", "windowsOptions", "hostProcess"])
            .named();
        let target = target_nodes.target;
        let versions = target_nodes.known.iter().filter_map(|host| host.containerd);
        if let Some((major, minor)) = versions.max().filter(|version| *version < (1, 6)) {
            let message = format!(
                "the nodes of {} have containerd {major}.{minor}; HostProcess needs 1.6",
                target.with_product()
            );
            let remedy = "upgrade containerd on them to 1.6 or later";
            all.push(blocked(
                path.clone(),
                &message,
                &rules::HOST_PROCESS_VERSION,
                remedy,
            ));
        }
        let message = "what a HostProcess container does to its node may differ between releases, and no object shows it";
        let source = FindingSource::row("HostProcess containers run on the node itself", HOST_PROCESS);
        let note = PlanFinding::new(UpgradeClass::Unchanged, path, message, source);
        all.push(note.remedy("try it on one node of the new build").note());
        let all = all.into_iter();
        all.map(|finding| finding.caused_by(BlockedBy::HostProcess))
            .collect()
    }

    /// The accounts of its containers: a container that sets either field uses its own pair, otherwise the
    /// pair of the pod.
    fn accounts(&self) -> Vec<ServiceAccountUse> {
        let of_pod = self
            .cx
            .spec
            .windows_options()
            .filter(|options| has_account(options));
        let mut found: Vec<ServiceAccountUse> = Vec::new();
        for container in self.cx.containers().take(MOST_CONTAINERS) {
            let own = container.windows_options().filter(|options| has_account(options));
            let (options, path) = match (own, of_pod) {
                (Some(own), _) => (
                    own,
                    container.at(&["securityContext", "windowsOptions", "gmsaCredentialSpecName"]),
                ),
                (None, Some(pod)) => (
                    pod,
                    self.cx
                        .at(&["securityContext", "windowsOptions", "gmsaCredentialSpecName"]),
                ),
                (None, None) => continue,
            };
            let name = options.gmsa_credential_spec_name.as_deref().unwrap_or_default();
            let spec = options.gmsa_credential_spec.as_deref().unwrap_or_default();
            if found.len() < MOST && !found.iter().any(|known| known.name == name) {
                found.push(ServiceAccountUse {
                    path: path.named(),
                    name: name.to_owned(),
                    asks_by_plug_in: spec.contains("HostAccountConfig"),
                });
            }
        }
        found
    }
}

fn repository(container: &Container<'_>) -> Option<String> {
    let image = ImageRef::parse(container.image.as_deref()?).ok()?;
    Some(image.familiar_name())
}

fn has_account(options: &WindowsOptions<'_>) -> bool {
    options.gmsa_credential_spec_name.is_some() || options.gmsa_credential_spec.is_some()
}

fn no_controller() -> PlanFinding {
    let message = "nothing creates the pod again when its node is drained: it has no controller";
    let finding_source = FindingSource::row("kubectl drain: pods without a controller", DRAIN);
    PlanFinding::new(
        UpgradeClass::Blocked,
        "metadata.ownerReferences",
        message,
        finding_source,
    )
    .caused_by(BlockedBy::NoController)
    .remedy("make it part of a Deployment or a Job, or create it again once its node is gone")
}

impl ServiceAccountUse {
    /// The finding for this account: Kubernetes documents the requirement on nodes, but nothing shows whether
    /// new nodes meet it.
    pub(super) fn state(&self, target: &str, proven: Option<&str>) -> PlanFinding {
        let name = if self.name.is_empty() {
            "of its credential spec".to_owned()
        } else {
            shown(&self.name)
        };
        let finding_source =
            || FindingSource::row("gMSA: the nodes must be allowed to read the password", GMSA);
        let plan_findings = |class, message: String| {
            PlanFinding::new(class, &*self.path, message, finding_source()).caused_by(BlockedBy::Gmsa)
        };
        if let Some(node) = proven {
            return plan_findings(
                UpgradeClass::Unchanged,
                format!("a pod with the account {name} is ready on {node}"),
            );
        }
        if self.asks_by_plug_in {
            let message = format!(
                "the account {name} uses the plug-in of its credential spec, which the nodes of {target} need"
            );
            return plan_findings(UpgradeClass::Unchanged, message)
                .remedy("make sure that these nodes have that plug-in")
                .note();
        }
        let message = format!(
            "the nodes of {target} must be allowed to read the password of the account {name}, which no object shows"
        );
        plan_findings(UpgradeClass::Blocked, message).remedy(
            "add these nodes to the security group of the account in Active Directory, then set --gmsa-ready or start a \
             pod with the account there",
        )
    }
}
