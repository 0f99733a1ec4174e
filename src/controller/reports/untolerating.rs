//! The stored DaemonSets that do not tolerate the taints that node policies require. Without IO.

use std::collections::BTreeMap;

use super::owner_index::ByPolicy;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::StoredObject;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::list;
use crate::scan::{EvalContext, LackingTaints, RequiredTaints};

/// How many are kept at most.
const MOST: usize = 1_000;

/// The DaemonSets that do not tolerate required taints, by uid.
#[derive(Debug, Default)]
pub struct UntoleratingDaemonSets {
    /// What nodes lack.
    required: LackingTaints,
    found: BTreeMap<String, UntoleratingDaemonSet>,
}

#[derive(Debug)]
struct UntoleratingDaemonSet {
    kind: Kind,
    /// The pass that saw it.
    pass: u64,
    /// As in `shop/agent`.
    name: String,
    lacking: LackingTaints,
}

impl UntoleratingDaemonSets {
    /// Takes what node policies require now; returns whether nodes lack other taints than before.
    pub fn require(&mut self, snapshot: &Snapshot) -> bool {
        let required = RequiredTaints::of(snapshot).lacking();
        let differs = required != self.required;
        self.required = required;
        differs
    }

    /// Records a DaemonSet of a kind, in a pass.
    pub fn record(
        &mut self,
        snapshot: &Snapshot,
        context: &EvalContext<'_>,
        (kind, pass): (Kind, u64),
        object: &StoredObject,
    ) {
        let head = object.head();
        self.found.remove(&*head.uid);
        let Ok(subject) = Object::parse(kind, object.json(), ReviewStage::Stored) else {
            return;
        };
        let lacking = RequiredTaints::of(snapshot).untolerated(context, &subject);
        if !lacking.is_empty() && self.found.len() < MOST {
            let name = format!("{}/{}", head.namespace, head.name);
            let found = UntoleratingDaemonSet {
                kind,
                pass,
                name,
                lacking,
            };
            self.found.insert(head.uid.to_string(), found);
        }
    }

    /// Forgets one that is gone.
    pub fn remove(&mut self, uid: &str) {
        self.found.remove(uid);
    }

    /// A pass of a kind has read everything.
    pub fn end_pass(&mut self, kind: Kind, pass: u64) {
        self.found
            .retain(|_, found| found.kind != kind || found.pass >= pass);
    }

    /// By node policy, each with its taints.
    pub fn by_policy(&self) -> ByPolicy {
        let mut all = ByPolicy::new();
        for found in self.found.values() {
            for (policy, taints) in &found.lacking {
                let taints = list(taints.iter().map(ToString::to_string), 3);
                let text = format!("{} ({taints})", found.name);
                all.entry(policy.clone()).or_default().insert(text);
            }
        }
        all
    }
}
