//! The effective policy: which stored policy applies to a namespace, what its labels may change, and which exemptions
//! are active.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Span;
use jiff::civil::Date;

use super::exemption::matches;
use super::namespace_labels::{self, EffectivePolicy, IgnoredLabel, NamespaceOverrides};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Exemption, ImageEvidence, Policy};
use crate::model::objects::label_selector::LabelSelector;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::string_enum::string_enum;

/// An exemption as written in a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatedExemption {
    pub exemption: Exemption,
    /// Users that it applies to; empty: every user.
    pub usernames: Vec<String>,
    /// Groups that it applies to; empty: every group.
    pub groups: Vec<String>,
    /// Namespaces that it applies to (`*` matches anything); empty: every namespace.
    pub namespaces: Vec<String>,
    /// The last day on which it applies, in UTC.
    pub expires: Date,
}

string_enum! {
    /// The state of an exemption on a day.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum ExemptionState {
        /// It applies, and its last day is far away.
        Active = "active",
        /// It applies, and its last day is within [`SOON`].
        Expiring = "expiring",
        /// It has expired.
        Expired = "expired",
    }
}

/// How many days before its last day an exemption is reported: enough time to renew it, or to fix what it exempts.
pub const SOON: i32 = 14;

impl DatedExemption {
    /// Its state on a day.
    pub fn state(&self, today: Date) -> ExemptionState {
        let soon = today.saturating_add(Span::new().days(SOON));
        match self.expires {
            last if last < today => ExemptionState::Expired,
            last if last <= soon => ExemptionState::Expiring,
            _ => ExemptionState::Active,
        }
    }
}

/// A stored policy: what it does, for which namespaces, and who is exempt until when.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredPolicy {
    /// What it does in its namespaces.
    pub policy: Policy,
    /// The highest applies; for equal priorities, the name that sorts first.
    pub priority: i32,
    /// The namespaces that it applies to.
    pub namespace_selector: LabelSelector,
    /// What namespace labels may change.
    pub overrides: NamespaceOverrides,
    /// Exemptions, active or not.
    pub exemptions: Vec<DatedExemption>,
}

impl StoredPolicy {
    /// A policy for every namespace that lets labels make it stricter.
    pub fn for_all(policy: Policy) -> Self {
        StoredPolicy {
            policy,
            priority: 0,
            namespace_selector: LabelSelector::default(),
            overrides: NamespaceOverrides::default(),
            exemptions: Vec::new(),
        }
    }
}

/// The user, the namespace and the date of a query.
#[derive(Clone, Copy, Debug)]
pub struct PolicyQuery<'q> {
    pub namespace: &'q str,
    /// The namespace's labels, if known.
    pub labels: Option<&'q BTreeMap<String, String>>,
    /// The user's name; empty if no user is known.
    pub user: &'q str,
    pub groups: &'q [Str<'q>],
    /// Today, in UTC.
    pub today: Date,
}

impl<'q> PolicyQuery<'q> {
    /// A query for a namespace if the user is unknown.
    pub fn without_user(namespace: &'q str, facts: &'q Facts) -> Self {
        PolicyQuery {
            namespace,
            labels: facts.namespaces.get(namespace).map(|known| &known.labels),
            user: "",
            groups: &[],
            today: facts.today,
        }
    }
}

/// The name of the policy for emergencies. It replaces no other policy: while it exists, the policies that apply deny nothing.
pub const BREAK_GLASS: &str = "break-glass";

/// Every stored policy, and the policy that applies if none matches.
#[derive(Clone, PartialEq, Debug)]
pub struct PolicySet {
    stored: Vec<Arc<StoredPolicy>>,
    fallback: StoredPolicy,
    /// [`BREAK_GLASS`], if it is stored.
    break_glass: Option<Arc<StoredPolicy>>,
}

impl PolicySet {
    /// The stored policies, and the policy for namespaces that none of them selects.
    pub fn new(stored: Vec<StoredPolicy>, fallback: Policy) -> Self {
        Self::of_shared(stored.into_iter().map(Arc::new).collect(), fallback)
    }

    /// The same with shared policies: a cluster can have a thousand, with a thousand exemptions each.
    pub fn of_shared(mut stored: Vec<Arc<StoredPolicy>>, fallback: Policy) -> Self {
        let break_glass = stored.iter().position(|stored| stored.policy.name == BREAK_GLASS);
        let break_glass = break_glass.map(|at| stored.remove(at));
        stored.sort_by(|a, b| {
            b.priority
                .cmp(&a.priority)
                .then_with(|| a.policy.name.cmp(&b.policy.name))
        });
        PolicySet {
            stored,
            fallback: StoredPolicy::for_all(fallback),
            break_glass,
        }
    }

    /// The stored policies, in order of precedence, without [`BREAK_GLASS`].
    pub fn stored(&self) -> &[Arc<StoredPolicy>] {
        &self.stored
    }

    /// [`BREAK_GLASS`], if it limits the policy of a namespace with these labels.
    pub fn break_glass_in(&self, labels: &BTreeMap<String, String>) -> Option<&StoredPolicy> {
        let break_glass = self.break_glass.as_deref();
        break_glass.filter(|stored| stored.namespace_selector.selects(labels))
    }

    /// The names of the stored policies that use what registries report of images.
    pub fn using_registries(&self) -> impl Iterator<Item = &str> {
        let policies = self.stored.iter().map(|stored| &stored.policy);
        policies
            .filter(|policy| policy.image_evidence == ImageEvidence::Registry)
            .map(|policy| &*policy.name)
    }

    /// The same policies, each with this change: to evaluate hypothetical settings.
    #[must_use]
    pub fn with(&self, change: impl Fn(&mut Policy)) -> Self {
        let mut changed = self.clone();
        for stored in &mut changed.stored {
            change(&mut Arc::make_mut(stored).policy);
        }
        change(&mut changed.fallback.policy);
        changed
    }

    /// The stored policy that applies to a namespace with these labels; `None` if the built-in one applies.
    pub fn selecting(&self, labels: &BTreeMap<String, String>) -> Option<&StoredPolicy> {
        let mut stored = self.stored.iter().map(Arc::as_ref);
        stored.find(|stored| stored.namespace_selector.selects(labels))
    }

    /// The policy that applies to a namespace with these labels, before its own labels and exemptions change it.
    pub fn policy_of(&self, labels: &BTreeMap<String, String>) -> &Policy {
        &self.selecting(labels).unwrap_or(&self.fallback).policy
    }

    /// The Transom labels that have no effect in a namespace with these labels. A label that a policy uses to select
    /// namespaces has an effect.
    pub fn ignored_labels(&self, labels: &BTreeMap<String, String>) -> Vec<IgnoredLabel> {
        let selecting = self.selecting(labels);
        let counts = selecting.unwrap_or(&self.fallback);
        let in_force = EffectivePolicy {
            policy: &counts.policy,
            overrides: counts.overrides,
            is_built_in: selecting.is_none(),
        };
        let mut ignored = namespace_labels::ignored(labels, &in_force);
        let selectors = || self.stored.iter().map(|stored| &stored.namespace_selector);
        ignored.retain(|label| !label.is_unknown || !selectors().any(|selector| selector.names(&label.key)));
        ignored
    }

    /// The effective policy in a namespace if the user is unknown.
    pub fn in_namespace(&self, namespace: &str, facts: &Facts) -> Cow<'_, Policy> {
        self.effective(&PolicyQuery::without_user(namespace, facts))
    }

    /// The effective policy for a user in a namespace. Copies nothing if no label and no exemption changes it.
    pub fn effective(&self, query: &PolicyQuery<'_>) -> Cow<'_, Policy> {
        let none = BTreeMap::new();
        let labels = query.labels.unwrap_or(&none);
        let stored = self.selecting(labels).unwrap_or(&self.fallback);
        let mut policy = Cow::Borrowed(&stored.policy);
        if namespace_labels::is_out(labels) {
            policy.to_mut().disable();
            return policy;
        }
        namespace_labels::apply(&mut policy, labels, stored.overrides);
        if let Some(break_glass) = self.break_glass_in(labels) {
            let most = break_glass.policy.mode.action();
            if most < policy.validation {
                policy.to_mut().validation = most;
            }
        }
        for dated in stored.exemptions.iter().filter(|dated| is_in_force(dated, query)) {
            policy.to_mut().exemptions.push(dated.exemption.clone());
        }
        policy
    }
}

fn is_in_force(dated: &DatedExemption, query: &PolicyQuery<'_>) -> bool {
    let for_whom = dated.usernames.is_empty() && dated.groups.is_empty()
        || dated.usernames.iter().any(|user| user == query.user)
        || dated
            .groups
            .iter()
            .any(|group| query.groups.iter().any(|g| **g == **group));
    let here = dated.namespaces.is_empty() || dated.namespaces.iter().any(|n| matches(n, query.namespace));
    query.today <= dated.expires && for_whom && here
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::super::namespace_labels::{IGNORE_LABEL, MODE_LABEL};
    use super::*;
    use crate::model::cluster::policy::{Action, Mode, PlacementMode};

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn query<'q>(labels: &'q BTreeMap<String, String>, user: &'q str) -> PolicyQuery<'q> {
        PolicyQuery {
            namespace: "web",
            labels: Some(labels),
            user,
            groups: &[],
            today: date(2026, 6, 1),
        }
    }

    fn warn(name: &str, priority: i32) -> StoredPolicy {
        let policy = Policy {
            name: name.into(),
            ..Policy::standalone().in_mode(Mode::Warn)
        };
        StoredPolicy {
            priority,
            ..StoredPolicy::for_all(policy)
        }
    }

    #[test]
    fn the_policy_of_highest_priority_that_selects_the_namespace_counts() {
        let team = StoredPolicy {
            namespace_selector: LabelSelector {
                match_labels: labels(&[("team", "a")]),
                ..LabelSelector::default()
            },
            ..warn("team", 10)
        };
        let set = PolicySet::new(vec![warn("b", 0), warn("a", 0), team], Policy::cluster_default());
        assert_eq!(set.effective(&query(&labels(&[("team", "a")]), "")).name, "team");
        assert_eq!(set.effective(&query(&labels(&[]), "")).name, "a");
        let none = PolicySet::new(vec![], Policy::cluster_default());
        assert_eq!(none.effective(&query(&labels(&[]), "")).validation, Action::Audit);
    }

    #[test]
    fn labels_only_make_a_policy_stricter_unless_it_allows_more() {
        let enforce = labels(&[(MODE_LABEL, "Enforce")]);
        let audit = labels(&[(MODE_LABEL, "Audit")]);
        let mut stored = warn("p", 0);
        let stricter = PolicySet::new(vec![stored.clone()], Policy::cluster_default());
        assert_eq!(stricter.effective(&query(&enforce, "")).validation, Action::Deny);
        assert_eq!(stricter.effective(&query(&audit, "")).validation, Action::Warn);
        stored.overrides = NamespaceOverrides::Any;
        let any = PolicySet::new(vec![stored.clone()], Policy::cluster_default());
        assert_eq!(any.effective(&query(&audit, "")).validation, Action::Audit);
        assert_eq!(any.effective(&query(&audit, "")).placement, PlacementMode::Audit);
        stored.overrides = NamespaceOverrides::None;
        let fixed = PolicySet::new(vec![stored], Policy::cluster_default());
        assert_eq!(fixed.effective(&query(&enforce, "")).validation, Action::Warn);
    }

    #[test]
    fn break_glass_limits_what_findings_do_and_changes_nothing_else() {
        let glass = |mode: Mode, team: Option<&str>| {
            let policy = Policy {
                name: BREAK_GLASS.into(),
                ..Policy::standalone().in_mode(mode)
            };
            let mut stored = StoredPolicy::for_all(policy);
            let match_labels = team.map_or_else(BTreeMap::new, |team| labels(&[("team", team)]));
            stored.namespace_selector.match_labels = match_labels;
            stored
        };
        let own = |mode: Mode| {
            let mut stored = warn("own", 1);
            stored.policy.set_mode(mode);
            stored.policy.default_os = Some(crate::model::windows::os::Os::Windows);
            stored.policy.taints = Vec::new();
            stored
        };
        let enforced = labels(&[(MODE_LABEL, "Enforce"), ("team", "a")]);
        for (mode, glass_mode, expected) in [
            (Mode::Enforce, Mode::Warn, Action::Warn),
            (Mode::Enforce, Mode::Audit, Action::Audit),
            // A label asks for denials.
            (Mode::Audit, Mode::Warn, Action::Warn),
        ] {
            let before = PolicySet::new(vec![own(mode)], Policy::cluster_default());
            let set = PolicySet::new(
                vec![glass(glass_mode, None), own(mode)],
                Policy::cluster_default(),
            );
            let limited = set.effective(&query(&enforced, "")).into_owned();
            assert_eq!(limited.validation, expected);
            let expected = Policy {
                validation: limited.validation,
                ..before.effective(&query(&enforced, "")).into_owned()
            };
            assert_eq!(
                limited, expected,
                "placement, evidence and exemptions are those of the policy"
            );
            assert_eq!(set.stored().len(), 1);
        }
        // It never makes a policy stricter, and only limits the namespaces that it selects.
        let audit = PolicySet::new(
            vec![glass(Mode::Warn, None), own(Mode::Audit)],
            Policy::cluster_default(),
        );
        assert_eq!(
            audit.effective(&query(&labels(&[]), "")).validation,
            Action::Audit
        );
        let elsewhere = PolicySet::new(
            vec![glass(Mode::Warn, Some("b")), own(Mode::Enforce)],
            Policy::cluster_default(),
        );
        assert_eq!(
            elsewhere.effective(&query(&enforced, "")).validation,
            Action::Deny
        );
        assert!(elsewhere.break_glass_in(&labels(&[("team", "b")])).is_some());
        let none = PolicySet::new(vec![glass(Mode::Warn, None)], Policy::standalone());
        assert_eq!(none.effective(&query(&labels(&[]), "")).validation, Action::Warn);
    }

    #[test]
    fn an_ignored_namespace_is_left_alone_whatever_the_policy_allows() {
        let set = PolicySet::new(vec![], Policy::standalone());
        let out = labels(&[(IGNORE_LABEL, "true"), (MODE_LABEL, "Enforce")]);
        let effective = set.effective(&query(&out, ""));
        assert_eq!(
            (effective.validation, effective.placement),
            (Action::Disabled, PlacementMode::Disabled)
        );
        assert_eq!(
            set.effective(&query(&labels(&[(IGNORE_LABEL, "false")]), ""))
                .validation,
            Action::Deny
        );
    }

    #[test]
    fn a_label_that_a_policy_selects_by_is_not_one_that_does_nothing() {
        let tier = labels(&[("transom.dev/tier", "gold")]);
        let set = PolicySet::new(vec![], Policy::standalone());
        assert_eq!(set.ignored_labels(&tier).len(), 1);
        let stored = StoredPolicy {
            namespace_selector: LabelSelector {
                match_labels: labels(&[("transom.dev/tier", "silver")]),
                ..LabelSelector::default()
            },
            ..warn("p", 0)
        };
        let set = PolicySet::new(vec![stored], Policy::standalone());
        assert_eq!(set.ignored_labels(&tier), []);
    }

    #[test]
    fn an_exemption_is_reported_before_its_last_day_and_after() {
        let state = |expires| {
            let exemption = Exemption::default();
            let (usernames, groups, namespaces) = (vec![], vec![], vec![]);
            let dated = DatedExemption {
                exemption,
                usernames,
                groups,
                namespaces,
                expires,
            };
            dated.state(date(2026, 6, 1)).as_str()
        };
        for (expires, expected) in [
            (date(2026, 5, 31), "expired"),
            (date(2026, 6, 1), "expiring"),
            (date(2026, 6, 15), "expiring"),
            (date(2026, 6, 16), "active"),
            (Date::MAX, "active"),
        ] {
            assert_eq!(state(expires), expected, "{expires}");
        }
    }

    #[test]
    fn an_exemption_counts_for_its_users_until_its_last_day() {
        let exemption = DatedExemption {
            exemption: Exemption {
                note: "n".into(),
                ..Exemption::default()
            },
            usernames: vec!["alice".into()],
            groups: vec![],
            namespaces: vec!["w*".into()],
            expires: date(2026, 6, 1),
        };
        let stored = StoredPolicy {
            exemptions: vec![exemption],
            ..warn("p", 0)
        };
        let set = PolicySet::new(vec![stored], Policy::standalone());
        let none = labels(&[]);
        assert_eq!(set.effective(&query(&none, "alice")).exemptions.len(), 1);
        assert!(set.effective(&query(&none, "bob")).exemptions.is_empty());
        let late = PolicyQuery {
            today: date(2026, 6, 2),
            ..query(&none, "alice")
        };
        assert!(set.effective(&late).exemptions.is_empty());
        let elsewhere = PolicyQuery {
            namespace: "db",
            ..query(&none, "alice")
        };
        assert!(set.effective(&elsewhere).exemptions.is_empty());
    }
}
