//! What the leader knows of stored objects and their reports. Without IO.

use std::collections::{BTreeSet, HashMap};

use super::evaluator::{Evaluator, ObjectEvaluation};
use super::health::ReportHealth;
use super::invalidation::Invalidation;
use super::owner_index::OwnerIndex;
use super::stored_images::StoredImages;
use super::stuck_pods::StuckPods;
use super::untolerating::UntoleratingDaemonSets;
use super::write_queue::ObservationSource;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::{ObjectHeadMeta, StoredObject};
use crate::model::objects::workload::Kind;
use crate::scan::{EvalContext, NetworkObjects, OwnerResult};

/// The state of a leader, from the first list on.
pub struct ReportsState {
    /// The custom resources that the cluster serves, with the paths of their lists.
    pub custom: Vec<(Kind, String)>,
    pub evaluator: Evaluator,
    /// What NetworkPolicies are evaluated with.
    network: NetworkObjects,
    /// The images of objects, and the facts that were used.
    pub images: StoredImages,
    /// What reports should contain, and what is stored.
    pub index: OwnerIndex,
    /// Pods that may be stuck.
    pub stuck: StuckPods,
    /// What to list again of each kind, because an object that represented others is gone, or because the template of an
    /// owner became known after its pods.
    rereads: HashMap<Kind, Invalidation>,
    /// What to list again of every kind, because policies or facts have changed.
    pub invalid: Invalidation,
    pub health: ReportHealth,
    /// The DaemonSets that do not tolerate required taints.
    pub untolerating: UntoleratingDaemonSets,
}

impl ReportsState {
    /// Nothing is known yet but the custom resources that the cluster serves, and an image service.
    pub fn new(custom: Vec<(Kind, String)>, images: StoredImages) -> Self {
        ReportsState {
            custom,
            evaluator: Evaluator::default(),
            network: NetworkObjects::default(),
            images,
            index: OwnerIndex::default(),
            stuck: StuckPods::default(),
            rereads: HashMap::new(),
            invalid: Invalidation::None,
            health: ReportHealth::default(),
            untolerating: UntoleratingDaemonSets::default(),
        }
    }

    /// Lists the DaemonSets again if node policies require other taints that nodes lack.
    pub fn require(&mut self, snapshot: &Snapshot) {
        if self.untolerating.require(snapshot) {
            for kind in [Kind::DaemonSet, Kind::AdvancedDaemonSet] {
                self.list_again(kind, Invalidation::All);
            }
        }
    }

    /// Evaluates an object and records the result; returns it if the object is a top-level owner.
    pub fn observe(
        &mut self,
        snapshot: &Snapshot,
        kind: Kind,
        object: &StoredObject,
        source: ObservationSource,
    ) -> Option<Box<OwnerResult>> {
        let context = EvalContext::of(snapshot).listing(&self.custom);
        let head = object.head();
        let facts = if kind == Kind::NetworkPolicy {
            // The list of DaemonSets shows whether there is an engine that enforces it.
            let are_engines_known = self.index.is_listed(Kind::DaemonSet);
            let facts = self.network.added_to(&snapshot.facts);
            facts.filter(|_| are_engines_known)
        } else {
            Some(&snapshot.facts)
        };
        let evaluated = facts.map(|facts| {
            let (context, images) = (context.with_facts(facts), &mut self.images);
            self.evaluator.evaluate(&context, images, kind, object.json())
        });
        if kind.is_daemon_set() {
            let pass = self.index.pass(kind);
            self.untolerating.record(snapshot, &context, (kind, pass), object);
        }
        let (evaluation, stuck) = evaluated.unwrap_or((ObjectEvaluation::Skipped, None));
        let rereads = self.evaluator.take_rereads();
        self.list_again(Kind::Pod, rereads);
        if kind == Kind::Pod {
            self.stuck.record(&head.uid, stuck);
        }
        let recorded = self.index.record(kind, &head, &evaluation, source);
        if recorded.has_freed {
            self.list_again(kind, Invalidation::None.with(head.namespace.to_string()));
        }
        let workload = match &evaluation {
            ObjectEvaluation::Owner(_, _, workload) if recorded.is_representative => workload.clone(),
            _ => None,
        };
        let pass = self.index.pass(kind);
        if self
            .network
            .record(kind, &head.namespace, &head.name, workload, pass)
        {
            self.network_changed(kind, [head.namespace.to_string()].into());
        }
        match evaluation {
            ObjectEvaluation::Owner(owner, ..) => Some(owner),
            ObjectEvaluation::Unreadable(why) if recorded.is_newly_unreadable => {
                let ObjectHeadMeta { namespace, name, .. } = &head;
                tracing::warn!("cannot read the stored {kind} {namespace}/{name}, which is skipped: {why}");
                None
            }
            _ => None,
        }
    }

    /// Forgets an object that was deleted.
    pub fn deleted(&mut self, kind: Kind, object: &StoredObject) {
        let head = object.head();
        self.stuck.record(&head.uid, None);
        self.untolerating.remove(&head.uid);
        self.evaluator.forget(kind, &head.namespace, &head.name);
        if self.network.remove(kind, &head.namespace, &head.name) {
            self.network_changed(kind, [head.namespace.to_string()].into());
        }
        if self.index.gone(&head.uid) {
            self.list_again(kind, Invalidation::None.with(head.namespace.to_string()));
        }
    }

    /// A kind was listed to its end.
    pub fn listed(&mut self, kind: Kind) {
        let is_first = !self.index.is_listed(kind);
        let freed = self.index.end_pass(kind).into_iter();
        self.list_again(kind, freed.fold(Invalidation::None, Invalidation::with));
        self.untolerating.end_pass(kind, self.index.pass(kind));
        let gone = self.network.end_pass(kind, self.index.pass(kind));
        if !gone.is_empty() || (is_first && kind == Kind::DaemonSet) {
            self.network_changed(kind, gone);
        }
    }

    /// Objects of these namespaces have changed with which NetworkPolicies are evaluated. A DaemonSet may be that of an
    /// engine, which concerns every namespace.
    fn network_changed(&mut self, kind: Kind, namespaces: BTreeSet<String>) {
        // Their first list is still to come, after those of all other kinds.
        if self.index.pass(Kind::NetworkPolicy) == 0 {
            return;
        }
        let invalid = match kind {
            Kind::DaemonSet => Invalidation::All,
            _ => namespaces
                .into_iter()
                .fold(Invalidation::None, Invalidation::with),
        };
        self.list_again(Kind::NetworkPolicy, invalid);
    }

    fn list_again(&mut self, kind: Kind, more: Invalidation) {
        if more != Invalidation::None {
            let wanted = self.rereads.entry(kind).or_default();
            *wanted = std::mem::take(wanted).and(more);
        }
    }

    /// Takes what to list again of these kinds, in their order.
    pub fn take_rereads(&mut self, kinds: impl Iterator<Item = Kind>) -> Vec<(Kind, Invalidation)> {
        let invalid = std::mem::take(&mut self.invalid);
        let mut wanted = |kind| {
            let wanted = self.rereads.remove(&kind).unwrap_or_default();
            (kind, wanted.and(invalid.clone()))
        };
        kinds.map(&mut wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn what_is_to_be_listed_again_is_taken_together() {
        let shop = || Invalidation::None.with("shop".to_owned());
        let mut state = ReportsState::new(Vec::new(), StoredImages::new(None, Instant::now()));
        state.list_again(Kind::Pod, shop());
        state.list_again(Kind::Pod, Invalidation::None);
        state.invalid = Invalidation::None.with("web".to_owned());
        let mut take = || state.take_rereads([Kind::Job, Kind::Pod].into_iter());
        let web = Invalidation::None.with("web".to_owned());
        assert_eq!(take(), [(Kind::Job, web.clone()), (Kind::Pod, web.and(shop()))]);
        assert_eq!(
            take(),
            [(Kind::Job, Invalidation::None), (Kind::Pod, Invalidation::None)]
        );
    }
}
