//! Lists, creates and deletes the pods that pull. What takes long is continued in the next pass: nodes must not wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource as _};
use tokio::time::{Instant, timeout};

use super::gate::{GatePlan, NewPuller};
use super::puller::puller_pod;
use super::pulls::{PULLER_SELECTOR, PullProgress, PullerPod, is_pulling, shown_by};
use super::{PullerAccount, StartupSettings};
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, collect};
use crate::cluster::node::NodeView;
use crate::controller::leader_loop::PassResult;
use crate::controller::writer::{Write, Writer};

/// How long a list of pods may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the pods of others on a node are read: hundreds of nodes may join at a time.
const OTHERS_EVERY: Duration = Duration::from_secs(15);

/// The pods that pull, with what is remembered between passes.
pub struct PullerPods {
    account: PullerAccount,
    writer: Writer,
    settings: StartupSettings,
    /// Why the last pod of a policy could not be created, by policy.
    refused: BTreeMap<String, ApiError>,
    /// When a node was last asked whether other pods pull there, and the answer, by uid.
    busy: BTreeMap<String, (Instant, bool)>,
    /// When the pods of others on a node were last read, and what they show about images, by uid of the node.
    others: BTreeMap<String, (Instant, BTreeMap<String, PullProgress>)>,
    /// Whether pods may be left, of this leader or of another one.
    may_be_left: bool,
}

/// A pod that was to be created.
struct Attempt<'p> {
    new: &'p NewPuller<'p>,
    is_busy: bool,
    /// `None` if its node is busy.
    written: Option<Result<(), ApiError>>,
}

impl PullerPods {
    /// Nothing is known about the pods yet.
    pub fn new(account: PullerAccount, writer: Writer, settings: StartupSettings) -> Self {
        PullerPods {
            account,
            writer,
            settings,
            refused: BTreeMap::new(),
            busy: BTreeMap::new(),
            others: BTreeMap::new(),
            may_be_left: true,
        }
    }

    /// Forgets everything: another leader may create and delete pods.
    pub fn lost(&mut self) {
        self.refused.clear();
        self.busy.clear();
        self.others.clear();
        self.may_be_left = true;
    }

    /// Whether this installation may create pods.
    pub fn is_allowed(&self) -> bool {
        self.account.name.is_some()
    }

    /// Why the last pod of a policy could not be created.
    pub fn refused(&self, policy: &str) -> Option<&ApiError> {
        self.refused.get(policy)
    }

    /// The stored pods; `None` if they cannot be read, or none can be left and none is needed. `waiting`: the policies whose
    /// nodes wait for pods; failures of others are of the past.
    pub async fn list(
        &mut self,
        waiting: &BTreeSet<&str>,
        result: &mut PassResult,
    ) -> Option<Vec<PullerPod>> {
        self.refused.retain(|policy, _| waiting.contains(&**policy));
        let is_needed = self.is_allowed() && !waiting.is_empty();
        if !self.may_be_left && !is_needed {
            return None;
        }
        let listing = Listing::new(Pod::url_path(&(), Some(&self.account.namespace)));
        match self.list_pods(listing.with_labels(PULLER_SELECTOR)).await {
            Ok(pods) => {
                self.may_be_left = !pods.is_empty();
                Some(pods.into_iter().map(PullerPod::of).collect())
            }
            // Most installations never create one.
            Err(ApiError::Forbidden(_)) if !self.is_allowed() => {
                self.may_be_left = false;
                None
            }
            Err(error) => {
                result.fail("list the pods that pull images".to_owned(), &error);
                None
            }
        }
    }

    /// What the pods of others on a node show about images, by reference in canonical form, as far as they were read.
    pub fn shown_on(&self, node: &NodeView) -> BTreeMap<String, PullProgress> {
        let known = self.others.get(&node.uid);
        known.map(|(_, shown)| shown.clone()).unwrap_or_default()
    }

    /// Reads the pods on these nodes, for which another program pulls: the node that was not read for the longest time comes first.
    /// Begins no list after `until`, except for the first ones.
    pub async fn read_others(&mut self, nodes: &[&NodeView], until: Instant, result: &mut PassResult) {
        let uids: BTreeSet<&str> = nodes.iter().map(|node| &*node.uid).collect();
        self.others.retain(|uid, _| uids.contains(&**uid));
        let last = |node: &NodeView| self.others.get(&node.uid).map(|(at, _)| *at);
        let is_due = |node: &&&NodeView| last(node).is_none_or(|at| at.elapsed() >= OTHERS_EVERY);
        let mut due: Vec<&NodeView> = nodes.iter().filter(is_due).copied().collect();
        due.sort_by_key(|node| last(node));
        for (number, some) in due.chunks(self.settings.in_flight.max(1)).enumerate() {
            if number > 0 && Instant::now() >= until {
                break;
            }
            let lists = join_all(some.iter().map(|node| self.list_on(&node.name))).await;
            for (node, pods) in some.iter().zip(lists) {
                let known = self.others.entry(node.uid.clone());
                let known = known.or_insert_with(|| (Instant::now(), BTreeMap::new()));
                known.0 = Instant::now();
                match pods {
                    Ok(pods) => known.1 = shown_by(&pods),
                    Err(error) => result.fail("list the pods on new nodes".to_owned(), &error),
                }
            }
        }
    }

    /// All pods on a node.
    async fn list_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        let on_node = format!("spec.nodeName={node}");
        let listing = Listing::new(Pod::url_path(&(), None));
        self.list_pods(listing.with_fields(&on_node)).await
    }

    /// A short list of pods.
    async fn list_pods(&self, listing: Listing) -> Result<Vec<Pod>, ApiError> {
        let pods = timeout(PATIENCE, collect::<Pod>(&self.writer.client, listing)).await;
        pods.unwrap_or_else(|_| Err(ApiError::Other("the API server does not answer".to_owned())))
    }

    /// Deletes and creates pods; begins no write after `until`, except for the first ones. Returns whether any are left.
    pub async fn write(
        &mut self,
        plan: &GatePlan<'_>,
        now: Timestamp,
        until: Instant,
        result: &mut PassResult,
    ) -> bool {
        let poll = self.settings.poll;
        self.busy.retain(|_, (asked, _)| asked.elapsed() < poll);
        let (deleted, created) = tokio::join!(
            self.delete(&plan.deleted, until),
            self.create(&plan.created, now, until)
        );
        let is_left =
            deleted.len() < plan.deleted.len() || (self.is_allowed() && created.len() < plan.created.len());
        for (pod, written) in deleted {
            if !self.is_allowed() && matches!(written, Err(ApiError::Forbidden(_))) {
                // Their deadline ends them, and they are deleted with their nodes.
                self.may_be_left = false;
            }
            let task = || format!("delete the Pod {}/{}", self.account.namespace, pod.name);
            result.record(task, written);
        }
        self.may_be_left |= !created.is_empty();
        for attempt in &created {
            let asked = self.busy.entry(attempt.new.node.uid.clone());
            asked.or_insert((Instant::now(), attempt.is_busy));
            if matches!(attempt.written, Some(Ok(()))) {
                self.refused.remove(attempt.new.policy);
            }
        }
        for Attempt { new, written, .. } in created {
            let Some(written) = written else { continue };
            if let Some(error) = written.as_ref().err().filter(|why| **why != ApiError::Conflict) {
                self.refused.insert(new.policy.to_owned(), error.clone());
            }
            let task = || format!("create the pod that pulls images on node {}", new.node.name);
            result.record(task, written);
        }
        is_left
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.writer.client.clone(), &self.account.namespace)
    }

    async fn delete<'p>(
        &self,
        pods: &[&'p PullerPod],
        until: Instant,
    ) -> Vec<(&'p PullerPod, Result<(), ApiError>)> {
        let mut deleted = Vec::new();
        for some in pods.chunks(self.settings.in_flight.max(1)) {
            if !deleted.is_empty() && Instant::now() >= until {
                break;
            }
            deleted.extend(join_all(some.iter().map(|pod| self.delete_one(pod))).await);
        }
        deleted
    }

    async fn delete_one<'p>(&self, pod: &'p PullerPod) -> (&'p PullerPod, Result<(), ApiError>) {
        let delete = Write::Delete {
            name: pod.name.clone(),
            uid: Some(pod.uid.clone()),
            version: None,
        };
        (pod, self.writer.write(&self.api(), &delete).await.map(drop))
    }

    async fn create<'p>(
        &self,
        pods: &'p [NewPuller<'p>],
        now: Timestamp,
        until: Instant,
    ) -> Vec<Attempt<'p>> {
        let Some(account) = self.account.name.as_deref() else {
            return Vec::new();
        };
        let mut attempts = Vec::new();
        for some in pods.chunks(self.settings.in_flight.max(1)) {
            if !attempts.is_empty() && Instant::now() >= until {
                break;
            }
            let some = some.iter().map(|new| self.attempt(new, account, now));
            attempts.extend(join_all(some).await);
        }
        attempts
    }

    async fn attempt<'p>(&self, new: &'p NewPuller<'p>, account: &str, now: Timestamp) -> Attempt<'p> {
        let is_busy = match self.busy.get(&new.node.uid) {
            Some((_, is_busy)) => *is_busy,
            None => self.is_busy(new, now).await,
        };
        let mut written = None;
        if !is_busy {
            let pod = puller_pod(new, &self.account.namespace, account, now);
            let create = Write::Create(pod);
            written = Some(self.writer.write(&self.api(), &create).await.map(drop));
        }
        Attempt {
            new,
            is_busy,
            written,
        }
    }

    /// Whether pods on a node still pull, such as those of DaemonSets: theirs come first, for half of the timeout at most.
    async fn is_busy(&self, new: &NewPuller<'_>, now: Timestamp) -> bool {
        let half = new.startup.timeout() / 2;
        if new.deadline.saturating_sub(half).is_ok_and(|half| now >= half) {
            return false;
        }
        let pods = self.list_on(&new.node.name).await;
        pods.is_ok_and(|pods| pods.iter().any(|pod| is_pulling(pod, now)))
    }
}
