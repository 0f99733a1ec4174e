//! What this leader saw on new nodes. Losing it is harmless: images that kubelets have removed since are pulled once more, and
//! nodes that have started are no longer counted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::pulls::{PullProgress, PullerPod, canonical};
use super::survey::WantedImage;
use crate::api::FailedImage;
use crate::cluster::node::NodeView;
use crate::controller::startup_states::{StartupOfPolicy, StartupStates};

/// How a node started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartupOutcome {
    /// With its images.
    Warm,
    /// Without some of them.
    Late,
}

/// What was seen on one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct SeenNode {
    name: String,
    policy: String,
    /// Images that it waits for and that were on it, in canonical form.
    images: BTreeSet<String>,
    /// Whether it was known what it waits for.
    is_known: bool,
    /// Images that it waits for and cannot pull, as workloads write them, since when, and why.
    failed: BTreeMap<String, (Timestamp, String)>,
    /// Why its kubelet did not accept the last pod that pulls.
    rejected: Option<String>,
    /// Whether its kubelet has left the last pod that pulls without an answer.
    is_idle: bool,
    /// `None` while it waits.
    outcome: Option<StartupOutcome>,
}

impl SeenNode {
    /// Adds the images that are there. Returns those that were never seen, and the compressed bytes of those that are new.
    fn arrived(&mut self, wanted: &[WantedImage], there: &BTreeSet<String>) -> (Vec<String>, u64) {
        let (mut missing, mut bytes) = (Vec::new(), 0_u64);
        for image in wanted {
            let name = canonical(&image.image);
            if there.contains(&name) {
                // What is there when this is known first was there before.
                let is_news = self.images.insert(name) && self.is_known;
                bytes = bytes.saturating_add(image.bytes.filter(|_| is_news).unwrap_or(0));
            } else if !self.images.contains(&name) {
                missing.push(image.image.clone());
            }
        }
        (missing, bytes)
    }

    /// Adds the images that pods cannot pull, and returns those that are new.
    fn new_failures<'p>(
        &mut self,
        images: impl Iterator<Item = &'p (String, PullProgress)>,
        now: Timestamp,
    ) -> Vec<FailedImage> {
        let mut new = Vec::new();
        for (image, progress) in images {
            let PullProgress::Failed(why) = progress else {
                continue;
            };
            let since = self.failed.get(image).map(|(since, _)| *since);
            if since.is_none() {
                new.push(self.failure(image, why));
            }
            let failed = (since.unwrap_or(now), why.clone());
            self.failed.insert(image.clone(), failed);
        }
        new
    }

    /// Forgets failures of images that are not missing. Returns since when none of the missing ones can be pulled.
    fn all_failed(&mut self, missing: &[String]) -> Option<Timestamp> {
        self.failed.retain(|image, _| missing.contains(image));
        let is_hopeless = !missing.is_empty() && self.failed.len() == missing.len();
        let since = self.failed.values().map(|(since, _)| *since);
        since.max().filter(|_| is_hopeless)
    }

    fn failure(&self, image: &str, why: &str) -> FailedImage {
        FailedImage {
            node: self.name.clone(),
            image: image.to_owned(),
            message: why.to_owned(),
        }
    }
}

/// What is news about a node that waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeNews {
    /// The images that were never seen on it, as workloads write them; `None` if it is not known what it waits for.
    pub missing: Option<Vec<String>>,
    /// The compressed bytes of the images that arrived since the last call, as far as they are known.
    pub pulled_bytes: u64,
    /// Images whose failure was not known before.
    pub failures: Vec<FailedImage>,
    /// Since when none of the missing images can be pulled; `None` if one may still arrive.
    pub all_failed: Option<Timestamp>,
    /// Whether its kubelet has left the last pod that pulls without an answer.
    pub is_idle: bool,
}

/// What was seen on all nodes, by uid.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StartupMemory {
    nodes: BTreeMap<String, SeenNode>,
    /// The generations of the policies.
    generations: BTreeMap<String, i64>,
}

impl StartupMemory {
    /// Forgets nodes that are gone, nodes that no longer wait although Transom did not release them, and how nodes of a policy
    /// started if it has changed. `waits`: whether the node with this uid waits.
    pub fn retain(
        &mut self,
        exists: impl Fn(&str, &str) -> bool,
        waits: impl Fn(&str) -> bool,
        generations: BTreeMap<String, i64>,
    ) {
        let before = std::mem::replace(&mut self.generations, generations);
        let is_same = |policy: &String| before.get(policy) == self.generations.get(policy);
        self.nodes.retain(|uid, seen| {
            let is_of_use = match seen.outcome {
                None => waits(uid),
                Some(_) => is_same(&seen.policy),
            };
            is_of_use && exists(&seen.name, uid)
        });
    }

    /// Adds what is on a node that waits, as it and its pods report. `pods`: those that pull for Transom; `others`: what the rest
    /// shows, by reference in canonical form.
    pub fn observe(
        &mut self,
        (node, policy): (&NodeView, &str),
        wanted: Option<&[WantedImage]>,
        (pods, others): (&[&PullerPod], &BTreeMap<String, PullProgress>),
        now: Timestamp,
    ) -> NodeNews {
        let seen = self.nodes.entry(node.uid.clone()).or_default();
        seen.name.clone_from(&node.name);
        policy.clone_into(&mut seen.policy);
        // It may carry the taint again.
        seen.outcome = None;
        let images = wanted.unwrap_or_default().iter().map(|wanted| &wanted.image);
        let of_others =
            images.filter_map(|image| Some((image.clone(), others.get(&canonical(image))?.clone())));
        let of_others: Vec<(String, PullProgress)> = of_others.collect();
        for (image, progress) in &of_others {
            // Another pod of the program tries it, for example with a Secret that was missing.
            if *progress == PullProgress::Pulling {
                seen.failed.remove(image);
            }
        }
        let of_pods = || pods.iter().flat_map(|pod| &pod.images).chain(&of_others);
        let pulled = of_pods().filter(|(_, progress)| *progress == PullProgress::Pulled);
        let there = node.images.iter().chain(pulled.map(|(image, _)| image));
        let there: BTreeSet<String> = there.map(|image| canonical(image)).collect();
        let mut news = NodeNews::default();
        news.missing = wanted.map(|wanted| {
            let (missing, bytes) = seen.arrived(wanted, &there);
            news.pulled_bytes = bytes;
            missing
        });
        seen.is_known |= wanted.is_some();
        if let Some(pod) = pods.first() {
            seen.rejected.clone_from(&pod.rejected);
            // A new pod of a kubelet that did nothing must prove that it does something now.
            seen.is_idle = !pod.is_acknowledged && (seen.is_idle || pod.is_idle(now));
        }
        news.is_idle = seen.is_idle;
        news.failures = seen.new_failures(of_pods(), now);
        news.all_failed = (news.missing.as_deref()).and_then(|missing| seen.all_failed(missing));
        news
    }

    /// The images that a node could not pull, as workloads write them.
    pub fn failed_images(&self) -> BTreeSet<String> {
        let nodes = self.nodes.values();
        nodes.flat_map(|seen| seen.failed.keys().cloned()).collect()
    }

    /// Forgets that a node could not pull images.
    pub fn forget_failures(&mut self, uid: &str) {
        if let Some(seen) = self.nodes.get_mut(uid) {
            seen.failed.clear();
        }
    }

    /// Records how a node started. Returns why its missing images could not be pulled, by image.
    pub fn finish(
        &mut self,
        uid: &str,
        outcome: StartupOutcome,
        missing: Option<&[String]>,
    ) -> BTreeMap<String, String> {
        let Some(seen) = self.nodes.get_mut(uid) else {
            return BTreeMap::new();
        };
        seen.outcome = Some(outcome);
        seen.images.clear();
        let failed = seen.failed.iter();
        let failed = failed.map(|(image, (_, why))| (image.clone(), why.clone()));
        let missing = missing.into_iter().flatten();
        let rejected = missing.filter_map(|image| Some((image.clone(), seen.rejected.clone()?)));
        rejected.chain(failed).collect()
    }

    /// The state of each policy with new nodes.
    pub fn states(&self) -> StartupStates {
        let mut states = StartupStates::default();
        for seen in self.nodes.values() {
            let state: &mut StartupOfPolicy = states.entry(seen.policy.clone()).or_default();
            match seen.outcome {
                None => state.starting += 1,
                Some(StartupOutcome::Warm) => state.warm += 1,
                Some(StartupOutcome::Late) => state.late += 1,
            }
            let failed = seen.failed.iter();
            state
                .failed
                .extend(failed.map(|(image, (_, why))| seen.failure(image, why)));
        }
        states
    }
}
