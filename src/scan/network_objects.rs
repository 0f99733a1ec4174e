//! What NetworkPolicies are evaluated with: the Windows workloads among the stored objects, and the DaemonSets of network
//! engines. Pure.

use std::collections::{BTreeSet, HashMap};

use crate::model::cluster::facts::{Facts, WindowsWorkload};
use crate::model::cluster::network_policy_engine::{Enforcement, is_engine};
use crate::model::objects::workload::Kind;

/// How many objects are kept at most. Policies that select only further workloads have no finding.
const MOST: usize = 20_000;
/// The bytes of labels and claims that are kept at most, of all objects and of one: whoever writes a template decides how many
/// it has.
const MOST_BYTES: usize = 8 << 20;
const MOST_BYTES_OF_ONE: usize = 64 << 10;

/// The kind, namespace and name of an object.
type ObjectKey = (Kind, String, String);

/// The objects that matter for NetworkPolicies.
#[derive(Debug, Default)]
pub struct NetworkObjects {
    objects: HashMap<ObjectKey, NetworkObject>,
    /// The bytes of their labels and claims.
    bytes: usize,
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
        let bytes = bytes_of(workload.as_ref());
        let before = self.objects.get(&key);
        let others = self.bytes - before.map_or(0, |before| bytes_of(before.workload.as_ref()));
        let has_room = before.is_some() || self.objects.len() < MOST;
        if !has_room || bytes > MOST_BYTES_OF_ONE || others + bytes > MOST_BYTES {
            return self.remove(kind, namespace, name);
        }
        let is_known = before.is_some_and(|before| before.workload == workload);
        self.bytes = others + bytes;
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
        let known = self.objects.remove(&key);
        let Some(known) = known else { return false };
        self.bytes -= bytes_of(known.workload.as_ref());
        self.facts = None;
        true
    }

    /// Forgets the objects of a kind that a complete pass did not see; returns their namespaces.
    pub fn end_pass(&mut self, kind: Kind, pass: u64) -> BTreeSet<String> {
        let is_gone = |key: &ObjectKey, object: &mut NetworkObject| key.0 == kind && object.pass < pass;
        let mut gone = BTreeSet::new();
        for ((_, namespace, _), object) in self.objects.extract_if(is_gone) {
            self.bytes -= bytes_of(object.workload.as_ref());
            gone.insert(namespace);
        }
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

/// The bytes of the labels and claims of a workload.
fn bytes_of(workload: Option<&WindowsWorkload>) -> usize {
    let Some(workload) = workload else { return 0 };
    let labels = workload.labels.iter().map(|(key, value)| key.len() + value.len());
    let claims = workload
        .claims
        .iter()
        .chain(&workload.claim_prefixes)
        .map(String::len);
    labels.chain(claims).sum()
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

    #[test]
    fn what_one_template_can_take_and_all_of_them_is_bounded() {
        let labelled = |name: &str, bytes: usize| {
            let labels = [("a".to_owned(), "x".repeat(bytes))].into();
            Some(WindowsWorkload {
                labels,
                ..workload(name)
            })
        };
        let mut objects = NetworkObjects::default();
        let mut record = |name: &str, bytes: usize| {
            let is_new = objects.record(Kind::Deployment, "shop", name, labelled(name, bytes), 1);
            (is_new, objects.bytes)
        };
        assert_eq!(record("large", MOST_BYTES_OF_ONE), (false, 0));
        for at in 0..1_000 {
            record(&at.to_string(), MOST_BYTES_OF_ONE - 1);
        }
        assert_eq!(record("one-more", MOST_BYTES_OF_ONE - 1), (false, MOST_BYTES));
        assert_eq!(record("0", 9).1, MOST_BYTES - MOST_BYTES_OF_ONE + 10);
        assert_eq!(objects.end_pass(Kind::Deployment, 2).len(), 1);
        assert_eq!(objects.bytes, 0);
    }
}
