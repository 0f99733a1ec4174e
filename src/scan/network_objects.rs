//! What NetworkPolicies are evaluated with: the Windows workloads among the stored objects, and the DaemonSets of network
//! engines. Pure.

use std::collections::{BTreeSet, HashMap};

use crate::model::facts::{Facts, WindowsWorkload};
use crate::model::policy_engine::{Enforcement, is_engine};
use crate::model::workload::Kind;

/// How many objects are kept at most. Policies that select only further workloads have no finding.
const MOST: usize = 20_000;

/// The kind, namespace and name of an object.
type ObjectKey = (Kind, String, String);

/// The objects that matter for NetworkPolicies.
#[derive(Debug, Default)]
pub struct NetworkObjects {
    objects: HashMap<ObjectKey, NetworkObject>,
    /// The facts that were asked for last, and the same with these objects: a copy is expensive.
    facts: Option<(Facts, Option<Facts>)>,
}

#[derive(Debug)]
struct NetworkObject {
    /// `None` for the DaemonSet of an engine that does not run on Windows nodes.
    workload: Option<WindowsWorkload>,
    /// The last pass that saw it.
    pass: u64,
}

impl NetworkObjects {
    /// Records an object, with its workload if that is for Windows; returns whether this changes anything for
    /// NetworkPolicies.
    pub fn record(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        workload: Option<WindowsWorkload>,
        pass: u64,
    ) -> bool {
        let is_kept = workload.is_some() || (kind == Kind::DaemonSet && is_engine(name));
        if !is_kept {
            return self.remove(kind, namespace, name);
        }
        let key = (kind, namespace.to_owned(), name.to_owned());
        if self.objects.len() >= MOST && !self.objects.contains_key(&key) {
            return false;
        }
        let is_same = |before: &NetworkObject| before.workload == workload;
        let is_known = self.objects.get(&key).is_some_and(is_same);
        self.objects.insert(key, NetworkObject { workload, pass });
        if !is_known {
            self.facts = None;
        }
        !is_known
    }

    /// Forgets an object; returns whether it was known.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> bool {
        if self.objects.is_empty() {
            return false;
        }
        let key = (kind, namespace.to_owned(), name.to_owned());
        let is_known = self.objects.remove(&key).is_some();
        if is_known {
            self.facts = None;
        }
        is_known
    }

    /// Forgets the objects of a kind that a complete pass did not see; returns their namespaces.
    pub fn end_pass(&mut self, kind: Kind, pass: u64) -> BTreeSet<String> {
        let is_gone = |key: &ObjectKey, object: &mut NetworkObject| key.0 == kind && object.pass < pass;
        let gone = self.objects.extract_if(is_gone);
        let gone: BTreeSet<String> = gone.map(|((_, namespace, _), _)| namespace).collect();
        if !gone.is_empty() {
            self.facts = None;
        }
        gone
    }

    /// These facts with the objects; `None` if NetworkPolicies cannot have a finding, because there are no Windows workloads,
    /// or because something enforces NetworkPolicies for them, or may.
    pub fn added_to(&mut self, facts: &Facts) -> Option<&Facts> {
        let is_known = |(of, _): &(Facts, Option<Facts>)| of.shares_cluster(facts);
        if !self.facts.as_ref().is_some_and(is_known) {
            self.facts = Some((facts.clone(), self.copy(facts)));
        }
        self.facts.as_ref()?.1.as_ref()
    }

    fn copy(&self, facts: &Facts) -> Option<Facts> {
        let mut network = facts.network.clone();
        for (kind, namespace, name) in self.objects.keys() {
            if *kind == Kind::DaemonSet {
                network.add_daemon_set(namespace, name);
            }
        }
        let enforcement = network.enforcement(facts.platform(), facts.today);
        let workloads = self.objects.values();
        let mut workloads: Vec<WindowsWorkload> =
            workloads.filter_map(|object| object.workload.clone()).collect();
        if workloads.is_empty() || !matches!(enforcement, Enforcement::NotEnforced { .. }) {
            return None;
        }
        workloads.sort_by(|a, b| (&a.namespace, &a.kind, &a.name).cmp(&(&b.namespace, &b.kind, &b.name)));
        let mut facts = facts.clone();
        (facts.workloads, facts.network) = (workloads, network);
        Some(facts)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn workload(name: &str) -> WindowsWorkload {
        WindowsWorkload {
            namespace: "shop".to_owned(),
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
            ..WindowsWorkload::default()
        }
    }

    #[test]
    fn facts_have_the_workloads_if_nothing_enforces_policies_for_them() {
        let base = Facts::new(Facts::KUBERNETES, date(2026, 11, 1));
        let mut objects = NetworkObjects::default();
        let names = |objects: &mut NetworkObjects| -> Option<Vec<String>> {
            let facts = objects.added_to(&base)?;
            Some(facts.workloads.iter().map(|it| it.name.clone()).collect())
        };
        assert!(objects.record(Kind::DaemonSet, "kube-system", "cilium", None, 1));
        assert!(!objects.record(Kind::DaemonSet, "shop", "agent", None, 1));
        assert_eq!(names(&mut objects), None, "no Windows workload");
        for name in ["web", "db"] {
            assert!(objects.record(Kind::Deployment, "shop", name, Some(workload(name)), 1));
        }
        assert!(!objects.record(Kind::Deployment, "shop", "web", Some(workload("web")), 2));
        assert_eq!(names(&mut objects).unwrap(), ["db", "web"]);

        // Calico may run as a service of the nodes.
        assert!(objects.record(Kind::DaemonSet, "calico-system", "calico-node", None, 1));
        assert_eq!(names(&mut objects), None);
        assert!(objects.remove(Kind::DaemonSet, "calico-system", "calico-node"));
        assert!(names(&mut objects).is_some());

        // What a pass did not see is gone, and what is no longer for Windows.
        assert_eq!(objects.end_pass(Kind::Deployment, 2), ["shop".to_owned()].into());
        assert_eq!(names(&mut objects).unwrap(), ["web"]);
        assert!(objects.record(Kind::Deployment, "shop", "web", None, 2));
        assert_eq!(names(&mut objects), None);
    }
}
