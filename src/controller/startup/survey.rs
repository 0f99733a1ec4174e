//! Which images new nodes wait for: those of the workloads whose pods can run there, read from the whole cluster, within a
//! limit of bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;

use crate::api::NodeStartup;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::workload_survey::{SurveyError, WorkloadSurvey};
use crate::model::build::Build;
use crate::model::pod_images::PodImages;
use crate::plan::{NewNodes, NodeInventory, PlanOptions, Planner, PoolPulls};
use crate::registry::service::ImageService;

/// The most images that a node waits for.
const MOST_IMAGES: usize = 64;
/// The most images that the service of images answers at a time.
const ASKED: usize = 64;
/// The percentage of a node's `ephemeral-storage` that images of workloads may take: kubelets remove unused images at 85 %.
const DISK_PERCENT: u64 = 60;
/// The bytes on disk of ten compressed bytes: an estimate, because registries do not report them.
const UNPACKED_OF_TEN: u64 = 25;

/// What nodes pull, by name.
pub type PullsByNode = BTreeMap<String, Arc<PoolPulls>>;

/// An image that a node waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedImage {
    /// The image, as workloads write it.
    pub image: String,
    /// The compressed bytes that it adds, if they are known.
    pub bytes: Option<u64>,
}

/// Reads all workloads, and finds out what these nodes pull.
///
/// # Errors
/// A list cannot be read to its end.
pub async fn survey(
    client: Client,
    snapshot: Arc<Snapshot>,
    images: Option<ImageService>,
    nodes: BTreeSet<String>,
) -> Result<PullsByNode, SurveyError> {
    let survey = WorkloadSurvey::of(&client, &snapshot.policies.pod_templates()).await?;
    let hosts = snapshot.facts.hosts().iter().filter(|host| !host.may_be_at_zero);
    let new_nodes = NewNodes::OfEachPool {
        to: None,
        pools: Vec::new(),
    };
    // No node has this build: nothing is upgraded.
    let options = PlanOptions::to(Build::new(0));
    let mut planner = Planner::new(&snapshot.facts, &snapshot.policies, options)
        .with_nodes(NodeInventory::of_hosts(hosts.cloned()))
        .with_new_nodes(new_nodes);
    let visit = |kind, json: &str| {
        if let Err(error) = planner.visit(kind, json) {
            tracing::debug!(%kind, %error, "cannot read an object");
        }
    };
    survey.for_each(&client, visit).await?;
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
    let pulls = planner.pulls_of_nodes(nodes.iter().map(String::as_str));
    let pulls = pulls.into_iter().map(|(name, pulls)| (name.to_owned(), pulls));
    Ok(pulls.collect())
}

/// What a node waits for, in the order worth pulling; `None` if it is not known. `storage`: its disk, in bytes.
pub fn wanted(
    startup: &NodeStartup,
    pulls: Option<&PoolPulls>,
    storage: Option<u64>,
) -> Option<Vec<WantedImage>> {
    let listed = startup.list.iter().map(|image| WantedImage {
        image: image.clone(),
        bytes: None,
    });
    let mut wanted: Vec<WantedImage> = listed.collect();
    if startup.waits_for_workloads() {
        let of_disk = storage.map(|bytes| bytes / 100 * DISK_PERCENT * 10 / UNPACKED_OF_TEN);
        let mut room = startup.byte_limit().into_iter().chain(of_disk).min();
        for pull in &pulls?.images {
            let bytes = pull.size.map(|size| size - pull.shared.unwrap_or(0).min(size));
            if let Some(left) = room {
                let Some(left) = left.checked_sub(bytes.unwrap_or(0)) else {
                    break;
                };
                room = Some(left);
            }
            if !startup.list.contains(&pull.image) {
                wanted.push(WantedImage {
                    image: pull.image.clone(),
                    bytes,
                });
            }
        }
    }
    wanted.truncate(MOST_IMAGES);
    Some(wanted)
}
