//! The inputs of the evaluation of stored objects, and which objects to evaluate again when they change. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::snapshot::Snapshot;

/// With more namespaces than this all objects are read again: one list costs less than this many.
const MOST_NAMESPACES: usize = 20;
/// The least time between two rescans because the cluster has changed.
const OFTEN: Duration = Duration::from_secs(60);
/// The least time if nodes were only replaced by equivalent ones: few findings depend on a node's name.
const SELDOM: Duration = Duration::from_secs(600);

/// Which objects to evaluate again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Invalidation {
    #[default]
    None,
    /// Those in these namespaces.
    In(BTreeSet<String>),
    All,
}

impl Invalidation {
    /// Adds a namespace to what is listed again.
    #[must_use]
    pub fn with(self, namespace: String) -> Invalidation {
        self.and(Invalidation::In([namespace].into()))
    }

    /// The union of both.
    #[must_use]
    pub fn and(self, other: Invalidation) -> Invalidation {
        match (self, other) {
            (Invalidation::All, _) | (_, Invalidation::All) => Invalidation::All,
            (Invalidation::None, other) | (other, Invalidation::None) => other,
            (Invalidation::In(mut all), Invalidation::In(more)) => {
                all.extend(more);
                if all.len() > MOST_NAMESPACES {
                    Invalidation::All
                } else {
                    Invalidation::In(all)
                }
            }
        }
    }
}

/// Which objects are affected by changes of policies or namespaces between two snapshots.
pub fn changed(before: &Snapshot, now: &Snapshot) -> Invalidation {
    if before.policies != now.policies
        || before.registered != now.registered
        || before.excluded != now.excluded
    {
        return Invalidation::All;
    }
    let (old, new) = (&before.facts.namespaces, &now.facts.namespaces);
    if Arc::ptr_eq(old, new) {
        return Invalidation::None;
    }
    // A namespace that is gone has no objects to evaluate.
    let differing = new.iter().filter(|(name, facts)| old.get(*name) != Some(*facts));
    differing.fold(Invalidation::None, |anew, (name, _)| {
        anew.and(Invalidation::In([name.clone()].into()))
    })
}

/// The snapshot that the last full evaluation used. Nodes change all the time, and not every change causes a rescan.
#[derive(Debug)]
pub struct EvalInputs {
    evaluated_with: Arc<Snapshot>,
    since: Instant,
}

impl EvalInputs {
    /// Everything is evaluated with this snapshot from now on.
    pub fn new(evaluated_with: Arc<Snapshot>, since: Instant) -> Self {
        EvalInputs {
            evaluated_with,
            since,
        }
    }

    /// Whether all objects must be evaluated again with this snapshot; if so, it becomes the new reference.
    pub fn has_changed(&mut self, known: &Arc<Snapshot>, now: Instant) -> bool {
        let since = now.duration_since(self.since);
        if since < OFTEN || Arc::ptr_eq(&self.evaluated_with, known) {
            return false;
        }
        let (before, facts) = (&self.evaluated_with.facts, &known.facts);
        let is_other = !before.evaluates_as(facts) || (since >= SELDOM && before.hosts() != facts.hosts());
        if is_other {
            *self = EvalInputs::new(Arc::clone(known), now);
        }
        is_other
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::civil::date;

    use super::*;
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::facts::{Facts, NamespaceFacts};
    use crate::model::cluster::policy::Policy;
    use crate::model::nodes::node::{Host, Taint};

    fn snapshot(namespaces: &[(&str, &str)], policy: Policy) -> Snapshot {
        let mut facts = Facts::new(36, date(2026, 1, 1));
        let namespaces = namespaces.iter().map(|(name, team)| {
            let labels = BTreeMap::from([("team".to_owned(), (*team).to_owned())]);
            let namespace = NamespaceFacts {
                labels,
                ..NamespaceFacts::default()
            };
            ((*name).to_owned(), namespace)
        });
        facts.namespaces = Arc::new(namespaces.collect());
        Snapshot::of_files(facts, PolicySet::new(Vec::new(), policy))
    }

    #[test]
    fn what_was_evaluated_by_something_else_is_evaluated_again_and_nothing_besides() {
        let policy = Policy::cluster_default;
        let before = snapshot(&[("a", "x"), ("b", "x")], policy());
        let anew = |namespaces: &[(&str, &str)], policy| changed(&before, &snapshot(namespaces, policy));
        assert_eq!(anew(&[("a", "x"), ("b", "x")], policy()), Invalidation::None);
        assert_eq!(anew(&[("a", "x")], policy()), Invalidation::None, "it is gone");
        let two = Invalidation::In(["b".to_owned(), "c".to_owned()].into());
        assert_eq!(anew(&[("a", "x"), ("b", "y"), ("c", "x")], policy()), two);
        let mut other = policy();
        other.name = "other".to_owned();
        assert_eq!(anew(&[("a", "x"), ("b", "x")], other), Invalidation::All);
    }

    #[tokio::test(start_paused = true)]
    async fn another_day_is_evaluated_again_but_nodes_that_come_and_go_only_now_and_then() {
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let before = snapshot(&[], Policy::cluster_default());
        let with = |name: &str, taints: &[&str]| {
            let mut snapshot = before.clone();
            let taints = taints.iter().map(|key| Taint {
                key: (*key).to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            });
            snapshot.facts.add_host(Host {
                name: name.to_owned(),
                taints: taints.collect(),
                ..Host::default()
            });
            Arc::new(snapshot)
        };
        let mut ground = EvalInputs::new(with("w1", &[]), at(0));
        assert!(!ground.has_changed(&with("w2", &[]), at(61)), "of the same sort");
        assert!(!ground.has_changed(&with("w1", &["os"]), at(59)), "too soon");
        assert!(ground.has_changed(&with("w1", &["os"]), at(61)));
        assert!(
            !ground.has_changed(&with("w1", &["os"]), at(122)),
            "it is judged by that"
        );
        assert!(ground.has_changed(&with("w2", &["os"]), at(700)), "by and by");
        let mut tomorrow = (*with("w2", &["os"])).clone();
        tomorrow.facts.today = date(2026, 1, 2);
        let tomorrow = Arc::new(tomorrow);
        assert!(
            ground.has_changed(&tomorrow, at(800)),
            "exemptions end by the day"
        );
    }

    #[test]
    fn many_namespaces_are_all() {
        let one = |n: usize| Invalidation::In([n.to_string()].into());
        let all = (0..30).map(one).fold(Invalidation::None, Invalidation::and);
        assert_eq!(all, Invalidation::All);
    }
}
