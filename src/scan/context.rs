//! What stored objects are judged by: facts, policies, and what the API server asks about at all.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::cluster::snapshot::Snapshot;
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::model::facts::Facts;
use crate::model::policy::{IgnoredFields, Mode, Policy};
use crate::registration::configurations::Configurations;
use crate::registration::{is_left_out, is_left_out_by_name, left_out_by};

/// Words of a policy that are to count instead of those that are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyOverrides {
    /// `mode` of every policy.
    pub mode: Option<Mode>,
    /// `validation.ignoredFields` of every policy.
    pub ignored_fields: Option<IgnoredFields>,
}

impl PolicyOverrides {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == PolicyOverrides::default()
    }

    fn apply(self, policy: &mut Policy) {
        policy.explicit.ignored_fields = self.ignored_fields.or(policy.explicit.ignored_fields);
        policy.set_mode(self.mode.unwrap_or(policy.mode));
    }
}

/// What stored objects are judged by.
#[derive(Clone, Debug)]
pub struct EvalContext<'w> {
    /// What is known of the cluster and the day.
    pub facts: &'w Facts,
    /// The policies: borrowed, for one is made with every change that a watch tells.
    pub policies: Cow<'w, PolicySet>,
    /// The namespaces that the webhooks leave out by name, besides those that they always do.
    pub excluded: &'w [String],
    /// What stands in the webhook configurations; `None` where it is to be taken for what Transom registers.
    pub registered: Option<&'w Configurations>,
}

/// Why the API server does not ask about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReviewed {
    /// Its namespace is left out by name.
    ByName,
    /// A label takes its namespace out.
    ByLabel(&'static str),
    /// No webhook is registered for its namespace.
    NotRegistered,
}

impl NotReviewed {
    /// In words, after "admission is not asked:".
    pub fn words(&self, namespace: &str) -> String {
        match self {
            NotReviewed::ByName => format!("the namespace {namespace} is left out by name"),
            NotReviewed::ByLabel(label) => format!("the label {label} takes the namespace {namespace} out"),
            NotReviewed::NotRegistered => {
                format!("no webhook of Transom is registered for the namespace {namespace}")
            }
        }
    }
}

impl<'w> EvalContext<'w> {
    /// What a snapshot knows. Where it does not know what is registered, it is taken for what Transom registers.
    pub fn of(snapshot: &'w Snapshot) -> Self {
        EvalContext {
            facts: &snapshot.facts,
            policies: Cow::Borrowed(&snapshot.policies),
            excluded: &snapshot.excluded,
            registered: snapshot.registered.as_deref(),
        }
    }

    /// The same with other words in the policies.
    #[must_use]
    pub fn with(mut self, overrides: &PolicyOverrides) -> Self {
        if !overrides.is_empty() {
            self.policies = Cow::Owned(self.policies.with(|policy| overrides.apply(policy)));
        }
        self
    }

    /// The policy that counts in a namespace, for a requester of whom nothing is known.
    pub fn policy_in(&self, namespace: &str) -> Cow<'_, Policy> {
        let known = self.facts.namespaces.get(namespace);
        self.policies.effective(&PolicyQuery {
            namespace,
            labels: known.map(|known| &known.labels),
            user: "",
            groups: &[],
            today: self.facts.today,
        })
    }

    /// The namespaces without a policy, by name: the API server asks about them, and no stored policy selects them. None
    /// where no policy is stored at all.
    pub fn namespaces_without_policy(&self) -> Vec<String> {
        if self.policies.stored().is_empty() {
            return Vec::new();
        }
        let namespaces = self.facts.namespaces.iter();
        let without = namespaces.filter(|(name, known)| {
            self.policies.selecting(&known.labels).is_none() && self.not_asked(name).is_none()
        });
        let mut names: Vec<String> = without.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Why the API server does not ask about objects of a namespace; `None` where it asks.
    pub fn not_asked(&self, namespace: &str) -> Option<NotReviewed> {
        let none = BTreeMap::new();
        let known = self.facts.namespaces.get(namespace);
        let labels = known.map_or(&none, |known| &known.labels);
        if is_left_out_by_name(namespace, self.excluded) {
            return Some(NotReviewed::ByName);
        }
        if is_left_out(namespace, labels, self.excluded) {
            return left_out_by(labels).next().map(NotReviewed::ByLabel);
        }
        let calls = self
            .registered
            .is_none_or(|registered| registered.calls_in(labels));
        (!calls).then_some(NotReviewed::NotRegistered)
    }
}
