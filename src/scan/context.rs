//! The inputs of a scan's evaluation: facts, policies, and which objects the API server sends for review.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::cluster::custom_lists;
use crate::cluster::snapshot::Snapshot;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{IgnoredFields, Mode, Policy};
use crate::model::objects::workload::Kind;
use crate::registration::configurations::Configurations;
use crate::registration::{NotReviewed, not_reviewed};

/// Policy settings that replace the stored ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyOverrides {
    /// Replaces `mode` in every policy.
    pub mode: Option<Mode>,
    /// Replaces `validation.ignoredFields` in every policy.
    pub ignored_fields: Option<IgnoredFields>,
}

impl PolicyOverrides {
    /// Whether no setting is replaced.
    pub fn is_empty(&self) -> bool {
        *self == PolicyOverrides::default()
    }

    fn apply(self, policy: &mut Policy) {
        policy.explicit.ignored_fields = self.ignored_fields.or(policy.explicit.ignored_fields);
        policy.set_mode(self.mode.unwrap_or(policy.mode));
    }
}

/// The inputs that stored objects are evaluated against.
#[derive(Clone, Debug)]
pub struct EvalContext<'w> {
    /// The facts of the cluster and the date.
    pub facts: &'w Facts,
    /// The policies. Borrowed, because an `EvalContext` is built for every change that a watch reports.
    pub policies: Cow<'w, PolicySet>,
    /// The namespaces that the webhooks exclude by name, in addition to those that they always exclude.
    pub excluded: &'w [String],
    /// The stored webhook configurations; `None` assumes the ones that Transom registers.
    pub registered: Option<&'w Configurations>,
    /// The custom resources that are listed too: what their controllers make is reported on them.
    pub custom: &'w [(Kind, String)],
}

impl<'w> EvalContext<'w> {
    /// The context of a snapshot. If the snapshot has no webhook configurations, assumes the ones that
    /// Transom registers.
    pub fn of(snapshot: &'w Snapshot) -> Self {
        EvalContext {
            facts: &snapshot.facts,
            policies: Cow::Borrowed(&snapshot.policies),
            excluded: &snapshot.excluded,
            registered: snapshot.registered.as_deref(),
            custom: &[],
        }
    }

    /// The same context for a cluster in which these custom resources are listed, with the paths of their lists.
    #[must_use]
    pub fn listing(self, custom: &'w [(Kind, String)]) -> Self {
        EvalContext { custom, ..self }
    }

    /// The same context with other facts.
    pub fn with_facts<'f>(&'f self, facts: &'f Facts) -> EvalContext<'f> {
        EvalContext {
            facts,
            policies: Cow::Borrowed(&self.policies),
            excluded: self.excluded,
            registered: self.registered,
            custom: self.custom,
        }
    }

    /// Whether objects of a kind are evaluated themselves, so that what its controller makes need not be.
    pub fn evaluates(&self, kind: Kind) -> bool {
        custom_lists::reads(self.custom, kind)
    }

    /// The same context with settings of the policies replaced.
    #[must_use]
    pub fn with(mut self, overrides: &PolicyOverrides) -> Self {
        if !overrides.is_empty() {
            self.policies = Cow::Owned(self.policies.with(|policy| overrides.apply(policy)));
        }
        self
    }

    /// The policy that applies in a namespace if the requester is unknown.
    pub fn policy_in(&self, namespace: &str) -> Cow<'_, Policy> {
        self.policies.in_namespace(namespace, self.facts)
    }

    /// Why the API server does not send the objects of a namespace for review; `None` if it does.
    pub fn not_reviewed(&self, namespace: &str) -> Option<NotReviewed> {
        let none = BTreeMap::new();
        let known = self.facts.namespaces.get(namespace);
        let labels = known.map_or(&none, |known| &known.labels);
        not_reviewed(namespace, labels, self.excluded, self.registered)
    }
}
