//! A cluster before and after its nodes get other taints: which nodes the pods of an object lose, each time as placement
//! places them on the cluster of that time.

use std::collections::HashMap;

use super::scheduling::{AdmissionStage, PodsToSchedule};
use crate::model::cluster::facts::{Facts, hash_of};
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::{Host, LABELS_OF_ONE_NODE, Taint};
use crate::model::objects::object::Object;
use crate::model::windows::os::Inference;

/// The same nodes with their taints before and after a change.
pub struct TaintChange {
    before: Facts,
    after: Facts,
    /// One of each group of nodes that are equivalent before and after.
    representatives: Vec<usize>,
    /// The taints that any node gains.
    gained: Vec<Taint>,
}

/// The cluster with these taints on its nodes.
fn with_taints(facts: &Facts, taints: impl Fn(&Host) -> Vec<Taint>) -> Facts {
    let mut changed = facts.clone();
    let with_taints = |host: &Host| Host {
        taints: if host.may_be_at_zero {
            host.taints.clone()
        } else {
            taints(host)
        },
        planned_taints: None,
        ..host.clone()
    };
    let hosts: Vec<Host> = facts.hosts().iter().map(with_taints).collect();
    changed.replace_hosts(hosts);
    changed
}

/// A node that the pods of an object lose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostNode {
    pub name: String,
    /// The taints that keep the pods off it now.
    pub taints: Vec<Taint>,
}

impl TaintChange {
    /// The nodes of `facts`, with the taints that `before` and `after` give each of them. `group`: nodes of different
    /// groups are reported separately, even if they are equivalent.
    pub fn new(
        facts: &Facts,
        before: impl Fn(&Host) -> Vec<Taint>,
        after: impl Fn(&Host) -> Vec<Taint>,
        group: impl Fn(&Host) -> usize,
    ) -> Self {
        let (before, after) = (with_taints(facts, before), with_taints(facts, after));
        let mut representatives: Vec<usize> = Vec::new();
        let mut by_hash: HashMap<(u64, u64, usize), Vec<usize>> = HashMap::new();
        let mut gained: Vec<Taint> = Vec::new();
        for (index, (old, new)) in before.hosts().iter().zip(after.hosts()).enumerate() {
            if old.may_be_at_zero {
                continue;
            }
            for taint in new.taints.iter().filter(|taint| !old.taints.contains(taint)) {
                if !gained.contains(taint) {
                    gained.push(taint.clone());
                }
            }
            let alike = by_hash
                .entry((hash_of(old), hash_of(new), group(old)))
                .or_default();
            let is_known = |other: &&usize| {
                let is_alike =
                    |hosts: &[Host], host: &Host| hosts.get(**other).is_some_and(|it| it.is_alike(host));
                is_alike(before.hosts(), old) && is_alike(after.hosts(), new)
            };
            if !alike.iter().any(|other| is_known(&other)) {
                alike.push(index);
                representatives.push(index);
            }
        }
        TaintChange {
            before,
            after,
            representatives,
            gained,
        }
    }

    /// The taints that any node gains.
    pub fn gained(&self) -> &[Taint] {
        &self.gained
    }

    /// The facts before the change.
    pub fn before(&self) -> &Facts {
        &self.before
    }

    /// The nodes that run the pods of an object, and that the scheduler puts them on before and no longer afterwards;
    /// one of each group. If the builds of its images are unknown, every node counts.
    pub fn lost(
        &self,
        subject: &Object<'_>,
        inference: &Inference,
        policy: &Policy,
        admission: AdmissionStage,
    ) -> Vec<LostNode> {
        let pods = PodsToSchedule {
            subject,
            inference,
            policy,
            admission,
        };
        let had = pods.visit(&self.before, |cx| {
            let reach = cx.reach();
            let names_nodes = reach.constraints().name_any(&LABELS_OF_ONE_NODE);
            let is_feasible =
                |at: &usize| (self.before.hosts().get(*at)).is_some_and(|host| reach.runs_on(host));
            self.indexes(names_nodes).filter(is_feasible).collect()
        });
        let had: Vec<usize> = had.unwrap_or_default();
        if had.is_empty() {
            return Vec::new();
        }
        let lost = pods.visit(&self.after, |cx| {
            let reach = cx.reach();
            let hosts = had.iter().filter_map(|at| self.after.hosts().get(*at));
            let lost = hosts.filter(|host| !reach.runs_on(host));
            lost.map(|host| LostNode {
                name: host.name.clone(),
                taints: reach
                    .constraints()
                    .untolerated_lasting(&host.taints)
                    .cloned()
                    .collect(),
            })
            .collect()
        });
        lost.unwrap_or_default()
    }

    fn indexes(&self, each: bool) -> Box<dyn Iterator<Item = usize> + '_> {
        if each {
            let nodes = self.before.hosts().iter().enumerate();
            Box::new(
                nodes
                    .filter(|(_, host)| !host.may_be_at_zero)
                    .map(|(index, _)| index),
            )
        } else {
            Box::new(self.representatives.iter().copied())
        }
    }
}
