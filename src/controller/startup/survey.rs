//! Which images new nodes wait for: those of the workloads whose pods can run there, read from the whole cluster, within a
//! limit of bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;

use crate::api::NodeStartup;
use crate::cluster::errors::ApiError;
use crate::cluster::node::{NodeView, PROOF_LABEL};
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::node::{BUILD_LABEL, Host, RESTRICTED_BUILD_LABEL};
use crate::model::pod_images::PodImages;
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
/// The bytes on disk of ten compressed bytes: an estimate, because registries do not report them.
const UNPACKED_OF_TEN: u64 = 25;

/// The labels that Transom adds to new nodes. A survey expects them.
const OWN_LABELS: [&str; 3] = [BUILD_LABEL, RESTRICTED_BUILD_LABEL, PROOF_LABEL];

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
        let labels = labels.filter(|(key, _)| !OWN_LABELS.contains(&key.as_str()));
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
    let survey = WorkloadSurvey::of(&client, &policies.pod_templates()).await?;
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
    let images = pulls.images.into_iter();
    let images = images
        .filter(|pull| pull.image.len() <= LONGEST_IMAGE)
        .take(MOST_IMAGES);
    let images = images.map(|pull| WantedImage {
        image: pull.image,
        bytes: pull
            .size
            .map(|size| size.saturating_sub(pull.shared.unwrap_or(0))),
        size: pull.size,
    });
    images.collect()
}

/// What a node waits for, in the order worth pulling; `None` if it is not known. `storage`: its disk, in bytes.
pub fn wanted(
    startup: &NodeStartup,
    pulls: Option<&[WantedImage]>,
    storage: Option<u64>,
) -> Option<Vec<WantedImage>> {
    let listed = startup.list.iter().map(|image| WantedImage {
        image: image.clone(),
        bytes: None,
        size: None,
    });
    let mut wanted: Vec<WantedImage> = listed.collect();
    if startup.waits_for_workloads() {
        let of_disk = storage.map(|bytes| bytes / 100 * DISK_PERCENT * 10 / UNPACKED_OF_TEN);
        let mut room = startup.byte_limit().into_iter().chain(of_disk).min();
        let mut has_gap = false;
        for pull in pulls? {
            if let Some(left) = room {
                // What an image shares with one that is left out, it brings itself.
                let bytes = if has_gap { pull.size } else { pull.bytes };
                let Some(left) = left.checked_sub(bytes.unwrap_or(0)) else {
                    has_gap = true;
                    continue;
                };
                room = Some(left);
            }
            if !startup.list.contains(&pull.image) {
                wanted.push(pull.clone());
            }
        }
    }
    wanted.truncate(MOST_IMAGES);
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

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
}
