//! What stored objects are judged by, and which of them are to be judged anew when it changes. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::snapshot::Snapshot;

/// With more namespaces than this everything is read anew: one list costs less than so many.
const MOST_NAMESPACES: usize = 20;

/// Which objects are to be judged anew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Anew {
    /// None.
    #[default]
    None,
    /// Those of these namespaces.
    In(BTreeSet<String>),
    /// All.
    All,
}

impl Anew {
    /// Both.
    #[must_use]
    pub fn and(self, other: Anew) -> Anew {
        match (self, other) {
            (Anew::All, _) | (_, Anew::All) => Anew::All,
            (Anew::None, other) | (other, Anew::None) => other,
            (Anew::In(mut all), Anew::In(more)) => {
                all.extend(more);
                if all.len() > MOST_NAMESPACES {
                    Anew::All
                } else {
                    Anew::In(all)
                }
            }
        }
    }
}

/// Which objects were judged by something else than what is known now.
pub fn changed(before: &Snapshot, now: &Snapshot) -> Anew {
    let mut same_namespaces = now.facts.clone();
    same_namespaces.namespaces = Arc::clone(&before.facts.namespaces);
    if before.policies != now.policies
        || before.registered != now.registered
        || before.excluded != now.excluded
        || before.facts != same_namespaces
    {
        return Anew::All;
    }
    let (old, new) = (&before.facts.namespaces, &now.facts.namespaces);
    if Arc::ptr_eq(old, new) {
        return Anew::None;
    }
    // Of a namespace that is gone nothing is there to be judged.
    let differing = new.iter().filter(|(name, facts)| old.get(*name) != Some(*facts));
    differing.fold(Anew::None, |anew, (name, _)| {
        anew.and(Anew::In([name.clone()].into()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::civil::date;

    use super::*;
    use crate::engine::effective::PolicySet;
    use crate::model::facts::{Facts, NamespaceFacts};
    use crate::model::policy::Policy;

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
    fn what_was_judged_by_something_else_is_judged_anew_and_nothing_besides() {
        let policy = Policy::cluster_default;
        let before = snapshot(&[("a", "x"), ("b", "x")], policy());
        let anew = |namespaces: &[(&str, &str)], policy| changed(&before, &snapshot(namespaces, policy));
        assert_eq!(anew(&[("a", "x"), ("b", "x")], policy()), Anew::None);
        assert_eq!(anew(&[("a", "x")], policy()), Anew::None, "it is gone");
        let two = Anew::In(["b".to_owned(), "c".to_owned()].into());
        assert_eq!(anew(&[("a", "x"), ("b", "y"), ("c", "x")], policy()), two);
        let mut other = policy();
        other.name = "other".to_owned();
        assert_eq!(anew(&[("a", "x"), ("b", "x")], other), Anew::All);
        let mut tomorrow = before.clone();
        tomorrow.facts.today = date(2026, 1, 2);
        assert_eq!(
            changed(&before, &tomorrow),
            Anew::All,
            "exemptions end by the day"
        );
    }

    #[test]
    fn many_namespaces_are_all() {
        let one = |n: usize| Anew::In([n.to_string()].into());
        let all = (0..30).map(one).fold(Anew::None, Anew::and);
        assert_eq!(all, Anew::All);
    }
}
