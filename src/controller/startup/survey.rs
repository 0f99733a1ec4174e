//! Which images new nodes wait for: those of the workloads whose pods can run there, read from the whole cluster, within a
//! limit of bytes. Who writes one namespace does not decide for others: namespaces take turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kube::Client;

use crate::api::NodeStartup;
use crate::cluster::errors::ApiError;
use crate::cluster::node::NodeView;
use crate::cluster::node_ownership::PROOF_LABEL;
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::controller::node_policies::nodes::labels::KeptLabel;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::Host;
use crate::model::objects::pod_images::PodImages;
use crate::model::windows::image::ImageRef;
use crate::plan::{NodeInventory, PlanOptions, Planner, PoolPulls};
use crate::registry::service::ImageService;

/// The most images that a node waits for.
const MOST_IMAGES: usize = 64;
/// The longest reference of an image, in bytes. No registry has a longer one, and a pod that named some of them could not be stored.
const LONGEST_IMAGE: usize = 1024;
/// The most images that the service of images answers at a time.
const ASKED: usize = 64;
/// The percentage of a node's `ephemeral-storage` that images of workloads may take: kubelets remove unused images at 85 %.
const DISK_PERCENT: u64 = 60;
/// The compressed bytes of an image whose size is not known.
const USUAL_BYTES: u64 = 1 << 30;
/// The bytes on disk of ten compressed bytes: an estimate, because registries do not report them.
const UNPACKED_OF_TEN: u64 = 25;

/// Whether Transom adds the label to new nodes: a survey expects it.
fn is_written(key: &str) -> bool {
    KeptLabel::of(key).is_some() || key == PROOF_LABEL
}

/// What decides which images a node needs: another node may get its name, and clouds add labels to nodes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeIdentity {
    uid: String,
    labels: BTreeMap<String, String>,
}

impl NodeIdentity {
    /// The node with its present labels.
    pub fn of(node: &NodeView) -> Self {
        let labels = node.labels.iter();
        let labels = labels.filter(|(key, _)| !is_written(key));
        NodeIdentity {
            uid: node.uid.clone(),
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }
}

/// Nodes, with their names.
pub type SurveyedNodes = BTreeMap<NodeIdentity, String>;

/// The images of workloads that nodes need, in the order worth pulling.
pub type PullsByNode = BTreeMap<NodeIdentity, Arc<[WantedImage]>>;

/// An image that a node waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedImage {
    /// The image, as workloads write it.
    pub image: String,
    /// The compressed bytes that it adds to the images before it, if they are known.
    pub bytes: Option<u64>,
    /// All of its compressed bytes, if they are known.
    pub size: Option<u64>,
    /// The namespace whose workloads need it most; empty if the policy lists it.
    pub namespace: Arc<str>,
}

/// The facts for a survey: with these nodes, and one of each group of equivalent others. The planner copies them several times, and
/// thousands of nodes form a few groups.
pub fn facts_for(facts: &Facts, nodes: &SurveyedNodes) -> Facts {
    let names: BTreeSet<&String> = nodes.values().collect();
    let is_named = |host: &&Host| names.contains(&host.name);
    let others = facts.sorts().filter(|host| !is_named(host));
    let hosts: Vec<Host> = (facts.hosts().iter().filter(is_named))
        .chain(others)
        .cloned()
        .collect();
    let mut facts = facts.clone();
    facts.replace_hosts(hosts);
    facts
}

/// Reads all workloads, and finds out what these nodes pull.
///
/// # Errors
/// A list cannot be read to its end.
pub async fn survey(
    client: Client,
    facts: Facts,
    policies: Arc<PolicySet>,
    images: Option<ImageService>,
    nodes: SurveyedNodes,
) -> Result<PullsByNode, SurveyError> {
    let survey = WorkloadSurvey::of(&client, &facts.config.pod_templates).await?;
    let hosts = facts.hosts().iter().filter(|host| !host.may_be_at_zero);
    let options = PlanOptions::more_nodes();
    let mut planner =
        Planner::new(&facts, &policies, options).with_nodes(NodeInventory::of_hosts(hosts.cloned()));
    let visit = |kind, json: &str| {
        if let Err(error) = planner.visit(kind, json) {
            tracing::debug!(%kind, %error, "cannot read an object");
        }
    };
    match survey.for_each(&client, visit).await {
        // Whoever can write one must not hold back nodes.
        Err(SurveyError::List(error)) if matches!(error.why, ApiError::ObjectTooLarge(_)) => {
            tracing::warn!("images that new nodes need: {error}");
        }
        read => read?,
    }
    if let Some(service) = images {
        let open: Vec<String> = planner.open_images().into_iter().collect();
        for some in open.chunks(ASKED) {
            let request = PodImages {
                references: some.to_vec(),
                ..PodImages::default()
            };
            planner.learn(service.stored(&request));
        }
    }
    let names = nodes.values().map(String::as_str);
    let pulls = planner.pulls_of_nodes(names, |pulls| Arc::<[WantedImage]>::from(needed(pulls)));
    let pulls = (nodes.iter()).filter_map(|(node, name)| Some((node.clone(), pulls.get(&**name)?.clone())));
    Ok(pulls.collect())
}

/// The images that a node may have to wait for. The rest of what is known of them would take megabytes.
pub fn needed(pulls: PoolPulls) -> Vec<WantedImage> {
    // An author can write any text; a kubelet refuses what is no reference.
    let is_reference = |image: &str| image.len() <= LONGEST_IMAGE && ImageRef::parse(image).is_ok();
    let images = (pulls.images.into_iter()).filter(|pull| is_reference(&pull.image));
    let images = images.map(|pull| WantedImage {
        image: pull.image,
        bytes: pull
            .size
            .map(|size| size.saturating_sub(pull.shared.unwrap_or(0))),
        size: pull.size,
        namespace: pull.namespace.into(),
    });
    let mut images = in_turn(images.collect());
    let most = MOST_IMAGES / share_of_one(&images);
    let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    images.retain(|image| {
        let count = counts.entry(Arc::clone(&image.namespace)).or_default();
        *count += 1;
        *count <= most
    });
    images.truncate(MOST_IMAGES);
    images
}

/// Orders images, of which the ones worth most are first, so that no namespace has to wait for what another one needs more than
/// it: the next image is always one of the namespace with the fewest bytes so far.
fn in_turn(images: Vec<WantedImage>) -> Vec<WantedImage> {
    type Line = VecDeque<(usize, WantedImage)>;
    let mut lines: BTreeMap<Arc<str>, (u64, Line)> = BTreeMap::new();
    for (rank, image) in images.into_iter().enumerate() {
        let (_, line) = lines.entry(Arc::clone(&image.namespace)).or_default();
        line.push_back((rank, image));
    }
    let mut ordered = Vec::new();
    loop {
        let waiting = lines.values_mut().filter(|(_, line)| !line.is_empty());
        let next = waiting.min_by_key(|(bytes, line)| (*bytes, line.front().map(|(rank, _)| *rank)));
        let Some((bytes, line)) = next else { return ordered };
        if let Some((_, image)) = line.pop_front() {
            *bytes = bytes.saturating_add(image.bytes.unwrap_or(USUAL_BYTES));
            ordered.push(image);
        }
    }
}

/// The images of namespaces of which one could not be pulled on a node come last, after those of the policy and of others: a
/// kubelet pulls one image after the other. `failed`: the images that nodes could not pull.
pub fn failing_last(mut wanted: Vec<WantedImage>, failed: &BTreeSet<&str>) -> Vec<WantedImage> {
    let failing = wanted
        .iter()
        .filter(|image| failed.contains(&*image.image) && !image.namespace.is_empty());
    let failing: BTreeSet<Arc<str>> = failing.map(|image| Arc::clone(&image.namespace)).collect();
    wanted.sort_by_key(|image| failing.contains(&image.namespace));
    wanted
}

/// One of how many parts of what a node waits for a namespace can take: half of it if there are others.
fn share_of_one(images: &[WantedImage]) -> usize {
    let namespaces: BTreeSet<&Arc<str>> = images.iter().map(|image| &image.namespace).collect();
    namespaces.len().clamp(1, 2)
}

/// What a node waits for, in the order worth pulling; `None` if it is not known. `storage`: its disk, in bytes.
pub fn wanted(
    startup: &NodeStartup,
    pulls: Option<&[WantedImage]>,
    storage: Option<u64>,
) -> Option<Vec<WantedImage>> {
    let listed = startup.images.iter().map(|image| WantedImage {
        image: image.clone(),
        bytes: None,
        size: None,
        namespace: "".into(),
    });
    let mut wanted: Vec<WantedImage> = listed.collect();
    if startup.waits_for_workloads() {
        let of_disk = storage.map(|bytes| bytes / 100 * DISK_PERCENT * 10 / UNPACKED_OF_TEN);
        let room = startup.byte_limit().into_iter().chain(of_disk).min();
        let pulls = pulls?;
        wanted.extend(within(pulls, room, &startup.images).cloned());
    }
    wanted.truncate(MOST_IMAGES);
    Some(wanted)
}

/// The images that fit, without those that are listed. No namespace gets more than its share.
fn within<'p>(
    pulls: &'p [WantedImage],
    room: Option<u64>,
    listed: &'p [String],
) -> impl Iterator<Item = &'p WantedImage> {
    let share = u64::try_from(share_of_one(pulls)).unwrap_or(1);
    let mut left = room;
    let mut of_namespaces: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    let mut has_gap = false;
    pulls.iter().filter(move |pull| {
        // What an image shares with one that is left out, it brings itself.
        let bytes = if has_gap { pull.size } else { pull.bytes };
        let bytes = bytes.unwrap_or(0);
        let of_namespace = of_namespaces
            .entry(&pull.namespace)
            .or_insert_with(|| room.map(|room| room / share));
        if let (Some(all), Some(own)) = (left, *of_namespace) {
            let (Some(all), Some(own)) = (all.checked_sub(bytes), own.checked_sub(bytes)) else {
                has_gap = true;
                return false;
            };
            (left, *of_namespace) = (Some(all), Some(own));
        }
        !listed.contains(&pull.image)
    })
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::plan::{ImagePull, PullTotal};

    #[test]
    fn a_survey_keeps_the_nodes_that_wait_and_one_of_each_group_of_others() {
        let mut facts = Facts::new(36, date(2026, 1, 1));
        for number in 0..20 {
            let mut host = Host {
                name: format!("n{number}"),
                ..Host::default()
            };
            host.promise_label("kubernetes.io/hostname", host.name.clone());
            host.promise_label("agentpool", if number < 15 { "a" } else { "b" }.to_owned());
            facts.add_host(host);
        }
        let node = |name: &str| {
            let view = NodeView {
                uid: name.to_owned(),
                ..NodeView::default()
            };
            (NodeIdentity::of(&view), name.to_owned())
        };
        let nodes = [node("n3"), node("n15")].into();
        let kept = facts_for(&facts, &nodes);
        let names: Vec<&str> = kept.hosts().iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["n3", "n15", "n0"]);
    }

    fn image(namespace: &str, name: &str, bytes: u64) -> WantedImage {
        WantedImage {
            image: format!("{namespace}/{name}"),
            bytes: Some(bytes),
            size: Some(bytes),
            namespace: namespace.into(),
        }
    }

    fn names<'i>(images: impl IntoIterator<Item = &'i WantedImage>) -> Vec<&'i str> {
        images.into_iter().map(|image| &*image.image).collect()
    }

    #[test]
    fn namespaces_take_turns_and_none_gets_more_than_half() {
        let evil = (0..100).map(|at| image("evil", &at.to_string(), 10));
        let shop = [image("shop", "web", 30), image("shop", "db", 10)];
        let ordered = in_turn(evil.clone().chain(shop.clone()).collect());
        let first = ["evil/0", "shop/web", "evil/1", "evil/2", "evil/3", "shop/db"];
        assert_eq!(names(&ordered)[..6], first);
        let pull = |image: WantedImage| ImagePull {
            image: image.image,
            size: image.bytes,
            shared: Some(0),
            namespace: image.namespace.to_string(),
            ..ImagePull::default()
        };
        let pulls = |images: Vec<WantedImage>| PoolPulls {
            pool: String::new(),
            build: None,
            nodes: 1,
            selector: BTreeMap::new(),
            images: images.into_iter().map(pull).collect(),
            total: PullTotal::default(),
        };
        let both = needed(pulls(evil.clone().chain(shop).collect()));
        let of_evil = both.iter().filter(|image| &*image.namespace == "evil").count();
        assert_eq!((of_evil, both.len()), (MOST_IMAGES / 2, MOST_IMAGES / 2 + 2));
        assert_eq!(
            needed(pulls(evil.collect())).len(),
            MOST_IMAGES,
            "there is no other namespace"
        );
    }

    #[test]
    fn a_namespace_of_which_an_image_fails_loses_its_turn() {
        let images = vec![
            image("evil", "a", 1),
            image("shop", "web", 1),
            image("evil", "b", 1),
            image("shop", "db", 1),
        ];
        let ordered = failing_last(images, &["evil/b"].into());
        assert_eq!(names(&ordered), ["shop/web", "shop/db", "evil/a", "evil/b"]);
    }

    #[test]
    fn a_namespace_takes_half_of_the_bytes_and_an_image_that_does_not_fit_costs_others_nothing() {
        let images = in_turn(vec![
            image("evil", "huge", 90),
            image("evil", "small", 1),
            image("shop", "web", 20),
            image("shop", "db", 30),
            image("shop", "log", 1),
        ]);
        let fitting = names(within(&images, Some(100), &[]));
        assert_eq!(fitting, ["shop/web", "shop/db", "evil/small"]);
        assert_eq!(within(&images, None, &[]).count(), 5);
    }
}
