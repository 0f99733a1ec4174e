//! What a new node pulls: the images of the workloads that may land on it, in the order worth pulling, with the bytes that
//! each of them adds. Pure: what registries report is input.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::Planner;
use super::new_nodes::{NewNode, PlannedChange, of_each_pool};
use super::nodes::NoPool;
use super::target::TargetBuild;
use super::workload::PlannedWorkload;
use super::workload_images::{WorkloadIsolation, names_linux};
use crate::model::objects::workload::Kind;
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation};
use crate::model::windows::image_facts::{ImageContents, ImageFacts, ImageLayer, ImageVariant, best_variant};
use crate::model::windows::os::Os;
use crate::rules::KnownVersions;

/// The schema of [`ImagePulls`].
pub const PULLS_SCHEMA: &str = "transom.dev/image-pulls/v1";

/// What new nodes pull.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "Report of transom image pulls -o json")]
pub struct ImagePulls {
    /// The name and the version of this schema.
    #[schemars(extend("const" = PULLS_SCHEMA))]
    pub schema: &'static str,
    /// The build that the new nodes are assumed to have; null for the build of their pool.
    pub to: Option<TargetBuild>,
    /// The pools with nodes, then those that may be at zero nodes.
    pub pools: Vec<PoolPulls>,
    /// What to know about the report.
    pub notes: Vec<String>,
}

/// What a node that is added to a pool pulls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolPulls {
    /// The pool.
    pub pool: String,
    /// The build of the new node; null if it is not known.
    pub build: Option<TargetBuild>,
    /// How many nodes the pool has now.
    pub nodes: u64,
    /// Labels that select the nodes of the pool with this build.
    pub selector: BTreeMap<String, String>,
    /// The images in the order worth pulling: those of DaemonSets, then those with the most replicas.
    pub images: Vec<ImagePull>,
    /// The sum.
    pub total: PullTotal,
}

/// The sum of the images that a node pulls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullTotal {
    /// How many images.
    pub images: usize,
    /// The compressed bytes of the images with a known size; layers that several of them have count once.
    pub bytes: u64,
    /// How many images have an unknown size: the node pulls more than `bytes` if there are any.
    pub unknown: usize,
}

/// An image that a node pulls.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePull {
    /// The image as the workloads write it.
    pub image: String,
    /// The workloads, as in `Deployment shop/web`.
    pub workloads: Vec<String>,
    /// Whether a DaemonSet runs it on every such node.
    pub daemon_set: bool,
    /// The desired replicas of its workloads that may land on the node, without those of DaemonSets.
    pub replicas: u64,
    /// Whether a container of it has process isolation; otherwise all of them are HostProcess or Hyper-V containers.
    pub process_isolation: bool,
    /// The digest of the variant that the node pulls; null if it is not known.
    pub digest: Option<String>,
    /// The compressed bytes of all its layers; null if they are not known.
    pub size: Option<u64>,
    /// The compressed bytes of the layers that images before it have; null if they are not known.
    pub shared: Option<u64>,
    /// Why the size is not known; null if it is.
    pub unknown: Option<String>,
    /// The namespace with the most replicas of it.
    #[serde(skip)]
    pub namespace: String,
}

impl PullTotal {
    /// Adds an image, which then says why its size is not known.
    fn add(&mut self, pull: &mut ImagePull) {
        self.images += 1;
        if let Some(size) = pull.size {
            let new = size.saturating_sub(pull.shared.unwrap_or_default());
            self.bytes = self.bytes.saturating_add(new);
            return;
        }
        self.unknown += 1;
        let why = || "the manifest of its variant for this build was not read".to_owned();
        pull.unknown.get_or_insert_with(why);
    }
}

/// A workload whose pods may land on a new node.
struct LandingWorkload<'w> {
    name: String,
    namespace: &'w str,
    /// `None` for a DaemonSet.
    replicas: Option<u64>,
    isolation: ContainerIsolation,
    images: Vec<&'w str>,
}

/// What is known of images.
struct PullKnowledge<'k> {
    /// What registries report, by reference as written.
    images: &'k HashMap<String, Arc<ImageFacts>>,
    /// Why registries gave no facts about images; `None` if registries are not asked.
    unanswered: Option<&'k BTreeMap<String, String>>,
}

/// What a new node pulls for these workloads.
fn pulls_of(node: &NewNode, workloads: &[LandingWorkload<'_>], known: &PullKnowledge<'_>) -> PoolPulls {
    let mut pulls = in_order(workloads);
    let mut total = PullTotal::default();
    let mut seen = HashSet::new();
    for (pull, isolation) in &mut pulls {
        match known.variant(&pull.image, node, *isolation) {
            Ok(variant) => {
                pull.digest = Some(variant.digest.clone());
                pull.size = variant.size;
                pull.shared = shared_bytes(&variant.layers, &mut seen);
            }
            Err(why) => pull.unknown = Some(why),
        }
        total.add(pull);
    }
    PoolPulls {
        pool: node.pool.clone(),
        build: node.build().map(TargetBuild),
        nodes: node.nodes,
        selector: node.selector(),
        images: pulls.into_iter().map(|(pull, _)| pull).collect(),
        total,
    }
}

/// The images of workloads without what registries know: those of DaemonSets first, then by replicas, then by name. With the
/// isolation by which their variant is chosen.
fn in_order(workloads: &[LandingWorkload<'_>]) -> Vec<(ImagePull, ContainerIsolation)> {
    let mut by_image: BTreeMap<&str, (ImagePull, ContainerIsolation)> = BTreeMap::new();
    let mut of_namespaces: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for workload in workloads {
        let images: BTreeSet<&str> = workload.images.iter().copied().collect();
        for image in images {
            let (pull, isolation) = by_image.entry(image).or_insert_with(|| {
                let image = image.to_owned();
                (
                    ImagePull {
                        image,
                        ..ImagePull::default()
                    },
                    workload.isolation,
                )
            });
            let of_namespace = of_namespaces.entry((image, workload.namespace)).or_default();
            *of_namespace = of_namespace.saturating_add(workload.replicas.unwrap_or(1));
            pull.workloads.push(workload.name.clone());
            pull.daemon_set |= workload.replicas.is_none();
            pull.replicas = pull
                .replicas
                .saturating_add(workload.replicas.unwrap_or_default());
            if workload.isolation == ContainerIsolation::Process {
                pull.process_isolation = true;
                *isolation = ContainerIsolation::Process;
            }
        }
    }
    let mut most: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for ((image, namespace), replicas) in &of_namespaces {
        let most = most.entry(image).or_default();
        if *replicas > most.0 || most.1.is_empty() {
            *most = (*replicas, namespace);
        }
    }
    for (image, (pull, _)) in &mut by_image {
        let (_, namespace) = most.get(image).copied().unwrap_or_default();
        namespace.clone_into(&mut pull.namespace);
    }
    let mut pulls: Vec<(ImagePull, ContainerIsolation)> = by_image.into_values().collect();
    // Stable: equal ones stay sorted by name.
    pulls.sort_by_key(|(pull, _)| Reverse((pull.daemon_set, pull.replicas)));
    pulls
}

/// The bytes of layers that were seen before, or that the image has twice; `None` if its layers are not known.
fn shared_bytes<'l>(layers: &'l [ImageLayer], seen: &mut HashSet<&'l str>) -> Option<u64> {
    if layers.is_empty() {
        return None;
    }
    let again = layers.iter().filter(|layer| !seen.insert(&layer.digest));
    Some(again.fold(0, |sum: u64, layer| sum.saturating_add(layer.size)))
}

impl<'k> PullKnowledge<'k> {
    /// The variant that a node pulls, or why it is not known.
    fn variant(
        &self,
        image: &str,
        node: &NewNode,
        isolation: ContainerIsolation,
    ) -> Result<&'k ImageVariant, String> {
        let Some(facts) = self.images.get(image) else {
            let why = self.unanswered.and_then(|unanswered| unanswered.get(image));
            return Err(why
                .map_or("its registry was not asked", String::as_str)
                .to_owned());
        };
        let contents = facts.found.as_ref();
        let contents = contents.ok_or("the registry has no such image")?;
        let variant = variant_for(contents, node, isolation);
        variant.ok_or_else(|| "it has no variant for this build".to_owned())
    }
}

/// The variant that a node pulls. An image without an index is pulled whatever it is for.
fn variant_for<'c>(
    contents: &'c ImageContents,
    node: &NewNode,
    isolation: ContainerIsolation,
) -> Option<&'c ImageVariant> {
    if let [only] = contents.variants.as_slice()
        && only.digest == contents.digest
    {
        return Some(only);
    }
    let host = node.hosts.first()?;
    let best = best_variant(contents.windows(), host.build, host.architecture(), isolation);
    let best = best.filter(|(runs, _)| *runs != Compatibility::Fails);
    best.map(|(_, variant)| variant)
}

impl PlannedWorkload {
    /// How many of its pods run at a time; `None` for a DaemonSet. `by_pods`: by the pods that it has, running or waiting for a
    /// node, because an author can write any number of replicas.
    fn running_replicas(&self, by_pods: bool) -> Option<u64> {
        if self.is_daemon_set {
            return None;
        }
        let pods = self.pods.values().sum::<u64>() + self.pending;
        Some(match (self.key.known_kind(), self.replicas) {
            // Read from its pods.
            _ if self.read_from.is_some() || self.rests => pods,
            // No controller creates pods from it.
            (Some(Kind::PodTemplate), _) => 0,
            // The pods of its Jobs come and go.
            (Some(Kind::CronJob | Kind::CronWorkflow | Kind::ScaledJob), _) => 1,
            (_, Some(replicas)) if !by_pods => replicas,
            _ => pods,
        })
    }

    /// The isolation by which the variants of its images are chosen.
    fn pull_isolation(&self) -> ContainerIsolation {
        match self.kernel {
            WorkloadIsolation::Known(isolation) => isolation,
            WorkloadIsolation::InDoubt => ContainerIsolation::Process,
        }
    }

    fn landing(&self, by_pods: bool) -> LandingWorkload<'_> {
        LandingWorkload {
            name: self.key.to_string(),
            namespace: &self.key.namespace,
            replicas: self.running_replicas(by_pods),
            isolation: self.pull_isolation(),
            images: self.images.iter().map(|used| &*used.image).collect(),
        }
    }
}

impl Planner<'_> {
    /// The nodes that may be added.
    fn new_nodes(&self) -> &[NewNode] {
        &self.planned().new_nodes
    }

    /// What a new node of each pool pulls.
    ///
    /// # Errors
    /// If a pool that is meant does not exist.
    pub fn image_pulls(&self) -> Result<Vec<PoolPulls>, NoPool> {
        self.pools_exist()?;
        let nodes = 0..self.new_nodes().len();
        Ok(nodes.filter_map(|index| self.pulls_of(index, false)).collect())
    }

    /// What these nodes pull, if they are new: what another node of their pool would. Needs [`PlannedChange::MoreNodes`] of
    /// all pools. Unknown nodes are omitted. `keep`: what is kept of it, once for each pool.
    pub fn pulls_of_nodes<'n, T: Clone>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
        keep: impl Fn(PoolPulls) -> T,
    ) -> BTreeMap<&'n str, T> {
        let mut of_pools: BTreeMap<usize, T> = BTreeMap::new();
        let mut of_nodes = BTreeMap::new();
        for name in names {
            // The new nodes of existing pools are in the order of the pools.
            let Some(pool) = self.nodes.get(name).map(|node| node.pool) else {
                continue;
            };
            if !of_pools.contains_key(&pool) {
                let pulls = self.pulls_of(pool, self.lists_pods);
                of_pools.extend(pulls.map(|pulls| (pool, keep(pulls))));
            }
            of_nodes.extend(of_pools.get(&pool).map(|kept| (name, kept.clone())));
        }
        of_nodes
    }

    /// What a new node pulls. `by_pods`: workloads count by the pods that they have.
    fn pulls_of(&self, index: usize, by_pods: bool) -> Option<PoolPulls> {
        let known = PullKnowledge {
            images: &self.facts.images,
            unanswered: self.unanswered.as_ref(),
        };
        let node = self.new_nodes().get(index)?;
        let workloads: Vec<LandingWorkload<'_>> = self
            .landing_on(index, node, by_pods)
            .map(|workload| workload.landing(by_pods))
            .collect();
        Some(pulls_of(node, &workloads, &known))
    }

    /// The images of the workloads that may land on a new node.
    pub(super) fn pulled_images(&self) -> BTreeSet<String> {
        let nodes = self.new_nodes().iter().enumerate();
        let workloads = nodes.flat_map(|(index, node)| self.landing_on(index, node, false));
        let images = workloads.flat_map(|workload| &workload.images);
        images.map(|used| used.image.to_string()).collect()
    }

    /// The workloads that may land on a new node and run there, by what is known of their images.
    fn landing_on(
        &self,
        index: usize,
        node: &NewNode,
        by_pods: bool,
    ) -> impl Iterator<Item = &PlannedWorkload> {
        let build = node.build();
        (self.workloads.iter()).filter(move |workload| {
            workload.lands_on.contains(&index)
                && workload.running_replicas(by_pods) != Some(0)
                && !self.images_fail(workload, build)
        })
    }

    /// Whether it is known on which builds the images of a workload run.
    pub(super) fn knows_builds(&self, workload: &PlannedWorkload) -> bool {
        let images = workload.images.iter().map(|used| &*used.image);
        let versions = images.map(|image| (image, KnownVersions::of_image(image, &self.facts)));
        workload.knows_builds(&versions.collect())
    }

    /// Whether an image of a workload is known not to run on nodes of a build.
    pub(super) fn images_fail(&self, workload: &PlannedWorkload, build: Option<Build>) -> bool {
        let isolation = workload.pull_isolation();
        let fails = |image: &str| {
            let known = KnownVersions::of_image(image, &self.facts);
            known.is_some_and(|image| build.is_some_and(|build| image.fail_on(build, isolation)))
        };
        let images = || workload.images.iter().map(|used| &*used.image);
        images().any(|image| self.is_for_linux(image))
            || (isolation != ContainerIsolation::HostProcess && images().any(fails))
    }

    /// Whether an image is for Linux only, by its registry, else by its name: no Windows node can pull it.
    fn is_for_linux(&self, image: &str) -> bool {
        if let Some(contents) = self.facts.images.get(image).and_then(|known| known.contents()) {
            return contents.only_os() == Some(Os::Linux);
        }
        names_linux(image)
    }

    fn pools_exist(&self) -> Result<(), NoPool> {
        let PlannedChange::MoreNodes { to, pools } = &self.plan_options.change else {
            return Ok(());
        };
        if pools.is_empty() {
            return Ok(());
        }
        let each = of_each_pool(&self.nodes, &self.facts, *to);
        let is_known = |pool: &&String| each.iter().any(|(node, build)| node.is_called(pool, *build));
        match pools.iter().find(|pool| !is_known(pool)) {
            Some(unknown) => {
                let known: Vec<&str> = each.iter().map(|(node, _)| node.pool.as_str()).collect();
                Err(NoPool::new(unknown, &known))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
